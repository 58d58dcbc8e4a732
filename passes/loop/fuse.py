"""`loop-fuse`: inline producers into their consumers, and fold data movement into index maps.

Enters: nests over tensors as lowering made them, about one per operator. Leaves: fewer nests
that compute the same. Ten rules are applied until none fits:

    compose views      %v = view %x; nest reads %v[e]      ->  nest reads %x[e']
    inline producers   %p = nest {f}; nest reads %p[e] {g} ->  nest reads f's inputs at e {f; g}
    inline parts       nests write parts of %c; nest reads %c  ->  nest selects the part
    select given       nests copy parts of %c; products of %c  ->  one nest selects the part
    forward copies     %p = nest {f}; %c = copy of %p      ->  %c = nest {f}, stored in %c's order
    forward parts      the same, where several nests write the parts of %p
    merge views        view (view %x)                      ->  view %x
    widen views        %p = nest {widen}; view %p          ->  nest {widen} of a view
    drop unit axes     nest (i: 1, j: n)                   ->  nest (j: n), with 0 for i
    drop idle axes     %y = sum nest (i, j, reduce k) ins(%x[i, k])
                                                       ->  %s = sum nest (i, reduce k) ins(%x[i, k])
                                                           %y = copy of %s, the same for every j
    merge equal reads  nest reads %x[e], %x[e]             ->  nest reads %x[e]

A producer is inlined if it is elementwise and is not computed more often than before, that is, if
the consumer reads each of its elements once, or only a few of them. Copies may be repeated for
free. So may conversions to a wider type, except in a contraction, which would repeat them for each
product. A contraction reads gathered rows and matrices directly on targets that can gather operands
(`Facts.gathers`). The parts of a concatenation are computed by its reader where a selection is
cheaper than memory (`Facts.selects`). A nest that rounds the sums of a contraction stays with it
when the consumer belongs to another kernel. All of this is composition of index expressions; no
rule knows an operator. Formulas that are left of short tables are computed at compile time.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue, Use

from dialects.loop import Axis, EmptyOp, NestOp, ViewOp, extents_of
from dialects.records import dataclass
from dialects.strata.types import TensorType, shape_of
from dialects.symbolic.expr import Expr
from dialects.symbolic.ranges import simplify
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import of_one_node
from passes.analyses.loop.kinds import is_contraction, is_sort
from passes.base import StrataContext, StrataPass
from passes.loop.simplify_nests import SIMPLER
from passes.rewrites.loop.concatenations import is_selection, parts_of, selecting_nest
from passes.rewrites.loop.inlining import (
    can_inline,
    feeds_contractions,
    is_argument,
    is_free,
    is_padded,
    is_widening,
    may_gather,
    may_inline,
    reads_once,
)
from passes.rewrites.loop.nests import (
    Read,
    carry,
    has_calls,
    has_remainders,
    inline_producer,
    is_copy,
    plain_axes,
    reads_of,
    through_view,
    with_reads,
)
from passes.rewrites.loop.tables import fold_table
from passes.rewriting import Rewriter, rewrite


@dataclass(frozen=True)
class LoopFuse(StrataPass):
    """Inline elementwise producers and compose views."""

    name = "loop-fuse"

    across: bool = True
    """Whether nests of different nodes of the model are fused; if not, only the parts of one."""

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        rules = NEST_RULES if self.across else NODE_RULES
        rewrite(module, {NestOp: rules, ViewOp: [merge_views, widen_view]}, context)
        rewrite(module, {NestOp: [fold_table]}, context)


# ---------------------------------------------------------------------- views
def merge_views(view: ViewOp, at: Rewriter) -> SSAValue | None:
    """view (view %x) == view %x; a view of the same shape is dropped."""
    if view.source.type == view.result.type:
        return view.source
    inner = view.source.owner
    if not isinstance(inner, ViewOp):
        return None
    return at.insert(ViewOp.of(inner.source, shape_of(view.result))).results[0]


def widen_view(view: ViewOp, at: Rewriter) -> SSAValue | None:
    """Widen what a view shows, instead of viewing what was widened, so that its readers can.

        %p = nest (i, j, k) ins(%x[i, j, k]) {extf}        %w = view %x : bf16[6, 5]
        %v = view %p : f32[6, 5]                      ->   %v = nest (i, j) ins(%w[i, j]) {extf}
    """
    maker = view.source.owner
    if not isinstance(maker, NestOp) or maker.into or not is_widening(maker) or (
            not is_argument(maker.inputs[0]) or not all(map(_can_widen, view.result.uses))):
        return None
    points, stored = maker.input_maps[0], maker.output_maps[0]
    if maker.pad_values[0] is not None or points != stored or plain_axes(stored) is None or (
            shape_of(maker.inputs[0]) != shape_of(maker.results[0])):
        return None
    shape = shape_of(view.result)
    axes = [Axis(Symbol.axis(f"i{d}"), size) for d, size in enumerate(shape)]
    point = [Expr.symbol(a.name) for a in axes]
    source = at.insert(ViewOp.of(maker.inputs[0], shape)).results[0]
    return at.insert(NestOp.of(axes, [source], [point], [view.result.type], [point],
                               body=maker.body.clone())).results[0]


def _can_widen(use: Use) -> bool:
    return isinstance(use.operation, NestOp) and not is_contraction(use.operation)


def compose_views(nest: NestOp, at: Rewriter) -> list[SSAValue] | None:
    """Read through views where the index expressions stay affine."""
    reads = [_compose(nest, read) for read in reads_of(nest)]
    if all(new is None for new in reads):
        return None
    merged = [new or old for new, old in zip(reads, reads_of(nest), strict=True)]
    return list(at.insert(with_reads(nest, merged)).results)


def _compose(nest: NestOp, read: Read) -> Read | None:
    view = read.value.owner
    if not isinstance(view, ViewOp):
        return None
    target, source = shape_of(view.result), shape_of(view.source)
    if read.pad is not None and not (_only_unit_dims_differ(target, source) and all(
            at.constant == 0 for at, s in zip(read.map, target, strict=True) if s.constant == 1)):
        return None
    at = through_view(read.map, target, source, extents_of(nest.axes))
    return _through_broadcast(nest, read, view) if at is None else Read(view.source, at, read.pad)


def _through_broadcast(nest: NestOp, read: Read, view: ViewOp) -> Read | None:
    """Read what a copy repeats, if the view merges the repetitions with the dim before them.

        %p = nest (i, r: 4, j) ins(%x[i, j])   %v = view %p   nest reads %v[h, j]
        ->  nest reads %x[h floordiv 4, j]
    """
    copy, extents = view.source.owner, extents_of(nest.axes)
    at = through_view(read.map, shape_of(view.result), shape_of(view.source), extents, divide=True)
    if at is None or read.pad is not None or not (
            isinstance(copy, NestOp) and (is_free(copy) or is_padded(copy)) and copy.inputs):
        return None
    values = {axis: at[d] for d, e in enumerate(copy.output_maps[0])
              if (axis := e.as_symbol) is not None}
    if len(values) < sum(a.extent.constant != 1 for a in copy.axes):
        return None
    map_ = tuple(simplify(e.substitute(values), extents) for e in copy.input_maps[0])
    return None if has_remainders(map_) else Read(copy.inputs[0], map_, copy.pad_values[0])


def _only_unit_dims_differ(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> bool:
    return [s for s in a if s.constant != 1] == [s for s in b if s.constant != 1]


# ---------------------------------------------------------------------- copies
def forward_copy(copy: NestOp, at: Rewriter) -> list[SSAValue] | None:
    """Let a copied tensor's producer store it in the copy's order, if nothing else reads it.

        %p = nest (i, j) outs(f32[a, b][i, j])   %c = nest (k, l) ins(%p[l, k]) outs([k, l])
        ->  %c = nest (i, j) outs(f32[b, a][j, i])
    """
    if not is_copy(copy) or copy.pad_values[0] is not None:
        return None
    producer = copy.inputs[0].owner
    if not isinstance(producer, NestOp) or len(producer.results) != 1 or producer.into:
        return None
    if producer.is_elementwise or len(list(producer.results[0].uses)) != 1:
        return None
    moved = _stored_at(copy, producer)
    if moved is None:
        return None
    assert isinstance(copy.results[0].type, TensorType)
    new = with_reads(producer, reads_of(producer), [copy.results[0].type], [moved])
    new.location = producer.location
    return list(at.insert(new).results)


def forward_parts(copy: NestOp, at: Rewriter) -> list[SSAValue] | None:
    """Let the nests that write parts of a copied tensor store them in the copy's order.

        %e = empty   %p = nest into(%e)   %q = nest into(%p)   %c = copy of %q, in another order
        ->  %e' = empty   %p' = nest into(%e')   %c = nest into(%p')
    """
    if not is_copy(copy) or copy.pad_values[0] is not None or copy.into:
        return None
    parts = parts_of(copy.inputs[0]) if copy.inputs[0].has_one_use() else []
    stored = [_stored_at(copy, part) for part in parts]
    if not parts or None in stored:
        return None
    type_ = copy.results[0].type
    assert isinstance(type_, TensorType)
    whole = at.insert(EmptyOp.of(type_)).results[0]
    for part, map_ in zip(parts, stored, strict=True):
        assert map_ is not None
        new = NestOp.of(part.axes, part.inputs, part.input_maps, [type_], [map_],
                        combiners=part.combiner_names, pads=part.pad_values, into=[whole],
                        body=part.body.clone())
        [whole] = at.insert(carry(part, new)).results
    return [whole]


def _stored_at(copy: NestOp, producer: NestOp) -> list[Expr] | None:
    """Where the copy's result stores the producer's elements, if the copy is a permutation."""
    read_at, kept_at = copy.input_maps[0], copy.output_maps[0]
    names = plain_axes(read_at)
    if names is None or len(names) != len(copy.axes) or has_calls(kept_at):
        return None
    shape = shape_of(copy.inputs[0])
    extents = extents_of(copy.axes)
    source = producer.output_maps[0]
    values: dict[Symbol, Expr] = {}
    for expr, size, stored in zip(read_at, shape, source, strict=True):
        name = expr.as_symbol
        if name is None:
            if size.constant != 1:
                return None
            continue
        if extents[name] != size:
            return None
        values[name] = stored
    return [e.substitute(values) for e in kept_at]


# ---------------------------------------------------------------------- producers
def inline_producers(nest: NestOp, at: Rewriter) -> list[SSAValue] | None:
    """Inline the first producer that qualifies; the driver then visits the new nest."""
    return _inline(nest, at, lambda producer: True)


def inline_own_producers(nest: NestOp, at: Rewriter) -> list[SSAValue] | None:
    """Inline a producer that comes from the same node of the model."""
    return _inline(nest, at, lambda producer: of_one_node(nest, producer))


def _inline(
    nest: NestOp, at: Rewriter, allowed: Callable[[NestOp], bool]
) -> list[SSAValue] | None:
    if is_sort(nest) and at.context.facts.sorts_alone:
        return None
    for position, read in enumerate(reads_of(nest)):
        producer = read.value.owner
        if isinstance(producer, NestOp) and allowed(producer) and (
                may_inline(nest, position, read, producer)
                or may_gather(nest, position, read, producer, at.context)):
            new = inline_producer(nest, position, producer, producer.number_of(read.value))
            return list(at.insert(new).results)
    return None


def inline_parts(nest: NestOp, at: Rewriter) -> list[SSAValue] | None:
    """Compute a concatenation that only this nest reads, instead of storing its parts; one of
    copies may have other readers and be read several times."""
    if not at.context.facts.selects or feeds_contractions(nest):
        return None
    for position, read in enumerate(reads_of(nest)):
        if not (_copies_for_nests(read.value) or (
                read.value.has_one_use() and reads_once(nest, read))):
            continue
        producer = selecting_nest(read.value)
        if producer is None:
            continue
        new = inline_producer(nest, position, producer, 0) if (
            can_inline(nest, position, read, producer)) else None
        producer.erase()
        if new is not None:
            return list(at.insert(new).results)
    return None


def _copies_for_nests(value: SSAValue) -> bool:
    """Whether the parts of a concatenation are copies, and nests read it that can select them."""
    readers = [use.operation for use in value.uses]
    return all(p.yielded[0] in p.body.block.args for p in parts_of(value)) and all(
        isinstance(r, NestOp) and not feeds_contractions(r) for r in readers)


def select_given(part: NestOp, at: Rewriter) -> list[SSAValue] | None:
    """Copy a concatenation that only contractions read in one nest, if a part lies in memory
    anyway, such as a cache: a kernel that joins the nest with its readers copies nothing."""
    value = part.results[0]
    parts = parts_of(value) if at.context.facts.selects and part.into else []
    if not any(_is_given(p) for p in parts) or not value.uses or not all(
            feeds_contractions(use.operation) for use in value.uses):
        return None
    nest = selecting_nest(value)
    if nest is None or not is_selection(nest):
        return None
    return list(at.insert(nest).results)


def _is_given(part: NestOp) -> bool:
    """Whether a part is a copy of an argument."""
    return [*part.yielded] == [*part.body.block.args] and is_argument(part.inputs[0])


NEST_RULES = [
    *SIMPLER, compose_views, forward_copy, forward_parts, inline_producers, inline_parts,
    select_given,
]
NODE_RULES = [*SIMPLER, inline_own_producers]
"""Within a node of the model; tensors between nodes keep their forms."""
