"""Host functions that decide: sizes read from the device, `strata.if`, `strata.loop`, and calls.

A run is carried out on the caller's stream, step by step. It waits for the device only where the
host must know something that is there: a size, or a condition. Where the host knows it anyway (an
input that came as an array, a constant), it does not wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from dialects.block import KernelOp
from dialects.control import ControlOp, IfOp, LoopOp, SizeOp
from dialects.expr import Expr
from dialects.func import AssumeOp, defined_sizes
from dialects.host import (
    AllocOp,
    ConstantOp,
    CopyOp,
    FreeOp,
    FuncOp,
    LaunchOp,
    ReturnOp,
    ViewOp,
    host_function,
    host_functions,
)
from dialects.types import BufferType
from dialects.weights import WeightStore
from targets.cuda import driver
from targets.cuda.kernels import Kernels
from targets.cuda.memory import (
    Heap,
    Pool,
    TorchPool,
    fetch,
    is_on_device,
    own_pool,
    send,
    torch_on_device,
    upload_constants,
)
from targets.cuda.plan import ALIGNMENT, ConstantPlan, kernel_call, kernels_of, stride_sizes
from targets.cuda.steps import (
    AllocStep,
    AssumeStep,
    Buffer,
    CopyStep,
    Frame,
    FreeStep,
    LaunchStep,
    Run,
    Step,
    ViewStep,
    buffer_type,
)
from targets.host_checks import stack_error

_KNOWN = 64
"""Elements up to which the host keeps the contents of inputs and constants."""


# ---------------------------------------------------------------------- functions
class Function:
    """A host function as steps."""

    def __init__(self, op: FuncOp, functions: Mapping[str, Function],
                 kernels: Mapping[str, KernelOp]) -> None:
        self.op = op
        self.functions = functions
        self.constants: dict[SSAValue, Buffer] = {}
        self._arena = op.arena_bytes or Expr.of(0)
        self._arguments = op.body.block.args
        self._returned = tuple(op.return_op.values)
        self._bound = _bound_dims(op)
        self._steps = [s for o in op.body.block.ops if (s := self._step(o, kernels)) is not None]
        self._launches = [s for s in self._steps if isinstance(s, LaunchStep)]

    @property
    def kernels(self) -> list[KernelOp]:
        """The kernels that it launches."""
        return [step.call.kernel for step in self._launches]

    def call(
        self, run: Run, arguments: Sequence[Buffer], sizes: Mapping[str, int]
    ) -> list[Buffer]:
        """Run it. The caller owns the buffers that it returns. `sizes`: its own."""
        values = {**self.constants, **dict(zip(self._arguments, arguments, strict=True))}
        frame = Frame(run, dict(sizes), values, self._launches)
        arena = frame.size(self._arena)
        if arena:
            frame.arena = run.heap.allocate(arena, self.op)
        for step in self._steps:
            step.run(frame)
        if arena:
            run.heap.free(frame.arena)
        return [frame.values[v] for v in self._returned]

    def sizes(self, inputs: Sequence[Buffer], outer: Mapping[str, int]) -> dict[str, int]:
        """The values of its sizes: from its inputs' shapes, else its caller's."""
        sizes = {name: outer[name] for name in self.op.size_names if name in outer}
        for name, argument, dim in self._bound:
            sizes[name] = inputs[argument].shape[dim]
        return sizes

    def _step(self, op: Operation, kernels: Mapping[str, KernelOp]) -> Step | None:
        match op:
            case AllocOp():
                return AllocStep(op)
            case ViewOp():
                return ViewStep(op)
            case CopyOp():
                return CopyStep(op)
            case FreeOp():
                return FreeStep(op)
            case AssumeOp():
                return AssumeStep(op)
            case LaunchOp():
                return LaunchStep(kernel_call(op, kernels), tuple(op.buffers))
            case SizeOp():
                return SizeStep(op)
            case IfOp():
                return IfStep(op, self.functions)
            case LoopOp():
                return LoopStep(op, self.functions)
            case ConstantOp() | ReturnOp():
                return None
            case _:
                raise ValueError(f"{op.name} cannot stand in a host function")


def _bound_dims(op: FuncOp) -> list[tuple[str, int, int]]:
    """(size, argument, dim): where inputs' shapes give sizes."""
    found: dict[str, tuple[int, int]] = {}
    for position, argument in enumerate(op.input_arguments):
        for dim, size in enumerate(buffer_type(argument).shape):
            if size.as_symbol is not None:
                found.setdefault(size.as_symbol, (position, dim))
    return [(name, *place) for name, place in found.items()]


