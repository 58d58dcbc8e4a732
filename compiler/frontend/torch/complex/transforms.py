"""Fourier transforms, of constant lengths (`compiler/frontend/fourier.py`) and of open ones
(`open_lengths.py`), which PyTorch computes faster where it can: graphs of `torch.compile` leave
them to it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from compiler.frontend import formulas as f
from compiler.frontend import fourier
from compiler.frontend.fourier import Spectrum
from compiler.frontend.node import fixed
from compiler.frontend.torch.complex import complex_op, open_lengths
from compiler.frontend.torch.complex.values import Complex
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops.elementwise import HALVES
from compiler.frontend.values import Value
from dialects.strata import types as t
from dialects.symbolic.expr import Expr, Size
from dialects.symbolic.size_products import product

LENGTH = "transformed dims"


@complex_op("aten._fft_c2c.default")
def complex_to_complex(
    n: Node, x: Complex, dims: Sequence[Size], scale: int, forward: bool
) -> Complex:
    axes = [n.axis(fixed(d, "dims"), x.rank) for d in dims]
    found: Spectrum = _wide(x)
    for axis in axes:
        found = _transform(n, found, axis, x.shape[axis], forward)
    return _scaled(found, _factor(n, scale, [x.shape[axis] for axis in axes]))


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
    last = x.shape[axes[-1]]
    if _is_open(n, last):
        found = open_lengths.of_reals(n, x, axes[-1], last)
        if not onesided:
            found = open_lengths.mirror(n, found, axes[-1], last)
    else:
        length = fixed(last, LENGTH)
        found = fourier.of_reals(x, axes[-1], length)
        if not onesided:
            found = fourier.mirror(found, axes[-1], length)
    for axis in axes[:-1]:
        found = _transform(n, found, axis, x.shape[axis], True)
    return _scaled(found, _factor(n, scale, [x.shape[axis] for axis in axes]))


@complex_op("prims.fft_r2c.default")
def unscaled_of_reals(n: Node, x: Value, dims: Sequence[int], onesided: bool) -> Complex:
    return real_to_complex(n, x, dims, 0, onesided)


@complex_op("aten._fft_c2r.default")
def complex_to_real(
    n: Node, x: Complex, dims: Sequence[int], scale: int, last: Size
) -> Value:
    """The last of the dims holds half of a transform, of reals of the length `last`."""
    axes, count = [n.axis(d, x.rank) for d in dims], Expr.of(last)
    found: Spectrum = _wide(x)
    for axis in axes[:-1]:
        found = _transform(n, found, axis, x.shape[axis], False)
    half = count // 2 + 1
    found = Spectrum(found.re.part(axes[-1], 0, half), found.im.part(axes[-1], 0, half))
    if _is_open(n, count):
        made = open_lengths.to_reals(n, found, axes[-1], count)
    else:
        made = fourier.to_reals(found, axes[-1], fixed(count, LENGTH))
    return made * _factor(n, scale, [*(x.shape[axis] for axis in axes[:-1]), count])


@complex_op("prims.fft_c2r.default")
def unscaled_to_reals(n: Node, x: Complex, dims: Sequence[int], last: Size) -> Value:
    return complex_to_real(n, x, dims, 0, last)


def _wide(x: Complex) -> Complex:
    return x.cast(t.f32) if x.re.element in HALVES else x


def _transform(n: Node, x: Spectrum, axis: int, count: Expr, forward: bool) -> Spectrum:
    if _is_open(n, count):
        return open_lengths.transform(n, x, axis, count, forward)
    return fourier.transform(x, axis, fixed(count, LENGTH), forward)


def _is_open(n: Node, count: Expr) -> bool:
    """Whether a length is open, and nothing else computes a transform of such a length."""
    return count.constant is None and n.alone


def _factor(n: Node, scale: int, sizes: Sequence[Expr]) -> float | Value:
    """PyTorch's normalization: 0 for none, 1 by the root of the length, 2 by the length."""
    count = product(sizes)
    if scale == 0:
        return 1.0
    if count.constant is not None:
        return 1 / math.sqrt(count.constant) if scale == 1 else 1 / count.constant
    number = n.of_size(count).cast(t.f64)
    factor = 1.0 / (f.sqrt(number) if scale == 1 else number)
    return factor.cast(n.element)


def _scaled(x: Spectrum, factor: float | Value) -> Complex:
    made = Complex(x.re, x.im)
    if isinstance(factor, Value):
        return made.times(factor.cast(x.re.element))
    return made if factor == 1.0 else made.times(factor)
