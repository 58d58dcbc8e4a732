"""What a call on a GPU writes besides its results: memory, graphs, and the order of runs.

A model's states form a pool (`targets/call_states.py`), so that several threads can call it at
once. Runs of one state execute one after another on any streams. Runs of different states do not
wait for each other, unless the callers use the same stream.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from targets.cuda.errors import CudaError
from targets.cuda.runtime import driver
from targets.cuda.runtime.control_runner import ControlProgram, ControlRunner
from targets.cuda.runtime.graph_cache import GraphProgram, GraphRunner
from targets.cuda.runtime.memory.device import current_stream
from targets.cuda.runtime.prepared_run import Call
from targets.cuda.runtime.stream_order import RunOrder

MOST_STATES = 4
"""How many calls of a model may be in progress at once. Each may hold an arena of gigabytes, and
the host's part of a call mostly holds Python's global lock, so more threads add little."""


class RunState:
    """The runs of a program that execute one after another. `owner`: see `Owned`."""

    def __init__(self, program: GraphProgram | ControlProgram) -> None:
        self.owner, self.order = 0, RunOrder()
        self.runner: GraphRunner | ControlRunner = program.runner(self.order)
        weakref.finalize(self, _finish, self.order, self.runner).atexit = False

    def run(self, call: Call, inputs: Sequence[Any]) -> list[Any]:
        """The outputs. For tensors on the device, the work is enqueued on the caller's stream."""
        stream = current_stream() if call.on_device else self.order.own
        self.order.begin(stream)
        try:
            outputs = self.runner.run(call, inputs, stream)
        finally:
            self.order.end(stream)
        if not call.on_device:
            driver.synchronize(stream)
        return outputs

    def close(self) -> None:
        """Free all memory after its runs have finished."""
        self.order.finish()
        self.runner.close()


def follows(stream: int) -> Callable[[RunState], bool]:
    """A test whether a state's last run was on this stream, so that its next run there need not
    wait for another stream."""
    return lambda state: state.order.last == stream


def _finish(order: RunOrder, runner: GraphRunner | ControlRunner) -> None:
    """Wait for the runs of a collected state, before its memory and kernels, which `runner` holds,
    are freed."""
    with suppress(CudaError):
        driver.use_device()
        order.finish()
