"""`loop-split-reductions`: split a reduction to few values into two steps, the first parallel.

    %m = nest (reduce i: 512, reduce j: 64) ins(%x[i, j]) outs(max f32[][])
    ->  %p = nest (i: 512, reduce j: 64) ins(%x[i, j]) outs(max f32[512][i])
        %m = nest (reduce i: 512) ins(%p[i]) outs(max f32[][])

Otherwise a single program computes a result without rows, and one program computes each row or each
block of adjacent columns. The target says how many programs keep its machine busy
(`Facts.programs`). The summed axes that are slowest in memory, or a part of one, become parallel
until that number is reached. Axes of unknown size become parallel as long as known ones remain to
be summed over inside. Floats are added in another order, which is the more accurate one. Sums of
powers that follow a maximum are split in the same way (`passes/rewrites/loop/online_parts.py`).

Where programs hold whole rows in tiles (`Facts.held_row`), the parts of a row are powers of two, so
that they fill their tiles and begin at aligned addresses, and short enough that a program loads its
part at once. If such parts or, on other targets, parts of any length do not divide an axis, or its
size is unknown, the last part is shorter: what it reads beyond the end does not count.

Enters: fused nests, in their final layouts. Leaves: nests. Contractions stay as they are, because
they read their operands repeatedly; sums in half precision do, because they would be rounded twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Region, SSAValue

from dialects.loop import Axis, NestOp, YieldOp, scalar_type
from dialects.strata.types import TensorType, bf16, byte_width, f16, tensor
from dialects.symbolic.expr import Call, Expr
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.kinds import is_contraction
from passes.analyses.loop.online import is_between_products
from passes.analyses.loop.runs import memory_order, running_axis
from passes.base import StrataContext, StrataPass
from passes.contract import Facts
from passes.rewrites.loop.inlining import can_inline
from passes.rewrites.loop.nests import (
    carry,
    divided,
    inline_producer,
    reads_of,
    result_types,
)
from passes.rewrites.loop.online_parts import powers_in_parts, sum_parts
from passes.rewrites.loop.uneven_parts import UNEVEN, unevenly_divided
from passes.rewriting import Rewriter, functions, rewrite

WORD, FILLED = 8, 3
"""The elements of a vector of halves; how many fourths of a tile a part fills at least."""
MIN_ELEMENTS = 1 << 15
"""Fewer elements than this are reduced by one program, unless it holds no row that long and nothing
else reads the row."""
MIN_PART = 256
"""The fewest elements of a part, where sizes are known."""
EVEN = 4
"""How many times as many parts long rows have where rows alone keep a fourth of the machine busy:
the last round of programs is a smaller share of all."""
COLUMNS = 64
"""The number of adjacent results that one program computes when sums run across memory."""
MIN_COLUMN_PART = 32
"""The fewest elements of a part of such a column."""
MAX_HELD = 1 << 13
"""The most elements of a part that is held; of a maximum, each part is. Sums may follow the
maximum, so that a program walks its part twice. Also the most such parts, which one program adds.
"""
SMALL = 1 / 16
"""Inputs whose size exceeds a tensor's by less than this fraction count as no larger."""
OPEN_PART, OPEN_COLUMN_PART = 1 << 12, 64
"""The length of a part of a sum along an axis of unknown size: along memory, and across it."""
MIN_OPEN_PART = 32
"""The fewest elements of a part, where the number of parts is only known at run time."""


class LoopSplitReductions(StrataPass):
    """Reduce long tensors to few values with many programs."""

    name = "loop-split-reductions"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        facts = context.facts
        if facts.programs == 1:
            return

        def split(nest: NestOp, at: Rewriter) -> SSAValue | None:
            if not _is_candidate(nest):
                return None
            made = _computing(nest)
            result = _split(made, at, facts)
            if made is not nest:
                made.erase()
            return result

        for func in functions(module):
            rewrite(func, {NestOp: [split]}, context)


def _split(nest: NestOp, at: Rewriter, facts: Facts) -> SSAValue | None:
    if (powers := powers_in_parts(nest)) is not None:
        parts, result = powers.nest, sum_parts(at, powers)
    elif (cut := _cut(nest, facts)) is not None:
        parts, result = cut[0], split_nest(at, *cut)
    else:
        return None
    if parts is not nest:
        parts.erase()
    return result


