"""Runs Triton kernels in Triton's interpreter, one request after another.

Requests arrive as pickles on stdin, and replies are pickles on stdout: `(True, buffers)` or
`(False, text of the error)`. Only the parent writes to the pipe, so unpickling is safe.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import sys
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np


@dataclass
class Pointer:
    """The few methods of a torch tensor that Triton's interpreter calls, for an address."""

    address: int
    dtype: str

    def data_ptr(self) -> int:
        return self.address

    def untyped_storage(self) -> Pointer:
        return self

    def cpu(self) -> Pointer:
        return self

    def new_empty(self, *_sizes: object, **_options: object) -> Pointer:
        return Pointer(self.address, self.dtype)

    def set_(self, *_storage: object) -> None:
        """The new tensor refers to the same memory already."""

    def storage_offset(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:
        return (1,)

    def stride(self) -> tuple[int, ...]:
        return (1,)

    def copy_(self, _other: object) -> None:
        """Kernels have already written to the memory itself."""


@cache
def load(path: str, name: str) -> Any:
    """The kernel `name` of a source file."""
    spec = importlib.util.spec_from_file_location(f"strata_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def launch(
    path: str, name: str, programs: tuple[int, ...], contents: list[bytes],
    buffers: list[tuple[int, str]], sizes: list[int],
) -> list[bytes]:
    """Run a kernel on buffers, each given as the number of its memory and its element type.
    Returns the new contents of the memories."""
    memory = [np.frombuffer(bytearray(content) or bytearray(1), np.uint8) for content in contents]
    pointers = [Pointer(memory[number].ctypes.data, dtype) for number, dtype in buffers]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        load(path, name)[programs](*pointers, *sizes)
    return [array.tobytes()[: len(content)]
            for array, content in zip(memory, contents, strict=True)]


def keep_truth_values() -> None:
    """Keep booleans boolean when Triton's interpreter broadcasts them.

    It gives the result of comparing two scalars the type of those scalars.
    """
    language: Any = importlib.import_module("triton.language")
    interpreter: Any = importlib.import_module("triton.runtime.interpreter")
    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle
    broadcast = builder.create_splat

    def create_splat(self: Any, to: Any, value: Any) -> Any:
        truth = np.asarray(value.data).dtype == np.bool_
        return broadcast(self, to, handle(value.data, language.int1) if truth else value)

    builder.create_splat = create_splat


def main() -> None:
    os.environ["TRITON_INTERPRET"] = "1"  # before the first kernel's module imports Triton
    keep_truth_values()
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # Triton's own output must not mix with replies
    while True:
        try:
            arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            reply = (True, launch(*arguments))
        except Exception as error:
            reply = (False, f"{type(error).__name__}: {error}")
        pickle.dump(reply, replies)
        replies.flush()


if __name__ == "__main__":
    main()
