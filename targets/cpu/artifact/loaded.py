"""A library in this process, with NumPy arrays, through its C interface.

Nothing here imports xDSL, LLVM or the passes. What a call checks, and how, is in the library.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, cast

import numpy as np

from dialects.strata.array_type import dtype_named
from dialects.strata.assumptions import (
    AccessError,
    DivisionByZeroError,
    IndexRangeError,
    SizeError,
)
from targets.call_states import CallStates
from targets.cpu.build.address import address_of
from targets.cpu.runtime.calls import Kind, kinds, most_states
from targets.cpu.runtime.heap import ASKING, asking_addresses
from targets.cpu.runtime.processors import thread_count
from targets.cpu.runtime.results import Result
from targets.interface import Executable, TargetError
from targets.library_file import NoLibrary, check_sums

if TYPE_CHECKING:
    from dialects.strata.types import Array

MOST_DIMS = 16
_UNKNOWN = ctypes.c_size_t(-1).value
"""The bytes of outputs that only a run knows."""
_BAD_SIZES, _OTHER_CODE, _BAD_INDEX, _BAD_ACCESS, _CANCELLED, _BAD_DIVISOR = 6, 7, 8, 9, 15, 18
_ERRORS: Mapping[int, type[Exception]] = {
    _BAD_SIZES: SizeError, _OTHER_CODE: SizeError, _BAD_INDEX: IndexRangeError,
    _BAD_ACCESS: AccessError, _BAD_DIVISOR: DivisionByZeroError}
"""The errors of statuses (`api.h`) that are no ValueError."""


class _Tensor(ctypes.Structure):
    """strata_tensor."""

    _fields_ = [("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t), ("dtype", ctypes.c_int32),
                ("rank", ctypes.c_int32), ("shape", ctypes.c_int64 * MOST_DIMS)]


class _Port(ctypes.Structure):
    """strata_port."""

    _fields_ = [("name", ctypes.c_char_p), ("type", ctypes.c_char_p), ("dtype", ctypes.c_int32),
                ("rank", ctypes.c_int32), ("shape", ctypes.c_int64 * MOST_DIMS)]


class _Options(ctypes.Structure):
    """strata_options."""

    _fields_ = [("size", ctypes.c_size_t), ("threads", ctypes.c_int32),
                ("allocator", ctypes.c_void_p), ("weights", ctypes.c_char_p),
                ("interrupt", ctypes.c_void_p), ("interrupt_context", ctypes.c_void_p)]


class Library:
    """The functions of a library. Raises TargetError for one that cannot be loaded."""

    def __init__(self, path: str, name: str):
        try:
            self._library: Any = ctypes.CDLL(_own_spelling(path))
        except OSError as error:
            raise TargetError(f"the system does not load it: {error}") from None
        self._name, pointer = name, ctypes.c_void_p
        self.create = self._function("create", ctypes.c_int, pointer, pointer)
        self.destroy = self._function("destroy", None, pointer)
        self.set_signals = self._function(
            "set_signals", ctypes.POINTER(ctypes.c_int64), pointer, pointer)
        self.set_threads = self._function("set_threads", ctypes.c_int, pointer, ctypes.c_int32)
        arrays = (pointer, pointer, ctypes.c_int32, pointer, ctypes.c_int32)
        self.shapes = self._function("shapes", ctypes.c_int, *arrays)
        self.call = self._function("call", ctypes.c_int, *arrays)
        self.run_at = self._function("run_at", ctypes.c_int, pointer, pointer)
        self.message = self._function("message", ctypes.c_char_p, pointer)
        self.error_text = self._function("error_text", ctypes.c_char_p, ctypes.c_int)
        self.inputs, self.outputs = self._ports("input"), self._ports("output")

    def _function(self, name: str, result: Any, *parameters: Any) -> Any:
        try:
            found = getattr(self._library, f"{self._name}_{name}")
        except AttributeError:
            raise TargetError(f"it has no function {self._name}_{name}") from None
        found.restype, found.argtypes = result, parameters
        return found

    def _ports(self, what: str) -> list[_Port]:
        count = self._function(f"{what}_count", ctypes.c_int32)()
        port = self._function(what, ctypes.POINTER(_Port), ctypes.c_int32)
        return [port(k).contents for k in range(count)]


class _State:
    """A state of the library, with the arrays of its last call. `owner`: as in `CallStates`."""

    def __init__(self, library: Library, threads: int, weights: str | None):
        self.library, self.owner = library, 0
        options = _Options(ctypes.sizeof(_Options), threads, None, weights and os.fsencode(weights))
        found = ctypes.c_void_p()
        status = library.create(ctypes.byref(options), ctypes.byref(found))
        if status:
            raise TargetError(library.error_text(status).decode())
        self.handle, self.threads = found, threads
        self._asking = (ctypes.c_void_p * len(ASKING))(*asking_addresses()[1:])
        self._raised = library.set_signals(found, self._asking)
        self.ins = (_Tensor * len(library.inputs))()
        self.outs = (_Tensor * len(library.outputs))()
        self.addresses = (ctypes.c_void_p * (len(self.ins) + len(self.outs)))()
        self.kinds: list[Kind] | None = None
        self.results: list[Result | None] = []

    def __del__(self) -> None:
        if handle := getattr(self, "handle", None):
            self.library.destroy(handle)

    def fail(self, status: int) -> NoReturn:
        """Raise the error of a status, or what a signal's handler has raised."""
        if status == _CANCELLED:
            ctypes.pythonapi.PyErr_Restore(*map(ctypes.c_void_p, self._raised[:3]))
        text = self.library.message(self.handle) or self.library.error_text(status)
        raise _ERRORS.get(status, ValueError)(text.decode(errors="replace"))