def _computing(nest: NestOp) -> NestOp:
    """The nest with the producer of its input inlined, if that reads no more bytes than it stores.

    The producer must be elementwise. Otherwise its result would pass through memory, because the
    parts and the other readers of the result belong to different kernels.
    """
    maker = nest.inputs[0].owner if len(nest.inputs) == 1 else None
    if not isinstance(maker, NestOp) or not can_inline(nest, 0, reads_of(nest)[0], maker):
        return nest
    if sum(map(_bytes, maker.inputs)) > (1 + SMALL) * _bytes(maker.results[0]):
        return nest
    made = inline_producer(nest, 0, maker, 0)
    if not is_contraction(made):
        return made
    made.erase()
    return nest


def _bytes(value: SSAValue) -> int:
    """The size of a tensor in bytes; 0 if it is not known."""
    assert isinstance(value.type, TensorType)
    return (product(value.type.shape).constant or 0) * byte_width(value.type.element)


def _is_candidate(nest: NestOp) -> bool:
    """Whether a nest is a plain reduction to a known number of results that may be split."""
    single = nest.is_reduction and len(nest.results) == 1 and not nest.into
    in_order = nest.is_scan or nest.is_recurrence
    return single and not in_order and not is_contraction(nest) and _results(nest) is not None and (
        not _rounds(nest)) and not is_between_products(nest)


def _rounds(nest: NestOp) -> bool:
    """Whether results of parts would be rounded."""
    return result_types(nest)[0].element in (f16, bf16) and (
        nest.combiner_names[0] not in ("max", "min"))


def _results(nest: NestOp) -> int | None:
    return product(a.extent for a in nest.parallel_axes).constant


def _side_by_side(nest: NestOp) -> int:
    """The number of results that one program computes together."""
    along = [running_axis(m, nest.axes) for m in nest.input_maps]
    summed = {a.name for a in nest.reduce_axes}
    return 1 if any(summed.intersection(names) for names in along) else COLUMNS


