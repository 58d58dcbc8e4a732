"""Matrix registers on the CPU: products of every shape, by AMX itself or by NumPy in its place."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

from dialects.block import KernelOp
from dialects.block.interpret import interpret_kernel
from dialects.strata.types import Array
from targets.cpu.build.cache import ObjectCache
from targets.cpu.build.jit import compile_texts, link
from targets.cpu.build.worker import assembly_text
from targets.cpu.emit import emit_kernel
from targets.cpu.machine import machine_of
from tests.targets.cpu.cpu_kernels import Guarded, assert_same, parse, unlike
from tests.targets.cpu.matrix_registers import Registers, has_matrices, with_matrices

RANDOM = np.random.default_rng(5)

needs_avx512 = pytest.mark.skipif(
    machine_of().vector_bytes < 64, reason="this processor has no AVX-512")


def product(
    element: str, shape: tuple[int, int, int], tile: tuple[int, int, int], unsigned: str = ""
) -> str:
    """y = a @ b over b's panels; tiles and the summed axis may reach beyond the ends."""
    (m, n, k), (rows, columns, depth) = shape, tile
    group, total = (4, "i32") if element == "i8" else (2, "f32")
    width = f"[{-(-n // columns)}, {-(-k // group)}, {columns}, {group}]"
    zero = "0" if total == "i32" else "0.0"
    return f"""
    block.kernel @dot(%a: {element}[{m}, {k}], %b: {element}{width}, %y: {total}[{m}, {n}])
        grid(%r: {-(-m // rows)}, %c: {-(-n // columns)}) sizes() {{
      %z = block.full {zero} : tile<({rows}x{columns})x{total}>
      %s = block.for %k = 0 to {k} step {depth} (%t = %z) {{
        %x = block.load %a[{rows}*%r + t0, %k + t1] check [0, 1] : tile<({rows}x{depth})x{element}>
        %w = block.load %b[%c, %k floordiv {group} + t0 floordiv {group}, t1, t0 mod {group}]
          check [1] : tile<({depth}x{columns})x{element}>
        %d = block.dot %x, %w, %t ieee {unsigned} : tile<({rows}x{columns})x{total}>
        block.yield %d
      }}
      %memory = block.scratch : {total}[{rows}, {columns}]
      block.store %s, %memory[t0, t1]
      %v = block.load %memory[t0, t1] : tile<{rows}x[{columns}]x{total}>
      block.store %v, %y[{rows}*%r + t0, {columns}*%c + t1] check [0, 1]
      block.yield
    }}"""


def factors(element: str, shape: tuple[int, int, int], columns: int) -> tuple[Array, Array]:
    """Of bytes many are the largest or the smallest; panels end in zeros."""
    m, n, k = shape
    group, dtype = (4, np.int8) if element == "i8" else (2, bfloat16)
    a, b = _numbers(dtype, m, k), _numbers(dtype, k, n)
    whole = np.zeros((-(-k // group) * group, -(-n // columns) * columns), dtype)
    whole[:k, :n] = b
    panels = whole.reshape(-1, group, whole.shape[1] // columns, columns).transpose(2, 0, 3, 1)
    return a, np.ascontiguousarray(panels)


def _numbers(dtype: Any, *shape: int) -> Array:
    if dtype is np.int8:
        return RANDOM.choice(np.array([-128, -127, -1, 0, 77, 127], np.int8), shape)
    return RANDOM.standard_normal(shape).astype(dtype)


def run(kernel: KernelOp, buffers: list[Array]) -> list[Array]:
    """The buffers after all programs, in memory between pages that must not be touched."""
    registers, host = Registers(), machine_of()
    text = emit_kernel(kernel, with_matrices(host), "k")
    text = text if has_matrices() else registers.redirected(text)
    library = link(compile_texts([text], host, ObjectCache(None)), "k")
    function = _callable(library.address, len(buffers))
    guarded = [Guarded(np.ascontiguousarray(b), True) for b in buffers]
    count = int(np.prod([e.evaluate({}) for e in kernel.grid.data], dtype=np.int64))
    function(*(g.address for g in guarded), 0, count)
    registers.check()
    results = [g.array.copy() for g in guarded]
    for g in guarded:
        g.release()
    return results


def _callable(address: int, buffers: int) -> Any:
    types = [ctypes.c_void_p] * buffers + [ctypes.c_int64] * 2
    return ctypes.CFUNCTYPE(None, *types)(address)


def check_product(
    element: str, shape: tuple[int, int, int], tile: tuple[int, int, int], unsigned: str = ""
) -> None:
    m, n, _ = shape
    dtype = np.int32 if element == "i8" else np.float32
    a, b = factors(element, shape, tile[1])
    kernel = parse(product(element, shape, tile, unsigned))
    buffers = [a, b, unlike(m, n, dtype=dtype)]
    expected = [x.copy() for x in buffers]
    interpret_kernel(kernel, expected, {})
    assert_same(run(kernel, buffers)[-1], expected[-1], 0 if element == "i8" else 1e-5)


SHAPES = [(64, 64, 64), (33, 70, 50), (7, 10, 38), (1, 33, 32), (40, 17, 6)]
"""Whole tiles, and rows, columns and positions that are left over."""


@needs_avx512
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("tile", [(32, 32, 32), (16, 16, 32), (25, 16, 32), (2, 32, 16)], ids=str)
def test_halves(shape: tuple[int, int, int], tile: tuple[int, int, int]) -> None:
    check_product("bf16", shape, tile)


@needs_avx512
@pytest.mark.parametrize("shape", [*SHAPES, (20, 20, 37), (9, 9, 63)], ids=str)
@pytest.mark.parametrize("unsigned", ["", "unsigned [0]", "unsigned [1]", "unsigned [0, 1]"])
def test_bytes_wrap_around(shape: tuple[int, int, int], unsigned: str) -> None:
    check_product("i8", shape, (32, 32, 64), unsigned)


@pytest.mark.parametrize(("element", "unsigned", "name"), [
    ("i8", "unsigned [0]", "tdpbusd"), ("i8", "unsigned [1]", "tdpbsud"), ("i8", "", "tdpbssd"),
    ("i8", "unsigned [0, 1]", "tdpbuud"), ("bf16", "", "tdpbf16ps"),
])
@needs_avx512
def test_instructions(element: str, unsigned: str, name: str) -> None:
    """Each factor is loaded once for two products, from where it lies; one configuration."""
    text = product(element, (64, 64, 128), (32, 32, 64 if element == "i8" else 32), unsigned)
    for check in ("check [0, 1]", "check [1]"):
        text = text.replace(f"{check} : tile<(", ": tile<(")
    kernel, machine = parse(text), with_matrices(machine_of())
    assembly = assembly_text(emit_kernel(kernel, machine), "sapphirerapids", "")
    counts = {word: assembly.count(f"\t{word}\t") for word in (
        name, "tileloadd", "tilezero", "tilestored", "ldtilecfg")}
    assert counts == {name: 4, "tileloadd": 4, "tilezero": 4, "tilestored": 4, "ldtilecfg": 1}
    assert assembly.count("tilerelease") == 1


def test_without_the_registers() -> None:
    with pytest.raises(ValueError, match="which this processor cannot"):
        emit_kernel(parse(product("bf16", (32, 32, 32), (32, 32, 32))), machine_of("avx2"))


@needs_avx512
def test_too_many_parts() -> None:
    with pytest.raises(ValueError, match="do not fit the matrix registers"):
        emit_kernel(parse(product("bf16", (64, 32, 32), (64, 32, 32))), with_matrices(machine_of()))
