"""Which kernels keep every bit in the ring of `verify --ring`: nothing is executed for that.

A kernel does not if one of its nodes went through a rewrite that rounds (`preserved.py`):

    graph-fold-constants         a node that was folded into one number, or reads it, unless the
                                 number stands for what the ring computes there
    graph-quantize-contractions  a node that took part in a rewrite of the pass
    loop-join-online, -recomputed   what the pass joined, unless c*log2(e) needs no rounding

All other rewrites of all passes keep bits, so the other kernels do, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import frexp
from typing import TYPE_CHECKING

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import FloatAttr
from xdsl.ir import Operation

from compiler.diagnostics import StrataError
from compiler.instrument.preserved import blur_of
from compiler.instrument.provenance import Origins
from compiler.instrument.ring import mantissa_of
from dialects.graph.base import GraphOp
from dialects.graph.constant import ConstantOp
from dialects.graph.folded import evaluated
from dialects.loop import KernelOp
from dialects.semantics.residues import LOG2E
from dialects.semantics.ring import Ring, RingError
from dialects.strata.types import LiteralAttr, is_float
from dialects.text.syntax import location_names
from passes.events import UNUSED, Rewrite

if TYPE_CHECKING:
    from compiler.pipeline.state import State
    from compiler.pipeline.steps import Step
    from dialects.strata.types import Array

FOLDING = "graph-fold-constants"


class KeptBits(Origins):
    """Follows a compilation. At its end, `rounded` has the passes that rounded, by kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.rounded: dict[str, list[str]] = {}
        self._passes: dict[str, dict[str, None]] = {}
        """The passes that rounded something of a node, by its name in locations."""
        self._step = ""
        """The pass that runs, if it rounds modules such as this one."""
        self._before: set[str] = set()
        self._ring: Ring | None = None

    @property
    def names(self) -> list[str]:
        """All kernels."""
        return list(dict.fromkeys(k for kernels in self.kernels.values() for k in kernels))

    def start(self, state: State) -> None:
        super().start(state)
        try:
            self._ring = Ring(mantissa_of(state.module))
        except StrataError:  # floats without room for residues
            self._ring = None
        self._state = state
        state.context.observers = (*state.context.observers, self._rewritten)

    def before(self, step: Step, state: State) -> None:
        super().before(step, state)
        blurs = blur_of(step.name, {op.name for op in state.module.walk()}) is not None
        self._step, self._before = step.name if blurs else "", {*_kernels(state)}

    def after(self, step: Step, state: State, seconds: float, changed: bool) -> None:
        if self._step:
            for name, kernel in _kernels(state).items():
                if name not in self._before and not scales_exactly(kernel):
                    self._mark(op for op in kernel.walk())
        self._step = ""

    def finish(self, state: State) -> None:
        super().finish(state)
        for node, kernels in self.kernels.items():
            for kernel in kernels if node in self._passes else ():
                known = self.rounded.setdefault(kernel, [])
                known += [p for p in self._passes[node] if p not in known]

    # ------------------------------------------------------------------ one pass
    def _rewritten(self, event: Rewrite) -> None:
        if not self._step or event.rule == UNUSED or not event.values:
            return
        first = event.old[0]
        if self._step == FOLDING:
            if isinstance(first, GraphOp) and self._rounds(first, event):
                self._mark([first, *(use.operation for r in first.results for use in r.uses),
                            *(use.operation for v in event.values for use in v.uses)])
        else:
            self._mark([*event.old, *event.new])

    def _mark(self, operations: Iterable[Operation]) -> None:
        for name in (n for op in operations for n in location_names(op)):
            self._passes.setdefault(name, {})[self._step] = None

    def _rounds(self, op: GraphOp, event: Rewrite) -> bool:
        """Whether a result is one number that does not stand for what the ring computes."""
        made = [v.owner for v in event.values]
        numbers = [c for c in made if isinstance(c, ConstantOp) and c.type.count.constant == 1
                   and isinstance(c.value, LiteralAttr) and is_float(c.type.element)]
        if not numbers:
            return False
        store, operands = self._state.context.weights, [v.owner for v in op.operands]
        given = [c.contents(store) for c in operands if isinstance(c, ConstantOp)]
        return self._ring is None or len(given) < len(operands) or not all(
            _same(self._ring, want, c.contents(store))
            for want, c in zip(self._meant(op, given), made, strict=True)
            if isinstance(c, ConstantOp))

    def _meant(self, op: GraphOp, given: list[Array]) -> list[Array | None]:
        """What the ring computes; nothing where it has no meaning for the operation."""
        assert self._ring is not None
        try:
            return [*evaluated(op, [self._ring.wrap(np.asarray(a)) for a in given])]
        except (RingError, ValueError, ArithmeticError):
            return [None] * len(op.results)


def _same(ring: Ring, meant: Array | None, number: Array) -> bool:
    return meant is not None and np.array_equal(
        np.asarray(meant).view(np.ndarray), np.asarray(ring.wrap(number)).view(np.ndarray),
        equal_nan=number.dtype.kind == "f")


def _kernels(state: State) -> dict[str, KernelOp]:
    return {op.sym_name.data: op for op in state.module.body.block.ops
            if isinstance(op, KernelOp)}


def scales_exactly(kernel: KernelOp) -> bool:
    """Whether a joined kernel's scores are multiplied by log2(e) and a power of two."""
    return any(frexp(abs(c))[0] == frexp(float(LOG2E))[0] for c in _factors(kernel))


def _factors(kernel: KernelOp) -> Iterator[float]:
    for op in kernel.walk():
        if isinstance(op, arith.ConstantOp) and isinstance(op.value, FloatAttr):
            yield op.value.value.data
