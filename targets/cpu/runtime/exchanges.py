"""What native code calls for a collective operation: torch.distributed on the buffers' memory."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from targets.communication import Exchange, perform

_CALLED = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64,
    ctypes.c_int64)


class Exchanger:
    """The collective operations of one call state. `raised`: what the last failed one raised."""

    def __init__(self, exchanges: Sequence[Exchange]) -> None:
        self.raised: BaseException | None = None

        def call(number: int, source: int, target: int, given: int, got: int) -> int:
            exchange = exchanges[number]
            try:
                perform(exchange, _tensor(source, given, exchange.element),
                        _tensor(target, got, exchange.element))
            except BaseException as error:  # native code cannot let it pass
                self.raised = error
                return 1
            return 0

        self._function = _CALLED(call)

    @property
    def address(self) -> int:
        return ctypes.cast(self._function, ctypes.c_void_p).value or 0

    def failure(self) -> Exception:
        """The error of the operation that failed. Raises what is no error, such as
        KeyboardInterrupt."""
        raised, self.raised = self.raised, None
        if isinstance(raised, Exception):
            return raised
        raise raised or AssertionError("a collective operation failed, and nothing was raised")


def _tensor(address: int, count: int, element: str) -> Any:
    """A torch tensor of one dim on memory; a view of it in the caller's memory."""
    import torch

    dtype = getattr(torch, element)
    if count == 0:
        return torch.empty(0, dtype=dtype)
    size = count * dtype.itemsize
    return torch.frombuffer((ctypes.c_char * size).from_address(address), dtype=dtype)
