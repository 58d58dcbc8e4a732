"""Native functions in Python compute what Python computes, and what has no meaning is refused."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
import pytest

from targets.cpu.build.cache import ObjectCache
from targets.cpu.build.jit import compile_texts, link
from targets.cpu.llvm.expressions import NativeError
from targets.cpu.llvm.layout import Elements, Pointer, fields, kind_of, size_of
from targets.cpu.llvm.modules import definitions
from targets.cpu.llvm.native import Native
from targets.cpu.machine import machine_of
from tests.targets.cpu import native_functions as samples

_libraries: list[object] = []
_WORD = ctypes.c_uint64


@cache
def _compiled(function: Native[..., Any], flag: bool = False) -> Any:
    text = definitions([function], {samples.FLAG: flag}).text
    library = link(compile_texts([text], machine_of(), ObjectCache(None)), function.name)
    _libraries.append(library)
    return ctypes.CFUNCTYPE(_WORD)(library.address)


def _run(function: Native[..., Any], *arguments: int, flag: bool = False) -> int:
    return _compiled(function, flag)(*(_WORD(a % 2**64) for a in arguments))


@pytest.mark.parametrize("number", [1, 2, 7, 27, 97])
def test_loops_and_branches(number: int) -> None:
    assert _run(samples.collatz, number) == samples.collatz.function(number)


@pytest.mark.parametrize("number", [0, 3, 4, 5, 10, 11, 77])
def test_conditions(number: int) -> None:
    assert _run(samples.between, 3, number, 5) == samples.between.function(3, number, 5)


@pytest.mark.parametrize("a, b", [(1, 5), (5, 1), (-7, 3), (3, -7), (-8, -6)])
def test_numbers_follow_their_sign(a: int, b: int) -> None:
    high, low = max(a, b), min(a, b)
    expected = -(-low // 2) if low < 0 else low // 2  # LLVM rounds quotients towards zero
    assert _run(samples.signed, a, b) == (expected + (high >> 1) + (1 if a < b else 2)) % 2**64
    a, b = a % 2**64, b % 2**64
    assert _run(samples.unsigned, a, b) == samples.unsigned.function(a, b) % 2**64


@pytest.mark.parametrize("count, marked, found", [(0, None, 0), (4, None, 4), (4, 2, 2)])
def test_addresses(count: int, marked: int | None, found: int) -> None:
    size = size_of(samples.Node)
    assert size == 64
    memory = np.zeros((max(count, 1), size // 8), np.uint64)
    for k in range(count):
        memory[k, 0] = memory[k + 1].ctypes.data if k + 1 < count else 0
        memory[k, 7] = 99 if k == marked else 0
    assert _run(samples.length, memory.ctypes.data if count else 0) == found


def test_fields() -> None:
    node = np.array([0, 0, 40, 300, 1, 2, 3, 0], np.uint64)
    assert _run(samples.fields_of, node.ctypes.data) == (340 & 0xFF) | 1
    assert node.tolist() == [0, (340 & 0xFF) | 1, 40, 340, 3, 2, 8, 340]
    assert [f.byte for f in fields(samples.Node).values()] == [0, 8, 16, 32, 56]


def test_calls_and_two_results() -> None:
    text = definitions([samples.on_the_stack], {}).text
    assert text.count("@strata_doubled(") == 3 and text.count("define") == 2
    assert "ret {i64, i64}" in text
    assert _run(samples.on_the_stack, 21) == 42  # the first result


def test_a_setting_keeps_one_branch() -> None:
    assert _run(samples.chosen, 5, flag=True) == 5
    assert _run(samples.chosen, 5, flag=False) == 6


def test_only_what_is_used_is_compiled() -> None:
    assert "doubled" not in definitions([samples.collatz], {}).text


@pytest.mark.parametrize("function", samples.FAULTY, ids=lambda f: f.name)
def test_what_has_no_meaning_is_refused(function: Native[..., Any]) -> None:
    with pytest.raises(NativeError, match=r"native_functions:\d+: ") as caught:
        definitions([function], {})
    assert samples.FAULTY[function] in str(caught.value)


def test_native_functions_are_not_called_by_python() -> None:
    with pytest.raises(TypeError, match="called by native code only"):
        samples.collatz(1)


def test_kinds() -> None:
    assert kind_of(samples.Node | None) == Pointer(samples.Node)
    assert isinstance(fields(samples.Node)["counts"].kind, Elements)
    with pytest.raises(TypeError, match="no native value"):
        kind_of(str)
