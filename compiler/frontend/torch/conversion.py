"""Conversions of tensors and numbers to an element type, as PyTorch converts.

Those to narrow floats differ from those of ONNX and `ml_dtypes`. PyTorch's f8E8M0FNU is the power
of two next to a magnitude, of zero the smallest one. Since 2.13, numbers beyond the largest
f8E4M3FN become the largest; before, they became NaN.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from xdsl.ir import Attribute

from compiler.frontend import formulas as f
from compiler.frontend.torch.library import torch_module
from compiler.frontend.values import Value, constant
from dialects.graph.unary import CastOp
from dialects.strata import types as t

_LEAST = 2.0**-126
"""The second power of f8E8M0FNU. What lies below is no normal f32, and becomes the first one."""


def as_element(x: Value, element: Attribute) -> Value:
    """x in an element type; x itself if it has that type."""
    if element not in (t.f8E4M3FN, t.f8E8M0FNU) or x.element == element:
        return x.cast(element)
    if element == t.f8E4M3FN:
        return x.build(CastOp, x, to=element, saturate=_saturates() or None)
    size = abs(x.cast(t.f32))
    powers = x.build(CastOp, size, to=element, round="nearest")
    least = constant(x.build, np.zeros([], np.uint8).view(t.dtype_of(element)))
    return f.where(size < _LEAST, least, powers)


@cache
def _saturates() -> bool:
    """Whether this PyTorch makes large numbers the largest f8E4M3FN."""
    torch = torch_module()
    return bool(torch.full([], 1e6).to(torch.float8_e4m3fn).float().isfinite())
