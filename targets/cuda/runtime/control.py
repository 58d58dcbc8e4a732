"""Host functions with control flow: sizes read from the device, `strata.if`, `strata.loop`, calls.

A function runs step by step on one stream. The host waits for the device only to read a size or a
condition from it. If the host knows the value anyway (from an input that came as an array, or from
a constant), it does not wait. Functions are plain data; nothing here imports xDSL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np

from dialects.strata.array_type import ArrayType, read_size, size_facts
from dialects.strata.assumptions import Assumption, IndexRange, check_fault, named_sizes
from dialects.symbolic.expr import Expr
from dialects.symbolic.expr_syntax import symbol_of
from dialects.symbolic.symbol import Symbol
from targets.communication import Exchange
from targets.cuda.runtime import driver
from targets.cuda.runtime.call_steps import (
    AllocStep,
    AssumeStep,
    Buffer,
    CollectStep,
    CopyStep,
    Frame,
    FreeStep,
    LaunchStep,
    Run,
    Step,
    ViewStep,
)
from targets.cuda.runtime.constants import ALIGNMENT, PlannedConstant
from targets.cuda.runtime.planned import PlannedKernel
from targets.cuda.runtime.step_facts import (
    NUMBER,
    SIZE,
    SYMBOL,
    TEXT,
    TYPE,
    Form,
    StepFacts,
)
from targets.host_checks import stack_error

_NOTHING = Buffer(0, ())


# ---------------------------------------------------------------------- functions
@dataclass(frozen=True)
class PlannedFunction:
    """A host function as data. Its buffers are numbered, the arguments first.

    `inputs`, `outputs`: the types of its arguments. `returned`: for each output its type if the
    function returns it, else None. `bound`: (size, input, dim), which dims of inputs give sizes.
    `constants`: by the number of their buffer. `results`: the numbers of the returned buffers.
    `count`: how many buffers there are. `node`: what it is called in messages.
    """

    name: str
    node: str
    inputs: tuple[ArrayType, ...]
    outputs: tuple[ArrayType, ...]
    returned: tuple[ArrayType | None, ...]
    size_names: tuple[Symbol, ...]
    bound: tuple[tuple[Symbol, int, int], ...]
    arena: Expr
    constants: Mapping[int, PlannedConstant]
    assumptions: tuple[Assumption, ...]
    steps: tuple[Step, ...]
    results: tuple[int, ...]
    count: int

    @property
    def output_types(self) -> list[ArrayType]:
        """The types of all outputs, in order."""
        given = iter(self.outputs)
        return [next(given) if type_ is None else type_ for type_ in self.returned]

    @property
    def launches(self) -> list[LaunchStep]:
        return [step for step in self.steps if isinstance(step, LaunchStep)]

    # ------------------------------------------------------------------ files
    def facts(self, kernels: Mapping[PlannedKernel, int]) -> dict[str, Any]:
        """All fields, as JSON can represent them. `kernels`: the numbers of the kernels."""
        return {"name": self.name, "node": self.node,
                "inputs": _TYPES.write(self.inputs), "outputs": _TYPES.write(self.outputs),
                "returned": _RETURNED.write(self.returned),
                "sizes": SYMBOL.listed.write(self.size_names),
                "bound": [[name.text, argument, dim] for name, argument, dim in self.bound],
                "arena": size_facts(self.arena),
                "constants": [[number, c.facts()] for number, c in self.constants.items()],
                "assumptions": [a.facts() for a in self.assumptions],
                "steps": [[type(step).__name__, step.facts(kernels)] for step in self.steps],
                "results": self.results, "count": self.count}

    @staticmethod
    def read(facts: Mapping[str, Any], kernels: Sequence[PlannedKernel]) -> PlannedFunction:
        """The inverse of `facts`."""
        return PlannedFunction(
            str(facts["name"]), str(facts["node"]), _TYPES.read(facts["inputs"]),
            _TYPES.read(facts["outputs"]), _RETURNED.read(facts["returned"]),
            SYMBOL.listed.read(facts["sizes"]),
            tuple((symbol_of(name), int(k), int(dim)) for name, k, dim in facts["bound"]),
            read_size(facts["arena"]),
            {int(number): PlannedConstant.read(c) for number, c in facts["constants"]},
            tuple(map(Assumption.read, facts["assumptions"])),
            tuple(_STEPS[str(kind)].read(step, kernels) for kind, step in facts["steps"]),
            tuple(map(int, facts["results"])), int(facts["count"]))


@dataclass(frozen=True)
class ControlPlan:
    """All host functions of a module, of which `main` is called."""

    functions: tuple[PlannedFunction, ...]
    main: str

    @property
    def kernels(self) -> list[PlannedKernel]:
        """The launched kernels, each once."""
        return list(dict.fromkeys(s.call.kernel for f in self.functions for s in f.launches))

    @property
    def exchanges(self) -> list[Exchange]:
        """The collective operations of all functions."""
        return [s.exchange for f in self.functions for s in f.steps if isinstance(s, CollectStep)]

    @property
    def constants(self) -> list[PlannedConstant]:
        """The constants of all functions, each once."""
        return list(dict.fromkeys(c for f in self.functions for c in f.constants.values()))

    # ------------------------------------------------------------------ files
    def facts(self) -> dict[str, Any]:
        """All fields, as JSON can represent them."""
        kernels = {kernel: number for number, kernel in enumerate(self.kernels)}
        return {"kernels": [kernel.facts() for kernel in kernels], "main": self.main,
                "functions": [f.facts(kernels) for f in self.functions]}

    @staticmethod
    def read(facts: Mapping[str, Any]) -> ControlPlan:
        """The plan that `facts` describes, whose kernels have no operations."""
        kernels = list(map(PlannedKernel.read, facts["kernels"]))
        return ControlPlan(tuple(PlannedFunction.read(f, kernels) for f in facts["functions"]),
                           str(facts["main"]))


_TYPES, _RETURNED = TYPE.listed, TYPE.optional.listed


class Function:
    """A host function with its constants in place."""

    def __init__(self, plan: PlannedFunction, constants: Mapping[int, Buffer]) -> None:
        self.plan, self.launches = plan, plan.launches
        self._buffers = [constants.get(k, _NOTHING) for k in range(plan.count)]

    def call(
        self, run: Run, arguments: Sequence[Buffer], sizes: Mapping[Symbol, int]
    ) -> list[Buffer]:
        """Run it. The caller owns the returned buffers. `sizes`: the function's own sizes."""
        plan = self.plan
        buffers = [*arguments, *self._buffers[len(arguments):]]
        frame = Frame(run, dict(sizes), buffers, self.launches, plan.assumptions)
        arena = frame.size(plan.arena)
        if arena:
            frame.arena = run.heap.allocate(arena, plan.node)
        for step in plan.steps:
            step.run(frame)
        if arena:
            run.heap.free(frame.arena)
        return [buffers[v] for v in plan.results]

    def call_bound(
        self, run: Run, inputs: Sequence[Buffer], outer: Mapping[Symbol, int]
    ) -> list[Buffer]:
        """Run it with the sizes given by its inputs' shapes, and otherwise its caller's sizes."""
        sizes = {name: outer[name] for name in self.plan.size_names if name in outer}
        for name, argument, dim in self.plan.bound:
            sizes[name] = inputs[argument].shape[dim]
        return self.call(run, inputs, sizes)


