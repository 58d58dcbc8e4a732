"""Memory over time: which buffers are live at each step of a program, and what is live at the peak.

A step is a launch, a copy, or a call of control flow. A buffer is live from the first to the last
step that uses it. Buffers that share their place in the arena, because a kernel computes in place,
count once. A function that control flow calls has steps of its own, counted from 0. Buffers and
steps name at most NAMED nodes, since one that equal layers share may stand for thousands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from xdsl.ir import Operation

from compiler.explaining.work import buffer_bytes, value_of
from dialects.host import AllocOp, CollectiveOp, CopyOp, ForeignLaunchOp, FuncOp, LaunchOp
from dialects.strata.control import ControlOp
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import location_names
from passes.host.plan_buffers import memory_of

NAMED = 8


@dataclass(eq=False)
class Buffer:
    """A buffer: its bytes, its offset in the arena (None: memory of its own), and its life."""

    function: str
    nodes: list[str]
    bytes: int
    offset: int | None
    first: int = -1
    last: int = -1

    def use(self, step: int) -> None:
        self.first, self.last = self.first if self.first >= 0 else step, step

    @property
    def json(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(eq=False)
class Step:
    """A step, and the bytes that are live at it. `launch`: the kernel, or what else is done."""

    function: str
    operation: Operation
    launch: str
    live: int = 0

    @property
    def json(self) -> dict[str, Any]:
        return {"function": self.function, "launch": self.launch, "live": self.live,
                "nodes": list(location_names(self.operation)[:NAMED])}


@dataclass
class Timeline:
    """The steps and buffers of a program, function by function."""

    steps: list[Step] = field(default_factory=list[Step])
    buffers: list[Buffer] = field(default_factory=list[Buffer])

    @property
    def peak(self) -> dict[str, Any]:
        """The first step at which most bytes are live, and the buffers that are; empty if none."""
        if not self.steps:
            return {}
        step = max(self.steps, key=lambda s: s.live)
        number = [s for s in self.steps if s.function == step.function].index(step)
        alive = [b.json for b in self.buffers if b.function == step.function
                 and b.first <= number <= b.last]
        return {**step.json, "step": number,
                "buffers": sorted(alive, key=lambda b: -b["bytes"])}


def timeline(functions: Sequence[FuncOp], sizes: Mapping[Symbol, int]) -> Timeline:
    """The memory of a program over time, at these sizes."""
    found = Timeline()
    for function in functions:
        steps, buffers = _of_function(function, sizes)
        found.steps += steps
        found.buffers += buffers
    return found


def _of_function(
    function: FuncOp, sizes: Mapping[Symbol, int]
) -> tuple[list[Step], list[Buffer]]:
    name, steps = function.sym_name.data, list[Step]()
    buffers = {op: _buffer(name, op, sizes) for op in function.body.block.ops
               if isinstance(op, AllocOp)}
    for op in function.body.block.ops:
        if not isinstance(op, LaunchOp | CopyOp | CollectiveOp | ForeignLaunchOp
                          | ControlOp):
            continue
        for owner in filter(None, map(memory_of, op.operands)):
            buffers[owner].use(len(steps))
        steps.append(Step(name, op, op.kernel.data if isinstance(op, LaunchOp) else op.name))
    used = [b for b in buffers.values() if b.first >= 0]
    _count(steps, used)
    return steps, used


def _buffer(function: str, op: AllocOp, sizes: Mapping[Symbol, int]) -> Buffer:
    offset = None if op.offset is None else value_of(op.offset.data, sizes)
    names = list(location_names(op)[:NAMED])
    return Buffer(function, names, buffer_bytes(op.result, sizes), offset)


def _count(steps: Sequence[Step], buffers: Sequence[Buffer]) -> None:
    """Set the live bytes of each step, in time in the lives of all buffers."""
    alive: list[list[Buffer]] = [[] for _ in steps]
    for buffer in buffers:
        for at in range(buffer.first, buffer.last + 1):
            alive[at].append(buffer)
    for step, here in zip(steps, alive, strict=True):
        own = sum(b.bytes for b in here if b.offset is None)
        step.live = own + sum(_covered([(b.offset, b.offset + b.bytes) for b in here
                                        if b.offset is not None]))


def _covered(spans: Sequence[tuple[int, int]]) -> Iterator[int]:
    """The lengths of the parts of a line that spans cover."""
    end = 0
    for low, high in sorted(spans):
        yield max(high - max(low, end), 0)
        end = max(end, high)


def plan_json(functions: Sequence[FuncOp], sizes: Mapping[Symbol, int], constants: int
              ) -> dict[str, Any]:
    """The arena, all buffers by size, the peak, and the live bytes of each step."""
    found = timeline(functions, sizes)
    arena = sum(value_of(f.arena_bytes or Expr.of(0), sizes) for f in functions)
    return {"arena": arena, "all_buffers": sum(b.bytes for b in found.buffers),
            "constants": constants, "peak": found.peak,
            "buffers": [b.json for b in sorted(found.buffers, key=lambda b: -b.bytes)],
            "timeline": [s.json for s in found.steps]}
