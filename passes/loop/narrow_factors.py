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

Enters: fused nests. Leaves: nests. Only sums in f32 qualify; no instruction supports others.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, Region, SSAValue

from dialects.loop import NestOp, YieldOp
from dialects.strata.types import TensorType, f32, holds, tensor, tensor_type
from dialects.symbolic.expr import Size
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.kinds import is_contraction
from passes.base import StrataContext, StrataPass
from passes.loop.fuse import is_outside_likewise
from passes.rewrites.loop.nests import (
    Read,
    carry,
    drop_unused,
    gathered_inputs,
    has_remainders,
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


def _rounded(nest: NestOp, read: Read) -> Attribute | None:
    """The type that a factor was rounded to before it was widened, by a nest that computes it for
    this product alone; None otherwise."""
    maker = read.value.owner
    if not isinstance(maker, NestOp) or not maker.is_elementwise or maker.into or (
            len(maker.results) != 1 or not read.value.has_one_use() or maker.parent != nest.parent):
        return None
    wide = maker.yielded[0].owner
    if not isinstance(wide, arith.ExtFOp) or not isinstance(wide.input.owner, arith.TruncFOp):
        return None
    return wide.input.type if maker.pad_values[0] is None else None


def _narrowed(read: Read, at: Rewriter) -> Read:
    """A read of the rounded factor, which is stored before it is widened."""
    maker = read.value.owner
    assert isinstance(maker, NestOp)
    wide = maker.yielded[0].owner
    assert isinstance(wide, arith.ExtFOp)
    type_ = tensor(wide.input.type, tensor_type(read.value).shape)
    narrow = with_reads(maker, reads_of(maker), [type_])
    last = narrow.body.block.last_op
    assert last is not None
    widened = narrow.yielded[0].owner
    assert isinstance(widened, arith.ExtFOp)
    last.operands[0] = widened.input
    drop_unused(narrow)
    return Read(at.insert(narrow).results[0], read.map, read.pad)


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
