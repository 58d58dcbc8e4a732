"""exp(x) - 1 and log(1 + x) without cancellation near 0; powers and logarithms of other bases."""

from __future__ import annotations

import numpy as np

from dialects.definition import irdl_op_definition
from dialects.graph.unary import FloatOp
from dialects.semantics.numerics import in_f64
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


@irdl_op_definition
class Exp2Op(FloatOp):
    """2**x, exact for integers.

    Source: C99 exp2; torch.exp2.
    Example: %y = graph.exp2 %x : f32[n] given %x: f32[n]
    """

    name = "graph.exp2"

    def compute(self, x: Array) -> Array:
        return in_f64(np.exp2)(x)


@irdl_op_definition
class Log2Op(FloatOp):
    """The logarithm to the base 2, exact for its powers.

    Source: C99 log2; torch.log2.
    Example: %y = graph.log2 %x : f32[n] given %x: f32[n]
    """

    name = "graph.log2"

    def compute(self, x: Array) -> Array:
        return in_f64(np.log2)(x)


@irdl_op_definition
class Log10Op(FloatOp):
    """The logarithm to the base 10, exact for its powers.

    Source: C99 log10; torch.log10.
    Example: %y = graph.log10 %x : f32[n] given %x: f32[n]
    """

    name = "graph.log10"

    def compute(self, x: Array) -> Array:
        return in_f64(np.log10)(x)
