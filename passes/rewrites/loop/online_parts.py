"""Split sums that follow a maximum into parts, each with a maximum of its own.

    %m = nest (i, reduce p) ins(%n[p, i]) outs(max)              %n: the maxima of parts
    %l = nest (i, reduce j) ins(%x[i, j], %m[i]) {exp(x - m)}
    ->
    %k = nest (i, p, reduce q) ins(%x[i, 64*p + q], %n[p, i]) {exp(x - n)}
    %l = nest (i, reduce p) ins(%k[p, i], %n[p, i], %m[i]) {k * exp(n - m)}

A program that finds the maximum of a part still holds that part for the sum, so the summed values
need not be stored: exp(x - m) == exp(x - n) * exp(n - m). If all of a part is -inf, the lowest
finite number stands in for its maximum, so that its sum is 0 and not NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import Float32Type, Float64Type, FloatAttr
from xdsl.ir import Block, Region, SSAValue

from dialects.loop import Axis, NestOp, YieldOp, scalar_type
from dialects.strata.types import dtype_of, tensor
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.online import Running, running_maximum
from passes.rewrites.loop.nests import Read, carry, divided, reads_of, result_types
from passes.rewrites.loop.uneven_parts import unevenly_divided
from passes.rewriting import Rewriter


class Powers(NamedTuple):
    """A sum that computes its own powers, with its axis split: `part` is the axis over the parts.

    `place` is the number of the input that is the overall maximum.
    """

    nest: NestOp
    part: Symbol
    place: int
    running: Running


def powers_in_parts(nest: NestOp) -> Powers | None:
    """The sum of powers, split in parts, if the maximum that it follows is computed in parts."""
    running = running_maximum(nest)
    if running is None or len(nest.reduce_axes) != 1:
        return None
    [axis], places = nest.reduce_axes, [
        k for k, v in enumerate(nest.inputs) if v is running.maximum]
    first, count = _finder(running.maximum)
    if first is None or count is None or len(places) != 1:
        return None
    parts = _divided(nest, axis, count, first)
    if {r.key() for r in reads_of(first)} <= {r.key() for r in reads_of(parts)}:
        return Powers(parts, axis.name, places[0], running)
    parts.erase()
    return None


def _divided(nest: NestOp, axis: Axis, count: int, first: NestOp) -> NestOp:
    """The sum in the parts of the maximum, of which the last one may be shorter."""
    length = first.reduce_axes[0].extent.constant if len(first.reduce_axes) == 1 else None
    if length is None or (axis.extent - count * length).constant == 0:
        return divided(nest, axis, count)
    return unevenly_divided(nest, axis, length)


def _finder(maximum: SSAValue) -> tuple[NestOp | None, int | None]:
    """The nest that finds the maxima of the parts, and the number of parts."""
    last = maximum.owner
    assert isinstance(last, NestOp)
    first = last.inputs[0].owner
    if len(last.inputs) != 1 or len(last.reduce_axes) != 1 or not isinstance(first, NestOp) or (
            first.combiner_names != ["max"] or last.yielded[0] is not last.body.block.args[0]):
        return None, None
    [axis] = last.reduce_axes
    by_parts = last.input_maps[0] == (Expr.symbol(axis.name), *last.output_maps[0])
    return (first, axis.extent.constant) if by_parts else (None, None)


def sum_parts(at: Rewriter, powers: Powers) -> SSAValue:
    """Sum each part, then add up the parts."""
    nest, part, running = powers.nest, powers.part, powers.running
    [type_], [map_] = result_types(nest), nest.output_maps
    last, reads = running.maximum.owner, reads_of(nest)
    assert isinstance(last, NestOp)
    known = reads[powers.place]
    own = reads[powers.place] = Read(last.inputs[0], (Expr.symbol(part), *known.map))
    stored = (Expr.symbol(part), *map_)
    [count] = [a.extent for a in nest.axes if a.name == part]
    first = NestOp.of(
        [Axis(a.name, a.extent, a.reduce and a.name != part) for a in nest.axes],
        [r.value for r in reads], [r.map for r in reads],
        [tensor(type_.element, [count, *type_.shape])], [stored], combiners=["add"],
        pads=[r.pad for r in reads], body=_finite(nest, powers.place))
    terms = [Read(at.insert(first).results[0], stored), own, known]
    second = NestOp.of(
        [a for a in nest.axes if a.name == part or not a.reduce], [r.value for r in terms],
        [r.map for r in terms], [type_], [map_], combiners=["add"], body=_rescaled(terms, running))
    return at.insert(carry(nest, second)).results[0]


def _finite(nest: NestOp, place: int) -> Region:
    """The body, with an argument raised to at least the lowest finite number."""
    body = nest.body.clone()
    argument = body.block.args[place]
    element, first = argument.type, body.block.first_op
    assert isinstance(element, Float32Type | Float64Type) and first is not None
    lowest = arith.ConstantOp(FloatAttr(float(np.finfo(dtype_of(element)).min), element))
    raised = arith.MaximumfOp(argument, lowest.result)
    argument.replace_uses_with_if(raised.result, lambda use: use.operation is not raised)
    body.block.insert_ops_before([lowest, raised], first)
    return body


def _rescaled(terms: Sequence[Read], running: Running) -> Region:
    """The body k * exp(n - m) over the sum of a part, its maximum, and the overall maximum."""
    block = Block(arg_types=[scalar_type(r.value) for r in terms])
    total, own, known = block.args
    difference = arith.SubfOp(own, known)
    power = running.function(difference.result)
    scaled = arith.MulfOp(total, power.result)
    block.add_ops([difference, power, scaled, YieldOp.of(scaled.result)])
    return Region(block)
