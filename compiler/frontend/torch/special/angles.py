"""The angle of a point."""

from __future__ import annotations

import math

from compiler.frontend import formulas as f
from compiler.frontend.torch.special import bits
from compiler.frontend.values import Value
from dialects.graph.trigonometric import AtanOp


def angle_of(y: Value, x: Value) -> Value:
    """The angle of the point (x, y), from the smaller of |y / x| and |x / y|."""
    high, wide = abs(y), abs(x)
    most = f.maximum(high, wide)
    ratio = f.minimum(high, wide) / most
    ratio = f.where(f.is_inf(high) & f.is_inf(wide), 1.0, ratio)
    ratio = f.where(f.equal(most, 0.0), 0.0, ratio)
    angle = x.build(AtanOp, ratio)
    angle = f.where(wide < high, math.pi / 2 - angle, angle)
    angle = f.where(bits.signbit(x), math.pi - angle, angle)
    return f.where(f.is_nan(most), most, bits.copysign(angle, y))
