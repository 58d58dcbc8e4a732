"""Choices between ways to compile a node, where only the sizes of a call can tell which one fits.

    Squeeze(x: [n, 4])             n != 1: nothing goes;  n == 1: the dim goes, and with it a rank
    Add(x: [n, 4], c: [3, 4])      n == 3: an addition;   n == 1: x is repeated (`stretching.py`)

The first outcome is chosen unless `decided` names another one. The choice becomes a `strata.assume`
that names the other outcomes, so that a call with other sizes is recognized, and the model is
compiled again for it (`compiler/variants.py`). A choice belongs to a site, the node and a number,
which is the same in each import. If a run has met several outcomes at a site, so that no single one
fits, the node must be built for all of them.

A model may be valid for other outcomes than the first ones only: what follows a Squeeze may need
the rank that it leaves where n is 1. So if a model cannot be imported, other outcomes of choices
that no run has decided are tried, fewest first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Protocol, TypeVar

from xdsl.ir import Operation

from compiler.diagnostics import StrataError
from compiler.frontend.frames import Frame
from compiler.frontend.values import Builds, Value
from dialects.records import dataclass
from dialects.strata.assumptions import Choice, Outcome
from dialects.strata.sizes import AssumeOp
from dialects.strata.types import Array
from dialects.symbolic.expr import Expr, Size

MOST_TRIED = 16
"""How many combinations of outcomes are tried for a model that cannot be imported otherwise."""
Made = TypeVar("Made")


@dataclass
class Choices:
    """The choices of one import. `decided`: the outcomes that runs have met, by site."""

    decided: Mapping[str, Sequence[str]] = field(default_factory=dict[str, "Sequence[str]"])
    count: Counter[str] = field(default_factory=Counter[str])
    """The number of sites so far, by node."""
    free: dict[str, Sequence[str]] = field(default_factory=dict[str, "Sequence[str]"])
    """The outcomes that were not chosen, of sites that are not decided."""

    def site(self, node: str) -> str:
        """The next site of a node."""
        self.count[node] += 1
        return f"{node}:{self.count[node] - 1}"


def first_possible(
    make: Callable[[Choices], Made], decided: Mapping[str, Sequence[str]]
) -> Made:
    """What `make` returns for the first outcomes under which it raises no StrataError.

    Raises the error under the outcomes that it chose itself if there are none.
    """
    tried: list[Mapping[str, Sequence[str]]] = [decided]
    errors: list[StrataError] = []
    while len(errors) < min(len(tried), MOST_TRIED):
        choices = Choices(tried[len(errors)])
        try:
            return make(choices)
        except StrataError as error:
            errors.append(error)
        others = ({**choices.decided, site: (name,)}
                  for site, names in choices.free.items() for name in names)
        tried += [other for other in others if other not in tried]
    raise errors[0]


class Chooses(Builds, Protocol):
    """The part of `compiler.frontend.builder.Builder` that choices need."""

    choices: Choices
    frame: Frame

    def add(self, op: Operation, node: str | None = None) -> list[Value]: ...

    def bind(self, value: Value, hint: str) -> Array | None: ...

    def assume(self, left: Size, relation: str, right: Size) -> None: ...


def equal(left: Size, right: Size, name: str = "equal") -> Outcome:
    """The outcome for two equal sizes."""
    return Outcome(name, Expr.of(left), "==", Expr.of(right))


def unequal(left: Size, right: Size, name: str = "unequal") -> Outcome:
    """The outcome for two different sizes: the square of their difference is at least 1."""
    difference = Expr.of(left) - Expr.of(right)
    return Outcome(name, Expr.of(1), "<=", difference * difference)


def choose(build: Chooses, outcomes: Sequence[Outcome]) -> str:
    """The name of the outcome that the code is built for; empty if it must be built for all.

    Without other outcomes, the only one is what the model needs. In a function, a choice between
    the same outcomes is made once.
    """
    known = build.frame.chosen(tuple(outcomes))
    if known is not None:
        return known
    site = build.choices.site(build.node)
    met = build.choices.decided.get(site, ())
    wanted = [o for o in outcomes if o.name in met] or list(outcomes[:1])
    build.frame.choices[tuple(outcomes)] = name = wanted[0].name if len(wanted) == 1 else ""
    if name:
        others = tuple(o for o in outcomes if o.name != name)
        if others and not met:
            build.choices.free[site] = [o.name for o in others]
        build.add(AssumeOp.of(*wanted[0][1:], Choice(site, name, others) if others else None))
    return name
