"""Multiply a contraction's results instead of its factors, where these are multiplied by constants.

    %p = nest (j, d) ins(%k[j, d]) {k * c}                  %p = nest (j, d) ins(%k[j, d]) {k}
    %s = nest (i, j, reduce d) ins(%q, %p) {q * p}    ->    %t = nest (i, j, reduce d) ins(%q, %p)
                                                            %s = nest (i, j) ins(%t) {t * c}

As models are exported that scale queries and keys by the root of what others scale scores by. What
is left of such a nest is a copy. Of floats; the roundings of what was multiplied are left out.
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
    """Rewrite every contraction of a kernel with such a factor that is none of its rows."""
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
    """The constant that a nest multiplies all elements of one tensor by, in their own type."""
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
    """Whether contractions alone read what a nest makes, beyond their rows: it would be computed
    again for each block of rows."""
    walked = {a.name for a in nest.axes} - {*rows}
    readers = [use.operation for use in nest.results[0].uses]
    return bool(readers) and all(
        isinstance(r, NestOp) and is_contraction(r) and len(r.inputs) == 2
        and walked - {a.name for a in r.reduce_axes} for r in readers)


def _multiply(nest: NestOp, factor: float) -> None:
    """Multiply the sums, for all that reads them."""
    total = nest.results[0]

    def product(x: SSAValue) -> list[arith.ConstantOp | arith.MulfOp]:
        number = constant(factor, x.type)
        return [number, arith.MulfOp(x, number.result)]

    scaled = elementwise_on(total, scalar_type(total), product)
    total.replace_uses_with_if(scaled.results[0], lambda use: use.operation is not scaled)
    readers = [use.operation for use in scaled.results[0].uses]
    if len(readers) == 1 and isinstance(readers[0], NestOp) and readers[0].is_elementwise:
        inline_everywhere(scaled)