# ---------------------------------------------------------------------- steps that wait
@dataclass(frozen=True)
class SizeStep:
    """Elements of a buffer become sizes."""

    op: SizeOp

    def run(self, frame: Frame) -> None:
        frame.sizes |= self.op.read([int(v) for v in frame.read(self.op.source)])


@dataclass(frozen=True)
class IfStep:
    """The call of one of two functions."""

    op: IfOp
    functions: Mapping[str, Function]

    def run(self, frame: Frame) -> None:
        holds = bool(frame.read(self.op.condition)[0])
        function = self.functions[(self.op.then_ if holds else self.op.else_).data]
        inputs = [frame.values[v] for v in self.op.inputs]
        results = function.call(frame.run, inputs, function.sizes(inputs, frame.sizes))
        _define(self.op, results, frame)


def _define(op: ControlOp, results: Sequence[Buffer], frame: Frame) -> None:
    """The results of a call, and the sizes that it defines, from their shapes."""
    frame.values.update(zip(op.results, results, strict=True))
    names = {*defined_sizes(op)}
    for type_, buffer in zip(op.result_types, results, strict=True):
        for size, found in zip(type_.shape, buffer.shape, strict=True):
            if size.as_symbol in names:
                frame.sizes[size.as_symbol] = found


class LoopStep:
    """Calls of a function, one after another."""

    def __init__(self, op: LoopOp, functions: Mapping[str, Function]) -> None:
        self.op, self.functions = op, functions
        self.condition = op.condition
        self.carried, self.inputs = tuple(op.carried), tuple(op.inputs)
        self.types = [buffer_type(r) for r in op.results]
        self.step = op.step.data

    def run(self, frame: Frame) -> None:
        count, calls = len(self.carried), 0
        limit = None if self.op.trip is None else frame.size(self.op.trip.data)
        going = self.condition is None or bool(frame.read(self.condition)[0])
        carried = [frame.values[v] for v in self.carried]
        stacks = [self._stack(type_, limit, frame) for type_ in self.types[count:]]
        while going and (limit is None or calls < limit):
            found = self._call(carried, calls, frame)
            flag = None if self.condition is None else found.pop(0)
            if calls:
                self._free(carried, frame)
            carried, entries = found[:count], found[count:]
            for stack, entry in zip(stacks, entries, strict=True):
                stack.append(entry)
            self._free(entries, frame)
            going = flag is None or self._taken(flag, frame)
            calls += 1
        if not calls:
            carried = [frame.run.copy(b, type_, self.op)
                       for b, type_ in zip(carried, self.types, strict=False)]
        _define(self.op, [*carried, *(stack.result for stack in stacks)], frame)

    def _call(self, carried: Sequence[Buffer], number: int, frame: Frame) -> list[Buffer]:
        body = self.functions[self.op.body.data]
        arguments = [*carried, *(frame.values[v] for v in self.inputs)]
        sizes = body.sizes(arguments, {**frame.sizes, self.step: number})
        return body.call(frame.run, arguments, sizes)

    def _stack(self, type_: BufferType, limit: int | None, frame: Frame) -> Stack:
        """An empty stack; where the number of calls is certain, it grows to its size at once."""
        nothing = {**frame.sizes, **dict.fromkeys(defined_sizes(self.op), 0)}
        shape = tuple(int(s.evaluate(nothing)) for s in type_.shape)
        certain = 1 if self.condition is not None or limit is None else limit
        address = frame.run.heap.allocate(ALIGNMENT, self.op)
        return Stack(self.op, frame.run, type_.dtype.itemsize, certain, shape, address, ALIGNMENT)

    @staticmethod
    def _free(buffers: Sequence[Buffer], frame: Frame) -> None:
        for buffer in buffers:
            frame.run.heap.free(buffer.address)

    def _taken(self, flag: Buffer, frame: Frame) -> bool:
        """The truth value of a buffer, which is freed."""
        assert self.condition is not None
        going = bool(frame.run.read(flag, buffer_type(self.condition))[0])
        self._free([flag], frame)
        return going


