"""Runs a model whose main function has control flow: memory, inputs, outputs and constants."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from dialects.symbolic.symbol import Symbol
from targets.cuda.runtime.call_steps import Buffer, LaunchStep, Packed, Run
from targets.cuda.runtime.constants import ALIGNMENT
from targets.cuda.runtime.control import ControlPlan, Function, PlannedFunction
from targets.cuda.runtime.kernels import Kernels
from targets.cuda.runtime.memory.device import (
    Heap,
    Pool,
    TorchPool,
    fetch,
    is_on_device,
    layout_of,
    own_pool,
    send,
    torch_on_device,
    upload_constants,
)
from targets.cuda.runtime.prepared_run import Call
from targets.cuda.runtime.stream_order import RunOrder

if TYPE_CHECKING:
    from dialects.strata.array_type import ArrayType
    from dialects.strata.weights import WeightStore

_KNOWN = 64
"""The most elements of an input or constant whose contents the host keeps."""


class ControlProgram:
    """All host functions of a model with their constants and kernels. Runs only read it."""

    def __init__(
        self, plan: ControlPlan, weights: WeightStore, kernels: Kernels, stream: int
    ) -> None:
        self.kernels = kernels
        calls = [step.call for f in plan.functions for step in f.launches]
        kernels.prepare([(c.kernel, frozenset(), False) for c in calls if not c.kernel.strides])
        layout = layout_of(weights)
        self.places = {c: layout.place(c) for f in plan.functions for c in f.constants.values()}
        """Where each constant lies; see `ConstantLayout.place`."""
        self.constants = upload_constants(layout, stream)
        self._residents = weights.residents  # keeps them alive as long as their readers
        self.functions = {f.name: Function(f, self._buffers(f, weights)) for f in plan.functions}
        self.main = self.functions[plan.main]

    def _buffers(self, function: PlannedFunction, weights: WeightStore) -> dict[int, Buffer]:
        """The constants of a function in memory, by the number of their buffer."""
        found: dict[int, Buffer] = {}
        for number, constant in function.constants.items():
            is_resident, place = self.places[constant]
            is_known = prod(constant.shape) <= _KNOWN and constant.key not in weights.tensors
            contents = np.array(constant.array(weights)) if is_known else None
            address = place if is_resident else self.constants.address + place
            found[number] = Buffer(address, constant.shape, contents)
        return found

    def runner(self, order: RunOrder) -> ControlRunner:
        """An object that runs it."""
        return ControlRunner(self)


class ControlRunner:
    """Runs in sequence. Memory comes from a pool and is reused in stream order."""

    def __init__(self, program: ControlProgram) -> None:
        self.program = program
        self.packed = defaultdict[LaunchStep, Packed](dict)
        self._own_pool: Pool | None = None

    def run(self, call: Call, values: Sequence[Any], stream: int) -> list[Any]:
        """The outputs, on the device if any input is there."""
        main, sizes = self.program.main.plan, call.sizes
        with Heap(self._pool(), stream) as heap:
            inputs = [_sent(value, heap, main.node) for value in values]
            outputs = [_allocated(type_, sizes, heap, main.node) for type_ in main.outputs]
            run = Run(heap, self.program.kernels, self.packed, self.program.functions)
            returned = iter(self.program.main.call(run, [*inputs, *outputs], sizes))
            given = iter(outputs)
            buffers = [next(given if r is None else returned) for r in main.returned]
            return [fetch(b.address, b.shape, type_.dtype, call.on_device, stream)
                    for b, type_ in zip(buffers, main.output_types, strict=True)]

    def drop_oldest(self, call: Call) -> bool:
        """Free what other calls have left: nothing, since the pools do that themselves."""
        return False

    def close(self) -> None:
        """Free all memory; the runs must have finished."""
        self._own_pool = None
        self.packed.clear()

    def _pool(self) -> Pool:
        torch = torch_on_device()
        if torch is not None:
            return TorchPool(torch)
        self._own_pool = self._own_pool or own_pool()
        return self._own_pool


def _sent(value: Any, heap: Heap, node: str) -> Buffer:
    """An input in memory that kernels can read: the input's own if aligned and on the device."""
    shape = tuple(value.shape)
    if is_on_device(value) and value.is_contiguous() and value.data_ptr() % ALIGNMENT == 0:
        return Buffer(value.data_ptr(), shape)
    address = heap.allocate(value.nbytes, node)
    send(value, address, heap.stream)
    known = not is_on_device(value) and value.size <= _KNOWN
    return Buffer(address, shape, value if known else None)


def _allocated(
    type_: ArrayType, sizes: Mapping[Symbol, int], heap: Heap, node: str
) -> Buffer:
    shape = tuple(int(s.evaluate(sizes)) for s in type_.shape)
    return Buffer(heap.allocate(prod(shape) * type_.dtype.itemsize, node), shape)
