"""`loop-narrow-factors`: let products read factors in the narrow type that they were widened from.

    %p = nest (i, k) ins(%a[i, k]) {extf f8 to f32}        %q likewise, of %b
    %y = nest (i, j, reduce k) ins(%p[i, k], %q[k, j]) {mulf}
    ->  %y = nest (i, j, reduce k) ins(%a[i, k], %b[k, j]) {extf; extf; mulf}

Widening is exact, so the numbers do not change. A target whose instructions multiply the narrow
type and sum in f32 (`Facts.multiplies`) reads less memory and multiplies faster. Both factors must
have been widened from the same type. Elsewhere, a factor that is read often is widened once, before
the product.

    %p = nest (i, k) ins(..) {.. truncf to f16; extf to f32; yield f32}      likewise, only for %y
    ->  %p = nest (i, k) ins(..) {.. truncf to f16; yield f16}

What several products or other nests read is stored narrow, too, and each of them widens it:

    ->  %p = nest (i, k) ins(..) {.. truncf to f16; yield f16}     %z = nest ins(%p, ..) {extf; ..}

Enters: fused nests. Leaves: nests. Only sums in f32 qualify; no instruction supports others.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from dialects.loop import NestOp, YieldOp, scalar_type
from dialects.strata.types import TensorType, f32, holds, tensor, tensor_type
from dialects.symbolic.expr import Size
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.kinds import is_contraction
from passes.base import StrataContext, StrataPass
from passes.rewrites.loop.inlining import is_outside_likewise
from passes.rewrites.loop.nests import (
    Read,
    carry,
    drop_unused,
    elementwise_on,
    gathered_inputs,
    has_remainders,
    inline_everywhere,
    plain_axes,
    reads_of,
    result_types,
    with_reads,
)
from passes.rewriting import Rewriter, functions, rewrite


class LoopNarrowFactors(StrataPass):
    """Read factors of products before they are widened."""

    name = "loop-narrow-factors"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        multiplied = context.facts.multiplies
        if not multiplied:
            return

        def narrow(nest: NestOp, at: Rewriter) -> SSAValue | None:
            reads = [narrow_read(r) for r in reads_of(nest)] if _is_candidate(nest) else []
            types = {_rounded(nest, r) or _element(r.value) for r in reads}
            if len(types) != 1 or not types <= {*multiplied}:
                return None
            reads = [_narrowed(r, at) if _rounded(nest, r) else r for r in reads]
            if all(r.value in nest.inputs for r in reads):
                return None
            return at.insert(_product(nest, reads)).results[0]

        for func in functions(module):
            for nest in [op for op in func.body.block.ops if isinstance(op, NestOp)]:
                if _is_shared(nest, multiplied) and context.allowance.take(nest, self.name):
                    _store_narrow(nest)
            rewrite(func, {NestOp: [narrow]}, context)


def _element(value: SSAValue) -> Attribute:
    assert isinstance(value.type, TensorType)
    return value.type.element


def _is_candidate(nest: NestOp) -> bool:
    """Whether a nest sums products of its two inputs in f32, widened or not."""
    if not is_contraction(nest) or len(nest.inputs) != 2 or len(nest.results) != 1 or nest.into:
        return False
    multiply = nest.yielded[0].owner
    return isinstance(multiply, arith.MulfOp) and multiply.result.type == f32 and (
        {_source(v) for v in multiply.operands} == {*nest.body.block.args})


def _source(value: SSAValue) -> SSAValue:
    """The value that a value was converted from without loss."""
    through, source = list[Attribute](), value
    while isinstance(source.owner, (arith.ExtFOp, arith.TruncFOp)):
        through.append(source.type)
        source = source.owner.operands[0]
    return source if all(holds(wide, source.type) for wide in through) else value


def narrow_read(read: Read) -> Read:
    """A read of a widened tensor, turned into a read of its narrow source.

    Any other read is returned as it is. So is a padded read of a tensor that holds only a part of
    the source, because out of bounds of that part it must find zeros.
    """
    maker = read.value.owner
    if not isinstance(maker, NestOp) or not _only_widens(maker) or read.pad:
        return read
    if read.pad is not None and not is_outside_likewise(read, maker):
        return read
    at: dict[Symbol, Size] = {a.name: 0 for a in maker.axes}  # 0 remains for axes of extent 1
    for stored, expr in zip(maker.output_maps[0], read.map, strict=True):
        if stored.as_symbol is not None:
            at[stored.as_symbol] = expr
    [source] = reads_of(maker)
    return Read(source.value, tuple(e.substitute(at) for e in source.map), read.pad)


def _only_widens(maker: NestOp) -> bool:
    """Whether a nest copies one tensor, affinely but for divisions, into a wider type."""
    if len(maker.results) != 1 or len(maker.inputs) != 1 or not maker.is_elementwise:
        return False
    plain = maker.pad_values[0] is None and not (
        has_remainders(maker.input_maps[0]) or gathered_inputs(maker.input_maps[0])) and (
        plain_axes(maker.output_maps[0]) is not None)
    yielded = maker.yielded[0]
    return plain and yielded.type != _element(maker.inputs[0]) and (
        _source(yielded) is maker.body.block.args[0])


def _is_shared(maker: NestOp, multiplied: Collection[Attribute]) -> bool:
    """Whether a nest rounds what several others read, and products among them could read it
    narrow."""
    type_ = rounded_to(maker)
    readers = {use.operation for use in maker.results[0].uses}
    if type_ not in multiplied or len(readers) < 2 or any(
            not isinstance(r, NestOp) or r.parent != maker.parent or r.into for r in readers):
        return False
    products = [r for r in readers if isinstance(r, NestOp) and is_contraction(r)]
    return bool(products) and all(_is_candidate(nest) and {
        rounded_to(read.value.owner) or _element(narrow_read(read).value)
        for read in reads_of(nest)} == {type_} for nest in products)


def rounded_to(maker: Operation | Block) -> Attribute | None:
    """The type to which a nest rounds its only result, which it widens again; None for others."""
    if not isinstance(maker, NestOp) or not maker.is_elementwise or maker.into or (
            len(maker.results) != 1):
        return None
    wide = maker.yielded[0].owner
    if not isinstance(wide, arith.ExtFOp) or not isinstance(wide.input.owner, arith.TruncFOp):
        return None
    return wide.input.type if maker.pad_values[0] is None else None


def _store_narrow(maker: NestOp) -> None:
    """Let a nest store what it rounds, and its readers widen that."""
    narrow, wide = _narrow_nest(maker), scalar_type(maker.results[0])
    block = maker.parent_block()
    assert block is not None
    block.insert_op_before(narrow, maker)
    widened = elementwise_on(narrow.results[0], wide, lambda x: [arith.ExtFOp(x, wide)])
    maker.results[0].replace_all_uses_with(widened.results[0])
    maker.detach()
    maker.erase()
    inline_everywhere(widened)


def _rounded(nest: NestOp, read: Read) -> Attribute | None:
    """The type that a factor was rounded to before it was widened, by a nest that computes it for
    this product alone; None otherwise."""
    maker = read.value.owner
    if not isinstance(maker, NestOp) or maker.parent != nest.parent:
        return None
    return rounded_to(maker) if read.value.has_one_use() else None


def _narrowed(read: Read, at: Rewriter) -> Read:
    """A read of the rounded factor, which is stored before it is widened."""
    maker = read.value.owner
    assert isinstance(maker, NestOp)
    return Read(at.insert(_narrow_nest(maker)).results[0], read.map, read.pad)


def _narrow_nest(maker: NestOp) -> NestOp:
    """A nest that stores what another one widens last."""
    wide = maker.yielded[0].owner
    assert isinstance(wide, arith.ExtFOp)
    type_ = tensor(wide.input.type, tensor_type(maker.results[0]).shape)
    narrow = with_reads(maker, reads_of(maker), [type_])
    last = narrow.body.block.last_op
    assert last is not None
    widened = narrow.yielded[0].owner
    assert isinstance(widened, arith.ExtFOp)
    last.operands[0] = widened.input
    drop_unused(narrow)
    return narrow


def _product(nest: NestOp, reads: Sequence[Read]) -> NestOp:
    """The sum of products, with inputs of one narrow type that the body widens."""
    block = Block(arg_types=[_element(r.value) for r in reads])
    wide = [arith.ExtFOp(a, f32) for a in block.args]
    multiply = arith.MulfOp(wide[0].result, wide[1].result)
    block.add_ops([*wide, multiply, YieldOp.of(multiply.result)])
    new = NestOp.of(
        nest.axes, [r.value for r in reads], [r.map for r in reads], result_types(nest),
        nest.output_maps, combiners=nest.combiner_names, pads=[r.pad for r in reads],
        body=Region(block))
    return carry(nest, new)
