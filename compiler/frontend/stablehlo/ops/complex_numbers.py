"""Operations on complex numbers, which are two values of reals.

Operations that only move elements, and sums, are imported once for each part. Functions are those
of PyTorch's complex operators (`compiler/frontend/torch/complex/arithmetic.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.fourier import of_reals, to_reals, transform
from compiler.frontend.node import fixed
from compiler.frontend.stablehlo.node import Node
from compiler.frontend.stablehlo.ops import complex_op, importers
from compiler.frontend.stablehlo.ops.elementwise import direction_of
from compiler.frontend.stablehlo.ops.reductions import applied, combined, kind_of
from compiler.frontend.stablehlo.parts import Either, is_complex, part_type, parts_of
from compiler.frontend.torch.complex import arithmetic as c
from compiler.frontend.torch.complex.values import Complex, taken_apart
from compiler.frontend.values import Value
from dialects.strata import types as t

_MOVES = (
    "add", "subtract", "negate", "select", "broadcast_in_dim", "broadcast",
    "dynamic_broadcast_in_dim", "reshape", "dynamic_reshape", "transpose", "concatenate", "reverse",
    "slice", "real_dynamic_slice", "dynamic_slice", "dynamic_update_slice", "pad", "dynamic_pad",
    "gather", "dynamic_gather")


def _each(n: Node, operands: Sequence[Either]) -> Complex:
    """What the importer for reals makes of real parts, and of imaginary parts."""
    types = [part_type(type_) for type_ in n.op.types]
    parts = [_part(replace(n, op=replace(n.op, types=types)), operands, imaginary)
             for imaginary in (False, True)]
    return Complex(*parts)


def _part(n: Node, operands: Sequence[Either], imaginary: bool) -> Value:
    made = importers()[n.op.name](n, *(taken_apart(v, imaginary) for v in operands))
    return made if isinstance(made, Value) else made[0]


@complex_op(*(f"stablehlo.{name}" for name in _MOVES), "chlo.broadcast_add",
            "chlo.broadcast_subtract", "chlo.broadcast_select")
def moved(n: Node, *operands: Either) -> Complex:
    return _each(n, operands)


@complex_op("stablehlo.constant", "chlo.constant_like")
def constant(n: Node, *like: Either) -> Complex:
    """Both parts of an array, or of one number."""
    given: Any = n.op.attributes["value"]
    types = [part_type(type_) for type_ in n.op.types]
    parts = [_part(replace(n, op=replace(n.op, types=types, attributes={"value": part(given)})),
                   like, False) for part in (np.real, np.imag)]
    return Complex(*parts)


@complex_op("stablehlo.iota", "stablehlo.dynamic_iota")
def iota(n: Node, *shape: Value) -> Complex:
    return _with_zeros(_each(n, shape).re)


def _with_zeros(re: Value) -> Complex:
    return Complex(re, re * 0)


@complex_op("stablehlo.convert")
def convert(n: Node, x: Either) -> Either:
    """Reals become complex; of complex numbers that become reals, the imaginary part is dropped."""
    element = part_type(n.result).element
    if isinstance(x, Value):
        return _with_zeros(x.cast(element))
    return x.cast(element) if is_complex(n.result) else x.re.cast(element)


# ---------------------------------------------------------------------- parts
@complex_op("stablehlo.complex")
def from_parts(n: Node, re: Value, im: Value) -> Complex:
    return Complex(re, im)


@complex_op("stablehlo.real")
def real(n: Node, x: Complex) -> Value:
    return x.re


@complex_op("stablehlo.imag")
def imaginary(n: Node, x: Complex) -> Value:
    return x.im


@complex_op("chlo.conj")
def conjugate(n: Node, x: Complex) -> Complex:
    return x.conjugate()


@complex_op("stablehlo.abs")
def size(n: Node, x: Complex) -> Value:
    return c.size_of(x)


@complex_op("stablehlo.compare", "chlo.broadcast_compare")
def compare(n: Node, x: Complex, y: Complex) -> Value:
    direction, _ = direction_of(n)
    if direction not in ("EQ", "NE"):
        raise Fault(f"it compares complex numbers by {direction}")
    same = f.equal(x.re, y.re) & f.equal(x.im, y.im)
    return same if direction == "EQ" else ~same


# ---------------------------------------------------------------------- arithmetic and functions
_OF_TWO: dict[str, Callable[[Complex, Complex], Complex]] = {
    "multiply": lambda x, y: x * y, "divide": c.quotient,
    "power": lambda x, y: c.raised(x.cast(t.f64), y.cast(t.f64)).cast(x.re.element)}


@complex_op(*(f"{prefix}{name}" for name in _OF_TWO
              for prefix in ("stablehlo.", "chlo.broadcast_")))
def arithmetic(n: Node, x: Complex, y: Complex) -> Complex:
    return _OF_TWO[n.op.name.partition(".")[2].removeprefix("broadcast_")](x, y)


def _plus(x: Complex, number: float) -> Complex:
    return Complex(x.re + number, x.im)


def _arsinh(x: Complex) -> Complex:
    """ln(x + sqrt(x^2 + 1)), of the side on which the sum does not cancel."""
    left = x.re < 0
    x = Complex(f.where(left, -x.re, x.re), f.where(left, -x.im, x.im))
    found = c.logarithm(x + c.square_root(_plus(x * x, 1.0)))
    return Complex(f.where(left, -found.re, found.re), f.where(left, -found.im, found.im))


def _artanh(x: Complex) -> Complex:
    return (c.logarithm(_plus(x, 1.0)) - c.logarithm(_plus(-x, 1.0))).times(0.5)


def _arcosh(x: Complex) -> Complex:
    roots = c.square_root(_plus(x, 1.0)) * c.square_root(_plus(x, -1.0))
    return c.logarithm(x + roots)


def _arcsin(x: Complex) -> Complex:
    return c.over_i(_arsinh(c.times_i(x)))


def _arccos(x: Complex) -> Complex:
    found = _arcsin(x)
    return Complex(math.pi / 2 - found.re, -found.im)


_IN_F64: dict[str, Callable[[Complex], Complex]] = {
    "log_plus_one": c.log_of_more, "exponential_minus_one": c.exponential_less_one,
    "asinh": _arsinh, "acosh": _arcosh, "atanh": _artanh, "asin": _arcsin, "acos": _arccos,
    "atan": lambda x: c.over_i(_artanh(c.times_i(x)))}
"""Functions whose formulas lose digits."""
_OF_ONE: dict[str, Callable[[Complex], Complex]] = {
    "exponential": c.exponential, "log": c.logarithm, "sqrt": c.square_root, "sine": c.sine,
    "cosine": c.cosine, "tanh": c.hyperbolic_tangent, "square": lambda x: x * x,
    "sign": c.direction_of, **{ours: c.FUNCTIONS[theirs] for ours, theirs in {
        "rsqrt": "rsqrt", "logistic": "sigmoid", "tan": "tan", "sinh": "sinh",
        "cosh": "cosh"}.items()},
    **{name: lambda x, of=of: of(x.cast(t.f64)).cast(x.re.element)
       for name, of in _IN_F64.items()}}


@complex_op(*(f"{dialect}.{name}" for name in _OF_ONE for dialect in ("stablehlo", "chlo")))
def function(n: Node, x: Complex) -> Complex:
    return _OF_ONE[n.op.name.partition(".")[2]](x)


# ---------------------------------------------------------------------- sums
@complex_op("stablehlo.dot_general", "stablehlo.dot", "stablehlo.convolution",
            "stablehlo.dynamic_conv")
def product(n: Node, x: Complex, y: Complex, *others: Value) -> Complex:
    """The sum of products of parts."""
    own = replace(n, op=replace(n.op, types=[part_type(n.result)]))

    def of(a: Value, b: Value) -> Value:
        return _part(own, [a, b, *others], False)

    return Complex(of(x.re, y.re) - of(x.im, y.im), of(x.re, y.im) + of(x.im, y.re))


@complex_op("stablehlo.reduce")
def reduce(n: Node, *operands: Either) -> list[Value] | Complex:
    """A sum of each part, or any region, of both parts of each number."""
    region = applied(n, n.result.element) if "applies" in n.op.attributes else n.op.regions[0]
    if len(operands) == 2 and kind_of(region) == "add":
        return _each(n, operands)
    half = len(operands) // 2
    return combined(n, region, parts_of(operands[:half]), parts_of(operands[half:]),
                    sorted(n.ints("dimensions")))


@complex_op("stablehlo.reduce_window")
def reduce_window(n: Node, *operands: Either) -> Any:
    if len(operands) == 2 and kind_of(n.op.regions[0]) == "add":
        return _each(n, operands)
    return importers()[n.op.name](n, *parts_of(operands))


@complex_op("stablehlo.scatter")
def scatter(n: Node, *operands: Either) -> Complex:
    """Updates that replace, or are added."""
    [region] = n.op.regions
    if len(region.operations) > 1 and kind_of(region) != "add":
        raise Fault("it combines complex numbers by another operation than a sum")
    return _each(n, operands)


# ---------------------------------------------------------------------- Fourier transforms
@complex_op("stablehlo.fft")
def fourier(n: Node, x: Either) -> Either:
    """Along the last dims; those backward are divided by the number of elements."""
    kind = str(n.op.attributes.get("fft_type", n.op.attributes.get("type")))
    lengths = n.ints("fft_length" if "fft_length" in n.op.attributes else "length")
    axes = [x.rank - len(lengths) + k for k in range(len(lengths))]
    for axis, length in zip(axes[:-1] if kind == "IRFFT" else axes, lengths, strict=False):
        if fixed(x.shape[axis], "transformed dims") != length:
            raise Fault(f"it transforms {length} of {x.shape[axis]} numbers")
    if isinstance(x, Value):
        x = Complex(**vars(of_reals(x, axes[-1], lengths[-1])))
        axes, lengths = axes[:-1], lengths[:-1]
    last, count = axes[-1:], lengths[-1:]
    backward = kind in ("IFFT", "IRFFT")
    for axis, length in zip(axes[:-1] if kind == "IRFFT" else axes, lengths, strict=False):
        x = Complex(**vars(transform(x, axis, length, not backward)))
    scale = 1 / math.prod(lengths) if backward else 1.0
    if kind == "IRFFT":
        return to_reals(_half(x, last[0], count[0]), last[0], count[0]) * scale
    return x.times(scale) if backward else x


def _half(x: Complex, axis: int, count: int) -> Complex:
    size = count // 2 + 1
    return Complex(x.re.part(axis, 0, size), x.im.part(axis, 0, size))
