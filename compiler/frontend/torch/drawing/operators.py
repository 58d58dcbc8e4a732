"""Random operators by Philox: the formulas of PyTorch's CPU kernels, with other bits.

compiler/frontend/draws.py describes the seed and the bits. Random numbers of halves are computed in
f32 and rounded, except for uniform ones in [0, 1), which have the digits of their type.
"""

from __future__ import annotations

import math

from xdsl.ir import Attribute

from compiler.frontend import formulas as f
from compiler.frontend.draws import DIGITS, Draws
from compiler.frontend.faults import Fault
from compiler.frontend.node import fixed
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import aten_op, ordering
from compiler.frontend.values import Value
from dialects.graph.ordering import ArgMaxOp
from dialects.semantics.numerics import highest
from dialects.strata import types as t
from dialects.symbolic.expr import Expr, Size


def draws_of(n: Node) -> Draws:
    """The draws of the program. Raises Fault if PyTorch draws for it."""
    draws = n.build.draws
    if not isinstance(draws, Draws):
        raise Fault("it is in training mode, and PyTorch draws what it drops")
    return draws


def _wide(element: Attribute) -> Attribute:
    """The type in which numbers of a type are computed."""
    return t.f64 if element == t.f64 else t.f32


def _uniform(n: Node) -> Value:
    """Numbers in [0, 1), in the type in which the result is computed."""
    return draws_of(n).uniform(n.shape, _wide(n.element))


# ---------------------------------------------------------------------- uniform numbers
@aten_op("aten.rand.default", "aten.rand_like.default")
def rand(n: Node) -> Value:
    return draws_of(n).uniform(n.shape, n.element)


@aten_op("aten.uniform.default")
def uniform(n: Node, x: Value, low: float, high: float) -> Value:
    return _uniform(n) * (high - low) + low


@aten_op("aten.randint.default")
def randint(n: Node, high: Size) -> Value:
    return randint_from(n, 0, high)


@aten_op("aten.randint.low")
def randint_from(n: Node, low: Size, high: Size) -> Value:
    """Raises Fault for limits that are known only at run time."""
    first, last = (fixed(v, "limits") for v in (low, high))
    if last <= first:
        raise Fault(f"there is no integer from {first} to {last - 1}")
    return draws_of(n).integers(n.shape, first, last)


@aten_op("aten.randint_like.default")
def randint_like(n: Node, x: Value, high: Size) -> Value:
    return randint_from(n, 0, high)


@aten_op("aten.randint_like.low_dtype")
def randint_like_from(n: Node, x: Value, low: Size, high: Size) -> Value:
    return randint_from(n, low, high)


@aten_op("aten.random.default")
def random(n: Node, x: Value) -> Value:
    """Integers from 0 to the largest one, or to the largest that floats count to."""
    most = 1 << DIGITS[x.element] if t.is_float(x.element) else highest(x.type.dtype)
    return randint_from(n, 0, int(most) + 1)


@aten_op("aten.random.to")
def random_to(n: Node, x: Value, high: int) -> Value:
    return randint_from(n, 0, high)


@aten_op("aten.randperm.default")
def randperm(n: Node) -> Value:
    """The order of 64 random bits for each number."""
    return ordering.argsort(n, draws_of(n).bits(n.shape), 0, False)


# ---------------------------------------------------------------------- truth values
@aten_op("aten.bernoulli.default")
def bernoulli(n: Node, x: Value) -> Value:
    """1 with the probability that each element is."""
    return draws_of(n).uniform(n.shape, _wide(x.element)) < x.cast(_wide(x.element))


@aten_op("aten.bernoulli.p")
def bernoulli_of_number(n: Node, x: Value, p: float) -> Value:
    return draws_of(n).uniform(n.shape, t.f32) < p


@aten_op("aten.bernoulli.Tensor")
def bernoulli_of_tensor(n: Node, x: Value, p: Value) -> Value:
    return bernoulli(n, p)


@aten_op("aten.multinomial.default")
def multinomial(n: Node, x: Value, count: int, replacement: bool) -> Value:
    """Indices of the largest quotients of weights and exponential numbers, which are drawn anew for
    each index of those with replacement."""
    axis, before, last = x.rank - 1, x.shape[:-1], x.shape[-1]
    shape = x.shape
    if replacement:
        x, shape = x.reshape([*before, 1, last]), (*before, Expr.of(count), last)
    drawn = -f.log1p(-draws_of(n).uniform(shape, _wide(x.element)))
    quotients = x.cast(_wide(x.element)) / drawn
    if replacement:
        return ordering.position(n, ArgMaxOp, quotients, axis + 1, False)
    return ordering.top_k(n, quotients, count, axis, True)[1]


def kept_by_dropout(n: Node, x: Value, p: float) -> Value:
    """x, of which each element is multiplied by 0 with the probability p, divided by 1 - p."""
    kept = draws_of(n).uniform(x.shape, t.f32) >= p
    return x * kept.cast(x.element) * (1 / (1 - p) if p < 1 else 0.0)


@aten_op("aten.rrelu_with_noise_functional.default")
def rrelu(
    n: Node, x: Value, noise: Value, lower: float, upper: float, training: bool
) -> list[Value]:
    """x where it is positive, else x times a slope, which is drawn in training."""
    wide = x.cast(_wide(n.element))
    if not training:
        return [f.where(wide > 0, wide, wide * ((lower + upper) / 2)), noise]
    slopes = draws_of(n).uniform(n.shape, wide.element) * (upper - lower) + lower
    slopes = f.where(wide > 0, 1.0, slopes)
    return [wide * slopes, slopes]


# ---------------------------------------------------------------------- other distributions
def _normal(n: Node) -> Value:
    return draws_of(n).normal(n.shape, n.element)


@aten_op("aten.randn.default", "aten.randn_like.default")
def randn(n: Node) -> Value:
    return _normal(n)


@aten_op("aten.normal_functional.default")
def normal(n: Node, x: Value, mean: float, deviation: float) -> Value:
    return _normal(n) * deviation + mean


@aten_op("aten.log_normal.default")
def log_normal(n: Node, x: Value, mean: float, deviation: float) -> Value:
    return f.exp(normal(n, x, mean, deviation))


@aten_op("aten.exponential.default")
def exponential(n: Node, x: Value, rate: float) -> Value:
    return f.log1p(-_uniform(n)) * (-1 / rate)


@aten_op("aten.geometric.default")
def geometric(n: Node, x: Value, p: float) -> Value:
    """The number of the first success."""
    scale = 1 / math.log1p(-p) if p < 1 else 0.0
    return f.maximum(f.ceil(f.log1p(-_uniform(n)) * scale), 1.0)


@aten_op("aten.cauchy.default")
def cauchy(n: Node, x: Value, median: float, sigma: float) -> Value:
    turned = (_uniform(n) - 0.5) * math.pi
    return f.sin(turned) / f.cos(turned) * sigma + median
