"""Host functions with control flow: sizes read from the device, `strata.if`, `strata.loop`, calls.

A function runs step by step on one stream. The host waits for the device only to read a size or a
condition from it. If the host knows the value anyway (from an input that came as an array, or from
a constant), it does not wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from xdsl.ir import Operation

from dialects.host import (
    AllocOp,
    ConstantOp,
    CopyOp,
    FreeOp,
    FuncOp,
    LaunchOp,
    ReturnOp,
    ViewOp,
)
from dialects.strata.control import ControlOp, IfOp, LoopOp
from dialects.strata.requirements import RequireOp, TrapOp
from dialects.strata.sizes import AssumeOp, SizeOp, defined_sizes
from dialects.strata.types import BufferType, buffer_type
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import location_name
from targets.cuda.runtime import driver
from targets.cuda.runtime.call_steps import (
    AllocStep,
    AssumeStep,
    Buffer,
    CopyStep,
    Frame,
    FreeStep,
    LaunchStep,
    Numbers,
    Run,
    Step,
    ViewStep,
)
from targets.cuda.runtime.constants import ALIGNMENT
from targets.cuda.runtime.plan import kernel_call
from targets.cuda.runtime.planned import PlannedKernel
from targets.host_checks import stack_error

Functions = Mapping[str, "Function"]
_NOTHING = Buffer(0, ())


# ---------------------------------------------------------------------- functions
class Function:
    """A host function as steps. `functions`: all functions of the module, some not built yet."""

    def __init__(
        self, op: FuncOp, functions: Functions, kernels: Mapping[str, PlannedKernel]
    ) -> None:
        self.op, self._size_names = op, op.size_names
        self._arena = op.arena_bytes or Expr.of(0)
        self._bound = _bound_dims(op)
        numbers = Numbers()
        numbers.all(op.body.block.args)  # arguments have the first numbers
        self.constants = {numbers[c.result]: c for c in op.body.block.ops
                          if isinstance(c, ConstantOp)}
        steps = [_step(o, numbers, functions, kernels) for o in op.body.block.ops]
        self.steps = [step for step in steps if step is not None]
        self.launches = [step for step in self.steps if isinstance(step, LaunchStep)]
        self._returned = numbers.all(op.return_op.values)
        self._buffers = [_NOTHING] * len(numbers)

    def place(self, constant: int, buffer: Buffer) -> None:
        """Set the buffer of a constant."""
        self._buffers[constant] = buffer

    def call(
        self, run: Run, arguments: Sequence[Buffer], sizes: Mapping[Symbol, int]
    ) -> list[Buffer]:
        """Run it. The caller owns the returned buffers. `sizes`: the function's own sizes."""
        buffers = [*arguments, *self._buffers[len(arguments):]]
        frame = Frame(run, dict(sizes), buffers, self.launches)
        arena = frame.size(self._arena)
        if arena:
            frame.arena = run.heap.allocate(arena, self.op)
        for step in self.steps:
            step.run(frame)
        if arena:
            run.heap.free(frame.arena)
        return [buffers[v] for v in self._returned]

    def call_bound(
        self, run: Run, inputs: Sequence[Buffer], outer: Mapping[Symbol, int]
    ) -> list[Buffer]:
        """Run it with the sizes given by its inputs' shapes, and otherwise its caller's sizes."""
        sizes = {name: outer[name] for name in self._size_names if name in outer}
        for name, argument, dim in self._bound:
            sizes[name] = inputs[argument].shape[dim]
        return self.call(run, inputs, sizes)


def _bound_dims(op: FuncOp) -> list[tuple[Symbol, int, int]]:
    """(size, argument, dim): which dims of inputs give sizes."""
    found: dict[Symbol, tuple[int, int]] = {}
    for position, argument in enumerate(op.input_arguments):
        for dim, size in enumerate(buffer_type(argument).shape):
            if size.as_symbol is not None:
                found.setdefault(size.as_symbol, (position, dim))
    return [(name, *place) for name, place in found.items()]


def _step(
    op: Operation, numbers: Numbers, functions: Functions, kernels: Mapping[str, PlannedKernel]
) -> Step | None:
    """An operation as a step. Raises ValueError for one that cannot stand in a host function."""
    match op:
        case AllocOp():
            return AllocStep(op, numbers)
        case ViewOp():
            return ViewStep(op, numbers)
        case CopyOp():
            return CopyStep(op, numbers)
        case FreeOp():
            return FreeStep(op, numbers)
        case AssumeOp():
            return AssumeStep(op)
        case LaunchOp():
            return LaunchStep.of(kernel_call(op, kernels), op, numbers)
        case RequireOp():
            return RequireStep(op, numbers)
        case TrapOp():
            return TrapStep(op, numbers)
        case SizeOp():
            return SizeStep(op, numbers)
        case IfOp():
            return IfStep(op, numbers, functions)
        case LoopOp():
            return LoopStep(op, numbers, functions)
        case ConstantOp() | ReturnOp():
            return None
        case _:
            raise ValueError(f"{op.name} cannot stand in a host function")


# ---------------------------------------------------------------------- sizes and branches
class SizeStep:
    """Reads elements of a buffer as sizes."""

    def __init__(self, op: SizeOp, numbers: Numbers) -> None:
        self.op, self.source = op, numbers[op.source]

    def run(self, frame: Frame) -> None:
        found = frame.run.read(frame.buffers[self.source], np.dtype(np.int64))
        frame.sizes |= self.op.read([int(v) for v in found])


