"""Move a factor that all sides of a selection share out of it, into a nest of its own.

    %x = nest (i, j) {select(c, s * k, -inf)}
    ->  %u = nest (i, j) {select(c, s, -inf)}     %x = nest (i, j) ins(%u) {u * k}

The maximum is then taken before the multiplication, and the product moves into the difference to
it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from xdsl.dialects import arith
from xdsl.ir import Operation, SSAValue

from dialects.loop import NestOp, scalar_type
from dialects.strata.elements import largest
from passes.analyses.loop.numbers import constant, float_of
from passes.rewrites.loop.base_two import yield_instead
from passes.rewrites.loop.nests import elementwise_on


def take_factor_out(nest: NestOp) -> None:
    """Rewrite an elementwise nest of one result in place, if it selects among constants and
    products with one positive constant."""
    if len(nest.results) != 1 or not isinstance(nest.yielded[0].owner, arith.SelectOp):
        return
    sides = list(_sides(nest.yielded[0]))
    factors = {_factor(v) for v in sides if float_of(v) is None}
    factor = factors.pop() if len(factors) == 1 else None
    if factor is None or factor <= 0:
        return
    most = largest(scalar_type(nest.results[0]))
    if any(np.isfinite(n) and abs(n) > most * factor for v in sides
           if (n := float_of(v)) is not None):
        return
    result = nest.results[0]
    yield_instead(nest, _without(nest.yielded[0], factor))
    product = elementwise_on(result, scalar_type(result), lambda x: [
        k := constant(factor, x.type), arith.MulfOp(x, k.result)])
    result.replace_uses_with_if(product.results[0], lambda use: use.operation is not product)


def _sides(value: SSAValue) -> Iterator[SSAValue]:
    """The values that nested selections choose among."""
    if isinstance(value.owner, arith.SelectOp):
        yield from _sides(value.owner.lhs)
        yield from _sides(value.owner.rhs)
    else:
        yield value


def _factor(value: SSAValue) -> float | None:
    """The constant on the right of a product."""
    product = value.owner
    return float_of(product.rhs) if isinstance(product, arith.MulfOp) else None


def _without(value: SSAValue, factor: float) -> list[Operation]:
    """Operations that compute nested selections with all sides divided by the factor; the last one
    gives the result."""
    number = float_of(value)
    if number is not None:
        return [constant(number / factor, value.type)]
    choice = value.owner
    assert isinstance(choice, arith.SelectOp)
    ops: list[Operation] = []
    sides: list[SSAValue] = []
    for side in (choice.lhs, choice.rhs):
        if isinstance(side.owner, arith.MulfOp):
            sides.append(side.owner.lhs)
        else:
            ops += _without(side, factor)
            sides.append(ops[-1].results[0])
    return [*ops, arith.SelectOp(choice.cond, *sides)]
