"""Print a schedule as a script: lines that give the same schedule when they are replayed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from xdsl.dialects.builtin import ModuleOp

from dialects.loop import KernelOp
from dialects.strata.schedule import LEVEL_ROLES, Level, Schedule
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.level_order import with_sums_inside
from passes.scripts.place import Place, StepError
from passes.scripts.steps import EARLY, LOOPS, parse_step


def script_of(kernel: KernelOp, schedule: Schedule, early: bool = False) -> str:
    """The kernel's name and the steps; if steps cannot express the schedule, all of it in one line.
    `early`: the schedule applies before operands are packed."""
    name, steps = kernel.sym_name.data, [*_steps(kernel, schedule)]
    wanted = replace(schedule, fused=())
    unordered = [text for text in steps if not text.startswith("reorder ")]
    if replayed(kernel, unordered) == wanted:
        steps = unordered
    if replayed(kernel, steps) != wanted:
        return f"@{name} {schedule}{f'  {EARLY}' if early else ''}\n"
    fusions = [f"fuse {Place(outer)}, {Place(inner)}" for outer, inner in schedule.fused]
    lines = [LOOPS, *([EARLY] if early else []), *fusions, *steps]
    return "".join([f"@{name}\n", *(f"    {line}\n" for line in lines)])


def scripts_of(module: ModuleOp) -> str:
    """The schedules of all kernels of a module, as scripts."""
    return "".join(script_of(op, op.schedule.data) for op in module.body.block.ops
                   if isinstance(op, KernelOp) and op.schedule is not None)


def from_loops(kernel: KernelOp) -> Schedule:
    """A loop over single elements for each axis, with the reduced axes inside."""
    loops = Schedule(tuple(Level("loop", axis) for axis in kernel.axes))
    return with_sums_inside(kernel, loops)


def replayed(kernel: KernelOp, steps: Sequence[str]) -> Schedule | None:
    """The schedule that steps make of plain loops; None if a step cannot be applied."""
    schedule = from_loops(kernel)
    try:
        for text in steps:
            schedule = parse_step(text, 0).change(schedule)
    except (StepError, ValueError):
        return None
    return schedule


def _steps(kernel: KernelOp, schedule: Schedule) -> Iterator[str]:
    places = _places(schedule)
    for axis in kernel.axes:
        own = [(p, x) for p, x in zip(places, schedule.levels, strict=True) if x.axis == axis]
        yield from _tiled(axis, [x for _, x in own])
        for place, level in own:
            yield from _marked(place, level)
    if any(x.kind == "grid" for x in schedule.levels):
        yield from (f"parallelize {place}" for place, x in zip(places, schedule.levels, strict=True)
                    if x.kind == "grid")
    if len(places) > 1:
        yield f"reorder {', '.join(map(str, places))}"
    for name, value in schedule.options:
        special = {"stages": f"pipeline {value}", "pack": "pack"}
        yield special[name] if name == "stages" or (name, value) == ("pack", 1) else (
            f"set {name} = {value}")


def _places(schedule: Schedule) -> list[Place]:
    """The name of each level."""
    axes = [x.axis for x in schedule.levels]
    return [Place(a, axes[:k].count(a) if axes.count(a) > 1 else None)
            for k, a in enumerate(axes)]


def _tiled(axis: Symbol, levels: Sequence[Level]) -> Iterator[str]:
    """The step for the tiles of an axis. The step `whole` sets the tile of a level of that kind."""
    tiles = [x.tile for x in levels]
    if len(tiles) > 1 and levels[-1].kind == "whole":
        tiles[-1] = min(tiles[-2:])
    if tiles and (len(tiles) > 1 or (levels[0].kind != "whole" and tiles != [1])):
        yield f"tile {Place(axis)} by {', '.join(map(str, tiles))}"


def _marked(place: Place, level: Level) -> Iterator[str]:
    if level.kind == "whole":
        yield f"whole {place} by {level.tile}"
    for role in LEVEL_ROLES:
        if getattr(level, role):
            yield f"partial {place}" if role == "partial" else (
                f"vectorize {place}" if role == "lanes" else f"vectorize {place} as {role}")
    if level.unroll != 1:
        yield f"unroll {place} by {level.unroll}"
