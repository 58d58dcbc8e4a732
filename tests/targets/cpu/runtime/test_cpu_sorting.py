"""Rows that are sorted in memory: by themselves, and in kernels of models."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import numpy as np
import onnx
import onnx.parser
import pytest

import compiler
from compiler.frontend import MemoryModel
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from dialects.strata.types import Array
from targets.cpu.build.cache import ObjectCache
from targets.cpu.build.jit import compile_texts, link
from targets.cpu.driver.sorting import sort_definition
from targets.cpu.machine import machine_of
from tests.targets.cpu.cpu_kernels import feature_set

_ENTRY = """
define void @sort(ptr %a, ptr %b, ptr %c, i64 %n, i64 %low, i64 %digit) {
  call void @k_sort(ptr %a, ptr %b, ptr %c, i64 %n, i64 %low, i64 %digit)
  ret void
}
"""
GUARD = 7
_libraries: list[object] = []


@cache
def _native() -> Callable[..., None]:
    texts = [sort_definition("k") + _ENTRY]
    library = link(compile_texts(texts, machine_of(), ObjectCache(None)), "sort")
    _libraries.append(library)
    return ctypes.CFUNCTYPE(None)(library.address)


def sorted_natively(row: Array, low: int, digit: int) -> Array:
    """The row as the function sorts it; nothing beside its memory changes."""
    count = row.size
    memory = [np.full(n + GUARD, -1, np.int64) for n in (count, count + (1 << digit) + 1)]
    before = row.copy()
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (row, *memory)]
    _native()(*pointers, *(ctypes.c_uint64(n) for n in (count, low, digit)))
    np.testing.assert_array_equal(row, before)
    assert all((a[-GUARD:] == -1).all() for a in memory)
    return memory[0][:count]


def rows(count: int) -> dict[str, Array]:
    random = np.random.default_rng(count)
    any_ = random.integers(-(1 << 63), (1 << 63) - 1, count, np.int64)
    place = np.arange(count, dtype=np.int64)
    low = max(1, (count - 1).bit_length())
    return {
        "any": any_, "one": np.full(count, -5, np.int64), "few": any_ % 3 - 1, "in order": place,
        "keys": (any_ >> 40 << low) | place, "like keys": (any_ >> 40 << low) | place[::-1],
        "high bits": any_ & -(1 << 60), "signs": any_ >> 63}


@pytest.mark.parametrize("digit", [8, 11])
@pytest.mark.parametrize("count", [1, 2, 17, 100, 257, 5000])
def test_a_row(count: int, digit: int) -> None:
    for name, row in rows(count).items():
        found = sorted_natively(row, max(1, (count - 1).bit_length()), digit)
        np.testing.assert_array_equal(found, np.sort(row), name)


# ---------------------------------------------------------------------- models
def model(m: int, n: int, largest: int) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[{m}, {n}] x) => (values, places) {{
            k = Constant<value_ints = [{n}]>()
            values, places = TopK<axis = -1, largest = {largest}>(x, k)
        }}""")


@pytest.mark.parametrize("features", [None, feature_set("avx2")])
@pytest.mark.parametrize(("m", "n"), [(3, 129), (2, 451), (1, 40_000)])
@pytest.mark.parametrize("largest", [0, 1])
def test_rows_of_a_model(m: int, n: int, largest: int, features: str | None) -> None:
    """Ties keep their order, NaN is the greatest, and -0.0 is 0.0. The memory beside a long row is
    not on the stack."""
    x = np.random.default_rng(n).standard_normal((m, n), np.float32)
    x[:, ::7], x[:, 1::11], x[:, 2::13] = np.nan, np.inf, -np.inf
    x[:, 3::5], x[:, 4::9] = 0.0, -0.0
    exe = compiler.compile(model(m, n, largest), target="cpu", cache="off", features=features)
    values, places = exe(x)
    keys = np.where(np.isnan(x), np.inf, x), np.isnan(x)
    order = np.stack([
        np.lexsort((np.arange(n), *((-k, ~nan) if largest else (k, nan))))
        for k, nan in zip(*keys, strict=True)])
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))


@pytest.mark.parametrize(("n", "check", "sorts"), [
    (451, None, True), (451, True, False), (100, None, False)])
def test_who_sorts_in_memory(n: int, check: bool | None, sorts: bool) -> None:
    """Not short rows, which are ranked, nor where single accesses are checked."""
    options = CompileOptions("cpu", cache="off", check=check)
    source = MemoryModel("sort.onnx", model(3, n, 1).SerializeToString())
    compiled = Compiler(source, options, [])
    assert ("_sort(" in compiled.emit(compiled.lower(), "llvm")) == sorts