# ---------------------------------------------------------------------- sizes and branches
@dataclass(frozen=True)
class SizeStep(StepFacts):
    """Reads elements of a buffer as sizes."""

    names: tuple[Symbol, ...]
    source: int
    node: str

    forms: ClassVar[Mapping[str, Form]] = {
        "names": SYMBOL.listed, "source": NUMBER, "node": TEXT}

    def run(self, frame: Frame) -> None:
        found = frame.run.read(frame.buffers[self.source], np.dtype(np.int64))
        frame.sizes |= named_sizes(self.names, [int(v) for v in found], self.node)


@dataclass(frozen=True)
class RequireStep(StepFacts):
    """Checks that indices are within their bounds."""

    range: IndexRange
    values: int

    forms: ClassVar[Mapping[str, Form]] = {
        "range": Form(IndexRange.facts, IndexRange.read), "values": NUMBER}

    def run(self, frame: Frame) -> None:
        found = frame.run.read(frame.buffers[self.values], np.dtype(np.int64))
        self.range.check(found, frame.sizes)


@dataclass(frozen=True)
class TrapStep(StepFacts):
    """Checks that a launch recorded no fault."""

    texts: tuple[str, ...]
    fault: int

    forms: ClassVar[Mapping[str, Form]] = {"texts": TEXT.listed, "fault": NUMBER}

    def run(self, frame: Frame) -> None:
        found = frame.run.read(frame.buffers[self.fault], np.dtype(np.int64))
        check_fault(int(found.reshape(-1)[0]), self.texts)


