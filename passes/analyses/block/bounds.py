"""Which accesses of a kernel certainly stay inside their buffers, and what the others need.

If all sizes are numbers, interval arithmetic decides. Otherwise `dialects.symbolic.inequalities`
proves it from the ranges of programs, loops, tiles and loaded indices, and from what is known about
sizes: no dim of a buffer is negative, and the caller's assumptions hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from xdsl.ir import SSAValue

from dialects.block.accesses import Access, operand, place
from dialects.records import dataclass
from dialects.strata.types import BufferType
from dialects.symbolic.expr import Expr
from dialects.symbolic.facts import is_plain
from dialects.symbolic.inequalities import Prover, Span
from dialects.symbolic.intervals import Interval, interval_of
from dialects.symbolic.symbol import Symbol
from passes.analyses.block.contents import Kernel
from passes.analyses.block.value_ranges import Values


@dataclass
class Numbers:
    """Proofs by interval arithmetic, for accesses that do not depend on unknown sizes."""

    kernel: Kernel
    spans: dict[Symbol, Interval] = field(default_factory=dict[Symbol, Interval])
    values: dict[SSAValue, Interval | None] = field(
        default_factory=dict[SSAValue, "Interval | None"])

    def __post_init__(self) -> None:
        for name, span in self.kernel.scope.symbols.spans.items():
            first, last = (None if e is None else self._between(e) for e in span)
            if first is not None and last is not None:
                self.spans[name] = first[0], last[1]

    def _between(self, expr: Expr) -> Interval | None:
        """The values of an expression; None if one of its symbols has none."""
        return interval_of(expr, self.spans) if expr.symbols <= self.spans.keys() else None

    def prove(self, access: Access) -> bool:
        """Whether constant bounds show that an access stays inside."""
        size = access.size.constant
        if size is None:
            return False
        found = self.span(access)
        return found is not None and found[0] >= 0 and found[1] < size

    def span(self, access: Access) -> Interval | None:
        """The least and the greatest index of an access; None if they are not known."""
        expr = access.expr
        if expr.constant is not None:
            return expr.constant, expr.constant
        known = {operand(k): self._of(access, v) for k, v in enumerate(access.indices)
                 if operand(k) in expr.symbols}
        if None in known.values():
            return None
        places = {place(d): (0, n - 1) for d, n in enumerate(access.shape)}
        return interval_of(expr, {**known, **places})  # type: ignore[dict-item]

    def _of(self, access: Access, value: SSAValue) -> Interval | None:
        if value not in self.values:
            found = access.scope.symbols.known.get((value, ()))
            self.values[value] = None if found is None else self._between(found)
        return self.values[value]


@dataclass
class Judge:
    """Proofs about the accesses of a kernel, for all of its launches or for a single one.

    `sizes` gives the kernel's sizes in terms of the caller's; `facts` are about the caller's sizes.
    """

    values: Values
    sizes: Mapping[Symbol, Expr]
    facts: Sequence[Expr]
    provers: dict[object, Prover] = field(default_factory=dict[object, Prover])
    first: dict[int, Prover] = field(default_factory=dict[int, Prover])
    """Per scope, the first prover; all provers of a scope know the same about sizes."""

    def prove(self, access: Access) -> bool:
        """Whether an access certainly stays inside."""
        low, high = self.goals(access)
        loaded = not access.data.keys().isdisjoint(access.index.symbols)
        is_sum = not loaded and is_plain(low)  # program ids, counters and places are not negative
        prover = self.prover(access)
        return (is_sum or prover.is_known(low) or prover.is_nonnegative(low)) and (
            prover.is_known(high) or prover.is_nonnegative(high))

    def goals(self, access: Access) -> tuple[Expr, Expr]:
        """The expressions, in the caller's sizes, that must not be negative."""
        index, size = access.index, access.size
        if self.sizes:
            index, size = index.substitute(self.sizes), size.substitute(self.sizes)
        return index, size - index - 1

    def prover(self, access: Access) -> Prover:
        """The prover that knows the ranges of an access; accesses with equal ranges share it."""
        loaded = sorted(access.index.symbols & access.data.keys())
        key = id(access.scope), access.shape, *loaded
        if key not in self.provers:
            alike = None if loaded else self.first.get(id(access.scope))
            found = self.provers[key] = Prover(self.ranges(access, loaded), self.facts, alike)
            if not loaded:
                self.first.setdefault(id(access.scope), found)
        return self.provers[key]

    def ranges(self, access: Access, loaded: Sequence[Symbol]) -> dict[Symbol, Span]:
        """The ranges of all symbols of an access, in terms of the caller's sizes."""
        spans = {**access.ranges, **{s: self.values.of(access.data[s]) for s in loaded}}
        if not self.sizes:
            return spans
        return {s: Span(*(e and e.substitute(self.sizes) for e in span))
                for s, span in spans.items()}


def shape_facts(kernel: Kernel, sizes: Mapping[Symbol, Expr]) -> Iterator[Expr]:
    """No dim of a kernel's buffers is negative; the caller ensures that."""
    for buffer in kernel.op.buffers:
        assert isinstance(buffer.type, BufferType)
        for size in buffer.type.shape:
            if size.constant is None and size.as_symbol is None:
                yield size.substitute(sizes)
