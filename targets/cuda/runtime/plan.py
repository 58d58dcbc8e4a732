"""Straight host functions as data: where every buffer lies, and the sequence of launches.

The memories are `constants`, filled once (`constants.py`); one `arena` per set of sizes, for the
planned arena and for buffers without a planned place; and the caller's inputs and outputs, each a
memory of its own. All offsets are multiples of 256 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import ClassVar

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from dialects.block import KernelOp, StoreOp
from dialects.host import (
    AllocOp,
    ConstantOp,
    CopyOp,
    FreeOp,
    FuncOp,
    LaunchOp,
    ViewOp,
    host_function,
    host_functions,
)
from dialects.strata.control import ControlOp, IfOp, LoopOp
from dialects.strata.requirements import RequireOp, TrapOp
from dialects.strata.sizes import SizeOp, defined_sizes
from dialects.strata.types import BufferType, buffer_type
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import location_name
from targets.cuda.errors import CudaError
from targets.cuda.runtime.constants import ConstantPlan, whole
from targets.walking import kernels_by_name

_MOST = 2**31 - 1
"""The most programs of a CUDA launch, and the largest size that a kernel's 32-bit code can count.
"""


CONSTANTS, ARENA, RESIDENT = -1, -2, -3
"""Numbers of memories. Inputs are numbered from 0, and outputs follow them. A resident weight lies
in the caller's memory; its offset is its address."""


@dataclass(frozen=True)
class Place:
    """Where a buffer lies: its memory, its offset there, and its size in bytes."""

    memory: int
    offset: Expr
    size: Expr


@dataclass(frozen=True)
class KernelCall:
    """A kernel to launch. `sizes`: its size parameters as expressions of the host's sizes."""

    kernel: KernelOp
    sizes: tuple[Expr, ...]
    node: str

    @cached_property
    def symbols(self) -> frozenset[Symbol]:
        """The host's sizes on which it depends."""
        return frozenset[Symbol]().union(*(e.symbols for e in self.sizes))

    @cached_property
    def strides(self) -> tuple[Symbol, ...]:
        """Size parameters that occur in strides. If 16 divides them, memory accesses can be wider.
        """
        used = {s for b in self.kernel.buffers for e in buffer_type(b).shape[1:] for s in e.symbols}
        return tuple(name for name in self.kernel.size_names if name in used)

    @cached_property
    def written(self) -> frozenset[int]:
        """The positions of the buffers that the kernel writes."""
        stored = {op.buffer for op in self.kernel.walk() if isinstance(op, StoreOp)}
        return frozenset(k for k, b in enumerate(self.kernel.buffers) if b in stored)

    @cached_property
    def counts(self) -> tuple[Expr, ...]:
        """The element counts of buffers of symbolic size, in terms of the kernel's sizes."""
        counts = [buffer_type(b).count for b in self.kernel.buffers]
        return tuple(dict.fromkeys(c for c in counts if c.constant is None))

    def size_values(self, sizes: Mapping[Symbol, int]) -> dict[Symbol, int]:
        """The values of the kernel's size parameters, for sizes of the host.

        Raises CudaError for a value that is too large for 32-bit code.
        """
        values = {name: int(e.evaluate(sizes))
                  for name, e in zip(self.kernel.size_names, self.sizes, strict=True)}
        for name, value in values.items():
            if value > _MOST:
                raise CudaError(f"the size {name} = {value} at node {self.node!r} is larger than "
                                f"{_MOST}, the most that kernels on CUDA can count")
        return values

    def extents(self, values: Mapping[Symbol, int]) -> list[int]:
        """The extents of the grid."""
        return [max(int(e.evaluate(values)), 0) for e in self.kernel.grid.data]

    def buffer(self, place: int) -> BufferType:
        """The type of one of the kernel's buffers."""
        return buffer_type(self.kernel.buffers[place])

    def programs(self, values: Mapping[Symbol, int]) -> int:
        """How many programs the grid has, for values of the kernel's sizes; 0 if an extent is 0.

        Raises CudaError for too many programs.
        """
        count = prod(self.extents(values))
        if count > _MOST:
            raise CudaError(f"kernel @{self.kernel.sym_name.data} would need {count} programs, "
                            f"more than CUDA's {_MOST}: choose larger tiles")
        return count


@dataclass(frozen=True)
class Launch(KernelCall):
    """A kernel launch on buffers."""

    buffers: tuple[Place, ...]


    @property
    def places(self) -> tuple[Place, ...]:
        return self.buffers


@dataclass(frozen=True)
class Copy:
    """A copy of a buffer's bytes."""

    source: Place
    target: Place
    written: ClassVar[frozenset[int]] = frozenset([1])
    """Positions of the written places."""

    @property
    def places(self) -> tuple[Place, ...]:
        return self.source, self.target


