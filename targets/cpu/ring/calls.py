"""Functions of residues for compiled code: each operation's own meaning in NumPy, called back.

A call has the number of an operation, the address of its operands, which lie `SLOT` bytes apart,
and how many lanes they have. The results replace the first operand.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from xdsl.ir import Operation

from dialects.semantics.ring import Ring
from dialects.semantics.scalar import evaluate_operation
from dialects.strata.types import dtype_of

SLOT = 512
"""Bytes of an operand: 64 lanes of 8 bytes."""
_Callback = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)


class Calls:
    """The operations that code calls back, and the function that it calls."""

    def __init__(self, ring: Ring) -> None:
        self.ring, self._operations = ring, list[Operation]()
        self.failures: list[Exception] = []
        """What operations raised, which code cannot."""
        self._function = _Callback(self._call)
        self.address = ctypes.cast(self._function, ctypes.c_void_p).value or 0

    def number(self, op: Operation) -> int:
        self._operations.append(op)
        return len(self._operations) - 1

    def _call(self, number: int, address: int, lanes: int) -> None:
        try:
            op = self._operations[number]
            given = [self.ring.view(self._lanes(address + k * SLOT, dtype_of(v.type), lanes))
                     for k, v in enumerate(op.operands)]
            [found] = evaluate_operation(op, [x.copy() for x in given])
            dtype = dtype_of(op.results[0].type)
            self._lanes(address, dtype, lanes)[:] = np.asarray(found).astype(dtype)
        except Exception as error:  # code of others lies between this and the caller
            self.failures.append(error)

    @staticmethod
    def _lanes(address: int, dtype: np.dtype[Any], lanes: int) -> Any:
        memory = (ctypes.c_uint8 * (lanes * dtype.itemsize)).from_address(address)
        return np.frombuffer(memory, dtype)
