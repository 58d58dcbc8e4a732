"""Runs models on a GPU, on the caller's current stream.

A straight host function becomes one CUDA graph per set of sizes (`graph_cache.py`). A host function
with control flow runs step by step (`control_runner.py`), as does any if kernels are to be launched
one by one. torch provides the memory only if the
caller has imported it. Several threads may call a model at once, because each call has a state of
its own (`run_state.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dialects.strata.binding import EvaluationError, bind_sizes
from dialects.symbolic.symbol import Symbol
from targets.call_states import CallStates
from targets.cuda.build.compile import CompileOptions
from targets.cuda.errors import CudaError, DeviceMemoryError
from targets.cuda.libraries.leaving import add_holder
from targets.cuda.runtime import driver
from targets.cuda.runtime.constants import PlannedConstant
from targets.cuda.runtime.control_runner import ControlProgram
from targets.cuda.runtime.graph_cache import GraphProgram, GraphRunner
from targets.cuda.runtime.kernels import Kernels
from targets.cuda.runtime.memory.device import (
    bytes_at,
    current_stream,
    device_in_torch,
    is_on_device,
)
from targets.cuda.runtime.planned import HostPlan
from targets.cuda.runtime.prepared_run import Call
from targets.cuda.runtime.program import CudaProgram
from targets.cuda.runtime.run_state import MOST_STATES, RunState, follows
from targets.cuda.runtime.stopwatch import Stopwatch
from targets.cuda.runtime.stream_order import RunOrder
from targets.interface import Executable
from targets.locks import OneProcess

if TYPE_CHECKING:
    from dialects.strata.types import Array
    from dialects.strata.weights import WeightStore

_KINDS = 64
"""For how many sets of input shapes the sizes stay cached."""


class CudaExecutable(Executable):
    """A model on the GPU. Takes and returns NumPy arrays, or torch tensors on the device."""

    takes_gpu_tensors = True

    def __init__(
        self, program: CudaProgram, weights: WeightStore, options: CompileOptions,
        kernels: Kernels | None = None,
    ) -> None:
        """Compile what is not compiled, and upload the constants. Raises CudaError if there is no
        suitable device.

        `kernels`: those of another executable of this program.
        """
        driver.use_device()
        self.program, self.signature = program, program.signature
        self.input_names = list(self.signature.input_names)
        self.output_names = list(self.signature.output_names)
        self.notes = list(self.signature.notes)
        self._process = OneProcess("the model on the GPU", CudaError)
        self._known: dict[tuple[Any, ...], Call] = {}
        self._last_kind: tuple[list[Any], Call] | None = None
        self._order = order = RunOrder()
        self.kernels = kernels or Kernels(options, program.sources, program.compiled)
        self._program = (
            GraphProgram(program.host, weights, self.kernels, order.own)
            if isinstance(program.host, HostPlan) else
            ControlProgram(program.host, weights, self.kernels, order.own))
        self._states = CallStates(partial(RunState, self._program), lambda: MOST_STATES)
        if self.exchanges:
            add_holder(self)

    def with_weights(self, weights: WeightStore) -> CudaExecutable:
        """The same kernels with other constants."""
        return CudaExecutable(self.program, weights, self.kernels.options, self.kernels)

    @property
    def exchanges(self) -> Sequence[Any]:
        return self.program.host.exchanges

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Outputs in model order, as torch tensors on the device if any input is one, else arrays.

        Tensors on the device are used in place, and the host does not wait for the device.
        """
        return self._run(self._call_of(inputs), inputs)

    def run_alike(self, inputs: Sequence[Any]) -> list[Any]:
        last = self._last_kind
        return self.run(inputs) if last is None else self._run(last[1], inputs)

    def _run(self, call: Call, inputs: Sequence[Any]) -> list[Any]:
        if call.is_mixed or not call.on_device:
            inputs = [v if is_on_device(v) else np.asarray(v, order="C") for v in inputs]
        self._process.check()
        driver.use_device()
        while True:
            state: RunState | None = None
            try:
                state = self._states.take()
                if call.on_device and self._states.idle:
                    state = self._states.suited(state, follows(current_stream()))
                return state.run(call, inputs)
            except DeviceMemoryError as error:
                state = self._after_room_is_made(state, call, error)
            finally:
                if state is not None:
                    self._states.give(state)

    def _after_room_is_made(
        self, state: RunState | None, call: Call, error: DeviceMemoryError
    ) -> RunState | None:
        """Free memory after an error. Returns the state if it can be used again, or None if it was
        dropped or could not be created. Raises the error if there is nothing to free.

        Idle states go first, then what other sizes left in the call's own state. If the device is
        still full because of other calls, it has no room for this many at once. The limit on states
        then drops by one, and this call waits until another one ends.
        """
        states, idle = self._states, self._states.take_idle()
        if idle is not None:
            idle.close()
            states.drop(idle)
        elif state is None:
            if not states.made:
                raise error
            states.most = states.made
        elif not state.runner.drop_oldest(call):
            if not states.others_are_busy():
                states.most = MOST_STATES  # the number of states was not the cause
                raise error
            states.most = max(1, min(states.most, states.made) - 1)
            state.close()
            states.drop(state)
            return None
        return state

    def free(self) -> None:
        """Free the graphs and the memory of all runs, which have finished then, but for those of
        calls in progress. Later calls make them anew. Raises CudaError if a run has failed."""
        self._process.check()
        driver.use_device()
        while (state := self._states.take_idle()) is not None:
            self._states.drop(state)
            state.close()

    def place(self, constant: PlannedConstant) -> tuple[bool, int]:
        """Whether a constant of the program is in the caller's memory; and its address if so, else
        its offset in the executable's."""
        return self._program.places[constant]

    def read(self, constant: PlannedConstant) -> Array:
        """The bytes of a constant of the program."""
        driver.use_device()
        is_resident, place = self.place(constant)
        if is_resident:
            return bytes_at(place, constant.bytes, current_stream())
        return bytes_at(self._program.constants.address + place, constant.bytes, self._order.own)

    def donate(self, inputs: Mapping[int, int]) -> Collection[int]:
        return self._program.donate(inputs) if isinstance(self._program, GraphProgram) else ()

    def spare(self, inputs: Collection[int]) -> Collection[int]:
        return self._program.spare(inputs) if isinstance(self._program, GraphProgram) else ()

    def replay(self, count: int) -> float:
        """Milliseconds per replay of the last graph alone, for benchmarks; inputs do not change."""
        with self.last_state("replay") as (_, runner):
            return runner.replay(count)

    def stopwatch(self, spoiled: int) -> Stopwatch:
        """A timer of the last run alone; see `Stopwatch`. Raises CudaError if it has no graph."""
        with self.last_state("time") as (state, runner):
            return Stopwatch(runner, spoiled, state.order.own)

    @contextmanager
    def last_state(self, purpose: str) -> Generator[tuple[RunState, GraphRunner]]:
        """The state of the last run, and the runner that holds its graph."""
        self._process.check()
        driver.use_device()
        state = self._states.take()
        try:
            if not isinstance(state.runner, GraphRunner):
                raise CudaError(f"the model has no graph to {purpose}: it has control flow, or "
                                "launches its kernels one by one")
            yield state, state.runner
        finally:
            self._states.give(state)

    def _call_of(self, inputs: Sequence[Any]) -> Call:
        """The prepared call for inputs of these shapes, dtypes and devices."""
        kinds = [(v.shape, v.dtype, getattr(v, "device", None)) for v in inputs]
        last = self._last_kind
        if last is not None and last[0] == kinds:
            return last[1]
        key = tuple(kinds)
        call = self._known.get(key)
        if call is None:
            there = {is_on_device(v) for v in inputs}
            call = Call(self._bind(inputs), True in there, len(there) == 2)
            if len(self._known) >= _KINDS:
                self._known.clear()
            self._known[key] = call
        self._last_kind = kinds, call
        return call

    def _bind(self, values: Sequence[Any]) -> dict[Symbol, int]:
        """The sizes given by the inputs' shapes.

        Raises CudaError, naming the input, for a wrong input; SizeError for contradicting sizes.
        """
        if len(values) != len(self.input_names):
            raise CudaError(f"takes {len(self.input_names)} inputs "
                            f"({', '.join(self.input_names)}), not {len(values)}")
        types = self.signature.inputs
        for name, type_, value in zip(self.input_names, types, values, strict=True):
            if is_on_device(value) and str(value.device) != device_in_torch():
                raise CudaError(f"input {name!r} is on {value.device}, the model on "
                                f"{device_in_torch()}: torch.cuda.set_device chooses its device")
            found = str(value.dtype).removeprefix("torch.")
            if found != type_.dtype.name:
                raise CudaError(f"input {name!r} must be {type_.dtype.name}, not {found}")
        try:
            sizes = bind_sizes(types, values, self.input_names)
        except EvaluationError as error:
            raise CudaError(str(error)) from error
        for assumption in self.signature.assumptions:
            if assumption.symbols <= sizes.keys():
                assumption.check(sizes)
        return sizes
