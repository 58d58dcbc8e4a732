"""Divide a contraction's results instead of its factors.

    %p = nest (i, j) ins(%e[i, j], %l[i]) {e / l}
    %y = nest (i, d, reduce j) ins(%p[i, j], %v[j, d]) {p * v}
    ->
    %s = nest (i, d, reduce j) ins(%e[i, j], %v[j, d]) {e * v}
    %y = nest (i, d) ins(%s[i, d], %l[i]) {s / l}

The sum over j of e[i, j] / l[i] * v[j, d] equals the sum of e[i, j] * v[j, d], divided by l[i]
once. The rounding differs. Half precision is left alone, because an undivided sum could overflow.
A sum over nothing is 0 whatever l is, and l of nothing is 0 itself, so where only a run knows the
length of j, such a sum is divided by 1.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import i64
from xdsl.ir import Block, Operation, Region, SSAValue

from dialects.loop import IndexOp, KernelOp, NestOp, YieldOp, scalar_type
from dialects.strata import types as t
from dialects.symbolic.expr import Expr
from dialects.symbolic.ranges import is_nonnegative
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import set_location
from passes.analyses.loop.kinds import is_contraction
from passes.analyses.loop.numbers import constant
from passes.rewrites.loop.nests import (
    Read,
    plain_axes,
    reads_of,
    replace_nest,
    result_types,
    with_reads,
)


def delay_divisions(kernel: KernelOp, rows: Collection[Symbol]) -> None:
    """Rewrite every contraction of a kernel that has a factor divided by a value of its rows."""
    for nest in [n for n in kernel.nests if is_contraction(n)]:
        for position, read in enumerate(reads_of(nest)):
            if _is_product(nest) and (parts := _quotient(read, rows)) is not None:
                _delay(nest, position, *parts)
                break


def _is_product(nest: NestOp) -> bool:
    """Whether a nest sums plain f32 or f64 products of its two inputs."""
    return len(nest.inputs) == 2 and scalar_type(nest.results[0]) in (t.f32, t.f64) and (
        _is_just(nest, arith.MulfOp))


def _is_just(nest: NestOp, kind: type[Operation]) -> bool:
    """Whether a body is a single operation on the inputs in order."""
    first, *rest = nest.body.block.ops
    return isinstance(first, kind) and len(rest) == 1 and (
        list(first.operands) == list(nest.body.block.args))


def _quotient(read: Read, rows: Collection[Symbol]) -> tuple[Read, Read] | None:
    """(e, l) if a value is e / l, l depends only on the rows, and the value has no other reader."""
    maker = read.value.owner
    if not isinstance(maker, NestOp) or not maker.is_elementwise or len(maker.results) != 1:
        return None
    if not _is_just(maker, arith.DivfOp) or not read.value.has_one_use():
        return None
    dividend, divisor = reads_of(maker)
    stored = maker.output_maps[0]
    if plain_axes(stored) is None or dividend.pad is not None or divisor.pad is not None:
        return None
    if any(e.symbols - set(rows) for e in divisor.map):
        return None
    at = {place.as_symbol: expr for place, expr in zip(stored, read.map, strict=True)
          if place.as_symbol is not None}
    return (Read(dividend.value, tuple(e.substitute(at) for e in dividend.map)),
            Read(divisor.value, tuple(e.substitute(at) for e in divisor.map)))


def _delay(nest: NestOp, position: int, dividend: Read, divisor: Read) -> None:
    reads = reads_of(nest)
    maker = reads[position].value.owner
    reads[position] = dividend
    total = with_reads(nest, reads)
    replace_nest(nest, total)
    divide_result(total, divisor)
    assert isinstance(maker, NestOp)
    maker.detach()
    maker.erase()


def divide_result(total: NestOp, divisor: Read) -> NestOp:
    """Insert the division after a nest, for all readers of the nest."""
    value, stored = total.results[0], total.output_maps[0]
    quotient = NestOp.of(
        total.parallel_axes, [value, divisor.value], [stored, divisor.map], result_types(total),
        [stored], body=_division([value, divisor.value], product(
            a.extent for a in total.reduce_axes)))
    set_location(quotient, total)
    value.replace_uses_with_if(quotient.results[0], lambda use: use.operation is not quotient)
    quotient.results[0].name_hint = value.name_hint
    block = total.parent_block()
    assert block is not None
    block.insert_op_after(quotient, total)
    return quotient


def _division(values: Sequence[SSAValue], terms: Expr) -> Region:
    """A division of sums of so many terms."""
    block = Block(arg_types=[scalar_type(v) for v in values])
    total, divisor = block.args
    if not is_nonnegative(terms - 1, frozenset[Symbol]()):  # sizes may be 0
        count, one = IndexOp.of(terms), constant(1, divisor.type)
        number, zero = arith.IndexCastOp(count.result, i64), constant(0, i64)
        some = arith.CmpiOp(number.result, zero.result, "sgt")
        chosen = arith.SelectOp(some.result, divisor, one.result)
        block.add_ops([count, one, number, zero, some, chosen])
        divisor = chosen.result
    divide = arith.DivfOp(total, divisor)
    block.add_ops([divide, YieldOp.of(divide.result)])
    return Region(block)
