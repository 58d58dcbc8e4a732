"""Values that a joined kernel computes itself instead of loading them: usually masks.

    %r = constant [0, 1, 2, ...]                         ->  nest (i) {index i}
    %c = call @map_0(%r)  nests (i, j) {r[j] <= r[i]}    ->  these nests, in the joined kernel

Comparing indices costs less than loading the mask, and it tells how far rows reach. So a kernel
with a few cheap operations per element is computed where its result is read, even if others read it
as well. It must read little: nothing, counts, far fewer elements than it computes, values that the
joined kernel loads anyway, or no more bytes than it computes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np
from xdsl.dialects import arith
from xdsl.ir import Block, Operation, Region, SSAValue

from dialects.graph import ConstantOp
from dialects.loop import Axis, CallOp, IndexOp, KernelOp, NestOp, YieldOp
from dialects.strata.types import TensorType, bit_width, byte_width, is_float, signless
from dialects.strata.weights import WeightStore
from dialects.symbolic.expr import Expr
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import set_location
from passes.analyses.loop.kinds import is_contraction
from passes.rewrites.loop.nests import (
    digits_of,
    gathered_inputs,
    has_calls,
    index_exprs,
    is_copy,
    plain_axes,
    reads_of,
)

FEWER = 8
"""A computed mask reads at least this many times fewer elements than it has."""
MAX_OPERATIONS = 32
"""Masks that take more operations than this are computed once and loaded."""
OPEN_SIZE = 512
"""The value that is assumed for a size known only at run time, when elements are counted."""

_COSTLY = (arith.DivfOp, arith.DivSIOp, arith.DivUIOp, arith.RemSIOp, arith.RemUIOp)


class Count(NamedTuple):
    """The integers first, first + step ... along a dim."""

    dim: int
    first: int
    step: int


def count_of(value: SSAValue, weights: WeightStore) -> Count | None:
    """The count that a constant holds, if all its dims except one have one element."""
    op, type_ = value.owner, value.type
    if not isinstance(op, ConstantOp) or op.varies or not isinstance(type_, TensorType):
        return None
    shape, element = type_.static_shape, signless(type_.element)
    if shape is None or is_float(element) or (
            bit_width(element) < 32):
        return None
    long = [d for d, size in enumerate(shape) if size != 1]
    if len(long) != 1 or shape[long[0]] < 2:
        return None
    numbers = op.array(weights).reshape(-1).astype(np.int64)
    steps = np.diff(numbers)
    even = bool((steps == steps[0]).all()) and abs(int(numbers[-1])) < 1 << 31
    return Count(long[0], int(numbers[0]), int(steps[0])) if even else None


def count_nest(value: SSAValue, count: Count, name: Symbol) -> NestOp:
    """A nest over an axis with this name that computes the constant."""
    type_ = value.type
    assert isinstance(type_, TensorType) and isinstance(value.owner, Operation)
    place = [Expr.symbol(name) if d == count.dim else Expr.of(0) for d in range(type_.rank)]
    index = IndexOp.of(Expr.symbol(name) * count.step + count.first)
    number = arith.IndexCastOp(index.result, signless(type_.element))
    block = Block()
    block.add_ops([index, number, YieldOp.of(number.result)])
    nest = NestOp.of([Axis(name, type_.shape[count.dim])], [], [], [type_], [place],
                     body=Region(block))
    set_location(nest, value.owner)
    nest.results[0].name_hint = value.name_hint
    return nest


def is_computed(call: CallOp, counted: Collection[SSAValue]) -> bool:
    """Whether recomputing a call's results, in few operations, costs less than loading them.

    `counted` holds the inputs that are computed themselves or loaded anyway.
    """
    read = [v for v in call.inputs if v not in counted]
    return reads_few(call, counted) or sum(map(_bytes, read)) <= sum(map(_bytes, call.results))


def reads_few(call: CallOp, counted: Collection[SSAValue] = ()) -> bool:
    """Whether a call reads far fewer elements than it computes, besides those that are counted."""
    read = [v for v in call.inputs if v not in counted]
    return FEWER * sum(map(_elements, read)) <= sum(map(_elements, call.results))


def is_cheap(kernel: KernelOp) -> bool:
    """Whether a kernel computes each element with few operations of one instruction each."""
    operations = sum(1 for nest in kernel.nests for _ in nest.body.block.ops)
    return operations <= MAX_OPERATIONS and all(map(_is_plain, kernel.nests))


def _is_plain(nest: NestOp) -> bool:
    """Whether a nest computes each element independently, by operations of one instruction each."""
    if not nest.is_elementwise or len(nest.results) != 1 or nest.into:
        return False
    cheap = all(isinstance(op, IndexOp | YieldOp) or (
        op.name.startswith("arith.") and not isinstance(op, _COSTLY))
        for op in nest.body.block.ops)
    names = plain_axes(nest.output_maps[0])
    wide = {a.name for a in nest.axes if a.extent.constant != 1}
    return cheap and names is not None and wide <= {*names} and not _gathered(nest) and all(
        pad is None for pad in nest.pad_values)


def _gathered(nest: NestOp) -> set[int]:
    maps = [*nest.input_maps, *nest.output_maps]
    return gathered_inputs([e for m in maps for e in m] + index_exprs(nest))


def is_repetition(nest: NestOp) -> bool:
    """Whether a nest only copies elements, each to several positions of the result: a broadcast, or
    [i] stored at [4*i + j]."""
    if not is_copy(nest) or nest.pad_values[0] is not None or has_calls(nest.input_maps[0]):
        return False
    digits = [digits_of(e, nest.axes) for e in nest.output_maps[0] if e.symbols]
    stored = [a for found in digits if found is not None for a, _, _ in found]
    wide = {a.name for a in nest.axes if a.extent.constant != 1}
    read = {s for e in nest.input_maps[0] for s in e.symbols}
    return None not in digits and wide <= {*stored} and len(stored) == len({*stored}) and (
        bool(wide - read) and plain_axes(nest.input_maps[0]) is not None)


def may_be_inlined(kernel: KernelOp, argument: SSAValue) -> bool:
    """Whether all nests that read an argument may compute it themselves.

    A contraction may not, because it would compute it for each sum. Neither may a nest that reads
    out of its bounds or uses it as an index.
    """
    return all(not is_contraction(nest) and nest.pad_values[k] is None and k not in _gathered(nest)
               for nest, k in _uses(kernel, argument))


def _uses(kernel: KernelOp, argument: SSAValue) -> Iterator[tuple[NestOp, int]]:
    for nest in kernel.nests:
        yield from ((nest, k) for k, read in enumerate(reads_of(nest)) if read.value is argument)


def _elements(value: SSAValue) -> int:
    assert isinstance(value.type, TensorType)
    count = product(value.type.shape)
    return int(count.evaluate(dict.fromkeys(count.symbols, OPEN_SIZE)))


def _bytes(value: SSAValue) -> int:
    assert isinstance(value.type, TensorType)
    return _elements(value) * byte_width(value.type.element)
