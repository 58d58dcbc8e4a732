"""The positions of a tile one by one: one copy of the nests per position, with shared reads.

    schedule<grid h tile 2 unroll 2, loop p tile 1 unroll 3>
    nest (h: 56, reduce p: 3, reduce q: 3) ins(%x[h + p, q], %w[p, q])
    ->  nest (h: 28, reduce q: 3) ins(%x[2*h, q], %x[2*h + 1, q], %x[2*h + 2, q], %w[0, q], ...)
        nest (h: 28, reduce q: 3) ins(%x[2*h + 1, q], %x[2*h + 2, q], %x[2*h + 3, q], %w[0, q], ...)

A summed axis becomes operations of the body if the schedule unrolls it completely and reads add it
to the unrolled grid axis. An element that two copies read is loaded once and stays in registers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from xdsl.ir import Block, Region, SSAValue

from dialects.loop import Axis, KernelOp, NestOp, YieldOp
from dialects.strata.schedule import Level, Schedule, ScheduleAttr
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import set_location
from passes.loop_to_block.compute import combine
from passes.rewrites.loop.nests import (
    Read,
    carry,
    clone_body,
    reads_of,
    result_types,
    substitute_axes,
    without_equal_reads,
)


def copied_level(schedule: Schedule) -> Level | None:
    """The level whose tile is computed position by position; None if there is none."""
    return next((x for x in schedule.levels if x.kind == "grid" and x.unroll > 1), None)


def in_copies(kernel: KernelOp) -> KernelOp:
    """The kernel with copies, if its schedule asks for them; otherwise the kernel itself."""
    assert kernel.schedule is not None
    schedule = kernel.schedule.data
    level = copied_level(schedule)
    if level is None:
        return kernel
    written = _written_axes(kernel, schedule, level.axis)
    new = KernelOp.of(kernel.sym_name.data, [a.type for a in kernel.body.block.args],
                      kernel.size_names)
    values: dict[SSAValue, list[SSAValue]] = {}
    for old, argument in zip(kernel.body.block.args, new.body.block.args, strict=True):
        argument.name_hint = old.name_hint
        values[old] = [argument] * level.unroll
    for nest in kernel.nests:
        copies = [_copy(nest, [values[v][k] for v in nest.inputs], level, k, written)
                  for k in range(level.unroll)]
        if nest.results[0] in kernel.yielded:
            copies = _in_one(copies)
        new.body.block.add_ops(copies)
        for number, result in enumerate(nest.results):
            values[result] = [copy.results[number] for copy in copies]
    new.body.block.add_op(YieldOp.of(*(values[v][-1] for v in kernel.yielded)))
    new.properties["schedule"] = ScheduleAttr(replace(schedule, levels=tuple(
        replace(x, tile=1, unroll=1) if x is level else x
        for x in schedule.levels if x.axis not in written)))
    set_location(new, kernel)
    return new


def _written_axes(kernel: KernelOp, schedule: Schedule, axis: Symbol) -> list[Symbol]:
    """Summed axes that are unrolled into operations of the bodies."""
    together = {s for n in kernel.nests for m in n.input_maps for e in m if axis in e.symbols
                for s in e.symbols}
    summed = {a.name: a.extent.constant for n in kernel.nests if not n.is_recurrence
              for a in n.reduce_axes}
    return [x.axis for x in schedule.levels if x.kind == "loop" and x.axis in together
            and x.tile == 1 and x.unroll == summed.get(x.axis)]


def _copy(
    nest: NestOp, inputs: Sequence[SSAValue], level: Level, position: int, written: Sequence[Symbol]
) -> NestOp:
    """The nest at one position of each tile."""
    axes = [Axis(a.name, a.extent // level.tile, a.reduce) if a.name == level.axis else a
            for a in nest.axes]
    at = {level.axis: Expr.symbol(level.axis) * level.tile + position}
    new = substitute_axes(nest, axes, at, inputs)
    for axis in [a for a in new.axes if a.name in written]:
        new = without_equal_reads(_written(new, axis))
    return new


def _written(nest: NestOp, axis: Axis) -> NestOp:
    """The nest without a summed axis: its body adds up all positions of that axis."""
    positions: list[Mapping[Symbol, int]] = [
        {axis.name: k} for k in range(axis.extent.constant or 0)]
    reads = [Read(r.value, tuple(e.substitute(at) for e in r.map), r.pad)
             for at in positions for r in reads_of(nest)]
    old = nest.body.block
    body = Block(arg_types=[a.type for _ in positions for a in old.args])
    total: SSAValue | None = None
    for k, at in enumerate(positions):
        arguments = body.args[k * len(old.args):(k + 1) * len(old.args)]
        [value] = clone_body(old, body, arguments, at)
        if total is not None:
            op = combine(nest.combiner_names[0], total, value)
            op.location = nest.location
            body.add_op(op)
            value = op.results[0]
        total = value
    assert total is not None
    body.add_op(YieldOp.of(total))
    return carry(nest, NestOp.of(
        [a for a in nest.axes if a != axis], [r.value for r in reads], [r.map for r in reads],
        result_types(nest), nest.output_maps, combiners=nest.combiner_names,
        pads=[r.pad for r in reads], body=Region(body)))


def _in_one(copies: Sequence[NestOp]) -> list[NestOp]:
    """The copies, each of which writes its part into the tensor of the previous one."""
    parts = [copies[0]]
    for copy in copies[1:]:
        parts.append(carry(copy, NestOp.of(
            copy.axes, list(copy.inputs), copy.input_maps, result_types(copy), copy.output_maps,
            combiners=copy.combiner_names, pads=copy.pad_values, into=[parts[-1].results[0]],
            body=copy.body.clone())))
    return parts
