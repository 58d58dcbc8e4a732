"""Run a block kernel's native code between guard pages, and compare it with the interpreter."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.arith import Arith
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.math import Math
from xdsl.parser import Parser

from dialects.block import KernelOp
from dialects.block.dialect import Block
from dialects.block.interpret import interpret_kernel
from dialects.host.dialect import Host
from dialects.strata.dialect import Strata
from dialects.strata.types import Array
from dialects.symbolic.symbol import Symbol
from dialects.verifying import verify
from targets.cpu.build.cache import ObjectCache
from targets.cpu.build.jit import compile_texts, link
from targets.cpu.emit import emit_kernel
from targets.cpu.emit.kernel import private_bytes
from targets.cpu.machine import Machine, lacking, machine_of
from tests.symbols import by_symbol

_LIBC = ctypes.CDLL(None, use_errno=True)
RANDOM = np.random.default_rng(0)


def available_features() -> list[Any]:
    """The feature sets as test parameters."""
    return [feature_set(name) for name in ("baseline", "avx2", "avx512")]


def feature_set(name: str) -> Any:
    """A feature set as a test parameter, which is skipped if this processor lacks it."""
    if not (missing := lacking(name)):
        return name
    reason = f"this processor lacks {', '.join(sorted(missing))}"
    return pytest.param(name, marks=pytest.mark.skip(reason=reason))


each_machine = pytest.mark.parametrize("features", available_features())
ELEMENTS = [("f16", "f16", np.float16), ("bf16", "bf16", ml_dtypes.bfloat16),
            ("f32", "f32", np.float32), ("f64", "f64", np.float64), ("i1", "i1", np.bool_),
            ("i8", "i8", np.int8), ("ui8", "i8", np.uint8), ("i16", "i16", np.int16),
            ("i32", "i32", np.int32), ("i64", "i64", np.int64)]
each_element = pytest.mark.parametrize(("element", "tile", "dtype"), ELEMENTS)


def parse(text: str) -> KernelOp:
    kernel = _parser(text).parse_op()
    verify(kernel)
    assert isinstance(kernel, KernelOp)
    return kernel


def parse_module(text: str) -> ModuleOp:
    module = _parser(text).parse_module()
    verify(module)
    return module


def _parser(text: str) -> Parser:
    context = Context()
    for dialect in (Builtin, Arith, Math, Strata, Block, Host):
        context.load_dialect(dialect)
    return Parser(context, text)


def randoms(*shape: int, dtype: Any = np.float32) -> Array:
    """Normal numbers; for integers, small ones of both signs."""
    kind = np.dtype(dtype)
    if kind.kind in "iub":
        low = 0 if kind.kind in "ub" else -20
        return RANDOM.integers(low, 2 if kind.kind == "b" else 20, shape).astype(kind)
    return RANDOM.standard_normal(shape).astype(kind)


def unlike(*shape: int, dtype: Any = np.float32) -> Array:
    """An output buffer full of a number that no test computes."""
    return np.full(shape, 77, dtype)


# ---------------------------------------------------------------------- guarded memory
class Guarded:
    """A copy of an array that ends (or starts) exactly at a page that must not be touched."""

    def __init__(self, array: Array, at_end: bool):
        page = mmap.PAGESIZE
        inner = -(-max(array.nbytes, 1) // page) * page
        self.memory = mmap.mmap(-1, inner + 2 * page)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.size = inner + 2 * page
        for start in (self.base, self.base + page + inner):
            _protect(start, page, 0)
        self.address = self.base + page + (inner - array.nbytes if at_end else 0)
        raw = (ctypes.c_uint8 * array.nbytes).from_address(self.address)
        self.array = np.frombuffer(raw, np.uint8).view(array.dtype).reshape(array.shape)
        self.array[...] = array

    def release(self) -> None:
        for start in (self.base, self.base + self.size - mmap.PAGESIZE):
            _protect(start, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE)


def _protect(address: int, size: int, access: int) -> None:
    pointer = ctypes.c_void_p(address)
    assert _LIBC.mprotect(pointer, ctypes.c_size_t(size), ctypes.c_int(access)) == 0


# ---------------------------------------------------------------------- running
def native(kernel: KernelOp, machine: Machine) -> Any:
    """The kernel as a C function of buffers, sizes, first and last program, and private memory."""
    code = compile_texts([emit_kernel(kernel, machine, "k")], machine, ObjectCache(None))
    library = link(code, "k")
    integers = [ctypes.c_int64] * (len(kernel.size_names) + 2)
    pointers = [ctypes.c_void_p] * len(kernel.buffers)
    private = [] if private_bytes(kernel) is None else [ctypes.c_void_p]
    function = ctypes.CFUNCTYPE(None, *pointers, *integers, *private)(library.address)
    function.library = library  # type: ignore[attr-defined]
    return function


def run_native(
    function: Any, kernel: KernelOp, buffers: Sequence[Array], sizes: Mapping[Symbol, int],
    at_end: bool,
) -> list[Array]:
    """All buffers after all programs, in two parts as if by two threads."""
    total = int(np.prod([e.evaluate(sizes) for e in kernel.grid.data], dtype=np.int64))
    guarded = [Guarded(np.ascontiguousarray(b), at_end) for b in buffers]
    size = private_bytes(kernel)
    private = [] if size is None else [
        Guarded(np.zeros(size.evaluate(sizes), np.uint8), True)]  # whole lines
    integers = [sizes[name] for name in kernel.size_names]
    for low, high in ((0, total // 2), (total // 2, total)):
        function(*(g.address for g in guarded), *integers, low, high,
                 *(p.address for p in private))
    results = [g.array.copy() for g in guarded]
    for g in (*guarded, *private):
        g.release()
    return results


def check(
    text: str, *buffers: Array, features: str | None, tolerance: float = 0, **sizes: int
) -> list[Array]:
    """Native code and interpreter agree on all buffers, wherever the guard pages lie."""
    kernel, machine = parse(text), machine_of(features)
    expected = [b.copy() for b in buffers]
    values = by_symbol(sizes)
    interpret_kernel(kernel, expected, values)
    actual, function = list[Array](), native(kernel, machine)
    for at_end in (True, False):
        actual = run_native(function, kernel, buffers, values, at_end)
        for a, e in zip(actual, expected, strict=True):
            assert_same(a, e, tolerance)
    return actual


def assert_same(actual: Array, expected: Array, tolerance: float) -> None:
    if actual.dtype.kind in "iub":
        np.testing.assert_array_equal(actual, expected)
        return
    wide = [a.astype(np.float64) for a in (actual, expected)]
    np.testing.assert_allclose(*wide, rtol=tolerance, atol=tolerance)


def body(arguments: str, *lines: str, result: str) -> str:
    """The region of a `block.map`."""
    text = "\n".join(lines)
    return f"{{\n^bb0({arguments}):\n{text}\nblock.yield {result}\n}}"
