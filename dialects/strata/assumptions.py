"""The assumptions about sizes that compiled code relies on, and the errors for violations.

In the IR, `strata.assume` and `strata.size` express them. This module holds the same information
as plain data, so that a compiled model runs without any IR. It does not import xDSL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dialects.strata.array_type import read_size, size_facts
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Kind, Symbol

if TYPE_CHECKING:
    from dialects.strata.types import Array

MAX_SIZE = 2**48
"""The upper limit of sizes computed at run time. Nothing larger fits into any memory."""

LARGEST_NUMBER = 2**62
"""The upper limit of any number that code computes from sizes, so that it fits into 64 bits."""


class SizeError(ValueError):
    """Run-time sizes break an assumption under which the model was compiled."""


class ChoiceError(SizeError):
    """Run-time sizes need other code than the compiler has chosen.

    `reason`: the message without the hint. `site`: the place of the choice in the model. `outcome`:
    the one that these sizes need.
    """

    def __init__(self, reason: str, hint: str, site: str, outcome: Outcome):
        super().__init__(f"{reason}: {hint}" if hint else reason)
        self.reason, self.site, self.outcome = reason, site, outcome


class DataError(Exception):
    """Run-time data are not what an operator needs."""


class IndexRangeError(DataError, IndexError):
    """An index taken from run-time data is out of range."""


class DivisionByZeroError(DataError, RuntimeError):
    """An integer is divided by zero. PyTorch raises RuntimeError, too."""


class AccessError(RuntimeError):
    """A memory access was out of bounds, which must never happen in compiled code."""


def _number(expr: Expr, sizes: Mapping[Symbol, int]) -> int | None:
    """The value for these sizes; None where it divides by 0."""
    try:
        return int(expr.evaluate(sizes))
    except ZeroDivisionError:
        return None


def _holds(left: Expr, relation: str, right: Expr, sizes: Mapping[Symbol, int]) -> bool:
    """Whether both sides have values, and these are in the relation."""
    a, b = _number(left, sizes), _number(right, sizes)
    return a is not None and b is not None and (a == b or (a < b and relation == "<="))


class Outcome(NamedTuple):
    """One way to compile a node, by name, and the sizes that it fits: `left <= right` or `left ==
    right`.
    """

    name: str
    left: Expr
    relation: str
    right: Expr

    def holds(self, sizes: Mapping[Symbol, int]) -> bool:
        """Whether it fits these sizes."""
        return _holds(self.left, self.relation, self.right, sizes)

    @property
    def fixed(self) -> tuple[Symbol, int] | None:
        """(size, value) if it fits exactly one value of a single size."""
        symbol, value = self.left.as_symbol, self.right.constant
        return (symbol, value) if self.relation == "==" and symbol and value is not None else None

    def facts(self) -> list[Any]:
        """All fields in a form that JSON can represent."""
        return [self.name, size_facts(self.left), self.relation, size_facts(self.right)]

    @staticmethod
    def read(facts: Sequence[Any]) -> Outcome:
        """The inverse of `facts`."""
        name, left, relation, right = facts
        return Outcome(str(name), read_size(left), str(relation), read_size(right))


class Choice(NamedTuple):
    """A choice of the compiler between ways to compile a node, which fit different sizes.

    `site`: the place in the model, the same in each compilation. `chosen`: the name of the outcome
    that the code is for. `others`: the outcomes for other sizes, which need other code.
    """

    site: str
    chosen: str
    others: tuple[Outcome, ...]

    def facts(self) -> list[Any]:
        """All fields in a form that JSON can represent."""
        return [self.site, self.chosen, [o.facts() for o in self.others]]

    @staticmethod
    def read(facts: Sequence[Any] | None) -> Choice | None:
        """The inverse of `facts`."""
        if facts is None:
            return None
        site, chosen, others = facts
        return Choice(str(site), str(chosen), tuple(map(Outcome.read, others)))


class Assumption(NamedTuple):
    """`left <= right` or `left == right`; `node` names the model node that requires it.

    `choice`: if the model itself does not require it, what the compiler chose.
    """

    left: Expr
    relation: str
    right: Expr
    node: str
    choice: Choice | None = None

    @property
    def symbols(self) -> frozenset[Symbol]:
        """The sizes that it mentions."""
        others = () if self.choice is None else self.choice.others
        return self.left.symbols.union(self.right.symbols, *(
            e.symbols for o in others for e in (o.left, o.right)))

    @property
    def is_limit(self) -> bool:
        """Whether it bounds a number computed from sizes so that it fits into 64 bits."""
        return self.relation == "<=" and self.right.constant == LARGEST_NUMBER

    def holds(self, sizes: Mapping[Symbol, int]) -> bool:
        """Whether the sizes satisfy it."""
        return _holds(self.left, self.relation, self.right, sizes)

    def check(self, sizes: Mapping[Symbol, int]) -> None:
        """Raises SizeError, naming the node, if the sizes violate the assumption."""
        if self.holds(sizes):
            return
        left, right = (_number(e, sizes) for e in (self.left, self.right))
        self._check_choice(sizes)
        for symbol in self._excluded(sizes):
            raise SizeError(f"sizes do not fit each other at node {self.node!r}: {symbol} must not "
                            f"be {sizes[symbol]}, for which other code is needed; compile the "
                            f"model with this size fixed, for instance with --dim "
                            f"{symbol}={sizes[symbol]}")
        values = ", ".join(f"{s} = {sizes[s]}" for s in sorted(self.symbols))
        if self.is_limit:
            raise SizeError(f"sizes are too large at node {self.node!r}, which computes numbers "
                            f"beyond 64 bits of {values}")
        needed = f"{self.left} {self.relation} {self.right}"
        numbers = (f"is {left} {self.relation} {right}" if None not in (left, right)
                   else "divides by 0")
        raise SizeError(f"sizes do not fit each other at node {self.node!r}: it needs {needed}, "
                        f"which {numbers} with {values}")

    def _check_choice(self, sizes: Mapping[Symbol, int]) -> None:
        """Raises ChoiceError if other code fits the sizes."""
        if self.choice is None:
            return
        for outcome in self.choice.others:
            if outcome.holds(sizes):
                raise ChoiceError(self._other_code(sizes), _hint(outcome, sizes),
                                  self.choice.site, outcome)

    def _other_code(self, sizes: Mapping[Symbol, int]) -> str:
        values = ", ".join(f"{s} = {sizes[s]}" for s in sorted(self.symbols))
        excluded = [f"{symbol} != {sizes[symbol]}" for symbol in self._excluded(sizes)]
        claim = excluded[0] if excluded else f"{self.left} {self.relation} {self.right}"
        return f"node {self.node!r} was compiled for {claim}, and needs other code for {values}"

    def _excluded(self, sizes: Mapping[Symbol, int]) -> list[Symbol]:
        """The size n in `1 <= (n - k)*(n - k)`, which encodes n != k, if its value is k."""
        return [symbol for symbol in self.symbols if self.left.constant == 1 and self.right == (
            Expr.symbol(symbol) - sizes[symbol]) * (Expr.symbol(symbol) - sizes[symbol])]

    def facts(self) -> list[Any]:
        """All fields in a form that JSON can represent."""
        return [size_facts(self.left), self.relation, size_facts(self.right), self.node,
                self.choice and self.choice.facts()]

    @staticmethod
    def read(facts: Sequence[Any]) -> Assumption:
        """The inverse of `facts`."""
        left, relation, right, node, choice = facts
        return Assumption(read_size(left), str(relation), read_size(right), str(node),
                          Choice.read(choice))


def check_with_choices(
    assumption: Assumption, choices: Iterable[Assumption], sizes: Mapping[Symbol, int]
) -> None:
    """Check an assumption, which may follow from one of the choices.

    Raises SizeError: if the sizes break a choice, that of the first such choice.
    """
    try:
        assumption.check(sizes)
    except ChoiceError:
        raise
    except SizeError:
        for other in choices:
            if other.symbols <= sizes.keys():
                other.check(sizes)
        raise


def _hint(outcome: Outcome, sizes: Mapping[Symbol, int]) -> str:
    """The options with which a model is compiled for an outcome; empty if there are none."""
    used = {outcome.fixed[0]} if outcome.fixed else outcome.left.symbols | outcome.right.symbols
    fixed = [f"--dim {s}={sizes[s]}" for s in sorted(used) if s.kind is Kind.SIZE]
    return f"compile the model with {' '.join(fixed)}" if fixed else ""


def choices_first(assumptions: Sequence[Assumption]) -> list[Assumption]:
    """The assumptions in the order in which they are checked: the compiler's choices first, because
    the model's needs may follow from them.
    """
    return sorted(assumptions, key=lambda a: a.choice is None)


class IndexRange(NamedTuple):
    """`low <= index < high` for indices that a node takes from data; see `strata.require`.

    `label`: the name of the indices. `farthest`: what is checked is a single number, that of the
    index that is farthest out. `divisors`: the values tell whether divisors are zero.
    """

    low: Expr
    high: Expr
    node: str
    label: str = ""
    farthest: bool = False
    divisors: bool = False

    def check(self, values: Array, sizes: Mapping[Symbol, int]) -> None:
        """Raises IndexRangeError or DivisionByZeroError for a value out of range. `sizes`: the
        symbols' values."""
        low, high = (int(e.evaluate(sizes)) for e in (self.low, self.high))
        for value in self._suspects(values, low):
            if not low <= value < max(high, low + self.farthest):
                raise self._error(value, low, high)

    def _error(self, value: int, low: int, high: int) -> DataError:
        if self.divisors:
            return DivisionByZeroError(division_refusal(self.node))
        return IndexRangeError(index_refusal(value, low, high, self.node, self.label))

    def _suspects(self, values: Array, low: int) -> list[int]:
        if self.farthest:
            return [farthest_value(int(values.reshape(-1)[0]), low)]
        return [int(values.min()), int(values.max())] if values.size else []

    def facts(self) -> list[Any]:
        """All fields in a form that JSON can represent."""
        return [size_facts(self.low), size_facts(self.high), self.node, self.label, self.farthest,
                self.divisors]

    @staticmethod
    def read(facts: Sequence[Any]) -> IndexRange:
        """The inverse of `facts`."""
        low, high, node, label, farthest, divisors = facts
        return IndexRange(read_size(low), read_size(high), str(node), str(label), bool(farthest),
                          bool(divisors))


