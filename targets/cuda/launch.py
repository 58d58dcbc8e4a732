"""Run models on a GPU, on the caller's current stream.

A straight host function is one CUDA graph per set of sizes (`graphs.py`); one that decides while it
runs is carried out step by step (`runner.py`). torch is used for memory only when the caller has
imported it. Any thread may call; calls of one model follow each other, on whatever streams.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from dialects.binding import EvaluationError, bind_sizes
from dialects.host import host_function
from dialects.sizes import check_assumptions
from dialects.symbol import Symbol
from dialects.types import BufferType, tensor_of
from dialects.weights import WeightStore
from targets.base import Executable
from targets.cuda import driver
from targets.cuda.compile import CompileOptions
from targets.cuda.errors import CudaError
from targets.cuda.graphs import GraphRunner
from targets.cuda.kernels import Kernels
from targets.cuda.library_forms import library_notes
from targets.cuda.memory import DEVICE, current_stream, is_on_device
from targets.cuda.plan import host_notes, is_straight, kernels_of
from targets.cuda.ready import Call
from targets.cuda.run_order import RunOrder
from targets.cuda.runner import ControlRunner
from targets.cuda.stopwatch import Stopwatch
from targets.locks import Turns

_KINDS = 64
"""For how many shapes of inputs the sizes stay known."""


class CudaExecutable(Executable):
    """A model on the GPU. Takes and returns NumPy arrays, or torch tensors on the device."""

    takes_gpu_tensors = True

    def __init__(self, module: ModuleOp, weights: WeightStore, options: CompileOptions) -> None:
        """Compile, and upload the constants. Raises CudaError without a suitable device."""
        driver.use_device()
        self._function = host_function(module)
        self.input_names = self._function.input_names
        self.output_names = self._function.output_names
        self._types = [a.type for a in self._function.input_arguments
                       if isinstance(a.type, BufferType)]
        self.notes = [*host_notes(module), *library_notes(list(kernels_of(module).values()))]
        self._order = RunOrder()
        self._turns = Turns("the model on the GPU", CudaError)
        self._known: dict[tuple[Any, ...], Call] = {}
        self._last_kind: tuple[list[Any], Call] | None = None
        kernels = Kernels(options)
        self._runner: GraphRunner | ControlRunner
        if is_straight(self._function):
            self._runner = GraphRunner(module, weights, kernels, self._order)
        else:
            self._runner = ControlRunner(module, weights, kernels, self._order.own)
        weakref.finalize(self, _finish, self._order, self._runner).atexit = False

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Outputs in model order, torch tensors on the device if an input is one, else arrays.

        Tensors on the device are used where they are, and nothing waits for the device.
        """
        return self._run(self._call_of(inputs), inputs)

    def run_alike(self, inputs: Sequence[Any]) -> list[Any]:
        return self.run(inputs) if self._last_kind is None else self._run(
            self._last_kind[1], inputs)

    def _run(self, call: Call, inputs: Sequence[Any]) -> list[Any]:
        if call.is_mixed or not call.on_device:
            inputs = [v if is_on_device(v) else np.asarray(v, order="C") for v in inputs]
        with self._turns:
            driver.use_device()
            stream = current_stream() if call.on_device else self._order.own
            self._order.begin(stream)
            try:
                outputs = self._runner.run(call, inputs, stream)
            finally:
                self._order.end(stream)
            if not call.on_device:
                driver.synchronize(stream)
        return outputs

    def donate(self, inputs: Mapping[int, int]) -> Collection[int]:
        if isinstance(self._runner, ControlRunner):
            return ()
        with self._turns:
            return self._runner.donate(inputs)

    def replay(self, count: int) -> float:
        """Milliseconds per replay of the last graph alone, for benchmarks; inputs stay."""
        if isinstance(self._runner, ControlRunner):
            raise CudaError("the model has no graph to replay: it decides while it runs")
        with self._turns:
            return self._runner.replay(count)

    def stopwatch(self, spoiled: int) -> Stopwatch:
        """What times the last run alone; see `Stopwatch`. Raises CudaError where there is none."""
        if isinstance(self._runner, ControlRunner):
            raise CudaError("the model has no graph to time: it decides while it runs")
        with self._turns:
            driver.use_device()
            return Stopwatch(self._runner, spoiled, self._order.own)

    def _call_of(self, inputs: Sequence[Any]) -> Call:
        """What is known of calls with such inputs: found by what tells their sizes and types."""
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
        """The sizes, from the inputs' shapes.

        Raises CudaError naming an input that is wrong, SizeError for sizes that contradict.
        """
        if len(values) != len(self.input_names):
            raise CudaError(f"takes {len(self.input_names)} inputs "
                            f"({', '.join(self.input_names)}), not {len(values)}")
        for name, type_, value in zip(self.input_names, self._types, values, strict=True):
            if is_on_device(value) and str(value.device) != DEVICE:
                raise CudaError(f"input {name!r} is on {value.device}, the model on {DEVICE}")
            found = str(value.dtype).removeprefix("torch.")
            if found != type_.dtype.name:
                raise CudaError(f"input {name!r} must be {type_.dtype.name}, not {found}")
        try:
            sizes = bind_sizes([tensor_of(t) for t in self._types], values, self.input_names)
        except EvaluationError as error:
            raise CudaError(str(error)) from error
        check_assumptions(self._function, sizes)
        return sizes


def _finish(order: RunOrder, runner: GraphRunner | ControlRunner) -> None:
    """Wait for the runs of a program that is gone: its memory and its kernels go behind it."""
    with suppress(CudaError):
        driver.use_device()
        order.finish()
    del runner
