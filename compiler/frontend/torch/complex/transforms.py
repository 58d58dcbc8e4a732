"""Fourier transforms, of constant lengths (`compiler/frontend/fourier.py`)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from compiler.frontend.fourier import Spectrum, mirror, of_reals, to_reals, transform
from compiler.frontend.node import fixed
from compiler.frontend.torch.complex import complex_op
from compiler.frontend.torch.complex.values import Complex
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops.elementwise import HALVES
from compiler.frontend.values import Value
from dialects.strata import types as t
from dialects.symbolic.expr import Expr, Size

LENGTH = "transformed dims"


@complex_op("aten._fft_c2c.default")
def complex_to_complex(
    n: Node, x: Complex, dims: Sequence[Size], scale: int, forward: bool
) -> Complex:
    axes = [n.axis(fixed(d, "dims"), x.rank) for d in dims]
    found: Spectrum = _wide(x)
    for axis in axes:
        found = transform(found, axis, fixed(x.shape[axis], LENGTH), forward)
    return _scaled(found, _factor(scale, [x.shape[axis] for axis in axes]))


@complex_op("prims.fft_c2c.default")
def unscaled(n: Node, x: Complex, dims: Sequence[int], forward: bool) -> Complex:
    return complex_to_complex(n, x, dims, 0, forward)


@complex_op("aten._fft_r2c.default")
def real_to_complex(
    n: Node, x: Value, dims: Sequence[int], scale: int, onesided: bool
) -> Complex:
    """The last of the dims is the one of which half is enough."""
    x = x.cast(t.f32) if x.element in HALVES else x
    axes = [n.axis(d, x.rank) for d in dims]
    last = fixed(x.shape[axes[-1]], LENGTH)
    found = of_reals(x, axes[-1], last)
    if not onesided:
        found = mirror(found, axes[-1], last)
    for axis in axes[:-1]:
        found = transform(found, axis, fixed(x.shape[axis], LENGTH), True)
    return _scaled(found, _factor(scale, [x.shape[axis] for axis in axes]))


@complex_op("prims.fft_r2c.default")
def unscaled_of_reals(n: Node, x: Value, dims: Sequence[int], onesided: bool) -> Complex:
    return real_to_complex(n, x, dims, 0, onesided)


@complex_op("aten._fft_c2r.default")
def complex_to_real(
    n: Node, x: Complex, dims: Sequence[int], scale: int, last: Size
) -> Value:
    """The last of the dims holds half of a transform, of reals of the length `last`."""
    axes, count = [n.axis(d, x.rank) for d in dims], fixed(last, LENGTH)
    found: Spectrum = _wide(x)
    for axis in axes[:-1]:
        found = transform(found, axis, fixed(x.shape[axis], LENGTH), False)
    half = count // 2 + 1
    found = Spectrum(found.re.part(axes[-1], 0, half), found.im.part(axes[-1], 0, half))
    made = to_reals(found, axes[-1], count)
    return made * _factor(scale, [*(x.shape[axis] for axis in axes[:-1]), Expr.of(count)])


@complex_op("prims.fft_c2r.default")
def unscaled_to_reals(n: Node, x: Complex, dims: Sequence[int], last: Size) -> Value:
    return complex_to_real(n, x, dims, 0, last)


def _wide(x: Complex) -> Complex:
    return x.cast(t.f32) if x.re.element in HALVES else x


def _factor(scale: int, sizes: Sequence[Expr]) -> float:
    """PyTorch's normalization: 0 for none, 1 by the root of the length, 2 by the length."""
    count = math.prod(fixed(size, LENGTH) for size in sizes)
    return (1.0, 1 / math.sqrt(count), 1 / count)[scale]


def _scaled(x: Spectrum, factor: float) -> Complex:
    made = Complex(x.re, x.im)
    return made if factor == 1.0 else made.times(factor)
