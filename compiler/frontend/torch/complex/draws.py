"""Random complex numbers of programs that are compiled as a whole: independent parts.

`compiler/frontend/torch/drawing` has the real ones. A normal number has the variance 1 as a whole.
"""

from __future__ import annotations

import math

from compiler.frontend.torch.complex import complex_op
from compiler.frontend.torch.complex.values import Complex
from compiler.frontend.torch.drawing import operators
from compiler.frontend.torch.node import Node


@complex_op("aten.rand.default", "aten.rand_like.default")
def rand(n: Node) -> Complex:
    return Complex(operators.rand(n), operators.rand(n))


@complex_op("aten.randn.default", "aten.randn_like.default")
def randn(n: Node) -> Complex:
    return Complex(operators.randn(n), operators.randn(n)).times(math.sqrt(0.5))


@complex_op("aten.normal_functional.default")
def normal(n: Node, x: Complex, mean: float, deviation: float) -> Complex:
    """The mean is a real number."""
    drawn = randn(n).times(deviation)
    return Complex(drawn.re + mean, drawn.im)
