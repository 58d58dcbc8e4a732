"""Runs a model's library on a GPU, with NumPy and the library's own functions: no torch, no Strata.

    python use_library.py LIBRARY NAME INPUTS.npz OUTPUTS.npz [CALLS]

Runs CALLS times on the same memory (default 3: launches, then a graph), and once on other memory,
which must give the same. Prints the shortest time of a call, in microseconds, after the first two.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

DTYPES = {"float32": 1, "float64": 2, "float16": 3, "bool": 5, "int8": 6, "int16": 7, "int32": 8,
          "int64": 9, "uint8": 10, "uint16": 11, "uint32": 12, "uint64": 13}
NAMES = {number: name for name, number in DTYPES.items()} | {4: "uint16"}


class Tensor(ctypes.Structure):
    """strata_tensor."""

    _fields_ = [("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t), ("dtype", ctypes.c_int32),
                ("rank", ctypes.c_int32), ("shape", ctypes.c_int64 * 16)]


class Library:
    """A state of a model on the device."""

    def __init__(self, path: str, name: str, weights: str | None = None):
        self.functions, self.name = ctypes.CDLL(path), name
        self.state = ctypes.c_void_p()
        status = self.of("create")(None, ctypes.byref(self.state))
        if status:
            raise RuntimeError(f"{status}: {self.text('error_text', status)}")

    def of(self, function: str) -> Any:
        return getattr(self.functions, f"{self.name}_{function}")

    def text(self, function: str, argument: Any) -> str:
        found = self.of(function)
        found.restype = ctypes.c_char_p
        return found(argument).decode()

    def check(self, status: int) -> None:
        if status:
            raise RuntimeError(f"{status}: {self.text('message', self.state)}")

    def upload(self, array: np.ndarray[Any, Any]) -> ctypes.c_void_p:
        """Memory on the device with an array's contents."""
        memory = ctypes.c_void_p()
        size = ctypes.c_size_t(array.nbytes)
        self.check(self.of("allocate")(self.state, size, ctypes.byref(memory)))
        self.check(self.of("upload")(self.state, memory, array.ctypes.data_as(ctypes.c_void_p),
                                     size))
        return memory

    def tensor(self, array: np.ndarray[Any, Any]) -> Tensor:
        return Tensor(self.upload(array).value, array.nbytes, DTYPES[array.dtype.name], array.ndim,
                      (ctypes.c_int64 * 16)(*array.shape))

    def call(self, inputs: Any, outputs: Any) -> None:
        self.check(self.of("call")(self.state, inputs, len(inputs), outputs, len(outputs)))

    def fetch(self, tensor: Tensor) -> np.ndarray[Any, Any]:
        made = np.empty(list(tensor.shape)[:tensor.rank], NAMES[tensor.dtype])
        self.check(self.of("download")(self.state, made.ctypes.data_as(ctypes.c_void_p),
                                       ctypes.c_void_p(tensor.data), ctypes.c_size_t(made.nbytes)))
        return made

    def close(self) -> None:
        self.of("destroy")(self.state)


def run(
    path: str, name: str, arrays: Sequence[np.ndarray[Any, Any]], calls: int = 3
) -> tuple[list[np.ndarray[Any, Any]], float]:
    """The outputs, and the shortest time of a call after the first two, in microseconds."""
    library = Library(path, name)
    inputs = (Tensor * len(arrays))(*map(library.tensor, arrays))
    outputs = (Tensor * library.of("output_count")())()
    times: list[float] = []
    for _ in range(calls):
        started = time.perf_counter()
        library.call(inputs, outputs)
        library.check(library.of("synchronize")(library.state))
        times.append(1e6 * (time.perf_counter() - started))
    found = [library.fetch(t) for t in outputs]
    others = (Tensor * len(arrays))(*map(library.tensor, arrays))
    again = (Tensor * len(outputs))()
    library.call(others, again)
    for first, second in zip(found, again, strict=True):
        assert first.tobytes() == library.fetch(second).tobytes(), "other memory, other results"
    library.close()
    return found, min(times[2:], default=times[-1])


if __name__ == "__main__":
    library, name, given, wanted, *count = sys.argv[1:]
    with np.load(given) as file:
        results, least = run(library, name, [file[k] for k in file.files], *map(int, count))
    np.savez(wanted, *results)
    print(f"{least:.1f}")
