"""Which contractions multiply groups: each lane takes several steps of the summed axis at once.

    i8 by i8, summed in i32: groups of 4      i16 by i16, in i32, and bf16 by bf16, in f32: of 2

Where an instruction multiplies two rows by two columns of eight bytes each, bytes are grouped by 8.

The operand along the lanes is packed so that each group is contiguous. In the other operand, a
group is one word of memory that all lanes share, so the summed axis must be contiguous there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import Attribute

from dialects.loop import KernelOp, NestOp, extents_of, scalar_type
from dialects.strata import types as t
from dialects.strata.schedule import Level, Schedule
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.runs import result_order, running_axis
from passes.loop_to_block.compute import is_dot, unsigned_factors
from passes.rewrites.loop.nests import gathered_inputs, has_calls
from targets.cpu.machine import Machine

_GROUPS: Mapping[tuple[Attribute, Attribute], int] = {
    (t.i8, t.i32): 4, (t.i16, t.i32): 2, (t.bf16, t.f32): 2,
}
"""How many elements of a factor share a lane of the sum."""
BLOCK = 8
"""How many elements a row of a block has, for the instruction that multiplies blocks."""
LONG = 64
"""The least elements of a sum that need not be whole blocks: the last one is then little of all."""


def grouping_of(
    nest: NestOp, lanes: Symbol, machine: Machine
) -> tuple[tuple[Symbol, ...], int] | None:
    """The reduce axes, outermost first, and how many steps of the last one form a group.

    None unless the nest sums products of short elements. The same before and after packing.
    """
    if not is_dot(nest):
        return None
    along = [any(lanes in e.symbols for e in m) for m in nest.input_maps]
    if sum(along) != 1:
        return None
    element, other = (scalar_type(nest.inputs[along.index(k)]) for k in (False, True))
    group = _GROUPS.get((element, scalar_type(nest.results[0])))
    if group is None or not machine.packs_groups(element) or not (
            element == other or machine.widens_groups(other, element)):
        return None
    panel, rows = nest.input_maps[along.index(True)], nest.input_maps[along.index(False)]
    names = [a.name for a in nest.reduce_axes]
    last = _running_axis(rows, names)
    if last is None or extents_of(nest.axes)[last].constant == 1:
        return None
    if machine.multiplies_blocks(element) and _fills_blocks(nest, along, last):
        group = BLOCK
    if not _is_packable(nest, along.index(True), last, lanes) and not _is_panel(
            panel, last, group):
        return None
    return (*(n for n in names if n != last), last), group


def _fills_blocks(nest: NestOp, along: Sequence[bool], last: Symbol) -> bool:
    """Whether a sum has whole blocks, or many, and the instruction has its signs: of unequal ones
    the rows' are unsigned."""
    extent, unsigned = extents_of(nest.axes)[last].constant, unsigned_factors(nest)
    signs = len(unsigned) != 1 or not along[unsigned[0]]
    return signs and extent is not None and (extent % BLOCK == 0 or extent >= LONG)


def _running_axis(map_: Sequence[Expr], names: Sequence[Symbol]) -> Symbol | None:
    """The axis that is contiguous in an operand: alone and with stride 1 in the last dim."""
    if has_calls(map_) or gathered_inputs(map_):
        return None
    split = map_[-1].linear(names) if map_ else None
    steps = dict[Symbol, Expr]() if split is None else split[0]
    found = [n for n, step in steps.items() if step.constant == 1]
    alone = found and not any(found[0] in e.symbols for e in map_[:-1])
    return found[0] if len(steps) == 1 and alone else None


def _is_packable(nest: NestOp, position: int, last: Symbol, lanes: Symbol) -> bool:
    """Whether the summed axis indexes one dim of an operand alone, and no other dim.

    A packed copy can then be padded with zeros beyond the end.
    """
    map_, extents = nest.input_maps[position], extents_of(nest.axes)
    type_ = nest.inputs[position].type
    assert isinstance(type_, t.TensorType)
    sizes = [size for e, size in zip(map_, type_.shape, strict=True) if last in e.symbols]
    plain = not has_calls(map_) and not gathered_inputs(map_)
    alone = [e for e in map_ if last in e.symbols or lanes in e.symbols]
    return (plain and nest.pad_values[position] is None and sizes == [extents[last]]
            and any(e.as_symbol == last for e in alone)
            and sum(lanes in e.symbols for e in map_) == 1)


def _is_panel(map_: Sequence[Expr], last: Symbol, group: int) -> bool:
    return bool(map_) and map_[-1] == Expr.symbol(last) % group


def _counts(factor: Attribute, count: int, machine: Machine) -> set[int]:
    """How many elements of a factor the groups of its packed copies may have."""
    blocks = {BLOCK} if machine.multiplies_blocks(factor) else set[int]()
    widened = {n for (wide, _), n in _GROUPS.items() if machine.widens_groups(factor, wide)}
    return {count} | blocks | widened


def is_grouped(nest: NestOp, last: Symbol, group: int) -> bool:
    """Whether an operand is packed in groups of the summed axis."""
    return group > 1 and any(_is_panel(m, last, group) for m in nest.input_maps)


def has_group_instruction(nest: NestOp, machine: Machine) -> bool:
    """Whether one instruction multiplies the groups of both factors and adds them to a sum."""
    element = scalar_type(nest.inputs[0])
    if element == t.i8 and len(unsigned_factors(nest)) != 1:
        return False
    return machine.multiplies_groups(element)


def adds_after(nest: NestOp, machine: Machine) -> bool:
    """Whether one instruction multiplies the groups of 16-bit integers, and another one adds."""
    wide = any(scalar_type(v) == t.i16 for v in nest.inputs)
    return wide and machine.multiplies_shorts and not has_group_instruction(nest, machine)


def grouped_copy(kernel: KernelOp, machine: Machine) -> Schedule | None:
    """The schedule of packing into groups from an operand that is contiguous along its lanes; None
    for any other kernel.

    The rows of a group are loaded along memory and interleaved in registers, so that elements are
    stored in order.
    """
    if len(kernel.nests) != 1 or len(kernel.nests[0].inputs) != 1:
        return None
    nest, extents = kernel.nests[0], kernel.axes
    order = result_order(nest)
    if len(order) < 2 or order[-2] not in running_axis(nest.input_maps[0], nest.axes):
        return None
    *outer, lanes, group = order
    each, size = extents[group].constant, extents[lanes].constant
    kinds = {scalar_type(nest.inputs[0]), scalar_type(nest.results[0])}
    if each is None or size is None or not any(
            kinds == {factor} and each in _counts(factor, count, machine)
            for (factor, _), count in _GROUPS.items()):
        return None
    others = [a for a in extents if a not in order]
    return None if nest.reduce_axes or others else Schedule((
        *(Level("grid", a) for a in outer), Level("loop", group, each, group=True),
        Level("loop", lanes, min(size, machine.lanes * each), lanes=True)))
