"""Powers of e in a backward pass, from sums that the forward pass has saved.

    %p = nest (i, j) ins(%s[i, j], %l[i]) {select(c, exp(select(c, s * f, low) - l), 0)}
    ->
    %b = nest (i) ins(%l[i]) {l * log2(e)}
    %p = nest (i, j) ins(%s[i, j], %b[i]) {select(c, exp2(s * (f * log2(e)) - b), 0)}

Hardware only computes powers of two. A selection inside of what another one with the same condition
selects is known to select its first value.
"""

from __future__ import annotations

from collections.abc import Collection

from xdsl.dialects import arith, math
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue

from dialects.loop import KernelOp, NestOp, YieldOp, scalar_type
from dialects.strata.types import TensorType, f32
from dialects.text.syntax import set_location
from passes.analyses.loop.online import argument_read
from passes.rewrites.loop.base_two import FACTOR, in_base_two, product_with, replace_power
from passes.rewrites.loop.nests import (
    Read,
    drop_unused,
    plain_axes,
    reads_of,
    replace_nest,
    with_reads,
)


# ---------------------------------------------------------------------- selections
def drop_decided(nest: NestOp) -> None:
    """Replace selections that selections of what they lead to have decided."""
    for op in list(nest.body.block.ops):
        if isinstance(op, arith.SelectOp) and op.parent is not None:
            _drop_behind(op.lhs, {op.cond})
    drop_unused(nest)


def _drop_behind(value: SSAValue, true: Collection[SSAValue]) -> None:
    """Do so in what computes a value that is used only where these conditions are true."""
    op = value.owner
    if not isinstance(op, Operation) or not value.has_one_use():
        return
    if not isinstance(op, arith.SelectOp):
        for operand in op.operands:
            _drop_behind(operand, true)
    elif op.cond in true:
        kept = op.lhs
        value.replace_all_uses_with(kept)
        op.detach()
        op.erase()
        _drop_behind(kept, true)
    else:
        _drop_behind(op.lhs, {*true, op.cond})
        _drop_behind(op.rhs, true)


# ---------------------------------------------------------------------- powers
def use_known_powers(kernel: KernelOp) -> None:
    """Rewrite powers of differences from an argument that has fewer axes."""
    for nest in [n for n in kernel.nests if n.is_elementwise]:
        for op in [op for op in nest.body.block.ops if isinstance(op, math.ExpOp)]:
            if (number := _subtracted(kernel, nest, op)) is not None:
                _rewrite(nest, op, number)
                break


def _subtracted(kernel: KernelOp, nest: NestOp, op: math.ExpOp) -> int | None:
    """The number of the input that is subtracted in an exponent whose other part can be scaled."""
    difference = op.operand.owner
    if not isinstance(difference, arith.SubfOp) or not difference.result.has_one_use() or (
            op.result.type != f32):
        return None
    known = difference.rhs
    if not isinstance(known, BlockArgument) or not known.has_one_use():
        return None
    read = argument_read(nest, known)
    axes = plain_axes(read.map)
    fewer = axes is not None and len(axes) < len(nest.axes) and read.pad is None
    outside = read.value in kernel.body.block.args
    return known.index if fewer and outside and in_base_two(difference.lhs) else None


def _rewrite(nest: NestOp, op: math.ExpOp, number: int) -> None:
    difference = op.operand.owner
    assert isinstance(difference, arith.SubfOp)
    ops = in_base_two(difference.lhs)
    assert ops is not None
    for new in ops:
        new.location = op.location
    nest.body.block.insert_ops_before(list(ops), difference)
    difference.operands[0] = ops[-1].results[0]
    replace_power(op, math.Exp2Op(op.operand))
    drop_unused(nest)
    reads = reads_of(nest)
    reads[number] = Read(_scaled_input(nest, reads[number]).results[0], reads[number].map)
    replace_nest(nest, with_reads(nest, reads))


def _scaled_input(nest: NestOp, read: Read) -> NestOp:
    """A nest before this one that multiplies what it reads by log2(e)."""
    used = {s for e in read.map for s in e.symbols}
    block = Block(arg_types=[scalar_type(read.value)])
    ops = product_with(block.args[0], FACTOR)
    block.add_ops([*ops, YieldOp.of(ops[-1].results[0])])
    assert isinstance(read.value.type, TensorType)
    made = NestOp.of([a for a in nest.axes if a.name in used], [read.value], [read.map],
                     [read.value.type], [read.map], body=Region(block))
    set_location(made, nest)
    made.results[0].name_hint = read.value.name_hint
    parent = nest.parent_block()
    assert parent is not None
    parent.insert_op_before(made, nest)
    return made
