"""Runs a model whose main function has control flow: memory, inputs, outputs and constants."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from dialects.host import FuncOp, host_function, host_functions
from dialects.strata.types import BufferType, buffer_type
from dialects.strata.weights import WeightStore
from dialects.symbolic.symbol import Symbol
from targets.cuda.runtime.call_steps import Buffer, LaunchStep, Packed, Run
from targets.cuda.runtime.constants import ALIGNMENT, ConstantPlan
from targets.cuda.runtime.control import Function
from targets.cuda.runtime.kernels import Kernels
from targets.cuda.runtime.memory import (
    Heap,
    Memory,
    Pool,
    TorchPool,
    fetch,
    is_on_device,
    own_pool,
    send,
    torch_on_device,
    upload_constants,
)
from targets.cuda.runtime.plan import planned_kernels
from targets.cuda.runtime.prepared_run import Call
from targets.cuda.runtime.stream_order import RunOrder

_KNOWN = 64
"""The most elements of an input or constant whose contents the host keeps."""


class ControlProgram:
    """All host functions of a model with their constants and kernels. Runs only read it."""

    def __init__(
        self, module: ModuleOp, weights: WeightStore, kernels: Kernels, stream: int
    ) -> None:
        there = planned_kernels(module)
        self.functions: dict[str, Function] = {}
        for op in host_functions(module):
            self.functions[op.sym_name.data] = Function(op, self.functions, there)
        self.main = self.functions[host_function(module).sym_name.data]
        self.kernels = kernels
        calls = [step.call for f in self.functions.values() for step in f.launches]
        kernels.prepare([(c.kernel, frozenset(), False) for c in calls if not c.kernel.strides])
        self._constants = _place_constants(self.functions.values(), weights, stream)

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
        main, sizes = self.program.main.op, call.sizes
        with Heap(self._pool(), stream) as heap:
            inputs = [_sent(value, heap, main) for value in values]
            outputs = [_allocated(buffer_type(a), sizes, heap, main)
                       for a in main.output_arguments]
            run = Run(heap, self.program.kernels, self.packed)
            returned = iter(self.program.main.call(run, [*inputs, *outputs], sizes))
            given = iter(outputs)
            buffers = [next(given if r is None else returned) for r in main.returned_types]
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


def _place_constants(
    functions: Collection[Function], weights: WeightStore, stream: int
) -> Memory:
    """Uploads the constants of all functions, and tells each function where its own lie."""
    plan = ConstantPlan(weights)
    for op in (op for f in functions for op in f.constants.values()):
        plan.place(op)
    memory = upload_constants(plan, weights, stream)
    for function in functions:
        for number, op in function.constants.items():
            shape = op.type.static_shape
            assert shape is not None, "a constant with a place has plain sizes"
            contents = np.array(op.array(weights)) if prod(shape) <= _KNOWN else None
            function.place(number, Buffer(memory.address + plan.place(op)[1], shape, contents))
    return memory


def _sent(value: Any, heap: Heap, op: FuncOp) -> Buffer:
    """An input in memory that kernels can read: the input's own if aligned and on the device."""
    shape = tuple(value.shape)
    if is_on_device(value) and value.is_contiguous() and value.data_ptr() % ALIGNMENT == 0:
        return Buffer(value.data_ptr(), shape)
    address = heap.allocate(value.nbytes, op)
    send(value, address, heap.stream)
    known = not is_on_device(value) and value.size <= _KNOWN
    return Buffer(address, shape, value if known else None)


def _allocated(
    type_: BufferType, sizes: Mapping[Symbol, int], heap: Heap, op: FuncOp
) -> Buffer:
    shape = tuple(int(s.evaluate(sizes)) for s in type_.shape)
    return Buffer(heap.allocate(prod(shape) * type_.dtype.itemsize, op), shape)