# ---------------------------------------------------------------------- where to cut
def _cut(nest: NestOp, facts: Facts) -> tuple[NestOp, Sequence[Symbol]] | None:
    """The nest, with an axis split in two if necessary, and the axes to make parallel; or None."""
    programs = facts.programs
    summed = {a.name: a for a in nest.reduce_axes}
    axes = [summed[name] for name in memory_order(nest, list(summed))]
    total, results = product(a.extent for a in axes).constant, _results(nest) or 0
    side = min(_side_by_side(nest), results)
    if total is None:
        whole = _open_cut(nest, axes) if results == 1 else None
        return whole or _open_parts(nest, axes[-1], side, results, programs)
    held = facts.held_row if side == 1 else 0
    if side == 1 and 4 * results >= programs:
        programs *= EVEN
    fewest = held if held and _reads_alone(nest) else MIN_ELEMENTS
    if results == 0 or total * side < fewest or 2 * results > programs * side:
        return None
    least = MIN_PART if side == 1 else MIN_COLUMN_PART
    wanted = min(-(-programs * side // results), total // least)
    if held and len(axes) == 1 and nest.combiner_names[0] in UNEVEN:
        return _in_parts(nest, axes[0], _held_part(total, wanted))
    short = _short_parts(nest, total) if side == 1 else 1
    return _known_cut(nest, axes, max(wanted, short), least)


def _reads_alone(nest: NestOp) -> bool:
    """Whether nothing else reads what the nest reduces, which one kernel could do for both."""
    return all(v.uses.get_length() == 1 for v in nest.inputs)


def _short_parts(nest: NestOp, total: int) -> int:
    return -(-total // MAX_HELD) if nest.combiner_names == ["max"] else 1


def _held_part(total: int, wanted: int) -> int:
    """The elements of a part that fills its tile, where there are to be so many at least. Of very
    many elements, a part has several such tiles."""
    part = max(total // wanted, MIN_PART)
    if part >= MAX_HELD:
        return -(-total // MAX_HELD ** 2) * MAX_HELD if total > MAX_HELD ** 2 else (
            _nearly(total, MAX_HELD))
    return _nearly(total, 1 << part.bit_length() - 1)


def _nearly(total: int, part: int) -> int:
    """A slightly shorter part that divides the whole in words, so that nothing is compared with the
    end; else the part."""
    return next((n for n in range(part, FILLED * part // 4, -WORD) if total % n == 0), part)


def _in_parts(nest: NestOp, axis: Axis, size: int) -> tuple[NestOp, Sequence[Symbol]]:
    """The nest with its only summed axis in parts of that many elements."""
    count, left = divmod(axis.extent.constant or 1, size)
    made = unevenly_divided(nest, axis, size) if left else divided(nest, axis, count)
    return made, [axis.name]


def _known_cut(
    nest: NestOp, axes: Sequence[Axis], wanted: int, least: int
) -> tuple[NestOp, Sequence[Symbol]] | None:
    """Take the slowest axes until there are `wanted` parts, each of at least `least` elements."""
    total = product(a.extent for a in axes).constant or 1
    original, outer, parts = nest, list[Symbol](), 1
    for axis in axes:
        size = axis.extent.constant or 1
        count = _share(size, -(-wanted // parts), total // parts // least)
        if 1 < count < size:
            nest = divided(nest, axis, count)
        outer, parts = [*outer, *([axis.name] if count > 1 else [])], parts * count
        if parts >= wanted or count < size:
            break
    if 4 * parts < wanted and len(axes) == 1 and nest.combiner_names[0] in UNEVEN:
        return _in_parts(original, axes[0], -(-total // wanted // MIN_PART) * MIN_PART)
    return (nest, outer) if outer else None


def _share(size: int, wanted: int, most: int) -> int:
    """The number of equal parts of an axis: at least `wanted` if possible, and at most `most`."""
    low = [d for d in range(1, isqrt(size) + 1) if size % d == 0]
    divisors = sorted({*low, *(size // d for d in low)})
    fitting = [d for d in divisors if d <= most] or [1]
    return next((d for d in fitting if d >= wanted), fitting[-1])


def _open_cut(nest: NestOp, axes: Sequence[Axis]) -> tuple[NestOp, Sequence[Symbol]] | None:
    """Make all axes up to the last one of unknown size parallel, if enough is left to sum."""
    last = max(k for k, a in enumerate(axes) if a.extent.constant is None)
    inner = product(a.extent for a in axes[last + 1:]).constant or 1
    return (nest, [a.name for a in axes[:last + 1]]) if inner >= MIN_OPEN_PART else None


def _open_parts(
    nest: NestOp, axis: Axis, side: int, results: int, programs: int
) -> tuple[NestOp, Sequence[Symbol]] | None:
    """Parts of a known length, along an axis of unknown size, of a sum of few results."""
    if results == 0 or 2 * results > programs * side or axis.extent.constant is not None or (
            nest.combiner_names != ["add"]) or _counts_parts(axis.extent):
        return None
    return unevenly_divided(nest, axis, OPEN_PART if side == 1 else OPEN_COLUMN_PART), [axis.name]


def _counts_parts(size: Expr) -> bool:
    """Whether an axis walks the parts of a sum that was split so: (n + 63) floordiv 64.

    Where n is divided itself, both divisions are one: by 128 for n = m floordiv 2.
    """
    atoms = [a for monomial, _ in size.terms for a in monomial]
    return any(isinstance(a, Call) and a.op == "floordiv" and any(
        (a.args[1].constant or 1) % part == 0 for part in (OPEN_PART, OPEN_COLUMN_PART))
        for a in atoms)


# ---------------------------------------------------------------------- two steps
def split_nest(
    at: Rewriter, nest: NestOp, outer: Sequence[Symbol], order: Sequence[int] | None = None
) -> SSAValue:
    """Reduce each part, then reduce the partial results, whose dims are stored in an order."""
    [type_], [map_] = result_types(nest), nest.output_maps
    dims = range(type_.rank) if order is None else order
    parts = [a for a in nest.axes if a.name in outer]
    place = [*(Expr.symbol(a.name) for a in parts), *(map_[d] for d in dims)]
    shape = [*(a.extent for a in parts), *(type_.shape[d] for d in dims)]
    reads = reads_of(nest)
    first = NestOp.of(
        [Axis(a.name, a.extent, a.reduce and a.name not in outer) for a in nest.axes],
        [r.value for r in reads], [r.map for r in reads],
        [tensor(type_.element, shape)], [place],
        combiners=nest.combiner_names, pads=[r.pad for r in reads], body=nest.body.clone())
    partial = at.insert(first).results[0]
    block = Block(arg_types=[scalar_type(partial)])
    block.add_op(YieldOp.of(block.args[0]))
    axes = [a for a in nest.axes if a.name in outer or not a.reduce]
    second = NestOp.of(axes, [partial], [place], [type_], [map_],
                       combiners=nest.combiner_names, body=Region(block))
    return at.insert(carry(nest, second)).results[0]
