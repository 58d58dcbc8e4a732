"""Functions of residues for compiled code: each operation's own meaning in NumPy, called back.

A call has the number of a function, the address of its operands, which lie `SLOT` bytes apart, and
how many lanes they have. The results replace the first operand.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from xdsl.ir import Attribute, Operation

from dialects.records import dataclass
from dialects.semantics.ring import Ring
from dialects.semantics.scalar import evaluate_operation
from dialects.strata.types import Array, dtype_of

SLOT = 512
"""Bytes of an operand: 64 lanes of 8 bytes."""
_Callback = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)


@dataclass(frozen=True)
class _Function:
    compute: Callable[[Sequence[Array]], Array]
    given: Sequence[np.dtype[Any]]
    result: np.dtype[Any]


class Calls:
    """The functions that code calls back, and the one that it calls."""

    def __init__(self, ring: Ring) -> None:
        self.ring, self._functions = ring, list[_Function]()
        self.failures: list[Exception] = []
        """What functions raised, which code cannot."""
        self._function = _Callback(self._call)
        self.address = ctypes.cast(self._function, ctypes.c_void_p).value or 0

    def operation(self, op: Operation) -> int:
        """The number of an operation on residues."""
        return self._number(_Function(
            lambda given: self.ring.wrap(np.asarray(evaluate_operation(op, given)[0])),
            [dtype_of(v.type) for v in op.operands], dtype_of(op.results[0].type)))

    def embedding(self, element: Attribute) -> int:
        """The number of the function from numbers to their residues."""
        dtype = dtype_of(element)
        return self._number(_Function(lambda given: self.ring.wrap(given[0]), [dtype], dtype))

    def _number(self, function: _Function) -> int:
        self._functions.append(function)
        return len(self._functions) - 1

    def _call(self, number: int, address: int, lanes: int) -> None:
        try:
            function = self._functions[number]
            given = [self.ring.view(_lanes(address + k * SLOT, dtype, lanes).copy())
                     for k, dtype in enumerate(function.given)]
            found = np.asarray(function.compute(given)).view(np.ndarray)
            _lanes(address, function.result, lanes)[:] = found.astype(function.result)
        except Exception as error:  # code of others lies between this and the caller
            self.failures.append(error)


def _lanes(address: int, dtype: np.dtype[Any], lanes: int) -> Any:
    memory: Any = (ctypes.c_uint8 * (lanes * dtype.itemsize)).from_address(address)
    return np.frombuffer(memory, dtype)