@dataclass
class HostPlan:
    """A module's host function: straight steps, on an arena of `arena` bytes, and its constants."""

    constants: ConstantPlan
    inputs: list[BufferType] = field(default_factory=list[BufferType])
    outputs: list[BufferType] = field(default_factory=list[BufferType])
    steps: list[Launch | Copy] = field(default_factory=list[Launch | Copy])
    arena: Expr = field(default_factory=lambda: Expr.of(0))

    @property
    def kernels(self) -> list[KernelOp]:
        """The launched kernels, each once."""
        return list(dict.fromkeys(s.kernel for s in self.steps if isinstance(s, Launch)))


def constant_buffers(plan: HostPlan) -> dict[KernelOp, frozenset[int]]:
    """For each kernel that follows another step, the positions of the buffers that are constants in
    all of its launches."""
    found: dict[KernelOp, frozenset[int]] = {}
    preceded = {s.kernel for s in plan.steps[1:] if isinstance(s, Launch)}
    for step in plan.steps:
        if isinstance(step, Launch) and step.kernel in preceded:
            constants = frozenset(
                k for k, p in enumerate(step.buffers) if p.memory in (CONSTANTS, RESIDENT))
            found[step.kernel] = found.get(step.kernel, constants) & constants
    return found


def is_straight(function: FuncOp) -> bool:
    """Whether the shapes of its inputs determine everything that a function does."""
    late = (SizeOp, RequireOp, TrapOp, ControlOp, FreeOp)
    return not (function.return_op.values or any(
        isinstance(op, late) for op in function.body.block.ops))


def host_notes(module: ModuleOp) -> list[str]:
    """`on the host: 1 strata.loop, 3 sizes`: what is decided there at run time; else empty."""
    ops = [op for f in host_functions(module) for op in f.body.block.ops]
    counts = [(sum(isinstance(op, kind) for op in ops), kind.name) for kind in (LoopOp, IfOp)]
    sizes = sum(len(defined_sizes(op)) for op in ops if isinstance(op, SizeOp))
    checks = sum(isinstance(op, RequireOp | TrapOp) for op in ops)
    counts.append((sizes, "size" if sizes == 1 else "sizes"))
    counts.append((checks, "check" if checks == 1 else "checks"))
    found = ", ".join(f"{count} {name}" for count, name in counts if count)
    return [f"on the host: {found}"] if found else []


def plan_host(module: ModuleOp, constants: ConstantPlan | None = None) -> HostPlan:
    """The plan of a module whose `host.func` is a straight sequence of steps (`is_straight`).

    Raises ValueError for a launch of a kernel that the module does not have.
    """
    function = host_function(module)
    plan = HostPlan(constants or ConstantPlan(), arena=whole(function.arena_bytes or Expr.of(0)))
    kernels = kernels_by_name(module)
    places: dict[SSAValue, Place] = {}
    plan.inputs = [buffer_type(a) for a in function.input_arguments]
    plan.outputs = [buffer_type(a) for a in function.output_arguments]
    for k, argument in enumerate((*function.input_arguments, *function.output_arguments)):
        places[argument] = Place(k, Expr.of(0), buffer_type(argument).byte_size)
    for op in function.body.block.ops:
        _plan_operation(op, plan, places, kernels)
    return plan


def _plan_operation(
    op: Operation, plan: HostPlan, places: dict[SSAValue, Place], kernels: dict[str, KernelOp]
) -> None:
    match op:
        case ConstantOp():
            is_resident, offset = plan.constants.place(op)
            memory = RESIDENT if is_resident else CONSTANTS
            places[op.result] = Place(memory, Expr.of(offset), op.type.byte_size)
        case AllocOp(offset=None):
            places[op.result] = _place_in_arena(plan, op.result)
        case AllocOp():
            assert op.offset is not None
            places[op.result] = Place(ARENA, op.offset.data, buffer_type(op.result).byte_size)
        case ViewOp():
            places[op.result] = places[op.source]
        case CopyOp():
            plan.steps.append(Copy(places[op.source], places[op.target]))
        case LaunchOp():
            plan.steps.append(_plan_launch(op, places, kernels))
        case _:
            pass


def kernel_call(op: LaunchOp, kernels: Mapping[str, KernelOp]) -> KernelCall:
    """The kernel and sizes of a launch."""
    return KernelCall(kernels[op.kernel.data], op.sizes.data, location_name(op))


def _plan_launch(
    op: LaunchOp, places: Mapping[SSAValue, Place], kernels: Mapping[str, KernelOp]
) -> Launch:
    call = kernel_call(op, kernels)
    return Launch(call.kernel, call.sizes, call.node, tuple(places[b] for b in op.buffers))


def _place_in_arena(plan: HostPlan, buffer: SSAValue) -> Place:
    size = buffer_type(buffer).byte_size
    place = Place(ARENA, plan.arena, size)
    plan.arena = plan.arena + whole(size)
    return place
