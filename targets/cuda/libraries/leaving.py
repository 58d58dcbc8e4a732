"""Graphs that hold NCCL's kernels are destroyed before their ranks part.

NCCL destroys a communicator only once no CUDA graph holds its kernels, and waits for that: while a
compiled model is there, or is garbage that has not been collected, a program that calls
`torch.distributed.destroy_process_group` would never end. PyTorch has no hook for what is to happen
before. Python has one from 3.12 on: it tells when a function starts (`sys.monitoring`, PEP 669),
which costs nothing elsewhere. With Python 3.11, and before a communicator is destroyed in another
way, `free_graphs` is to be called.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import weakref
from contextlib import suppress
from functools import cache
from types import CodeType
from typing import Any, Protocol

from targets.cuda.errors import CudaError

_TOOLS = (4, 3)
"""The numbers of tools of `sys.monitoring` that Python gives no meaning."""


class Holder(Protocol):
    """A model with graphs of several ranks."""

    def free(self) -> None:
        """Destroy the graphs that no call uses. Later calls make new ones."""


_holders: weakref.WeakSet[Any] = weakref.WeakSet()


def add_holder(holder: Holder) -> None:
    """Let a model's graphs be destroyed before its ranks part, as long as something uses it."""
    _holders.add(holder)


def free_graphs() -> None:
    """Destroy the CUDA graphs of several ranks, and free the memory of their runs, in all models
    that are not being called. Waits for their runs. Later calls make new graphs.

    `torch.distributed.destroy_process_group` calls this itself from Python 3.12 on.
    """
    for holder in list(_holders):
        with suppress(CudaError):  # of an earlier run, which was or will be told elsewhere
            holder.free()


@cache
def listen() -> None:
    """Ask Python to tell when this process leaves a process group. Does nothing the next time."""
    monitoring: Any = getattr(sys, "monitoring", None)
    if monitoring is None:
        return
    tool = next((k for k in _TOOLS if monitoring.get_tool(k) is None), None)
    if tool is None:  # debuggers and profilers have taken both
        return
    monitoring.use_tool_id(tool, "strata")
    starts = monitoring.events.PY_START
    monitoring.register_callback(tool, starts, _started)
    leave: Any = importlib.import_module("torch.distributed").destroy_process_group
    monitoring.set_local_events(tool, inspect.unwrap(leave).__code__, starts)


def _started(code: CodeType, offset: int) -> None:
    free_graphs()
