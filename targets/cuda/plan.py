"""The host level as data: where every buffer lies, and what is launched on which, in order.

Two memories: `constants`, filled once, and one `arena` per set of sizes that holds the planned
arena, buffers without a planned place, inputs and outputs. All offsets are multiples of 256 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from dialects.block import KernelOp
from dialects.expr import Expr
from dialects.func import AssumeOp
from dialects.host import AllocOp, ConstantOp, CopyOp, LaunchOp, ViewOp, host_function
from dialects.syntax import location_name
from dialects.types import BufferType

_ALIGNMENT = 256
_MOST_PROGRAMS = 2**31 - 1


@dataclass(frozen=True)
class Place:
    """Where a buffer lies."""

    in_constants: bool
    offset: Expr


@dataclass(frozen=True)
class Slot:
    """An input, output or constant: its type and place."""

    type: BufferType
    place: Place


@dataclass(frozen=True)
class Launch:
    """A kernel on buffers. `sizes`: the kernel's size parameters as expressions of the host's."""

    kernel: KernelOp
    buffers: tuple[Place, ...]
    sizes: tuple[Expr, ...]
    node: str

    def size_values(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The kernel's size parameters, for sizes of the host."""
        values = [int(s.evaluate(sizes)) for s in self.sizes]
        return dict(zip(self.kernel.size_names, values, strict=True))

    def programs(self, sizes: Mapping[str, int]) -> int:
        """How many programs run; none when an extent is 0. Raises ValueError for too many."""
        values = self.size_values(sizes)
        extents = [int(e.evaluate(values)) for e in self.kernel.grid.data]
        count = prod(max(e, 0) for e in extents)
        if count > _MOST_PROGRAMS:
            raise ValueError(f"kernel @{self.kernel.sym_name.data} would need {count} programs, "
                             f"more than CUDA's {_MOST_PROGRAMS}: choose larger tiles")
        return count


@dataclass(frozen=True)
class Copy:
    """A copy of so many bytes."""

    source: Place
    target: Place
    size: Expr


@dataclass
class HostPlan:
    """A module's driver. `arena` and `constant_bytes` are the sizes of the two memories."""

    inputs: list[Slot] = field(default_factory=list[Slot])
    outputs: list[Slot] = field(default_factory=list[Slot])
    constants: list[tuple[ConstantOp, Slot]] = field(
        default_factory=list[tuple[ConstantOp, Slot]])
    steps: list[Launch | Copy] = field(default_factory=list[Launch | Copy])
    arena: Expr = field(default_factory=lambda: Expr.of(0))
    constant_bytes: int = 0
    assumptions: list[AssumeOp] = field(default_factory=list[AssumeOp])

    def check(self, sizes: Mapping[str, int]) -> None:
        """Raises SizeError when run-time sizes break what the kernels rely on."""
        for assumption in self.assumptions:
            assumption.check(sizes)

    @property
    def kernels(self) -> list[KernelOp]:
        """The kernels that are launched, each once."""
        return list(dict.fromkeys(s.kernel for s in self.steps if isinstance(s, Launch)))


def plan_host(module: ModuleOp) -> HostPlan:
    """Read a module's `host.func`. Raises ValueError for a launch of a kernel it does not have."""
    function = host_function(module)
    plan = HostPlan(arena=_aligned(function.arena_bytes or Expr.of(0)))
    kernels = {op.sym_name.data: op for op in module.body.block.ops if isinstance(op, KernelOp)}
    places: dict[SSAValue, Place] = {}
    for arguments, slots in ((function.input_arguments, plan.inputs),
                             (function.output_arguments, plan.outputs)):
        for argument in arguments:
            places[argument] = _place_in_arena(plan, argument)
            slots.append(Slot(_buffer(argument), places[argument]))
    for op in function.body.block.ops:
        _plan_operation(op, plan, places, kernels)
    return plan


def _plan_operation(
    op: Operation, plan: HostPlan, places: dict[SSAValue, Place], kernels: dict[str, KernelOp]
) -> None:
    match op:
        case ConstantOp():
            places[op.result] = _place_constant(plan, op)
        case AllocOp(offset=None):
            places[op.result] = _place_in_arena(plan, op.result)
        case AllocOp():
            assert op.offset is not None
            places[op.result] = Place(False, op.offset.data)
        case ViewOp():
            places[op.result] = places[op.source]
        case CopyOp():
            size = _buffer(op.source).byte_size
            plan.steps.append(Copy(places[op.source], places[op.target], size))
        case AssumeOp():
            plan.assumptions.append(op)
        case LaunchOp():
            plan.steps.append(_plan_launch(op, places, kernels))
        case _:
            pass


def _plan_launch(
    op: LaunchOp, places: Mapping[SSAValue, Place], kernels: Mapping[str, KernelOp]
) -> Launch:
    kernel = kernels.get(op.kernel.data)
    if kernel is None:
        raise ValueError(f"host.launch @{op.kernel.data}: the module has no such block.kernel")
    return Launch(kernel, tuple(places[b] for b in op.buffers), op.sizes.data, location_name(op))


def _place_in_arena(plan: HostPlan, buffer: SSAValue) -> Place:
    place = Place(False, plan.arena)
    plan.arena = plan.arena + _aligned(_buffer(buffer).byte_size)
    return place


def _place_constant(plan: HostPlan, op: ConstantOp) -> Place:
    size = op.type.byte_size.constant
    if size is None:
        raise ValueError(f"host.constant of symbolic size {op.type.short}")
    place = Place(True, Expr.of(plan.constant_bytes))
    plan.constants.append((op, Slot(op.type, place)))
    plan.constant_bytes += int(_aligned(Expr.of(size)).evaluate({}))
    return place


def _aligned(size: Expr) -> Expr:
    return (size + (_ALIGNMENT - 1)) // _ALIGNMENT * _ALIGNMENT


def _buffer(value: SSAValue) -> BufferType:
    assert isinstance(value.type, BufferType)
    return value.type


def stride_sizes(kernel: KernelOp) -> list[str]:
    """Size parameters in strides: whether 16 divides them decides how memory is read."""
    used = {s for b in kernel.buffers for e in _buffer(b).shape[1:] for s in e.symbols}
    return [name for name in kernel.size_names if name in used]


def most_elements(kernel: KernelOp, sizes: Mapping[str, int]) -> int:
    """The elements of the largest buffer, for sizes of the kernel."""
    counts: Sequence[int] = [int(_buffer(b).count.evaluate(sizes)) for b in kernel.buffers]
    return max(counts, default=0)
