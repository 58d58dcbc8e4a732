"""A compiled model in this process: binds sizes, provides memory, and calls the native entry."""

from __future__ import annotations

import ctypes
import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dialects import host
from dialects.graph.interpret import EvaluationError, bind_sizes
from dialects.sizes import check_assumptions
from dialects.types import Array, BufferType, tensor_of
from dialects.weights import WeightStore
from targets.base import Executable
from targets.cpu.driver import DriverText
from targets.cpu.driver_function import FIRST_ARGUMENT
from targets.cpu.heap import Heap
from targets.cpu.jit import Library
from targets.cpu.threads import thread_pool

_ALIGNMENT = 64

_LARGE = 1 << 20
"""Bytes from which on a copy of a constant costs more than cache lines that are read twice."""


@dataclass(frozen=True)
class _Binding:
    """What depends on the shapes of the inputs: kept while they stay the same."""

    shapes: tuple[tuple[int, ...], ...]
    sizes: Any
    outputs: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]
    arena: Array
    arena_address: int


class CpuExecutable(Executable):
    """The host function's entry with its constants. Calls from several threads take turns."""

    def __init__(
        self, func: host.FuncOp, driver: DriverText, library: Library, weights: WeightStore,
        threads: int,
    ):
        self._func = func
        self.input_names, self.output_names = func.input_names, func.output_names
        self._types = [_buffer_type(a.type) for a in func.input_arguments]
        self._dtypes = [type_.dtype for type_ in self._types]
        self._output_types = [_buffer_type(a.type) for a in func.output_arguments]
        self._returned = func.returned_types
        self._heap = Heap([r for r in self._returned if r is not None])
        self._checks = driver.checks
        self._size_names = func.size_names
        self._arena_bytes = driver.arena_bytes
        self._constants = [_aligned(op.array(weights), op.type) for op in driver.constants]
        self._library = library
        self._entry = _entry_function(library.address)
        pool = thread_pool()
        self._threads = threads if pool.is_parallel else 1
        self._table = self._make_table([*pool.addresses, self._heap.address])
        self._first_input = FIRST_ARGUMENT
        self._binding: _Binding | None = None
        self._lock = threading.Lock()

    def _make_table(self, functions: Sequence[int]) -> Any:
        arguments = [0] * (len(self._types) + len(self._output_types))
        entries = [*functions, *arguments, *(c.ctypes.data for c in self._constants)]
        return (ctypes.c_void_p * len(entries))(*entries)

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Outputs in model order; see `Executable.run`."""
        arrays = self._checked(inputs)
        with self._lock:
            binding = self._bind(arrays)
            outputs = [np.empty(shape, dtype) for shape, dtype in binding.outputs]
            table = self._table
            for k, array in enumerate((*arrays, *outputs), self._first_input):
                table[k] = array.__array_interface__["data"][0]
            if self._entry(binding.arena_address, table, binding.sizes, self._threads):
                number, seen = self._heap.failure()
                raise self._checks[number].error(seen)
            return self._with_returned(outputs) if self._heap.has_blocks else outputs

    def _with_returned(self, outputs: Sequence[Array]) -> list[Array]:
        """All outputs in order: those that were allocated before the call, and during it."""
        given, returned = iter(outputs), iter(self._heap.take_outputs())
        return [next(given if r is None else returned) for r in self._returned]

    def _checked(self, inputs: Sequence[Array]) -> list[Array]:
        """The inputs, C-contiguous. Raises ValueError for a wrong count or dtype."""
        if len(inputs) != len(self._types):
            names = ", ".join(self.input_names)
            raise ValueError(
                f"the model takes {len(self._types)} inputs ({names}), not {len(inputs)}")
        for name, array, dtype in zip(self.input_names, inputs, self._dtypes, strict=True):
            if array.dtype != dtype:
                raise ValueError(f"input {name!r} must be {dtype}, not {array.dtype}")
        return [_in_memory(a) for a in inputs]

    def _bind(self, inputs: Sequence[Array]) -> _Binding:
        if self._binding is None or self._binding.shapes != tuple(a.shape for a in inputs):
            self._binding = self._new_binding(inputs)
        return self._binding

    def _sizes(self, inputs: Sequence[Array]) -> dict[str, int]:
        """The size symbols' values. Raises ValueError for shapes that the model does not take."""
        try:
            values = bind_sizes([tensor_of(t) for t in self._types], inputs, self.input_names)
        except EvaluationError as error:
            raise ValueError(str(error)) from error
        check_assumptions(self._func, values)
        return values

    def _new_binding(self, inputs: Sequence[Array]) -> _Binding:
        values = self._sizes(inputs)
        outputs = tuple((tuple(int(s.evaluate(values)) for s in t.shape), t.dtype)
                        for t in self._output_types)
        sizes = [values.get(name, 0) for name in self._size_names]
        shapes = tuple(a.shape for a in inputs)
        arena_bytes = int(self._arena_bytes.evaluate(values))
        _check_memory(arena_bytes, outputs, values)
        arena = _aligned_bytes(arena_bytes)
        return _Binding(shapes, (ctypes.c_int64 * max(1, len(sizes)))(*sizes), outputs, arena,
                        arena.ctypes.data)


def _buffer_type(type_: Any) -> BufferType:
    assert isinstance(type_, BufferType)
    return type_


def _entry_function(address: int) -> Callable[..., int]:
    pointer = ctypes.c_void_p
    return ctypes.CFUNCTYPE(
        ctypes.c_int32, pointer, pointer, pointer, ctypes.c_int32)(address)


# ---------------------------------------------------------------------- memory
def _check_memory(
    arena: int, outputs: Sequence[tuple[tuple[int, ...], np.dtype[Any]]], sizes: Mapping[str, int]
) -> None:
    """Raises ValueError where a call takes more memory than the machine has."""
    results = sum(math.prod(shape) * dtype.itemsize for shape, dtype in outputs)
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if arena + results <= there:
        return
    given = ", ".join(f"{name} = {value}" for name, value in sizes.items())
    raise ValueError(f"a call takes {results} bytes for results and {arena} bytes for what lies "
                     f"between{given and ' with '}{given}; this machine has {there}")


def _in_memory(array: Array) -> Array:
    """A C-contiguous array; a number of NumPy's, which has no address of its own, becomes one."""
    whole = np.asarray(array)
    return whole if whole.flags.c_contiguous else np.ascontiguousarray(whole)


def _aligned_bytes(count: int) -> Array:
    """Uninitialized memory on a cache line's boundary, never empty."""
    raw = np.empty(max(count, 1) + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start: start + max(count, 1)]


def _aligned(array: Array, type_: BufferType) -> Array:
    """A constant in the buffer's element type, on a cache line's boundary; copied if needed.

    A large one, perhaps of a mapped file, stays where it is if its elements are aligned.
    """
    array = np.ascontiguousarray(array, type_.dtype)
    wanted = _ALIGNMENT if array.nbytes < _LARGE else type_.dtype.itemsize
    if array.ctypes.data % wanted == 0 and array.size:
        return array
    memory = _aligned_bytes(array.nbytes)
    memory[: array.nbytes] = array.reshape(-1).view(np.uint8)
    return memory