@dataclass(frozen=True)
class Results:
    """Stores the results of a call, and the sizes that their dims define: (size, result, dim)."""

    numbers: tuple[int, ...]
    dims: tuple[tuple[Symbol, int, int], ...]

    def store(self, buffers: Sequence[Buffer], frame: Frame) -> None:
        for number, buffer in zip(self.numbers, buffers, strict=True):
            frame.buffers[number] = buffer
        for name, k, dim in self.dims:
            frame.sizes[name] = buffers[k].shape[dim]

    def facts(self) -> list[Any]:
        """All fields, as JSON can represent them."""
        return [self.numbers, [[name.text, k, dim] for name, k, dim in self.dims]]

    @staticmethod
    def read(facts: Sequence[Any]) -> Results:
        """The inverse of `facts`."""
        numbers, dims = facts
        return Results(tuple(map(int, numbers)),
                       tuple((symbol_of(name), int(k), int(dim)) for name, k, dim in dims))


_RESULTS = Form(Results.facts, Results.read)


@dataclass(frozen=True)
class IfStep(StepFacts):
    """Calls one of two functions."""

    condition: int
    inputs: tuple[int, ...]
    then: str
    otherwise: str
    results: Results

    forms: ClassVar[Mapping[str, Form]] = {
        "condition": NUMBER, "inputs": NUMBER.listed, "then": TEXT, "otherwise": TEXT,
        "results": _RESULTS}

    def run(self, frame: Frame) -> None:
        holds = frame.run.is_true(frame.buffers[self.condition])
        function = frame.run.functions[self.then if holds else self.otherwise]
        inputs = [frame.buffers[k] for k in self.inputs]
        self.results.store(function.call_bound(frame.run, inputs, frame.sizes), frame)


# ---------------------------------------------------------------------- loops
@dataclass(frozen=True)
class LoopStep(StepFacts):
    """Calls a function repeatedly. `items`: bytes per element of the carried values; `stacked`: the
    types of the stacked ones. `defines`: the sizes that the loop defines."""

    body: str
    step: Symbol
    trip: Expr | None
    condition: int | None
    carried: tuple[int, ...]
    inputs: tuple[int, ...]
    items: tuple[int, ...]
    stacked: tuple[ArrayType, ...]
    defines: tuple[Symbol, ...]
    results: Results
    node: str

    forms: ClassVar[Mapping[str, Form]] = {
        "body": TEXT, "step": SYMBOL, "trip": SIZE.optional, "condition": NUMBER.optional,
        "carried": NUMBER.listed, "inputs": NUMBER.listed, "items": NUMBER.listed,
        "stacked": TYPE.listed, "defines": SYMBOL.listed, "results": _RESULTS, "node": TEXT}

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
            carried = [run.copy(b, item, self.node)
                       for b, item in zip(carried, self.items, strict=True)]
        self.results.store([*carried, *(stack.result for stack in stacks)], frame)

    def _call(self, carried: Sequence[Buffer], number: int, frame: Frame) -> list[Buffer]:
        arguments = [*carried, *[frame.buffers[k] for k in self.inputs]]
        sizes = {**frame.sizes, self.step: number}
        return frame.run.functions[self.body].call_bound(frame.run, arguments, sizes)

    def _stack(self, type_: ArrayType, limit: int | None, frame: Frame) -> Stack:
        """An empty stack. If the number of calls is certain, it grows to its final size at once."""
        nothing = {**frame.sizes, **dict.fromkeys(self.defines, 0)}
        shape = tuple(int(s.evaluate(nothing)) for s in type_.shape)
        certain = 1 if self.condition is not None or limit is None else limit
        address = frame.run.heap.allocate(ALIGNMENT, self.node)
        return Stack(self.node, frame.run, type_.dtype.itemsize, certain, shape, address,
                     ALIGNMENT)


@dataclass
class Stack:
    """Values of one shape, one after another, in a block of `room` bytes that grows as needed.

    `expected`: the least number of values. `shape`: the shape of the result; without any value, the
    one that follows from the known sizes.
    """

    node: str
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
            raise stack_error(self.node)
        size = prod(value.shape) * self.item
        used = self.count * size
        if used + size > self.room:
            self._grow(max(2 * self.room, self.expected * size, used + size), used)
        driver.copy(self.address + used, value.address, size, self.run.stream)
        self.count += 1
        self.shape = (self.count, *value.shape)

    def _grow(self, room: int, used: int) -> None:
        address = self.run.heap.allocate(room, self.node)
        driver.copy(address, self.address, used, self.run.stream)
        self.run.heap.free(self.address)
        self.address, self.room = address, room


_STEPS: Mapping[str, Any] = {kind.__name__: kind for kind in (
    AllocStep, ViewStep, CopyStep, CollectStep, FreeStep, AssumeStep, LaunchStep, SizeStep,
    RequireStep, TrapStep, IfStep, LoopStep)}
"""The steps by the names that files have for them."""
