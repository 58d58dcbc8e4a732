"""Grouped tiles on the CPU: dot products inside lanes, and the layouts of what they take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

from dialects.strata.types import Array
from targets.cpu.emit import emit_kernel
from targets.cpu.machine import machine_of
from tests.targets.cpu.cpu_kernels import available_features, body, check, parse, unlike

each_machine = pytest.mark.parametrize("features", [None, *available_features()])
"""Feature sets without such instructions, and whatever this processor has."""

RANDOM = np.random.default_rng(5)
DTYPES: dict[str, Any] = {"i8": np.int8, "i16": np.int16, "bf16": bfloat16, "f32": np.float32}


def extremes(element: str, *shape: int) -> Array:
    """Integers of which many are the largest or the smallest; other numbers as they come."""
    dtype = np.dtype(DTYPES[element])
    if dtype.kind != "i":
        return RANDOM.standard_normal(shape).astype(dtype)
    limits = np.iinfo(dtype)
    return RANDOM.choice([limits.min, limits.min + 1, -1, 0, 77, limits.max], shape).astype(dtype)


def product(
    element: str, total: str, group: int, shape: tuple[int, int, int], unsigned: str = ""
) -> str:
    """c += a @ b over packed b; a's last group is cut off where k does not divide by the group."""
    m, n, k = shape
    return f"""
    block.kernel @dot(%a: {element}[{m}, {k}], %b: {element}[{-(-k // group)}, {n}, {group}],
                      %c: {total}[{m}, {n}]) grid() sizes() {{
      %z = block.load %c[t0, t1] : tile<{m}x[{n}]x{total}>
      %s = block.for %k = 0 to {k} step {group} (%t = %z) {{
        %x = block.load %a[t0, %k + t1] check [1] : tile<{m}x{{{group}}}x{element}>
        %y = block.load %b[%k floordiv {group}, t1, t0] : tile<{{{group}}}x[{n}]x{element}>
        %d = block.dot %x, %y, %t ieee {unsigned} : tile<{m}x[{n}]x{total}>
        block.yield %d
      }}
      block.store %s, %c[t0, t1]
      block.yield
    }}"""


def check_product(
    element: str, total: str, group: int, shape: tuple[int, int, int], features: str | None,
    unsigned: str = "",
) -> None:
    m, n, k = shape
    whole = RANDOM.integers(-2**31, 2**31, (m, n)).astype(np.int32)
    c = whole if total == "i32" else whole.astype(np.float32) / 2**31
    check(product(element, total, group, shape, unsigned), extremes(element, m, k),
          extremes(element, -(-k // group), n, group), c, features=features,
          tolerance=0 if total == "i32" else 2e-5)


SHAPES = [(5, 64, 16), (3, 20, 10), (2, 17, 7), (1, 33, 3)]
"""Whole vectors, and lanes and groups that are left over."""


@each_machine
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("unsigned", ["", "unsigned [0]", "unsigned [1]", "unsigned [0, 1]"])
@pytest.mark.parametrize(("element", "group"), [("i8", 4), ("i16", 2), ("i8", 2)])
def test_integers_wrap_around(
    features: str | None, shape: tuple[int, int, int], unsigned: str, element: str, group: int
) -> None:
    check_product(element, "i32", group, shape, features, unsigned)


@each_machine
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("element", "group"), [("bf16", 2), ("f32", 2), ("bf16", 4)])
def test_floats(
    features: str | None, shape: tuple[int, int, int], element: str, group: int
) -> None:
    check_product(element, "f32", group, shape, features)


@pytest.mark.parametrize(("element", "unsigned", "name"), [
    ("i8", "unsigned [0]", "vpdpbusd"), ("i8", "", "vpdpwssd"), ("i16", "", "vpdpwssd"),
    ("bf16", "", "dpbf16ps"),
])
def test_instructions(element: str, unsigned: str, name: str) -> None:
    machine = machine_of("amx")  # which has them all; nothing runs
    integer = element != "bf16"
    text = product(element, "i32" if integer else "f32", 4 if element == "i8" else 2, (4, 64, 8),
                   unsigned)
    assert name in emit_kernel(parse(text), machine)
    assert name not in emit_kernel(parse(text), machine_of("avx512"))


@each_machine
def test_layouts(features: str | None) -> None:
    """Loaded with a group, taken apart, put together again, and mapped with what has fewer dims."""
    text = f"""
    block.kernel @layouts(%x: i8[20, 4], %v: i8[4], %y: i8[20, 4], %z: i8[4, 20]) grid() sizes() {{
      %g = block.load %x[t1, t0] : tile<{{4}}x[20]xi8>
      %a = block.convert %g : tile<4x[20]xi8>
      %b = block.convert %a : tile<{{4}}x[20]xi8>
      %w = block.load %v[t0] : tile<{{4}}xi8>
      %u = block.load %x[t0, 2] : tile<[20]xi8>
      %m = block.map (%b[0, 1], %w[0], %u[1]) : tile<{{4}}x[20]xi8> {body(
          "%p: i8, %q: i8, %r: i8", "%s = arith.subi %p, %q : i8", "%t = arith.muli %s, %r : i8",
          result="%t")}
      block.store %m, %y[t1, t0]
      block.store %a, %z[t0, t1]
      block.yield
    }}"""
    check(text, extremes("i8", 20, 4), extremes("i8", 4), unlike(20, 4, dtype=np.int8),
          unlike(4, 20, dtype=np.int8), features=features)


@each_machine
def test_what_is_valid_of_a_group(features: str | None) -> None:
    text = f"""
    block.kernel @valid(%x: i8[3, 4], %y: i8[3, 4]) grid(%p: 3) sizes(n) {{
      %v = block.valid %p + t0 < n : tile<{{4}}xi1>
      %a = block.load %x[%p, t0] : tile<{{4}}xi8>
      %b = block.map (%a[0], %v[0]) : tile<{{4}}xi8> {body(
          "%i: i8, %j: i1", "%z = arith.constant 0 : i8", "%k = arith.select %j, %i, %z : i8",
          result="%k")}
      block.store %b, %y[%p, t0]
      block.yield
    }}"""
    for n in (0, 3, 9):
        check(text, extremes("i8", 3, 4), unlike(3, 4, dtype=np.int8), features=features, n=n)


@each_machine
@pytest.mark.parametrize(("element", "group"), [("bf16", 2), ("i8", 4), ("i16", 2)])
@pytest.mark.parametrize("lanes", [8, 21, 32])
def test_rows_that_alternate(features: str | None, element: str, group: int, lanes: int) -> None:
    """A group's positions lie far apart in memory, some of them outside."""
    dtype = np.dtype(DTYPES[element])
    text = f"""
    block.kernel @pack(%x: {element}[7, 33], %y: {element}[3, 2, {lanes}, {group}])
        grid(%p: 3, %q: 2) sizes() {{
      %a = block.load %x[{group}*%q + t0, 11*%p + t1] check [0, 1]
        : tile<{{{group}}}x[{lanes}]x{element}>
      block.store %a, %y[%p, %q, t1, t0]
      block.yield
    }}"""
    check(text, extremes(element, 7, 33), np.ones((3, 2, lanes, group), dtype), features=features)
