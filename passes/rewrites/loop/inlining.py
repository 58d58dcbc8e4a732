"""Which producers `loop-fuse` inlines into their readers: what that costs, what must not change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from xdsl.dialects import arith
from xdsl.ir import BlockArgument, Operation, SSAValue

from dialects.loop import IndexOp, NestOp, ViewOp, YieldOp, extents_of, scalar_type
from dialects.strata import types as t
from dialects.strata.types import byte_width, shape_of
from dialects.symbolic.expr import Expr
from dialects.symbolic.ranges import is_at_most, lower_bound, upper_bound
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.kinds import is_contraction
from passes.base import StrataContext
from passes.rewrites.loop.concatenations import is_selection
from passes.rewrites.loop.nests import (
    Read,
    axes_of_input,
    body_size,
    data_inputs,
    gathered_inputs,
    has_calls,
    has_remainders,
    index_exprs,
    inline_producer,
    is_copy,
    plain_axes,
    reads_of,
)

MAX_INPUTS = 24
"""More inputs than this would cause register spills on every target."""

MAX_OPERATIONS = 128
"""The most operations in a fused body. At this size a body is compute bound, and saving one pass
over memory would not show. Larger bodies are slow to build and to compile."""

FEW = 64
"""An element of so many is computed again where it is read alone."""

WIDE, CHEAP = 4, 12
"""Bytes of an element, and operations, of what is computed from far fewer elements where it is
read."""

_SLOW = ("arith.div", "arith.rem", "arith.floordiv", "arith.ceildiv")


def may_inline(nest: NestOp, position: int, read: Read, producer: NestOp) -> bool:
    """Whether inlining is legal and repeats no work."""
    if not can_inline(nest, position, read, producer) or (
            is_selection(producer) and feeds_contractions(nest)):
        return False
    if is_free(producer) or (is_widening(producer) and not is_contraction(nest)):
        return True
    if is_padded(producer) and nest.is_elementwise:
        return True
    if _reads_few(nest, read, producer) or (
            is_from_little(producer) and not is_contraction(nest)):
        return True
    if not is_contraction(nest) and _is_read_sooner(nest, producer):
        return True
    return not _widens_for_others(nest) and _reads_once_in_all(nest, producer)


def _reads_few(nest: NestOp, read: Read, producer: NestOp) -> bool:
    """Whether the nest picks a few of the producer's elements, as a loss does: computing them again
    is cheaper than storing all."""
    if is_contraction(nest) or _ends_other_sums(nest, read, producer):
        return False
    points = product(a.extent for a in nest.axes) * FEW
    return is_at_most(points, product(a.extent for a in producer.axes))


def is_from_little(producer: NestOp) -> bool:
    """Whether a nest computes long numbers from far fewer, by a few cheap operations each, such as
    the one that is not zero in each row of a loss's gradient: storing them takes longer."""
    if byte_width(scalar_type(producer.results[0])) < WIDE or not _is_cheap(producer):
        return False
    made = product(a.extent for a in producer.axes)
    return bool(producer.inputs) and all(
        is_at_most(product(shape_of(v)) * FEW, made) for v in producer.inputs)


def _is_cheap(producer: NestOp) -> bool:
    """Whether a nest computes each element by a few operations, none of which is slow."""
    return body_size(producer) <= CHEAP and all(
        isinstance(op, YieldOp | IndexOp) or (
            op.name.startswith("arith.") and not op.name.startswith(_SLOW))
        for op in producer.body.block.ops)


def _is_read_sooner(nest: NestOp, producer: NestOp) -> bool:
    """Whether what a nest computes by a few cheap operations is as long as all that it reads, of
    narrower types, from arguments: then several readers compute it sooner than they read it. The
    differences from a mean, say, of which batch normalization has sums and products."""
    if not _is_cheap(producer) or any(
            not isinstance(use.operation, NestOp) or is_contraction(use.operation)
            for use in producer.results[0].uses):
        return False
    reads = [r for r in reads_of(nest) if r.value is producer.results[0]]
    wide = {a.name for a in producer.axes if a.extent.constant != 1}
    full = dict.fromkeys(v for k, v in enumerate(producer.inputs)
                         if wide <= axes_of_input(producer, k))
    widths = [byte_width(scalar_type(v)) for v in full]
    width = byte_width(scalar_type(producer.results[0]))
    narrow = bool(widths) and max(widths) < width and sum(widths) <= width
    return narrow and all(map(is_argument, full)) and all(reads_once(nest, r) for r in reads)


def is_argument(value: SSAValue) -> bool:
    """Whether a value is an argument of the function."""
    while isinstance(value.owner, ViewOp):
        value = value.owner.source
    return isinstance(value, BlockArgument)


