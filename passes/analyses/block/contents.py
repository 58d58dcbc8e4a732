"""Ranges of the elements of buffers, which bound the indices that are loaded from them.

    host.launch @clamp(%ids, %places)      stores min(max(i, 0), n - 1)
    host.launch @gather(%x, %places, %y)   reads %places: 0 to max(n - 1, 0)

An element was written by one of the launches and copies that write its memory; `loop-prove-writes`
proves that it is written before it is read. Memory that is only written at positions that data
determine may hold anything, and so may inputs and the results of called functions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import field

import numpy as np
from xdsl.ir import BlockArgument, Operation, SSAValue

from dialects.block import KernelOp, StoreOp
from dialects.block.accesses import Access, Scope, accesses_of
from dialects.host import (
    CollectiveOp,
    ConstantOp,
    CopyOp,
    ForeignLaunchOp,
    FuncOp,
    LaunchOp,
    ViewOp,
)
from dialects.records import dataclass
from dialects.strata.types import BufferType
from dialects.strata.weights import WeightStore
from dialects.symbolic.expr import Expr
from dialects.symbolic.inequalities import Span
from dialects.symbolic.symbol import Symbol
from passes.analyses.block.scalar_ranges import ANYTHING, joined
from passes.analyses.block.value_ranges import Contents as InKernel
from passes.analyses.block.value_ranges import Values


@dataclass(frozen=True)
class Kernel:
    """A kernel and all of its memory accesses."""

    op: KernelOp
    accesses: tuple[Access, ...]
    scope: Scope

    @staticmethod
    def of(op: KernelOp) -> Kernel:
        scope = Scope.of(op)
        return Kernel(op, tuple(accesses_of(op, scope)), scope)

    def sizes(self, launch: LaunchOp) -> dict[Symbol, Expr]:
        """The values that a launch gives to the kernel's sizes."""
        return dict(zip(self.op.size_names, launch.sizes.data, strict=True))


@dataclass
class Contents:
    """The ranges of the elements of a function's buffers, in terms of the function's sizes."""

    function: FuncOp
    kernels: Mapping[str, Kernel]
    weights: WeightStore
    found: dict[SSAValue, Span] = field(default_factory=dict[SSAValue, Span])
    columns: dict[tuple[SSAValue, int], Span] = field(
        default_factory=dict[tuple[SSAValue, int], Span])
    """The ranges of constants at one index of their last dim."""
    values: dict[LaunchOp, Values] = field(default_factory=dict[LaunchOp, Values])

    def __post_init__(self) -> None:
        self.writers: dict[SSAValue, list[Operation]] = defaultdict(list)
        for op in self.function.body.block.ops:
            if isinstance(op, CopyOp | CollectiveOp):
                self.writers[_memory(op.target)].append(op)
            elif isinstance(op, LaunchOp | ForeignLaunchOp):
                for buffer in dict.fromkeys(map(_memory, op.buffers)):
                    self.writers[buffer].append(op)

    def of(self, buffer: SSAValue, last: int | None = None) -> Span:
        """The range of a buffer's elements; anything for a buffer that depends on itself.

        `last`: only of those at this index of the last dim, which tables of records differ along.
        """
        memory = _memory(buffer)
        if last is not None and isinstance(memory.owner, ConstantOp) and _has_rows_of(
                memory, buffer):
            return self._column(memory.owner, last)
        if memory not in self.found:
            self.found[memory] = ANYTHING
            self.found[memory] = self._of(memory)
        return self.found[memory]

    def _column(self, op: ConstantOp, last: int) -> Span:
        key = op.results[0], last
        if key not in self.columns:
            self.columns[key] = _numbers(op, self.weights, last)
        return self.columns[key]

    def _of(self, memory: SSAValue) -> Span:
        if isinstance(memory.owner, ConstantOp):
            return _numbers(memory.owner, self.weights)
        assert isinstance(memory.type, BufferType)
        is_input = isinstance(memory, BlockArgument) and memory in self.function.input_arguments
        if is_input or memory.type.dtype.kind not in "iu":
            return ANYTHING
        written = [s for op in self.writers[memory] for s in self._written(op, memory)]
        return joined([s for s in written if s is not None])

    def _written(self, op: Operation, memory: SSAValue) -> list[Span | None]:
        """The ranges that an operation writes to memory; None where data determine the position."""
        if isinstance(op, CopyOp):
            return [self.of(op.source)]
        if isinstance(op, CollectiveOp | ForeignLaunchOp):  # which may write anything
            return [ANYTHING]
        assert isinstance(op, LaunchOp)
        kernel = self.kernels[op.kernel.data]
        sizes = kernel.sizes(op)
        found: list[Span | None] = []
        for own, buffer in zip(kernel.op.buffers, op.buffers, strict=True):
            if _memory(buffer) is memory and any(
                    isinstance(use.operation, StoreOp) for use in own.uses):
                found.append(_mapped(self.values_of(op).stored(own), sizes))
        return found

    def values_of(self, launch: LaunchOp) -> Values:
        """The ranges of the values of a launched kernel, in terms of the kernel's sizes."""
        if launch not in self.values:
            kernel = self.kernels[launch.kernel.data]
            self.values[launch] = Values(kernel.scope, self._contents_in(launch, kernel))
        return self.values[launch]

    def _contents_in(self, launch: LaunchOp, kernel: Kernel) -> InKernel:
        names = {e.as_symbol: Expr.symbol(s) for s, e in kernel.sizes(launch).items()
                 if e.as_symbol is not None}

        def contents(argument: BlockArgument, last: int | None) -> Span:
            held = self.of(launch.buffers[argument.index], last)
            used = {s for e in held if e is not None for s in e.symbols}
            return _mapped(held, names) or ANYTHING if used <= names.keys() else ANYTHING

        return contents


def _memory(buffer: SSAValue) -> SSAValue:
    while isinstance(buffer.owner, ViewOp):
        buffer = buffer.owner.source
    return buffer


def _has_rows_of(memory: SSAValue, view: SSAValue) -> bool:
    """Whether the last dim of a view is that of the memory, which is also its fastest."""
    assert isinstance(memory.type, BufferType) and isinstance(view.type, BufferType)
    return memory.type.rank > 0 and memory.type.shape[-1:] == view.type.shape[-1:]


def _mapped(span: Span | None, names: Mapping[Symbol, Expr]) -> Span | None:
    return span and Span(*(None if e is None else e.substitute(names) for e in span))


def _numbers(op: ConstantOp, weights: WeightStore, last: int | None = None) -> Span:
    """The range of a constant's elements, or of those at one index of the last dim."""
    if op.type.dtype.kind not in "iu":
        return ANYTHING
    array = np.asarray(op.array(weights))
    array = array if last is None else array[..., last:last + 1]
    if not array.size or int(array.max()) > np.iinfo(f"i{array.itemsize}").max:
        return ANYTHING  # kernels read integers as signed
    return Span(Expr.of(int(array.min())), Expr.of(int(array.max())))