class RequireStep:
    """Checks that indices are within their bounds."""

    def __init__(self, op: RequireOp, numbers: Numbers) -> None:
        self.op, self.values = op, numbers[op.values]

    def run(self, frame: Frame) -> None:
        found = frame.run.read(frame.buffers[self.values], np.dtype(np.int64))
        self.op.check(found, frame.sizes)


class TrapStep:
    """Checks that a launch recorded no fault."""

    def __init__(self, op: TrapOp, numbers: Numbers) -> None:
        self.op, self.fault = op, numbers[op.fault]

    def run(self, frame: Frame) -> None:
        self.op.check(frame.run.read(frame.buffers[self.fault], np.dtype(np.int64)))


class Results:
    """Stores the results of a call, and the sizes that their dims define."""

    def __init__(self, op: ControlOp, numbers: Numbers) -> None:
        self.numbers = numbers.all(op.results)
        names = {*defined_sizes(op)}
        self.dims = [(size.as_symbol, k, dim) for k, type_ in enumerate(op.result_types)
                     for dim, size in enumerate(type_.shape) if size.as_symbol in names]

    def store(self, buffers: Sequence[Buffer], frame: Frame) -> None:
        for number, buffer in zip(self.numbers, buffers, strict=True):
            frame.buffers[number] = buffer
        for name, k, dim in self.dims:
            assert name is not None
            frame.sizes[name] = buffers[k].shape[dim]


class IfStep:
    """Calls one of two functions."""

    def __init__(self, op: IfOp, numbers: Numbers, functions: Functions) -> None:
        self.functions, self.results = functions, Results(op, numbers)
        self.condition, self.inputs = numbers[op.condition], numbers.all(op.inputs)
        self.then, self.otherwise = op.then_.data, op.else_.data

    def run(self, frame: Frame) -> None:
        holds = frame.run.is_true(frame.buffers[self.condition])
        function = self.functions[self.then if holds else self.otherwise]
        inputs = [frame.buffers[k] for k in self.inputs]
        self.results.store(function.call_bound(frame.run, inputs, frame.sizes), frame)


# ---------------------------------------------------------------------- loops
class LoopStep:
    """Calls a function repeatedly."""

    def __init__(self, op: LoopOp, numbers: Numbers, functions: Functions) -> None:
        self.op, self.functions, self.results = op, functions, Results(op, numbers)
        self.condition = None if op.condition is None else numbers[op.condition]
        self.trip = None if op.trip is None else op.trip.data
        self.carried, self.inputs = numbers.all(op.carried), numbers.all(op.inputs)
        types = [buffer_type(r) for r in op.results]
        self.items = [type_.dtype.itemsize for type_ in types[: len(self.carried)]]
        self.stacked = types[len(self.carried):]
        self.body, self.step = op.body.data, op.step_symbol

    def run(self, frame: Frame) -> None:
        run, calls = frame.run, 0
        limit = None if self.trip is None else frame.size(self.trip)
        going = self.condition is None or run.is_true(frame.buffers[self.condition])
        carried = [frame.buffers[k] for k in self.carried]
        stacks = [self._stack(type_, limit, frame) for type_ in self.stacked]
        while going and (limit is None or calls < limit):
            found = self._call(carried, calls, frame)
            flag = [] if self.condition is None else [found.pop(0)]
            gone = carried if calls else []
            carried, entries = found[: len(carried)], found[len(carried):]
            for stack, entry in zip(stacks, entries, strict=True):
                stack.append(entry)
            going = all(map(run.is_true, flag))
            for buffer in (*gone, *entries, *flag):
                run.heap.free(buffer.address)
            calls += 1
        if not calls:
            carried = [run.copy(b, item, self.op)
                       for b, item in zip(carried, self.items, strict=True)]
        self.results.store([*carried, *(stack.result for stack in stacks)], frame)

    def _call(self, carried: Sequence[Buffer], number: int, frame: Frame) -> list[Buffer]:
        arguments = [*carried, *[frame.buffers[k] for k in self.inputs]]
        sizes = {**frame.sizes, self.step: number}
        return self.functions[self.body].call_bound(frame.run, arguments, sizes)

    def _stack(self, type_: BufferType, limit: int | None, frame: Frame) -> Stack:
        """An empty stack. If the number of calls is certain, it grows to its final size at once."""
        nothing = {**frame.sizes, **dict.fromkeys(defined_sizes(self.op), 0)}
        shape = tuple(int(s.evaluate(nothing)) for s in type_.shape)
        certain = 1 if self.condition is not None or limit is None else limit
        address = frame.run.heap.allocate(ALIGNMENT, self.op)
        return Stack(self.op, frame.run, type_.dtype.itemsize, certain, shape, address, ALIGNMENT)


@dataclass
class Stack:
    """Values of one shape, one after another, in a block of `room` bytes that grows as needed.

    `expected`: the least number of values. `shape`: the shape of the result; without any value, the
    one that follows from the known sizes.
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
        """Append a copy of a value. Raises ValueError for one of another shape."""
        if self.count and value.shape != self.shape[1:]:
            raise stack_error(location_name(self.op))
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
