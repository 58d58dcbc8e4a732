"""`arith.remf`, which MLIR has and xDSL lacks: the remainder of floats, exact and with x's sign.

    %r = arith.remf %x, %y : f32            x - trunc(x/y)*y, of the exact quotient
"""

from __future__ import annotations

from xdsl.dialects.arith import Arith, FloatingPointLikeBinaryOperation
from xdsl.ir import Dialect
from xdsl.irdl import traits_def
from xdsl.traits import Pure

from dialects.definition import irdl_op_definition


@irdl_op_definition
class RemFOp(FloatingPointLikeBinaryOperation):
    """C's fmod: NaN for x infinite or y zero, x for y infinite.

    Source: MLIR arith.remf.
    """

    name = "arith.remf"
    traits = traits_def(Pure())


def arith_with_remainder() -> Dialect:
    """The dialect `arith` with this operation."""
    return Dialect("arith", [*Arith.operations, RemFOp], list(Arith.attributes))
