"""Random operators that draw until what they have drawn is accepted, element by element.

A loop draws for all elements at once, and goes on while any of them has none yet. All is computed
in f64, as PyTorch's CPU kernels do, of whose methods these are:

    gamma      Marsaglia and Tsang, A simple method for generating gamma variables, 2000
    poisson    Hoermann, The transformed rejection method for generating Poisson random variables,
               1993 (PTRS); products of uniform numbers where the rate is below 10
    binomial   Hoermann, The generation of binomial random variates, 1993 (BTRS); sums of geometric
               numbers where the expected number of successes is below 10

A parameter outside of its range gives NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from compiler.frontend import formulas as f
from compiler.frontend.loops import Loop, Turn
from compiler.frontend.peeling import repeat
from compiler.frontend.torch.drawing.operators import draws_of
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import aten_op
from compiler.frontend.torch.special.gamma import lgamma
from compiler.frontend.values import Value
from dialects.strata import types as t
from dialects.symbolic.expr import Expr

LARGE = 10.0
"""The mean from which on numbers are drawn by transformed rejection."""


@aten_op("aten._standard_gamma.default")
def standard_gamma(n: Node, x: Value) -> Value:
    """Numbers of the gamma distribution of each shape, and of scale 1."""
    return _gamma(n, x.cast(t.f64))


@aten_op("aten._sample_dirichlet.default")
def dirichlet(n: Node, x: Value) -> Value:
    """Numbers of gamma distributions, divided by their sum along the last dim."""
    drawn = _gamma(n, x.cast(t.f64))
    return drawn / f.reduce_sum(drawn, axes=[x.rank - 1], keepdims=True)


@aten_op("aten.poisson.default")
def poisson(n: Node, x: Value) -> Value:
    """Numbers of events, of each rate."""
    rate = x.cast(t.f64)
    large = rate >= LARGE
    drawn = f.where(large, _poisson_by_rejection(n, f.where(large, rate, LARGE)),
                    _poisson_by_products(n, f.where(large, 0.0, rate)))
    return f.where(rate >= 0, drawn, math.nan)


@aten_op("aten.binomial.default")
def binomial(n: Node, count: Value, chance: Value) -> Value:
    """Numbers of successes among a count of trials, of each chance."""
    shape = n.shape
    trials = f.floor(count.cast(t.f64)).broadcast(shape)
    given = chance.cast(t.f64).broadcast(shape)
    rare = f.minimum(given, 1 - given)
    valid = (trials >= 0) & (rare >= 0)
    large = valid & (trials * rare >= LARGE)
    drawn = f.where(
        large, _binomial_by_rejection(n, f.where(large, trials, 4 * LARGE),
                                      f.where(large, rare, 0.5)),
        _binomial_by_sums(n, f.where(valid & ~large, trials, 0.0),
                          f.where(valid & ~large, rare, 0.0)))
    return f.where(valid, f.where(given > 0.5, trials - drawn, drawn), math.nan)


# ---------------------------------------------------------------------- loops
def _until_accepted(n: Node, draw: Callable[[], tuple[Value, Value]]) -> Value:
    """The first accepted number of each element. `draw`: numbers, and which of them are."""
    def turn(known: Value, waiting: Value) -> tuple[Value, Value]:
        number, accepted = draw()
        return f.where(waiting & accepted, number, known), waiting & ~accepted

    zeros = _filled(n, 0.0)
    return _while_any(n, zeros, f.equal(zeros, 0.0), turn)


def _counted(
    n: Node, first: float, grown: Callable[[Value], Value], fits: Callable[[Value], Value]
) -> Value:
    """How often each element grows, from a first value on, until it no longer fits."""
    count = _filled(n, 0.0)
    start = grown(_filled(n, first))

    def turn(value: Value, count: Value, waiting: Value) -> tuple[Value, Value, Value]:
        more = grown(value)
        return more, count + waiting.cast(t.f64), waiting & fits(more)

    return _while_any(n, start, count, fits(start), turn)


def _while_any(n: Node, *given: Any) -> Value:
    """The last value that a turn makes of values and of whether each element waits, while any does.

    `given`: the first values, which elements wait, and the turn.
    """
    *first, waiting, turn = given
    build, node = n.build, n.build.node

    def body(step: Expr, carried: list[Value]) -> Turn:
        with draws_of(n).within(step):
            made = turn(*carried)
        return Turn(_any(made[-1]), made, [])

    loop = Loop(f"{node}_draws", None, _any(waiting), [*first, waiting])
    [*found, _], _ = repeat(build, loop, body)
    build.node = node
    return found[-1]


def _any(x: Value) -> Value:
    """Whether any element is true: i1[]."""
    return f.reduce_sum(x.cast(t.i64), axes=[*range(x.rank)]) > 0


def _filled(n: Node, number: float) -> Value:
    return n.scalar(number, t.f64).broadcast(n.shape)


def _uniform(n: Node) -> Value:
    return draws_of(n).uniform(n.shape, t.f64)


# ---------------------------------------------------------------------- distributions
def _gamma(n: Node, shape: Value) -> Value:
    """A shape below 1 is that of one more, times a power of a uniform number."""
    small, valid = shape < 1, (shape > 0) & ~f.is_inf(shape)
    d = f.where(valid, f.where(small, shape + 1, shape), 1.0) - 1 / 3
    c = 1 / f.sqrt(d * 9)

    def draw() -> tuple[Value, Value]:
        normal = draws_of(n).normal(n.shape, t.f64)
        root = normal * c + 1
        positive = root > 0
        cube = f.where(positive, root * root * root, 1.0)
        height = normal * normal * 0.5 + d - d * cube + d * f.log(cube)
        return d * cube, positive & (f.log1p(-_uniform(n)) < height)

    drawn = _until_accepted(n, draw)
    power = f.exp(f.log1p(-_uniform(n)) / f.where(valid, shape, 1.0))
    drawn = f.where(small, drawn * power, drawn)
    return f.where(valid, drawn, f.where(f.equal(shape, 0.0), 0.0, f.where(
        shape > 0, shape, math.nan)))


def _poisson_by_products(n: Node, rate: Value) -> Value:
    """How many uniform numbers have a product above e^-rate."""
    limit = f.exp(-rate)
    return _counted(n, 1.0, lambda product: product * (1 - _uniform(n)), lambda p: p > limit)


def _poisson_by_rejection(n: Node, rate: Value) -> Value:
    b = f.sqrt(rate) * 2.53 + 0.931
    a = b * 0.02483 - 0.059
    inverse_alpha = 1.1328 / (b - 3.4) + 1.1239
    quick = 0.9277 - 3.6224 / (b - 2)

    def draw() -> tuple[Value, Value]:
        u, v = _uniform(n) - 0.5, 1 - _uniform(n)
        us = 0.5 - abs(u)
        k = f.floor((a * 2 / us + b) * u + rate + 0.43)
        inside = (k >= 0) & ~((us < 0.013) & (v > us))
        height = f.log(v) + f.log(inverse_alpha / (a / (us * us) + b))
        below = height <= f.log(rate) * k - rate - lgamma(f.maximum(k, 0.0) + 1)
        return k, ((us >= 0.07) & (v <= quick)) | (inside & below)

    return _until_accepted(n, draw)


def _binomial_by_sums(n: Node, trials: Value, chance: Value) -> Value:
    """How many numbers of trials until a success fit into all of them."""
    rate = f.log1p(-chance)

    def grown(total: Value) -> Value:
        return total + f.maximum(f.ceil(f.log1p(-_uniform(n)) / rate), 1.0)

    return _counted(n, 0.0, grown, lambda total: total <= trials)


def _binomial_by_rejection(n: Node, trials: Value, chance: Value) -> Value:
    spread = f.sqrt(trials * chance * (1 - chance))
    b = spread * 2.53 + 1.15
    a = b * 0.0248 - 0.0873 + chance * 0.01
    c = trials * chance + 0.5
    quick = 0.92 - 4.2 / b
    alpha = (5.1 / b + 2.83) * spread
    mode = f.floor((trials + 1) * chance)

    def fits(k: Value) -> Value:
        """ln of k! (trials - k)!."""
        return lgamma(k + 1) + lgamma(trials - k + 1)

    def draw() -> tuple[Value, Value]:
        u, v = _uniform(n) - 0.5, 1 - _uniform(n)
        us = 0.5 - abs(u)
        k = f.floor((a * 2 / us + b) * u + c)
        inside = (k >= 0) & (k <= trials)
        place = f.where(inside, k, 0.0)
        height = f.log(v * alpha / (a / (us * us) + b))
        below = height <= fits(mode) - fits(place) + (place - mode) * f.log(
            chance / (1 - chance))
        return k, inside & (((us >= 0.07) & (v <= quick)) | below)

    return _until_accepted(n, draw)

