"""Variants of exp(x) - 1 and log(1 + x) that avoid cancellation near 0."""

from __future__ import annotations

import numpy as np
from xdsl.irdl import irdl_op_definition

from dialects.graph.unary import FloatOp
from dialects.strata.types import Array


@irdl_op_definition
class Log1pOp(FloatOp):
    """log(1 + x), accurate near 0.

    Source: C99 log1p; torch.log1p.
    Example: %y = graph.log1p %x : f32[n] given %x: f32[n]
    """

    name = "graph.log1p"

    def compute(self, x: Array) -> Array:
        return np.log1p(x)


@irdl_op_definition
class Expm1Op(FloatOp):
    """exp(x) - 1, accurate near 0.

    Source: C99 expm1; torch.expm1.
    Example: %y = graph.expm1 %x : f32[n] given %x: f32[n]
    """

    name = "graph.expm1"

    def compute(self, x: Array) -> Array:
        return np.expm1(x)