class LibraryExecutable(Executable):
    """The model of a library. Several threads may call it at once, each with a state of its own."""

    def __init__(self, library: Library, facts: Mapping[str, Any], threads: int,
                 weights: str | None):
        self.facts, self._library, self._threads = facts, library, threads
        signature = facts["signature"]
        self.input_names = list(signature["input_names"])
        self.output_names = list(signature["output_names"])
        self._dtypes = [dtype_named(t[1]) for t in signature["input_types"]]
        self._out_dtypes = [dtype_named(t[1]) for t in signature["output_types"]]
        if (len(self._dtypes), len(self._out_dtypes)) != (
                len(library.inputs), len(library.outputs)):
            raise TargetError("its description does not fit its code")
        self._calls = CallStates(partial(_State, library, threads, weights), most_states)
        self._are_given = False
        self._calls.give(self._calls.take())  # whatever is wrong is known when it is loaded

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        state = self._calls.take()
        try:
            is_known = state.kinds is not None and state.kinds == kinds(inputs)
            if not is_known:
                inputs = self._describe(state, inputs)
            outputs = [None if r is None else r.array() for r in state.results]
            addresses, place = state.addresses, 0
            for array in inputs:
                addresses[place] = address_of(array)
                place += 1
            for array in outputs:
                addresses[place] = None if array is None else address_of(array)
                place += 1
            if self._threads > 1:
                self._share(state)
            status = self._library.run_at(state.handle, addresses) if is_known else (
                self._bound(state, inputs))
            if status:
                state.fail(status)
            return self._with_late(state, outputs)
        finally:
            self._calls.give(state)

    def _bound(self, state: _State, inputs: Sequence[Array]) -> int:
        """Bind the arrays of a call, and run. Later calls of the same shapes replace them."""
        for tensor, address in zip((*state.ins, *state.outs), state.addresses, strict=True):
            tensor.data = address
        status = self._library.call(state.handle, state.ins, len(state.ins), state.outs,
                                    len(state.outs))
        state.kinds = kinds(inputs) if status == 0 else None
        return status

    def _with_late(self, state: _State, outputs: Sequence[Array | None]) -> list[Array]:
        """The outputs, with those that the run has allocated."""
        if self._are_given:
            return cast("list[Array]", outputs)
        return [_copied(state.outs[k], self._out_dtypes[k]) if array is None else array
                for k, array in enumerate(outputs)]

    def _share(self, state: _State) -> None:
        """Simultaneous calls share the threads."""
        count = max(1, self._threads // max(1, self._calls.busy))
        if count != state.threads:
            self._library.set_threads(state.handle, count)
            state.threads = count

    def _describe(self, state: _State, inputs: Sequence[Array]) -> list[Array]:
        """Describe arrays of other shapes to the state. Returns them, C-contiguous."""
        state.kinds = None
        if len(inputs) != len(self._dtypes):
            raise ValueError(f"the model takes {len(self._dtypes)} inputs "
                             f"({', '.join(self.input_names)}), not {len(inputs)}")
        arrays = [np.ascontiguousarray(a).reshape(np.shape(a)) for a in inputs]
        for k, (array, dtype) in enumerate(zip(arrays, self._dtypes, strict=True)):
            if array.dtype != dtype:
                raise ValueError(f"input {self.input_names[k]!r} must be {dtype}, "
                                 f"not {array.dtype}")
            if array.ndim > MOST_DIMS:
                raise ValueError(f"input {self.input_names[k]!r} has {array.ndim} dims")
            tensor = state.ins[k]
            tensor.data, tensor.bytes = address_of(array), array.nbytes
            tensor.dtype, tensor.rank = self._library.inputs[k].dtype, array.ndim
            tensor.shape[: array.ndim] = array.shape
        status = self._library.shapes(state.handle, state.ins, len(arrays), state.outs,
                                      len(state.outs))
        if status:
            state.fail(status)
        state.results = [None if t.bytes == _UNKNOWN else Result(tuple(t.shape[: t.rank]), dtype)
                         for t, dtype in zip(state.outs, self._out_dtypes, strict=True)]
        self._are_given = None not in state.results
        return arrays


def _own_spelling(path: str) -> str:
    """The path in a spelling that no other file has had at this place.

    A system that has loaded a path does not look at the file again. After the model was compiled
    again, it would go on with the old code. `/tmp//././x.so` is another path than `/tmp/x.so`.
    """
    found = os.stat(path)
    folder, name = os.path.split(path)
    bits = f"{found.st_ino:b}{found.st_mtime_ns:064b}"
    return folder + "".join("/." if bit == "1" else "/" for bit in bits) + "/" + name


def _copied(tensor: _Tensor, dtype: np.dtype[Any]) -> Array:
    """An output that the run has allocated, as memory of its own."""
    array = np.empty(tuple(tensor.shape[: tensor.rank]), dtype)
    if array.nbytes:
        ctypes.memmove(array.ctypes.data, tensor.data, array.nbytes)
    return array


def load_library(path: str, facts: Mapping[str, Any], threads: int | None) -> LibraryExecutable:
    """The model of a library whose contents were checked (`trailer.read_library`).

    Raises TargetError for one that does not fit this system, and for weights that are not those
    of the model.
    """
    weights: Mapping[str, Any] | None = facts["weights"]
    file = None if weights is None else os.path.join(os.path.dirname(path), weights["file"])
    if file is not None and weights is not None:
        _check_weights(file, weights)
    return LibraryExecutable(Library(path, str(facts["name"])), facts, thread_count(threads), file)


def _check_weights(file: str, about: Mapping[str, Any]) -> None:
    if os.path.exists(file) and not os.path.isfile(file):
        raise TargetError(f"its weights cannot be read: {file}: it is not a file")
    try:
        with open(file, "rb") as opened:
            if os.fstat(opened.fileno()).st_size != about["bytes"]:
                raise NoLibrary("its length is not what was written")
            check_sums(opened.fileno(), about["bytes"], about["sums"])
    except OSError as error:
        raise TargetError(f"its weights cannot be read: {file}: {error.strerror}") from None
    except NoLibrary as error:
        raise TargetError(f"its weights in {file} are damaged: {error}") from None
