"""Multiply a contraction's results by the constants that its factors are multiplied by.

    %p = nest (j, d) ins(%k[j, d]) {k * c}                  %p = nest (j, d) ins(%k[j, d]) {k}
    %s = nest (i, j, reduce d) ins(%q, %p) {q * p}    ->    %t = nest (i, j, reduce d) ins(%q, %p)
                                                            %s = nest (i, j) ins(%t) {t * c}

Some exporters scale queries and keys each by the square root of the factor by which others scale
the scores. The nest that is left is a copy. Applies to floats; the factors are no longer rounded
after the multiplication.
"""

from __future__ import annotations

from collections.abc import Collection
from math import prod

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from dialects.loop import KernelOp, NestOp, scalar_type
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.kinds import is_contraction
from passes.analyses.loop.numbers import constant, float_of
from passes.rewrites.loop.conditions import unconverted
from passes.rewrites.loop.nests import drop_unused, elementwise_on, inline_everywhere, plain_axes


def delay_factors(kernel: KernelOp, rows: Collection[Symbol]) -> None:
    """Rewrite every contraction of a kernel with a constant factor outside of its rows."""
    found = {n: c for n in kernel.nests
             if (c := factor_of(n)) is not None and _is_only_factor(n, rows)}
    for nest in [n for n in kernel.nests if is_contraction(n)]:
        factors = [found[v.owner] for v in nest.inputs
                   if isinstance(v.owner, NestOp) and v.owner in found]
        if factors:
            _multiply(nest, prod(factors))
    for nest in found:
        last = nest.body.block.last_op
        assert last is not None
        last.operands[0] = nest.body.block.args[0]
        drop_unused(nest)


def factor_of(nest: NestOp) -> float | None:
    """The constant by which a nest multiplies all elements of one tensor, in the tensor's type."""
    if not nest.is_elementwise or len(nest.inputs) != 1 or len(nest.results) != 1 or (
            nest.pad_values[0] is not None or plain_axes(nest.output_maps[0]) is None
            or scalar_type(nest.inputs[0]) != scalar_type(nest.results[0])):
        return None
    product = unconverted(nest.yielded[0]).owner
    if not isinstance(product, arith.MulfOp):
        return None
    for value, other in ((product.lhs, product.rhs), (product.rhs, product.lhs)):
        if unconverted(value) is nest.body.block.args[0]:
            return float_of(other)
    return None


def _is_only_factor(nest: NestOp, rows: Collection[Symbol]) -> bool:
    """Whether only contractions read the nest's result, and the result spans more than their rows.

    Such a nest would be computed again for each block of rows.
    """
    walked = {a.name for a in nest.axes} - {*rows}
    readers = [use.operation for use in nest.results[0].uses]
    return bool(readers) and all(
        isinstance(r, NestOp) and is_contraction(r) and len(r.inputs) == 2
        and walked - {a.name for a in r.reduce_axes} for r in readers)


def _multiply(nest: NestOp, factor: float) -> None:
    """Multiply the sums, for all of their readers."""
    total = nest.results[0]

    def product(x: SSAValue) -> list[arith.ConstantOp | arith.MulfOp]:
        number = constant(factor, x.type)
        return [number, arith.MulfOp(x, number.result)]

    scaled = elementwise_on(total, scalar_type(total), product)
    total.replace_uses_with_if(scaled.results[0], lambda use: use.operation is not scaled)
    readers = [use.operation for use in scaled.results[0].uses]
    if len(readers) == 1 and isinstance(readers[0], NestOp) and readers[0].is_elementwise:
        inline_everywhere(scaled)