def _reads_once_in_all(nest: NestOp, producer: NestOp) -> bool:
    """Whether only the nest reads what the producer computes, and no element twice.

    Several reads, such as those of the halves of a gated activation, must all be fit for inlining.
    """
    reads = [(k, r) for k, r in enumerate(reads_of(nest)) if r.value is producer.results[0]]
    if producer.results[0].uses.get_length() != len(reads):
        return False
    extents = extents_of(nest.axes)
    return all(can_inline(nest, k, r, producer) and reads_once(nest, r)
               and not _ends_other_sums(nest, r, producer) for k, r in reads) and all(
        _are_apart(a.map, b.map, extents) for (_, a), (_, b) in combinations(reads, 2))


def _are_apart(a: Sequence[Expr], b: Sequence[Expr], extents: Mapping[Symbol, Expr]) -> bool:
    """Whether two reads walk disjoint ranges of some dim."""
    return any(_ends_before(x, y, extents) or _ends_before(y, x, extents)
               for x, y in zip(a, b, strict=True))


def _ends_before(x: Expr, y: Expr, extents: Mapping[Symbol, Expr]) -> bool:
    last, first = upper_bound(x, extents), lower_bound(y, extents)
    return last is not None and first is not None and is_at_most(last + 1, first)


def may_gather(
    nest: NestOp, position: int, read: Read, producer: NestOp, context: StrataContext
) -> bool:
    """Whether a contraction can gather a factor itself: whole words (neighbouring elements) from
    places that are the same in every step of its sums."""
    if not context.facts.gathers or not is_contraction(nest) or not is_gather(producer) or not (
            _only_reader(nest, producer) and can_inline(nest, position, read, producer)):
        return False
    new = inline_producer(nest, position, producer, 0)
    factors, summed = data_inputs(new), {a.name for a in new.reduce_axes}
    indices = [k for k in range(len(new.inputs)) if k not in factors]
    fits = len(factors) == 2 and not any(axes_of_input(new, k) & summed for k in indices) and (
        not any(gathered_inputs(new.input_maps[k][-1:]) for k in factors))
    new.erase()
    return fits


def is_gather(nest: NestOp) -> bool:
    """Whether a nest moves elements of one input to places that the other inputs determine."""
    if len(nest.results) != 1 or not nest.is_elementwise or any(
            p is not None for p in nest.pad_values):
        return False
    data = data_inputs(nest)
    return len(data) == 1 and nest.yielded[0] is nest.body.block.args[data[0]]


def feeds_contractions(nest: Operation) -> bool:
    """Whether a nest is a contraction, or vanishes in one because it only moves or widens what it
    reads. The factors of contractions stay tensors, which are loaded as matrices."""
    if isinstance(nest, NestOp):
        if is_contraction(nest):
            return True
        if not is_free(nest) and not is_widening(nest):
            return False
    elif not isinstance(nest, ViewOp):
        return False
    return any(feeds_contractions(use.operation) for r in nest.results for use in r.uses)


def can_inline(nest: NestOp, position: int, read: Read, producer: NestOp) -> bool:
    """Whether inlining is legal and the result stays within `MAX_INPUTS` and `MAX_OPERATIONS`."""
    if len(producer.results) != 1 or not producer.is_elementwise:
        return False
    names = plain_axes(producer.output_maps[0])
    wide = {a.name for a in producer.axes if a.extent.constant != 1}
    if names is None or not wide <= set(names):  # not every element is one point
        return False
    maps = [*nest.input_maps, *nest.output_maps]
    if position in gathered_inputs([e for m in maps for e in m] + index_exprs(nest)):
        return False
    if nest.is_recurrence and position == 0:  # the body has its state in place of that read
        return False
    if len(nest.inputs) + len(producer.inputs) > MAX_INPUTS:
        return False
    if body_size(nest) + body_size(producer) > MAX_OPERATIONS:
        return False
    return read.pad is None or _pad_commutes(read, producer)


def _ends_other_sums(nest: NestOp, read: Read, producer: NestOp) -> bool:
    """Whether `producer` rounds sums of products to fewer bytes, and `nest` needs another kernel.

    `nest` cannot share the kernel of the sums if it reduces, if it ends other sums as well, or if
    it splits a dim as it reads (heads of attention, say) or reads a part of it, or picks elements,
    or if it writes a part of a tensor, whose reader may select among all parts.
    Unrounded sums would then pass through memory.
    """
    width = byte_width(scalar_type(producer.results[0]))
    rounded = [v for v in _sums(producer.inputs) if byte_width(scalar_type(v)) > width]
    if not rounded:
        return False
    makers = [v.owner for v in nest.inputs if isinstance(v.owner, NestOp)]
    ends = [*nest.inputs, *(v for m in makers if m.is_elementwise for v in m.inputs)]
    elsewhere = bool(nest.into) or not _reads_all(nest, read)
    return nest.is_reduction or elsewhere or any(v not in rounded for v in _sums(ends))


def _reads_all(nest: NestOp, read: Read) -> bool:
    """Whether a read walks each dim of its tensor by an axis of its own, from start to end."""
    extents = extents_of(nest.axes)
    return plain_axes(read.map) is not None and not gathered_inputs(read.map) and all(
        size.constant == 1 if e.as_symbol is None else extents[e.as_symbol] == size
        for e, size in zip(read.map, shape_of(read.value), strict=True))