def named_sizes(
    names: Sequence[Symbol], values: Sequence[int], node: str
) -> dict[Symbol, int]:
    """The sizes that a node reads from data. Raises SizeError for an invalid size."""
    for value in values:
        if not 0 <= value <= MAX_SIZE:
            raise SizeError(size_refusal(value, node))
    return dict(zip(names, values, strict=True))


def check_fault(number: int, texts: Sequence[str]) -> None:
    """Raises AccessError for a non-zero number, that of the text of a recorded fault."""
    if number:
        raise AccessError(access_refusal(number, texts))


def size_refusal(value: int, node: str) -> str:
    """The error message for a computed value that is not a valid size."""
    return f"a size computed at node {node!r} is {value}; it must be from 0 to {MAX_SIZE}"


def index_refusal(value: int, low: int, high: int, node: str, label: str) -> str:
    """The error message for an index outside [low, high). `label` is the name of the indices."""
    name = f"an index of {label!r}" if label else "an index"
    wanted = f"it must be from {low} to {high - 1}" if low < high else "there is nothing to index"
    return f"{name} is {value} at node {node!r}; {wanted}"


def division_refusal(node: str) -> str:
    """The error message for an integer that is divided by zero."""
    return f"an integer is divided by zero at node {node!r}"


def farthest_value(key: int, low: int) -> int:
    """Recover the value that lies farthest above `low` in unsigned distance.

    `key` is the operand of a `strata.require` with `farthest`: the distance with its sign bit
    inverted.
    """
    distance = key + (1 << 63)
    value = distance + low
    return value - (1 << 64) if value >= 1 << 63 else value


def access_refusal(number: int, texts: Sequence[str]) -> str:
    """The error message for a non-zero number that `strata.trap` found in its fault buffer."""
    known = 0 < number <= len(texts)
    return texts[number - 1] if known else f"a check stored the unknown number {number}"
