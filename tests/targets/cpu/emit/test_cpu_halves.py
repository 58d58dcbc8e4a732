"""Conversions of f16 and bf16, bit for bit: every code, what lies halfway, and its neighbours.

Processors differ in what instructions they have for them, from none to both.
"""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.ir import Attribute

import dialects.graph as g
from dialects.strata import types as t
from dialects.strata.types import Array
from targets.base import TargetOptions
from targets.cpu import TARGET
from tests.lowering import lower
from tests.op_samples.sample import S, Sample, build_module
from tests.targets.cpu.cpu_kernels import available_features

SMALLEST = np.finfo(np.float32).tiny

each_machine = pytest.mark.parametrize("features", [None, *available_features()])
each_half = pytest.mark.parametrize("element", [t.f16, t.bf16], ids=str)
each_mode = pytest.mark.parametrize("denormals", ["flush", "keep"])


def codes(element: Attribute) -> Array:
    return np.arange(1 << 16, dtype=np.uint16).view(t.dtype_of(element))


@np.errstate(all="ignore")
def numbers(element: Attribute) -> Array:
    """All numbers of a type in f32, what lies halfway between two of them, and beyond the largest,
    each with the f32 before and after it.
    """
    own = np.unique(codes(element).astype(np.float32))
    own = own[np.isfinite(own)]
    middle = own[:-1] + np.diff(own) / 2
    ends = np.float32([1.5 * t.largest(element), 3e38, 1e-38, np.inf, np.nan])
    found = np.concatenate([own, middle, ends, -ends]).astype(np.float32)
    return np.concatenate([np.nextafter(found, np.float32(np.inf)), found,
                           np.nextafter(found, np.float32(-np.inf))])


def converted(x: Array, to: Attribute, features: str | None, denormals: str) -> Array:
    """By machine code, in vectors and in the scalar code of what is left of them."""
    return run(S(g.CastOp, x, to=to), features, denormals)


def run(sample: Sample, features: str | None, denormals: str) -> Array:
    options = TargetOptions(features=features, denormals=denormals, threads=1)
    module, inputs, context = build_module(sample, symbolic=False)
    parts = TARGET.bind(options)
    list(lower(module, parts.context(context.weights)))
    [found] = parts.running.load(module, context.weights).run(inputs)
    return np.asarray(found)


def assert_bits(found: Array, wanted: Array) -> None:
    """Equal bits; any NaN equals any other."""
    bits = f"u{wanted.itemsize}"
    same = (found.view(bits) == wanted.view(bits)) | (np.isnan(found) & np.isnan(wanted))
    assert same.all(), f"{found[~same][:9]} instead of {wanted[~same][:9]}"


@each_mode
@each_half
@each_machine
def test_every_code_is_widened(features: str | None, element: Attribute, denormals: str) -> None:
    x = codes(element)[1:]
    wanted = x.astype(np.float32)
    if denormals == "flush":  # those of bf16 are denormal in f32 as well
        wanted = np.where(np.abs(wanted) < SMALLEST, np.float32(0), wanted)
        x = np.where(wanted == 0, x.dtype.type(0), x)
    assert_bits(converted(x, t.f32, features, denormals), wanted)


@each_mode
@each_half
@each_machine
def test_numbers_are_rounded_to_even(
    features: str | None, element: Attribute, denormals: str
) -> None:
    x = numbers(element)
    if denormals == "flush":
        x = np.where(np.abs(x) < SMALLEST, np.float32(0), x)
    with np.errstate(all="ignore"):
        wanted = x.astype(t.dtype_of(element))
    assert_bits(converted(x, element, features, denormals), wanted)


@each_mode
@each_machine
def test_factors_of_products_may_be_denormal(features: str | None, denormals: str) -> None:
    """The instructions for products of bf16 never keep them."""
    a, b = (np.full(shape, value, t.dtype_of(t.bf16)) for shape, value in (
        ((9, 64), 2.0**-130), ((64, 33), 1.0)))
    found = run(S(g.MatmulOp, a, b), features, denormals)
    assert (found == (2.0**-124 if denormals == "keep" else 0)).all()
