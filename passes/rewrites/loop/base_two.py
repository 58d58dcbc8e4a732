"""Rewrite powers of e as powers of two where a maximum is subtracted first.

    %x = nest (i, j) ins(%s[i, j]) {s * c}               {s * (c * log2(e))}
    %m = nest (i, reduce j) ins(%x[i, j]) outs(max)      ...
    %e = nest (i, j) ins(%x, %m) {exp(x - m)}            {exp2(x - m)}

Hardware only computes powers of two. Where x is a product with a constant, which is the usual case,
the factor log2(e) costs nothing. Other terms that are added to x for masking may be as large as the
type allows, so sums are left as they are, except sums with a constant. A scaled constant is clamped
to the range of its type.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import e, log2

import numpy as np
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import Float32Type, Float64Type, FloatAttr
from xdsl.ir import Attribute, Block, Operation, SSAValue

from dialects.loop import NestOp, scalar_type
from dialects.strata import types as t
from passes.analyses.loop.kinds import is_contraction
from passes.analyses.loop.online import adds_logarithm, argument_read, exponential
from passes.rewrites.loop.nests import drop_unused, elementwise_on

FACTOR = log2(e)


def use_base_two(nest: NestOp) -> None:
    """Rewrite the powers of e in a nest's body whose exponent can be scaled."""
    for op in [op for op in nest.body.block.ops if isinstance(op, math.ExpOp)]:
        running = exponential(nest, op.result)
        if running is None or not isinstance(op.operand.owner, arith.SubfOp):
            continue
        lhs = op.operand.owner.lhs
        read = argument_read(nest, lhs) if isinstance(lhs.owner, Block) else None
        if read is None or not _is_only_for(read.value, nest, running.maximum):
            continue
        logarithms = [use.operation for use in running.maximum.uses if use.operation is not nest]
        if _scale(read.value):
            replace_power(op, math.Exp2Op(op.operand))
            for other in logarithms:
                _unscale(other, running.maximum)


def replace_power(op: Operation, new: Operation) -> None:
    block = op.parent_block()
    assert block is not None
    new.location = op.location
    block.insert_op_before(new, op)
    op.results[0].replace_all_uses_with(new.results[0])
    op.detach()
    op.erase()


def _unscale(nest: Operation, maximum: SSAValue) -> None:
    """Divide a maximum by log2(e) where a nest reads it, unless it is the lowest number, which has
    been clamped."""
    assert isinstance(nest, NestOp)
    for argument, value in zip(nest.body.block.args, nest.inputs, strict=False):
        if value is maximum:
            ops = _unscaled(argument)
            first = nest.body.block.first_op
            assert first is not None
            for op in ops:
                op.location = first.location
                nest.body.block.insert_op_before(op, first)
            argument.replace_uses_with_if(
                ops[-1].results[0], lambda use, own=ops: use.operation not in own)


def _unscaled(value: SSAValue) -> list[Operation]:
    """select(x == lowest, x, x / log2(e))."""
    assert isinstance(value.type, Float32Type | Float64Type)
    product = product_with(value, 1 / FACTOR)
    lowest = _constant(-float(np.finfo(t.dtype_of(value.type)).max), value.type)
    is_lowest = arith.CmpfOp(value, lowest.result, "oeq")
    return [*product, lowest, is_lowest,
            arith.SelectOp(is_lowest.result, value, product[-1].results[0])]


def _is_only_for(value: SSAValue, nest: NestOp, maximum: SSAValue) -> bool:
    """Whether a value has no readers but the nest that finds its maximum, and `nest`; the maximum
    may also be that of a logarithm of the sum."""
    finder = maximum.owner
    assert isinstance(finder, NestOp)
    return (list(finder.inputs) == [value]
            and finder.yielded[0] is finder.body.block.args[0]
            and {use.operation for use in value.uses} == {finder, nest}
            and all(use.operation is nest or (isinstance(use.operation, NestOp) and adds_logarithm(
                use.operation, maximum)) for use in maximum.uses))


def _scale(value: SSAValue) -> bool:
    """Multiply a nest's only result by log2(e); False if that would not be free."""
    maker = value.owner
    if not isinstance(maker, NestOp) or scalar_type(value) not in (t.f32, t.f64):
        return False
    if is_contraction(maker):
        scaled = elementwise_on(value, scalar_type(value), lambda x: product_with(x, FACTOR))
        value.replace_uses_with_if(scaled.results[0], lambda use: use.operation is not scaled)
        return True
    if not maker.is_elementwise or len(maker.results) != 1:
        return False
    ops = in_base_two(maker.yielded[0])
    if ops is None:
        return False
    yield_instead(maker, ops)
    return True


def yield_instead(nest: NestOp, ops: Sequence[Operation]) -> None:
    """Let a nest of one result yield the result of the last of these operations."""
    last = nest.body.block.last_op
    assert last is not None
    for op in ops:
        op.location = last.location
        nest.body.block.insert_op_before(op, last)
    last.operands[0] = ops[-1].results[0]
    drop_unused(nest)


def in_base_two(value: SSAValue) -> list[Operation] | None:
    """Operations whose last one computes a value of a body times log2(e); None for a sum."""
    match value.owner:
        case arith.ConstantOp():
            return [_constant(_number(value) * FACTOR, value.type)]
        case arith.MulfOp() as op if _is_constant(op.rhs):
            return product_with(op.lhs, _number(op.rhs) * FACTOR)
        case arith.MulfOp() as op if _is_constant(op.lhs):
            return product_with(op.rhs, _number(op.lhs) * FACTOR)
        case arith.DivfOp() as op if _is_constant(op.rhs):
            return product_with(op.lhs, FACTOR / _number(op.rhs))
        case arith.AddfOp() as op if _is_constant(op.rhs):  # a low number that masks x
            scaled = in_base_two(op.lhs)
            return scaled and [*scaled, (low := _constant(_number(op.rhs) * FACTOR, value.type)),
                               arith.AddfOp(scaled[-1].results[0], low.result)]
        case arith.SelectOp() as op:
            return _chosen(op, in_base_two(op.lhs), in_base_two(op.rhs))
        case Block():
            return product_with(value, FACTOR)
        case _:
            return None


def _chosen(
    op: arith.SelectOp, first: Sequence[Operation] | None, second: Sequence[Operation] | None
) -> list[Operation] | None:
    if first is None or second is None:
        return None
    return [*first, *second,
            arith.SelectOp(op.cond, first[-1].results[0], second[-1].results[0])]


def product_with(value: SSAValue, factor: float) -> list[Operation]:
    constant = _constant(factor, value.type)
    return [constant, arith.MulfOp(value, constant.result)]


def _is_constant(value: SSAValue) -> bool:
    return isinstance(value.owner, arith.ConstantOp)


def _number(value: SSAValue) -> float:
    assert isinstance(value.owner, arith.ConstantOp) and isinstance(value.owner.value, FloatAttr)
    return value.owner.value.value.data


def _constant(number: float, type_: Attribute) -> arith.ConstantOp:
    """A constant, clamped to the finite range of its type unless it was infinite before."""
    assert isinstance(type_, Float32Type | Float64Type)
    most = float(np.finfo(t.dtype_of(type_)).max)
    kept = number if np.isinf(number) else min(max(number, -most), most)
    return arith.ConstantOp(FloatAttr(kept, type_))