def _widens_for_others(nest: NestOp) -> bool:
    """Whether a nest only widens, and all its readers can fuse that; its input has fewer bytes."""
    readers = [use.operation for use in nest.results[0].uses]
    return is_widening(nest) and all(
        isinstance(r, NestOp) and not is_contraction(r) for r in readers)


def _sums(values: Sequence[SSAValue]) -> list[SSAValue]:
    return [v for v in values if isinstance(v.owner, NestOp) and is_contraction(v.owner)]


def is_free(producer: NestOp) -> bool:
    """Whether computing an element again costs nothing: true of affine copies and of constants."""
    if not producer.inputs:
        return all(isinstance(op, (arith.ConstantOp, YieldOp)) for op in producer.body.block.ops)
    return (is_copy(producer) and producer.pad_values[0] is None
            and not has_calls(producer.input_maps[0]))


def is_padded(producer: NestOp) -> bool:
    """Whether a nest is a copy with padding, which may repeat elements: its reader can do without.
    """
    return (is_copy(producer) and producer.pad_values[0] is not None
            and not has_remainders(producer.input_maps[0]))


def is_widening(producer: NestOp) -> bool:
    """Whether a nest only converts to a wider type with native instructions, so loads dominate."""
    value = producer.yielded[0]
    if len(producer.inputs) != 1 or not isinstance(value.owner, _WIDENINGS):
        return False
    while isinstance(value.owner, _WIDENINGS):
        value = value.owner.operands[0]
    native = not (t.is_narrow_float(value.type) or t.is_short_integer(value.type))
    return native and value is producer.body.block.args[0]


_WIDENINGS = (arith.ExtFOp, arith.ExtSIOp, arith.ExtUIOp)


def _pad_commutes(read: Read, producer: NestOp) -> bool:
    """Whether a read outside of a copy is also a read outside of the copy's source."""
    if not is_copy(producer):
        return False
    if producer.pad_values[0] is None:
        return is_outside_likewise(read, producer)
    return producer.pad_values[0] == read.pad and _surrounds(producer)


def _surrounds(producer: NestOp) -> bool:
    """Whether a padded copy has all of its source, dim by dim, and padding around it."""
    extents, source = extents_of(producer.axes), shape_of(producer.inputs[0])
    kept, read = producer.output_maps[0], producer.input_maps[0]
    return len(kept) == len(read) and all(
        _holds(at, e, size, extents) for at, e, size in zip(kept, read, source, strict=True))


def _holds(at: Expr, read: Expr, size: Expr, extents: Mapping[Symbol, Expr]) -> bool:
    """Whether a dim that stores at `at` what it reads at `read` has all of the source's dim."""
    name = at.as_symbol
    if name is None:
        return at.constant == read.constant == 0 and size.constant == 1
    start = read - at
    return start.symbols.isdisjoint(extents) and is_at_most(start, Expr.of(0)) and (
        is_at_most(size, start + extents[name]))


def is_outside_likewise(read: Read, producer: NestOp) -> bool:
    """Whether a read leaves the producer's result exactly where it would leave the input.

    The producer must read all of its input.
    """
    names = plain_axes(producer.input_maps[0])
    extents = extents_of(producer.axes)
    if names is None or any(at.constant != 0 and e.as_symbol not in names for at, e in zip(
            read.map, producer.output_maps[0], strict=True)):  # a dim that the input lacks
        return False
    return all(
        size.constant == 1 if e.as_symbol is None else extents[e.as_symbol] == size
        for e, size in zip(producer.input_maps[0], shape_of(producer.inputs[0]), strict=True))


def _only_reader(nest: NestOp, producer: NestOp) -> bool:
    return len(list(producer.results[0].uses)) == 1 and producer.results[0] in nest.inputs


def reads_once(nest: NestOp, read: Read) -> bool:
    """Whether different points of the nest read different elements."""
    used = set[Symbol]().union(*(e.symbols for e in read.map)) if read.map else set[Symbol]()
    if any(a.name not in used and a.extent.constant != 1 for a in nest.axes):
        return False
    extents = extents_of(nest.axes)
    seen: set[Symbol] = set()
    for expr in read.map:
        axes = expr.symbols & extents.keys()
        if axes & seen or not _is_mixed_radix(expr, extents):
            return False
        seen |= axes
    return True


def _is_mixed_radix(expr: Expr, extents: Mapping[Symbol, Expr]) -> bool:
    """Whether different axis values give different sums: each step exceeds the sum of all below.

    64*i + j with 0 <= j < 64.
    """
    split = expr.linear(extents)
    if split is None:
        return not expr.symbols & extents.keys()
    steps = sorted(split[0].items(), key=lambda item: (item[1].constant or 1 << 60, item[0]))
    below = Expr.of(0)
    for name, step in steps:
        if not is_at_most(below + 1, step):
            return False
        below = below + step * (extents[name] - 1)
    return True
