"""Plans straight host functions (`runtime/planned.py`), and says of kernels what launches need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Block, Operation, SSAValue

from dialects.block import AllReduceOp, ForOp, KernelOp, LoadOp, StoreOp
from dialects.block.branches import branch_of, is_single
from dialects.block.programs import tile_type
from dialects.host import (
    AllocOp,
    CollectiveOp,
    ConstantOp,
    CopyOp,
    ForeignLaunchOp,
    FreeOp,
    FuncOp,
    LaunchOp,
    PartOp,
    ViewOp,
    host_function,
    host_functions,
)
from dialects.strata.array_type import ArrayType
from dialects.strata.control import ControlOp, IfOp, LoopOp
from dialects.strata.requirements import RequireOp, TrapOp
from dialects.strata.sizes import SizeOp, defined_sizes
from dialects.strata.types import LiteralAttr, TileType, WeightAttr, buffer_type, dtype_of
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import location_name
from targets.communication import Exchange
from targets.cuda.emit.kernel import schedule_option
from targets.cuda.libraries.forms import form_of
from targets.cuda.machine import WARP
from targets.cuda.planning.foreign import planned_foreign
from targets.cuda.runtime.constants import PlannedConstant, whole
from targets.cuda.runtime.planned import (
    ARENA,
    NUMBERED,
    Collect,
    Copy,
    HostPlan,
    KernelCall,
    Launch,
    Place,
    PlannedKernel,
    RankLaunch,
)
from targets.cuda.scheduling.options import WARPS
from targets.walking import kernels_by_name


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


def plan_host(module: ModuleOp) -> HostPlan:
    """The plan of a module whose `host.func` is a straight sequence of steps (`is_straight`).

    Raises ValueError for a launch of a kernel that the module does not have.
    """
    function = host_function(module)
    plan = HostPlan(arena=whole(function.arena_bytes or Expr.of(0)))
    kernels, constants = planned_kernels(module), dict[PlannedConstant, int]()
    places: dict[SSAValue, Place] = {}
    plan.inputs = [ArrayType.of(buffer_type(a)) for a in function.input_arguments]
    plan.outputs = [ArrayType.of(buffer_type(a)) for a in function.output_arguments]
    for k, argument in enumerate((*function.input_arguments, *function.output_arguments)):
        places[argument] = Place(k, Expr.of(0), buffer_type(argument).byte_size)
    for op in function.body.block.ops:
        if isinstance(op, ConstantOp):
            number = constants.setdefault(planned_constant(op), len(constants))
            places[op.result] = Place(NUMBERED, Expr.of(number), op.type.byte_size)
        else:
            _plan_operation(op, plan, places, kernels)
    plan.constants = list(constants)
    return plan


def _plan_operation(
    op: Operation, plan: HostPlan, places: dict[SSAValue, Place], kernels: dict[str, PlannedKernel]
) -> None:
    match op:
        case AllocOp(offset=None):
            places[op.result] = _place_in_arena(plan, op.result)
        case AllocOp():
            assert op.offset is not None
            places[op.result] = Place(ARENA, op.offset.data, buffer_type(op.result).byte_size)
        case PartOp():
            places[op.result] = _part_of(places[op.source], op)
        case ViewOp():
            places[op.result] = places[op.source]
        case CopyOp():
            plan.steps.append(Copy(places[op.source], places[op.target]))
        case CollectiveOp():
            plan.steps.append(Collect(exchange_of(op), places[op.source], places[op.target]))
        case ForeignLaunchOp():
            plan.steps.append(_foreign_launch(op, places))
        case LaunchOp():
            plan.steps.append(_plan_launch(op, places, kernels))
        case _:
            pass


def _part_of(place: Place, op: PartOp) -> Place:
    """Raises ValueError for a part of a constant, whose place is not known yet."""
    if place.memory == NUMBERED:
        raise ValueError(f"{op.name} of a constant")
    return replace(place, offset=place.offset + op.offset, size=op.type.byte_size)


def exchange_of(op: CollectiveOp) -> Exchange:
    """A collective operation as data."""
    return Exchange(op.collective, buffer_type(op.source).dtype.name, location_name(op))


def planned_constant(op: ConstantOp) -> PlannedConstant:
    """A constant as data. Raises ValueError for one of symbolic size."""
    if op.type.byte_size.constant is None:
        raise ValueError(f"host.constant of symbolic size {op.type.short}")
    type_, value = ArrayType.of(op.type), op.value
    if isinstance(value, LiteralAttr):
        return PlannedConstant(type_, values=tuple(value.data))
    assert isinstance(value, WeightAttr) and isinstance(value.key, StringAttr)
    return PlannedConstant(type_, value.key.data)


def planned_kernels(module: ModuleOp) -> dict[str, PlannedKernel]:
    """The kernels of a module by name, as launches see them."""
    return {name: planned_kernel(op) for name, op in kernels_by_name(module).items()}


def planned_kernel(op: KernelOp) -> PlannedKernel:
    """A kernel as launches see it."""
    stored = {store.buffer for store in op.walk() if isinstance(store, StoreOp)}
    written = frozenset(k for k, b in enumerate(op.buffers) if b in stored)
    overwrites = frozenset(
        (source, target) for target in written for source in range(len(op.buffers))
        if can_overwrite(op, source, target))
    return PlannedKernel(
        op.sym_name.data, tuple(ArrayType.of(buffer_type(b)) for b in op.buffers),
        tuple(op.size_names), tuple(op.grid.data), written, overwrites, form_of(op) or "",
        operation=op)


def kernel_call(op: LaunchOp, kernels: Mapping[str, PlannedKernel]) -> KernelCall:
    """The kernel and sizes of a launch."""
    return KernelCall(kernels[op.kernel.data], op.sizes.data, location_name(op),
                      when=None if op.when is None else op.when.data)


def _plan_launch(
    op: LaunchOp, places: Mapping[SSAValue, Place], kernels: Mapping[str, PlannedKernel]
) -> Launch:
    call = kernel_call(op, kernels)
    what = call.kernel, call.sizes, call.node, tuple(places[b] for b in op.buffers)
    exchange = _exchange_within(call.kernel)
    return Launch(*what, when=call.when) if exchange is None else (
        RankLaunch(*what, exchange=exchange))


def _exchange_within(kernel: PlannedKernel) -> Exchange | None:
    """The sum over ranks that programs of a kernel compute."""
    found = kernel.operation.walk() if isinstance(kernel.operation, KernelOp) else ()
    op = next((op for op in found if isinstance(op, AllReduceOp)), None)
    if op is None:
        return None
    tile, programs = tile_type(op.value), prod(e.constant or 0 for e in kernel.grid)
    return Exchange(op.collective, dtype_of(tile.element).name, location_name(op), programs,
                    prod(tile.shape))


def foreign_call(op: ForeignLaunchOp) -> KernelCall:
    """A launch of the user's kernel. Its sizes are the host's."""
    kernel = planned_foreign(op)
    return KernelCall(kernel, tuple(map(Expr.symbol, kernel.size_names)), location_name(op))


def _foreign_launch(op: ForeignLaunchOp, places: Mapping[SSAValue, Place]) -> Launch:
    call = foreign_call(op)
    return Launch(call.kernel, call.sizes, call.node, tuple(places[b] for b in op.buffers))


def _place_in_arena(plan: HostPlan, buffer: SSAValue) -> Place:
    size = buffer_type(buffer).byte_size
    place = Place(ARENA, plan.arena, size)
    plan.arena = plan.arena + whole(size)
    return place


# ---------------------------------------------------------------------- overwriting
def can_overwrite(kernel: KernelOp, source: int, target: int) -> bool:
    """Whether buffer `target` may be the same memory as the buffer `source` that the kernel reads.

    It may if every program reads one tile of it, once, and writes that same tile, which belongs to
    no other program. Also, no thread may still read, for another result, what a faster thread has
    already overwritten.
    """
    parts: dict[Block | None, list[Operation]] = {}
    for k in (source, target):
        for use in kernel.buffers[k].uses:
            parts.setdefault(use.operation.parent, []).append(use.operation)
    return (len(parts) == 1 or _are_tails([*parts])) and all(
        _overwrites(kernel, users) for users in parts.values())


def _are_tails(blocks: Sequence[Block | None]) -> bool:
    """Whether blocks are branches over different values of the same index."""
    loops = [b.parent_op() if b is not None else None for b in blocks]
    found = [branch_of(x) if isinstance(x, ForOp) else None for x in loops]
    ranges = sorted((b.first, b.end) for b in found if b is not None)
    return len(ranges) == len(blocks) and len({b.index for b in found if b is not None}) == 1 and (
        all(a[1] <= b[0] for a, b in pairwise(ranges)))


def _overwrites(kernel: KernelOp, users: Sequence[Operation]) -> bool:
    match users:
        case [LoadOp() as load, StoreOp() as store]:
            return (load.parent is store.parent is not None and _same_tile(load, store)
                    and load.is_before_in_block(store) and _are_apart(kernel, store)
                    and (_is_divided(kernel, load) or not _feeds_others(load, store)))
        case _:
            return False


def _same_tile(load: LoadOp, store: StoreOp) -> bool:
    return (load.where == store.where and tuple(load.indices) == tuple(store.indices)
            and load.result.type == store.value.type)


def _is_divided(kernel: KernelOp, load: LoadOp) -> bool:
    """Whether a tile has at least one element per thread; otherwise threads read the same ones."""
    type_ = load.result.type
    assert isinstance(type_, TileType)
    return prod(type_.shape) >= WARP * schedule_option(kernel, WARPS)


def _feeds_others(load: LoadOp, store: StoreOp) -> bool:
    """Whether another stored value depends on the loaded one."""
    found: set[SSAValue] = {load.result}
    body = load.parent
    assert body is not None
    for op in body.ops:
        inside = list(op.walk())
        if not found.isdisjoint(v for inner in inside for v in inner.operands):
            if any(isinstance(inner, StoreOp) and inner is not store for inner in inside):
                return True
            found |= {*op.results}
    return False


def _are_apart(kernel: KernelOp, store: StoreOp) -> bool:
    """Whether no two programs write the same element: each id moves a dim by at least a tile."""
    ids: dict[Symbol, SSAValue] = {Symbol.operand(k): v for k, v in enumerate(store.indices)}
    type_ = store.value.type
    assert isinstance(type_, TileType)
    grid = _ids_around(kernel, store)
    if grid is None or not all(v in grid for v in ids.values()):
        return False
    extents = {Symbol.place(k): n for k, n in enumerate(type_.shape)}
    moved: set[SSAValue] = set()
    for where in store.where.data:
        parts = where.linear([*ids, *extents])
        if parts is None:
            return False
        used = [name for name in ids if name in parts[0]]
        if used and not _steps_over(parts[0], used, extents):
            return False
        moved |= {ids[name] for name in used}
    return all(v in moved or extent == Expr.of(1) for v, extent in grid.items())


def _ids_around(kernel: KernelOp, store: StoreOp) -> Mapping[SSAValue, Expr] | None:
    """The program ids with their extents: those of the part to which a store in a joined kernel
    belongs; None if it is in another loop."""
    names: dict[SSAValue, Expr] = {}
    loop = store.parent_op()
    while isinstance(loop, ForOp) and is_single(loop):
        names[loop.counter] = loop.lower.data
        loop = loop.parent_op()
    if loop is kernel and not names:
        return dict(zip(kernel.program_ids, kernel.grid.data, strict=True))
    branch = branch_of(loop) if isinstance(loop, ForOp) else None
    if branch is None or not isinstance(loop, ForOp) or loop.parent_op() is not kernel:
        return None
    return _extents(names, branch.count) if names else {loop.counter: Expr.of(branch.count)}


def _extents(names: Mapping[SSAValue, Expr], count: int) -> Mapping[SSAValue, Expr] | None:
    """How many values each index has that a number from 0 to `count` determines; None if several
    numbers determine the same indices."""
    number = Symbol.operand(0)
    values = [[int(e.evaluate({number: k})) for k in range(count)] for e in names.values()]
    if len(set(zip(*values, strict=True))) != count:
        return None
    return {name: Expr.of(len(set(own))) for name, own in zip(names, values, strict=True)}


def _steps_over(
    factors: Mapping[Symbol, Expr], used: Sequence[Symbol], extents: Mapping[Symbol, int]
) -> bool:
    """Whether the dim's only program id moves at least as far as the tile extends there."""
    reach = 1
    for name in factors.keys() & extents.keys():
        factor = factors[name].constant
        if factor is None or factor < 0:
            return False
        reach += factor * (extents[name] - 1)
    step = factors[used[0]].constant
    return len(used) == 1 and step is not None and step >= reach
