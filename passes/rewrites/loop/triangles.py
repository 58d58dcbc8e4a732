"""Triangular constants, with one number up to a diagonal and another after it: usually masks.

    %c = constant [[0, -inf, -inf], [0, 0, -inf]]
    ->  %c = nest (i, j) {select(j <= i, 0, -inf)}

Comparing indices costs less than loading the mask, and it tells how far rows reach.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import AnyFloat, FloatAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from dialects.graph import ConstantOp
from dialects.loop import Axis, IndexOp, NestOp, YieldOp
from dialects.strata.types import Array, TensorType, i1, is_float, signless
from dialects.strata.weights import WeightStore
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import set_location

MIN_ELEMENTS = 64
"""Smaller constants are loaded."""


class Triangle(NamedTuple):
    """`below` where column <= row + offset, `above` elsewhere."""

    offset: int
    below: float | bool
    above: float | bool

    @staticmethod
    def of(array: Array) -> Triangle | None:
        """The triangle that a matrix is; None if it is none, or if all of it is `below`."""
        first, last = array[-1, 0], array[0, -1]
        count = int((array[-1] == first).sum())
        offset = count - array.shape[0]
        if count == array.shape[1]:  # the diagonal ends at the last column of a row further up
            rows = (array[:, -1] == first).nonzero()[0]
            offset = array.shape[1] - 1 - int(rows[0]) if rows.size else 0
        places = np.tri(array.shape[0], array.shape[1], offset, dtype=np.bool_)
        found = Triangle(offset, first.item(), last.item())
        return found if not places.all() and np.array_equal(
            array, np.where(places, array[-1:, :1], array[:1, -1:])) else None


def triangle_of(value: SSAValue, weights: WeightStore) -> Triangle | None:
    """The triangle in the last two dims of a constant whose other dims have one element."""
    op = value.owner
    if not isinstance(op, ConstantOp) or op.varies or not isinstance(value.type, TensorType):
        return None
    shape = value.type.static_shape
    element = signless(value.type.element)
    if shape is None or len(shape) < 2 or np.prod(shape[:-2]) != 1 or (
            np.prod(shape) < MIN_ELEMENTS or not (is_float(element) or element == i1)):
        return None
    found = Triangle.of(op.contents(weights).reshape(shape[-2:]))
    if found is not None:
        op.array(weights)  # the code depends on it
    return found


def triangle_nest(value: SSAValue, triangle: Triangle, names: tuple[Symbol, Symbol]) -> NestOp:
    """A nest over axes with these names that computes the constant."""
    type_ = value.type
    assert isinstance(type_, TensorType)
    axes = [Axis(name, size) for name, size in zip(names, type_.shape[-2:], strict=True)]
    place = [Expr.of(0)] * (type_.rank - 2) + [Expr.symbol(n) for n in names]
    block = Block()
    block.add_ops([*(ops := _comparison(triangle, names, signless(type_.element))),
                   YieldOp.of(ops[-1].results[0])])
    nest = NestOp.of(axes, [], [], [type_], [place], body=Region(block))
    assert isinstance(value.owner, Operation)
    set_location(nest, value.owner)
    nest.results[0].name_hint = value.name_hint
    return nest


def _comparison(
    triangle: Triangle, names: tuple[Symbol, Symbol], element: Attribute
) -> list[Operation]:
    row, column = (IndexOp.of(Expr.symbol(names[0]) + triangle.offset),
                   IndexOp.of(Expr.symbol(names[1])))
    inverted = element == i1 and not triangle.below
    compare = arith.CmpiOp(column.result, row.result, "sgt" if inverted else "sle")
    if element == i1:
        return [row, column, compare]
    assert isinstance(element, AnyFloat)
    numbers = [arith.ConstantOp(FloatAttr(float(x), element))
               for x in (triangle.below, triangle.above)]
    return [row, column, compare, *numbers,
            arith.SelectOp(compare.result, numbers[0].result, numbers[1].result)]
