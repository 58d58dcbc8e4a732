"""The matrix registers of AMX in NumPy, so that code for them runs on every processor with AVX-512.

Calls of the instructions in an LLVM text become calls of this process's Python functions.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from dialects.strata.types import Array
from targets.cpu.machine import Machine, machine_of

FEATURES = frozenset(("amx-tile", "amx-bf16", "amx-int8"))
_CALL = re.compile(r"call void @llvm\.x86\.(ldtilecfg|tile\w+|tdp\w+)\(")
_BYTE, _POINTER, _DISTANCE = ctypes.c_uint8, ctypes.c_void_p, ctypes.c_int64


def with_matrices(host: Machine) -> Machine:
    """A machine as it would be with AMX."""
    return replace(host, features=host.features | FEATURES)


def has_matrices() -> bool:
    """Whether this machine runs the instructions itself."""
    return machine_of().features >= FEATURES


class Registers:
    """Eight registers, none of which is configured at first; misuse is an AssertionError."""

    def __init__(self) -> None:
        self.values = np.zeros((8, 16, 64), np.uint8)
        self.shapes = [(0, 0)] * 8
        self.faults: list[BaseException] = []
        self.used: set[str] = set()
        self._functions: dict[str, Any] = {}

    def redirected(self, text: str) -> str:
        """The LLVM text with calls of this object."""
        return _CALL.sub(lambda match: f"call void inttoptr (i64 {self._address(match[1])} "
                                       "to ptr)(", text)

    def check(self) -> None:
        """Raises what was raised inside calls."""
        for fault in self.faults:
            raise fault

    def _address(self, name: str) -> int:
        if name not in self._functions:
            self._functions[name] = self._function(name)
        return ctypes.cast(self._functions[name], ctypes.c_void_p).value or 0

    def _function(self, name: str) -> Any:
        match name:
            case "ldtilecfg":
                method, types = self._configure, [_POINTER]
            case "tilerelease":
                method, types = self._release, []
            case "tilezero":
                method, types = self._zero, [_BYTE]
            case "tileloadd64":
                method, types = self._load, [_BYTE, _POINTER, _DISTANCE]
            case "tilestored64":
                method, types = self._store, [_BYTE, _POINTER, _DISTANCE]
            case _:
                method, types = self._dot(name), [_BYTE, _BYTE, _BYTE]
        return ctypes.CFUNCTYPE(None, *types)(self._guarded(name, method))

    def _guarded(self, name: str, method: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            self.used.add(name)
            try:
                method(*arguments)
            except BaseException as error:  # cannot pass through native code
                self.faults.append(error)
        return call

    # ------------------------------------------------------------------ instructions
    def _configure(self, address: int) -> None:
        raw = np.frombuffer((ctypes.c_uint8 * 64).from_address(address), np.uint8)
        assert raw[0] == 1 and not raw[1:16].any() and not raw[32:48].any() and not raw[56:].any()
        widths = raw[16:32].view(np.uint16)
        self.shapes = [(int(raw[48 + k]), int(widths[k])) for k in range(8)]
        assert all(rows <= 16 and width <= 64 for rows, width in self.shapes)
        self.values[...] = 0

    def _release(self) -> None:
        self.shapes = [(0, 0)] * 8

    def _zero(self, register: int) -> None:
        assert all(self.shapes[register])
        self.values[register] = 0

    def _rows(self, register: int, address: int, distance: int) -> list[Array]:
        rows, width = self.shapes[register]
        assert rows and width
        return [np.frombuffer((ctypes.c_uint8 * width).from_address(address + k * distance),
                              np.uint8) for k in range(rows)]

    def _load(self, register: int, address: int, distance: int) -> None:
        self.values[register] = 0
        for k, row in enumerate(self._rows(register, address, distance)):
            self.values[register, k, : len(row)] = row

    def _store(self, register: int, address: int, distance: int) -> None:
        for k, row in enumerate(self._rows(register, address, distance)):
            row[...] = self.values[register, k, : len(row)]

    def _dot(self, name: str) -> Callable[[int, int, int], None]:
        signs: dict[str, Any] = {"s": np.int8, "u": np.uint8}
        kinds: tuple[Any, Any, Any] = (bfloat16, bfloat16, np.float32)
        if name != "tdpbf16ps":
            kinds = (signs[name[4]], signs[name[5]], np.int32)

        def dot(total: int, left: int, right: int) -> None:
            (rows, width), (m, k), (depth, n) = (self.shapes[r] for r in (total, left, right))
            assert (rows, width, k) == (m, n, 4 * depth) and min(m, n, k) > 0
            a = self.values[left, :m, :k].view(kinds[0]).astype(kinds[2]).reshape(m, -1)
            b = self.values[right, :depth, :n].view(kinds[1]).reshape(depth, n // 4, -1)
            b = b.astype(kinds[2]).transpose(0, 2, 1).reshape(-1, n // 4)
            c = self.values[total, :m, :n].view(kinds[2])
            with np.errstate(all="ignore"):
                c[...] = c + a @ b
        return dot
