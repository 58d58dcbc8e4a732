"""Keeps operands where operators are defined, so that not everything becomes NaN.

Placeholders are drawn within their domain. A computed value gets a few nodes that bring it there:
a square root reads |x| + 0.25. Now and then it is left as it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tests.fuzz.solver.draft import BF16, FLOATS, Array, Domain, Draft, Impossible, Value

POSITIVE, UNIT, SMALL, ABOVE_ONE, NONZERO, FEW = (
    Domain(k) for k in ("positive", "unit", "small", "above_one", "nonzero", "few"))
SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 65504.0, -1.0, 0.0, 1e-6)


def confine(draft: Draft, value: Value, domain: Domain) -> Value:
    """What nodes make of a value so that it lies within the domain."""
    if value.placeholder:
        return _confined_placeholder(draft, value, domain)
    if domain.kind in ("index", "count"):
        raise Impossible
    if value.dtype in FLOATS:
        return value if draft.chance(0.08) else _confined_float(draft, value, domain)
    if domain.kind == "few":
        return _few(draft, value)
    return _nonzero_integer(draft, value) if domain.kind == "nonzero" else value


def _confined_placeholder(draft: Draft, value: Value, domain: Domain) -> Value:
    """The placeholder itself, if nothing else was asked of its numbers."""
    for placeholder in draft.placeholders:
        if placeholder.value is value:
            if placeholder.domain.kind not in ("any", domain.kind) or domain.kind == "index":
                raise Impossible
            copy = draft.placeholder(value.dtype, value.shape, domain, placeholder.fixed)
            return copy
    raise Impossible


def _confined_float(draft: Draft, value: Value, domain: Domain) -> Value:
    def constant(number: float) -> str:
        return draft.constant(number, value.dtype)

    def apply(op_type: str, x: Value, *more: str) -> Value:
        return draft.node(op_type, [x, *more], x.dtype, x.shape, keep=False)

    if domain.kind == "unit":
        return apply("Mul", apply("Tanh", value), constant(0.875))
    if domain.kind == "small":
        return apply("Clip", value, constant(-4), constant(4))
    offset = 1.0 if domain.kind == "above_one" else 0.25
    return apply("Add", apply("Abs", value), constant(offset))


def _few(draft: Draft, value: Value) -> Value:
    """Integers from 0 to 5, whose powers are none that wrap around."""
    if value.dtype not in draft.allowed("Clip"):
        raise Impossible
    bounds = [draft.constant(b, value.dtype) for b in (0, 5)]
    return draft.node("Clip", [value, *bounds], value.dtype, value.shape, keep=False)


def _nonzero_integer(draft: Draft, value: Value) -> Value:
    if value.dtype not in draft.allowed("Max"):
        raise Impossible
    return draft.node("Max", [value, draft.constant(1, value.dtype)], value.dtype, value.shape,
                      keep=False)


# ---------------------------------------------------------------------- numbers
def numbers(
    random: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...], domain: Domain,
    bound: int, special: bool, scale: float,
) -> Array:
    """Numbers of a domain. `bound`: the domain's, at these sizes; `special`: also NaN and such."""
    if dtype == np.bool_:
        return np.asarray(random.integers(0, 2, shape), bool)
    if domain.kind == "index":
        low = 0 if domain.from_zero or dtype.kind == "u" else -bound
        return np.asarray(random.integers(low, max(bound, low + 1), shape), dtype)
    if domain.kind == "count":
        return np.asarray(random.integers(0, 6, shape), dtype)
    if domain.kind == "flag":
        return np.asarray(random.integers(0, 2, shape), dtype)
    if dtype.kind in "iu":
        return _integers(random, dtype, shape, domain)
    return _floats(random, dtype, shape, domain, special, scale)


def _integers(
    random: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...], domain: Domain
) -> Array:
    low = 0 if dtype.kind == "u" or domain.kind in ("positive", "above_one", "few") else -5
    array = np.asarray(random.integers(low, 6, shape), dtype)
    zero = domain.kind in ("nonzero", "positive", "above_one")
    return np.where(array == 0, np.ones((), dtype), array) if zero else array


def _floats(
    random: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...], domain: Domain,
    special: bool, scale: float,
) -> Array:
    coarse = random.random() < 0.5
    wide = random.integers(-32, 33, shape) / 8 if coarse else random.normal(0, 1.5, shape)
    wide = np.asarray(wide * scale, np.float64)
    if domain.kind == "unit":
        wide = np.clip(wide / 5, -0.95, 0.95)
    elif domain.kind in ("positive", "above_one"):
        wide = np.abs(wide) + (1 if domain.kind == "above_one" else 0.25)
    elif domain.kind == "nonzero":
        wide = np.where(np.abs(wide) < 0.25, 0.5, wide)
    if special and wide.size and domain.kind == "any":
        places = random.random(shape) < 0.1
        wide = np.where(places, random.choice(SPECIAL, shape), wide)
    with np.errstate(over="ignore"):
        return wide.astype(dtype)


def is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or dtype == BF16


def with_kind(domain: Domain, kind: str) -> Domain:
    return replace(domain, kind=kind)
