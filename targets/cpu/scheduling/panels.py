"""Panel packing: which operands of a contraction are packed, so that tiles are contiguous."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from dialects.loop import NestOp, extents_of
from dialects.strata.schedule import ScheduleAttr
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.coded import stepped_dims
from passes.analyses.loop.runs import running_axis
from passes.contract import Border, Packing, Panel
from passes.rewrites.loop.nests import gathered_inputs, has_calls
from targets.cpu.machine import Machine
from targets.cpu.scheduling.options import PACK
from targets.cpu.scheduling.rows import evicts, is_short, summed_lanes, vector_lanes
from targets.cpu.scheduling.tilings import Tiling, is_read_by, lane_tile, scheduled, tiling_of


def panels(
    nest: NestOp, constants: Collection[int], machine: Machine,
    schedule: ScheduleAttr | None = None,
) -> Mapping[int, Packing]:
    """Which inputs of a contraction to pack, and how; None: leave it, even if it is padded.

    `constants`: the inputs known at compile time. `schedule`: the kernel's tuned schedule, if any.
    """
    tiling = (tiling_of(nest, machine) if schedule is None
              else scheduled(schedule.data, nest, machine))
    if tiling is None:
        return _summed_panels(nest, constants, machine)
    packs = schedule is not None and schedule.data.option(PACK)
    found: dict[int, Packing] = {}
    for position, map_ in enumerate(nest.input_maps):
        if nest.pad_values[position] is not None:
            if is_short(nest) and any(tiling.lanes in e.symbols for e in map_):
                found[position] = None  # read too rarely for a copy with a border to pay
            elif tiling.group == 1 and (order := _lanes_last(map_, tiling.lanes)) is not None:
                found[position] = Border(order)
        elif position in constants or (vector_lanes(nest) is None and not has_calls(map_)):
            packed = _packed(nest, tiling, machine) if position in constants else tiling
            if _wants_panel(nest, position, packed, packs or position in constants, machine):
                found[position] = Panel(
                    tiling.lanes, packed.width, tuple(tiling.reduce), tiling.group)
    return found


def _lanes_last(map_: Sequence[Expr], lanes: Symbol) -> tuple[int, ...] | None:
    """The order of dims in which those of the lanes are contiguous; None if they are, or are no dim
    of their own."""
    dims = [d for d, e in enumerate(map_) if lanes in e.symbols]
    if len(dims) != 1 or map_[dims[0]].as_symbol != lanes or dims[0] == len(map_) - 1:
        return None
    return (*(d for d in range(len(map_)) if d != dims[0]), dims[0])


def _packed(nest: NestOp, tiling: Tiling, machine: Machine) -> Tiling:
    """The tiling with the width of panels of constants: that of the machine for which these are
    packed, if tiles of this width read such panels."""
    best = None if machine.packed_for is None else tiling_of(nest, machine.packed_for)
    extent = extents_of(nest.axes)[tiling.lanes]
    if best is None or best.lanes != tiling.lanes or not is_read_by(
            best.width, tiling.width, extent):
        return tiling
    return tiling._replace(width=best.width)


def _summed_panels(
    nest: NestOp, constants: Collection[int], machine: Machine
) -> Mapping[int, Panel | None]:
    """Packing of constants that makes the summed axis contiguous, as in the other factor."""
    lanes = summed_lanes(nest)
    if lanes is None:
        return {}
    extents = extents_of(nest.axes)
    inner = tuple(a.name for a in nest.reduce_axes if a.name != lanes)
    panel = Panel(lanes, lane_tile(extents[lanes], machine.packed_for or machine), inner)
    return {k: panel for k in constants if nest.pad_values[k] is None
            and running_axis(nest.input_maps[k], nest.axes) != [lanes]
            and any(e.as_symbol == lanes for e in nest.input_maps[k])}


def _wants_panel(
    nest: NestOp, position: int, tiling: Tiling, packs: bool, machine: Machine
) -> bool:
    """Whether the lanes axis indexes an operand in a way that panels improve.

    `packs`: also pack where that only makes rows contiguous.
    """
    map_ = nest.input_maps[position]
    if tiling.group > 1:
        return not has_calls(map_) and any(tiling.lanes in e.symbols for e in map_)
    dims = [e for e in map_ if tiling.lanes in e.symbols]
    reduce = {a.name for a in nest.reduce_axes}
    if len(dims) != 1 or dims[0].symbols & reduce or gathered_inputs(map_):
        return False
    split = dims[0].linear([tiling.lanes])
    stepped = {map_[d] for d in stepped_dims(map_)} - {*dims}
    if split is None or split[0][tiling.lanes].constant is None or has_calls(
            [e for e in map_ if e not in stepped]):
        return False
    contiguous = split[0][tiling.lanes].constant == 1 and dims[0] == map_[-1]
    if not contiguous:
        return True
    extent = extents_of(nest.axes)[tiling.lanes].constant
    cut = extent is None or extent > tiling.width
    if any(e.symbols & reduce and e.symbols - reduce for e in map_):
        return False  # a window, of which a copy for each tap would be larger
    return cut and (packs or evicts(nest, position, tiling.lanes, machine.caches[1]))
