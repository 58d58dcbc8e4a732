"""Bit operations, and the trigonometric and hyperbolic functions that the `math` dialect has."""

from __future__ import annotations

from typing import Any

from xdsl.dialects import arith, math
from xdsl.ir import SSAValue

from dialects.graph.base import GraphOp, int_of
from dialects.graph.bits import BitcastOp, PhiloxOp, ShiftLeftOp, ShiftRightOp
from dialects.graph.trigonometric import (
    AcoshOp,
    AcosOp,
    AsinhOp,
    AsinOp,
    AtanhOp,
    AtanOp,
    CoshOp,
    SinhOp,
    TanOp,
)
from dialects.semantics.philox import philox
from dialects.strata import types as t
from passes.graph_to_loop.elementwise import formula
from passes.graph_to_loop.nests import pointwise, type_of
from passes.graph_to_loop.rules import lowers
from passes.graph_to_loop.scalars import Scalar
from passes.rewriting import Rewriter

_FUNCTIONS: dict[type[GraphOp], Any] = {
    TanOp: math.TanOp, AsinOp: math.AsinOp, AcosOp: math.AcosOp, AtanOp: math.AtanOp,
    SinhOp: math.SinhOp, CoshOp: math.CoshOp, AsinhOp: math.AsinhOp, AcoshOp: math.AcoshOp,
    AtanhOp: math.AtanhOp,
}


@lowers(*_FUNCTIONS)
def lower_function(op: GraphOp, at: Rewriter) -> SSAValue:
    def compute(x: Scalar) -> Scalar:
        return x.wide().apply(_FUNCTIONS[type(op)])

    return pointwise(at, op.operands, type_of(op.results[0]), compute)


@lowers(BitcastOp)
def bitcast(op: BitcastOp, at: Rewriter) -> SSAValue:
    element = type_of(op.result).element

    def compute(x: Scalar) -> Scalar:
        if t.i1 in (x.element, element):
            return x.to(element)
        return x.bitcast(element)

    return pointwise(at, [op.x], type_of(op.result), compute)


@lowers(PhiloxOp)
def random_bits(op: PhiloxOp, at: Rewriter) -> SSAValue:
    def compute(x: Scalar, y: Scalar) -> Scalar:
        return philox(x, y, int_of(op.properties, "draw"))

    return pointwise(at, op.operands, type_of(op.result), compute)


@formula(ShiftLeftOp)
def shift_left(x: Scalar, y: Scalar) -> Scalar:
    inside = _is_inside(x, y)
    return inside.where(x.apply(arith.ShLIOp, inside.where(y, 0)), 0)


@formula(ShiftRightOp)
def shift_right(x: Scalar, y: Scalar) -> Scalar:
    """For signed integers, an out-of-range shift leaves only copies of the sign bit."""
    inside = _is_inside(x, y)
    if not x.is_unsigned:
        return x.apply(arith.ShRSIOp, inside.where(y, x.bits - 1))
    return inside.where(x.apply(arith.ShRUIOp, inside.where(y, 0)), 0)


def _is_inside(x: Scalar, y: Scalar) -> Scalar:
    """Whether a shift amount is from 0 to the width - 1; `arith` leaves others undefined."""
    inside = y.compare("lt", x.bits)
    return inside if y.is_unsigned else inside & y.compare("ge", 0)
