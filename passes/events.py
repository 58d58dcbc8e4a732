"""Events: what a rewrite did, and who listens.

A rewrite is one event: the operations that go, the values used instead of theirs, the operations
that were made for it, and the name of the rule. Listeners of a context receive each event before
the old operations are erased. The default one, `Provenance`, lets new operations stand for the
model's nodes of the old ones, so that rules need not care, and keeps the reason for nodes of which
nothing is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import NamedTuple, TypeAlias

from xdsl.ir import Operation, SSAValue
from xdsl.traits import Pure

from dialects.graph.constant import ConstantOp
from dialects.records import dataclass
from dialects.text.syntax import location_names, merge_locations

_SHARED = "known when compiling: a constant that other nodes share"
UNUSED = "unused"
"""The rule that erases operations without effect and without users."""


class Rewrite(NamedTuple):
    """One rewrite.

    `old`: the operation that goes, then those that lose their last user with it. `values`: what is
    used instead of the results of the first one; none if it is only erased. `new`: the operations
    that stand for the old ones from now on; none if the values were there before.
    """

    rule: str
    old: Sequence[Operation]
    values: Sequence[SSAValue] = ()
    new: Sequence[Operation] = ()


Listener: TypeAlias = "Callable[[Rewrite], None]"


def keep_locations(event: Rewrite) -> None:
    """Let the new operations of a rewrite stand for the nodes of the old ones."""
    old = [op for op in event.old if not _is_of_others(op, event)]
    for op in event.new:
        merge_locations(op, old)


def _is_of_others(op: Operation, event: Rewrite) -> bool:
    """Whether an operation that loses its last user is a constant that several nodes share, not
    all of which the rewrite is about: the zeros of all Relus are one, and the last one to read it
    computes none of the others."""
    if op is event.old[0] or not isinstance(op, ConstantOp):
        return False
    names = location_names(op)
    return len(names) > 1 and not set(names) <= set(location_names(event.old[0]))


@dataclass
class Provenance:
    """The default listener. `gone`: why a node has no operations, for nodes that lost some.

    A node may be in `gone` and still have operations, if the reason holds for a part of it only.
    """

    gone: dict[str, str] = field(default_factory=dict[str, str])

    def __call__(self, event: Rewrite) -> None:
        if event.new:
            keep_locations(event)
            self.gone.update((n, _SHARED) for op in event.old if _is_of_others(op, event)
                             for n in location_names(op))
        else:
            reason = _reason(event)
            self.gone.update((n, reason) for op in event.old for n in location_names(op)
                             if event.rule != UNUSED or self.gone.get(n) != _SHARED)


def _reason(event: Rewrite) -> str:
    """Why operations go without new ones in their place."""
    if not event.values:
        return "nothing that is left reads its result"
    return f"alias of {' and '.join(dict.fromkeys(map(_source, event.values)))}"


def _source(value: SSAValue) -> str:
    """Where a value comes from, for messages: nodes, or the name of an argument."""
    names = location_names(value.owner) if isinstance(value.owner, Operation) else ()
    return f"'{names[0]}'" if names else f"the argument '{value.name_hint or 'without a name'}'"


def left_unused(op: Operation) -> list[Operation]:
    """An operation that goes, then the pure operations whose last user it is, or one of these."""
    found, own = [op], {op}
    for gone in found:
        for value in gone.operands:
            maker = value.owner
            if isinstance(maker, Operation) and maker not in own and _only_feeds(maker, own):
                own.add(maker)
                found.append(maker)
    return found


def _only_feeds(maker: Operation, readers: set[Operation]) -> bool:
    return maker.has_trait(Pure) and all(
        use.operation in readers for r in maker.results for use in r.uses)
