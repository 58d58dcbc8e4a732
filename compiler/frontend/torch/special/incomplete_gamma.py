"""The regularized incomplete gamma functions P(a, x) and Q(a, x) = 1 - P(a, x), for f64.

Each of three parts of the plane has a sum of a fixed number of positive terms, along a last dim:

    x < max(a + 1, 6)   P, by its power series
    other a < 100       Q, by Laguerre's quadrature of e^-s (1 + s/x)^(a-1)
    a >= 100            the smaller of both, by Legendre's quadrature beside the peak of the density

Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 6.5.4, 6.5.29 and 25.4.45; W.
Press and others, Numerical Recipes, 3rd edition, 6.2.
"""

from __future__ import annotations

import math

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.torch.special.gamma import BERNOULLI, lgamma
from compiler.frontend.torch.special.polynomials import polynomial
from compiler.frontend.values import Value, constant
from dialects.strata.types import Array

LARGE, TERMS, NODES = 100.0, 160, 64


def incomplete_gamma(a: Value, x: Value, upper: bool) -> Value:
    """Q(a, x) if `upper`, else P(a, x)."""
    inside = (a > 0) & (x > 0) & ~f.is_inf(a) & ~f.is_inf(x)
    own, place = f.where(inside, a, 1.0), f.where(inside, x, 1.0)
    small = own < LARGE
    low = small & (place < f.maximum(own + 1, 6.0))
    below = _series(f.where(low, own, 1.0), f.where(low, place, 1.0))
    far = small & ~low
    above = _laguerre(f.where(far, own, 1.0), f.where(far, place, 8.0))
    beside, is_upper = _legendre(f.where(small, LARGE, own), f.where(small, LARGE, place))
    of_upper = f.where(small, far, is_upper)
    value = f.where(low, below, f.where(small, above, beside))
    value = f.where(of_upper if upper else ~of_upper, value, 1 - value)
    return _at_edges(f.where(inside, value, math.nan), a, x, upper)


def _at_edges(value: Value, a: Value, x: Value, upper: bool) -> Value:
    all_below = (f.equal(a, 0.0) & (x > 0)) | (f.is_inf(x) & (x > 0) & (a >= 0) & ~f.is_inf(a))
    none_below = (f.equal(x, 0.0) & (a > 0)) | (f.is_inf(a) & (a > 0) & (x >= 0) & ~f.is_inf(x))
    value = f.where(all_below, 0.0 if upper else 1.0, value)
    return f.where(none_below, 1.0 if upper else 0.0, value)


def _series(a: Value, x: Value) -> Value:
    """x^a e^-x / Gamma(a + 1) times the sum of x^k / ((a + 1) ... (a + k))."""
    first = f.exp(a * f.log(x) - x - lgamma(a + 1))
    ratios = _column(x) / (_column(a) + _row(a, np.arange(1.0, TERMS + 1)))
    return first * (1 + f.reduce_sum(f.running_product(ratios, axis=a.rank), axes=[a.rank]))


def _laguerre(a: Value, x: Value) -> Value:
    nodes, weights = np.polynomial.laguerre.laggauss(NODES)
    powers = (1 + _row(a, nodes) / _column(x)) ** (_column(a) - 1)
    total = f.reduce_sum(powers * _row(a, weights), axes=[a.rank])
    return f.exp((a - 1) * f.log(x) - x - lgamma(a)) * total


def _legendre(a: Value, x: Value) -> tuple[Value, Value]:
    """Q where x is above the peak a - 1 of the density, else P; and where that is."""
    peak = a - 1
    width = f.sqrt(peak)
    upper = x > peak
    end = f.where(upper, f.maximum(peak + 11.5 * width, x + 6 * width),
                  f.maximum(f.minimum(peak - 7.5 * width, x - 5 * width), 0.0))
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    places = _column(x) + _column(end - x) * _row(a, (nodes + 1) / 2)
    off = (places - _column(peak)) / _column(peak)
    density = f.exp(_column(peak) * (f.log1p(off) - off))
    total = f.reduce_sum(density * _row(a, weights / 2), axes=[a.rank])
    inverse = 1 / peak
    series = [b / (2 * k * (2 * k - 1)) for k, b in enumerate(BERNOULLI, 1)]
    rest = polynomial(inverse * inverse, series[::-1]) * inverse
    return total * abs(end - x) * f.exp(-rest) / f.sqrt(2 * math.pi * peak), upper


def _column(x: Value) -> Value:
    return x.reshape([*x.shape, 1])


def _row(like: Value, numbers: Array) -> Value:
    return constant(like.build, numbers, node=like.node)
