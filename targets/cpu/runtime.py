"""A compiled model in this process: binds sizes, provides memory, and calls the native entry."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dialects import host
from dialects.expr import Expr
from dialects.types import Array, BufferType
from dialects.weights import WeightStore
from targets.base import Executable
from targets.cpu.driver import DriverText
from targets.cpu.jit import Library
from targets.cpu.threads import thread_pool

_ALIGNMENT = 64


@dataclass(frozen=True)
class _Binding:
    """What depends on the shapes of the inputs: kept while they stay the same."""

    shapes: tuple[tuple[int, ...], ...]
    sizes: Any
    outputs: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]
    arena: Array


class CpuExecutable(Executable):
    """The host function's entry with its constants. Calls from several threads take turns."""

    def __init__(
        self, func: host.FuncOp, driver: DriverText, library: Library, weights: WeightStore,
        threads: int,
    ):
        self.input_names, self.output_names = func.input_names, func.output_names
        self._types = [_buffer_type(a.type) for a in func.input_arguments]
        self._output_types = [_buffer_type(a.type) for a in func.output_arguments]
        self._size_names = func.size_names
        self._arena_bytes = driver.arena_bytes
        self._constants = [_aligned(op.array(weights), op.type) for op in driver.constants]
        self._library = library
        self._entry = _entry_function(library.address)
        pool = thread_pool()
        self._threads = threads if pool.is_parallel else 1
        self._table = self._make_table(pool.addresses)
        self._first_input = len(pool.addresses)
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
            binding = self._bind(tuple(a.shape for a in arrays))
            outputs = [np.empty(shape, dtype) for shape, dtype in binding.outputs]
            table = self._table
            for k, array in enumerate((*arrays, *outputs), self._first_input):
                table[k] = array.__array_interface__["data"][0]
            self._entry(binding.arena.ctypes.data, table, binding.sizes, self._threads)
        return outputs

    def _checked(self, inputs: Sequence[Array]) -> list[Array]:
        """The inputs, C-contiguous. Raises ValueError for a wrong count or dtype."""
        if len(inputs) != len(self._types):
            names = ", ".join(self.input_names)
            raise ValueError(
                f"the model takes {len(self._types)} inputs ({names}), not {len(inputs)}")
        for name, array, type_ in zip(self.input_names, inputs, self._types, strict=True):
            if array.dtype != type_.dtype:
                raise ValueError(f"input {name!r} must be {type_.dtype}, not {array.dtype}")
        return [a if a.flags.c_contiguous else np.ascontiguousarray(a) for a in inputs]

    def _bind(self, shapes: tuple[tuple[int, ...], ...]) -> _Binding:
        if self._binding is None or self._binding.shapes != shapes:
            self._binding = self._new_binding(shapes)
        return self._binding

    def _new_binding(self, shapes: tuple[tuple[int, ...], ...]) -> _Binding:
        values = bind_sizes(self.input_names, [t.shape for t in self._types], shapes)
        outputs = tuple((tuple(int(s.evaluate(values)) for s in t.shape), t.dtype)
                        for t in self._output_types)
        sizes = [values.get(name, 0) for name in self._size_names]
        return _Binding(shapes, (ctypes.c_int64 * max(1, len(sizes)))(*sizes), outputs,
                        _aligned_bytes(int(self._arena_bytes.evaluate(values))))


def _buffer_type(type_: Any) -> BufferType:
    assert isinstance(type_, BufferType)
    return type_


def _entry_function(address: int) -> Callable[..., None]:
    pointer = ctypes.c_void_p
    return ctypes.CFUNCTYPE(None, pointer, pointer, pointer, ctypes.c_int32)(address)


# ---------------------------------------------------------------------- memory
def _aligned_bytes(count: int) -> Array:
    """Uninitialized memory on a cache line's boundary, never empty."""
    raw = np.empty(max(count, 1) + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start: start + max(count, 1)]


def _aligned(array: Array, type_: BufferType) -> Array:
    """A constant in the buffer's element type, on a cache line's boundary; copied if needed."""
    array = np.ascontiguousarray(array, type_.dtype)
    if array.ctypes.data % _ALIGNMENT == 0 and array.size:
        return array
    memory = _aligned_bytes(array.nbytes)
    memory[: array.nbytes] = array.reshape(-1).view(np.uint8)
    return memory


# ---------------------------------------------------------------------- sizes
def bind_sizes(
    names: Sequence[str], declared: Sequence[Sequence[Expr]], shapes: Sequence[Sequence[int]]
) -> dict[str, int]:
    """The values of the size symbols, from the shapes of the inputs.

    Raises ValueError, naming the input, for a wrong rank or for sizes that contradict each other.
    """
    values: dict[str, int] = {}
    for name, sizes, shape in zip(names, declared, shapes, strict=True):
        if len(sizes) != len(shape):
            raise ValueError(f"input {name!r} must have {len(sizes)} dims {_text(sizes)}, "
                             f"not {len(shape)}: {tuple(shape)}")
    pairs = [pair for sizes, shape in zip(declared, shapes, strict=True)
             for pair in zip(sizes, shape, strict=True)]
    for _ in range(2):  # a dim such as a + b may be solved once a is known
        for size, extent in pairs:
            _solve(size, extent, values)
    for name, sizes, shape in zip(names, declared, shapes, strict=True):
        _check(name, sizes, shape, values)
    return values


def _solve(size: Expr, extent: int, values: dict[str, int]) -> None:
    """Bind the symbol of `factor*symbol + offset == extent`."""
    rest = size.substitute(values)
    if len(rest.symbols) != 1:
        return
    (symbol,) = rest.symbols
    split = rest.linear([symbol])
    factor = None if split is None else split[0][symbol].constant
    if factor:
        values[symbol] = (extent - rest.offset) // factor


def _check(
    name: str, sizes: Sequence[Expr], shape: Sequence[int], values: dict[str, int]
) -> None:
    for dim, (size, extent) in enumerate(zip(sizes, shape, strict=True)):
        expected = size.substitute(values).constant
        if expected is not None and expected != extent:
            raise ValueError(f"input {name!r} has {extent} in dim {dim} of {tuple(shape)}, where "
                             f"the model's {_text(sizes)} needs {expected}")


def _text(sizes: Sequence[Expr]) -> str:
    return f"[{', '.join(map(str, sizes))}]"