@dataclass
class Stack:
    """Values of one shape, one after another, in a block of `room` bytes, which grows.

    `expected`: how many there will be at least. `shape`: the result's; without any value, what the
    sizes that are known make it.
    """

    op: LoopOp
    run: Run
    item: int
    expected: int
    shape: tuple[int, ...]
    address: int
    room: int
    count: int = 0

    @property
    def result(self) -> Buffer:
        return Buffer(self.address, self.shape)

    def append(self, value: Buffer) -> None:
        """Copy a value behind the others. Raises ValueError for one of another shape."""
        if self.count and value.shape != self.shape[1:]:
            raise stack_error(self.op)
        size = prod(value.shape) * self.item
        used = self.count * size
        if used + size > self.room:
            self._grow(max(2 * self.room, self.expected * size, used + size), used)
        driver.copy(self.address + used, value.address, size, self.run.stream)
        self.count += 1
        self.shape = (self.count, *value.shape)

    def _grow(self, room: int, used: int) -> None:
        address = self.run.heap.allocate(room, self.op)
        driver.copy(address, self.address, used, self.run.stream)
        self.run.heap.free(self.address)
        self.address, self.room = address, room


# ---------------------------------------------------------------------- the model
@dataclass
class ControlRunner:
    """A model whose main function decides. Blocks come from a pool, by the stream's order."""

    module: ModuleOp
    weights: WeightStore
    kernels: Kernels
    stream: int
    functions: dict[str, Function] = field(default_factory=dict[str, Function])

    def __post_init__(self) -> None:
        kernels = kernels_of(self.module)
        for op in host_functions(self.module):
            self.functions[op.sym_name.data] = Function(op, self.functions, kernels)
        self._main = self.functions[host_function(self.module).sym_name.data]
        used = [k for f in self.functions.values() for k in f.kernels]
        self.kernels.prepare([(k, frozenset(), False) for k in used if not stride_sizes(k)])
        self._place_constants()
        self._own_pool: Pool | None = None

    def run(self, sizes: Mapping[str, int], values: Sequence[Any], stream: int) -> list[Any]:
        """The outputs, on the device if an input is there. Sizes are those of the inputs."""
        main = self._main.op
        on_device = any(map(is_on_device, values))
        with Heap(self._pool(), stream) as heap:
            run = Run(heap, self.kernels)
            inputs = [_sent(v, run, main) for v in values]
            outputs = [_allocated(buffer_type(a), sizes, run, main) for a in main.output_arguments]
            returned = iter(self._main.call(run, [*inputs, *outputs], sizes))
            given = iter(outputs)
            buffers = [next(given if r is None else returned) for r in main.returned_types]
            return [fetch(b.address, b.shape, type_.dtype, on_device, stream)
                    for b, type_ in zip(buffers, main.output_types, strict=True)]

    def _pool(self) -> Pool:
        torch = torch_on_device()
        if torch is not None:
            return TorchPool(torch)
        self._own_pool = self._own_pool or own_pool()
        return self._own_pool

    def _place_constants(self) -> None:
        """Upload the constants of all functions, and tell the functions where they lie."""
        plan = ConstantPlan()
        operations = [(f, op) for f in self.functions.values() for op in f.op.body.block.ops
                      if isinstance(op, ConstantOp)]
        for _, op in operations:
            plan.offset(op)
        self._constants = upload_constants(plan, self.weights, self.stream)
        for function, op in operations:
            shape = op.type.static_shape
            assert shape is not None
            small = prod(shape) <= _KNOWN
            function.constants[op.result] = Buffer(
                self._constants.address + plan.offset(op), shape,
                np.array(op.array(self.weights)) if small else None)


def _sent(value: Any, run: Run, op: FuncOp) -> Buffer:
    """An input in memory that kernels can read: its own, if it is aligned there."""
    shape = tuple(value.shape)
    if is_on_device(value) and value.is_contiguous() and value.data_ptr() % ALIGNMENT == 0:
        return Buffer(value.data_ptr(), shape)
    address = run.heap.allocate(value.nbytes, op)
    send(value, address, run.stream)
    known = not is_on_device(value) and value.size <= _KNOWN
    return Buffer(address, shape, value if known else None)


def _allocated(
    type_: BufferType, sizes: Mapping[str, int], run: Run, op: FuncOp
) -> Buffer:
    shape = tuple(int(s.evaluate(sizes)) for s in type_.shape)
    return Buffer(run.heap.allocate(prod(shape) * type_.dtype.itemsize, op), shape)
