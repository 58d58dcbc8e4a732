"""Sums that follow a maximum, in parts: each part with a maximum of its own.

    %m = nest (i, reduce p) ins(%n[p, i]) outs(max)              %n: the maxima of parts
    %l = nest (i, reduce j) ins(%x[i, j], %m[i]) {exp(x - m)}
    ->
    %k = nest (i, p, reduce q) ins(%x[i, 64*p + q], %n[p, i]) {exp(x - n)}
    %l = nest (i, reduce p) ins(%k[p, i], %n[p, i], %m[i]) {k * exp(n - m)}

A program that finds the maximum of a part also has the part at hand for the sum, and what is summed
need not be in memory: exp(x - m) == exp(x - n) * exp(n - m). Where all of a part is -inf, the
lowest finite number stands for its maximum, so that its sum is 0 and not NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import Float32Type, Float64Type, FloatAttr
from xdsl.ir import Block, Region, SSAValue

from dialects.expr import Expr, product
from dialects.loop import Axis, NestOp, YieldOp, scalar_type
from dialects.types import dtype_of, tensor
from passes.loop.nests import (
    Read,
    carry,
    inline_producer,
    plain_axes,
    reads_of,
    result_types,
)
from passes.loop.online import Running, running_maximum
from passes.rewriting import Rewriter


@dataclass(frozen=True)
class Powers:
    """A sum that computes the powers which it sums up, what it is online on, and how many parts
    that has."""

    nest: NestOp
    running: Running
    count: int


def powers_in_parts(nest: NestOp) -> Powers | None:
    """Where a sum follows the maximum of the maxima of as long parts."""
    made = _computing(nest)
    running = running_maximum(made)
    count = None if running is None or len(made.reduce_axes) != 1 else _parts(
        running.maximum, made.reduce_axes[0].extent)
    if running is not None and count is not None:
        return Powers(made, running, count)
    if made is not nest:
        made.erase()
    return None


def _computing(nest: NestOp) -> NestOp:
    """The nest with the body of the elementwise one whose result alone it reads."""
    maker = nest.inputs[0].owner if len(nest.inputs) == 1 else None
    if not isinstance(maker, NestOp) or not maker.is_elementwise or len(maker.results) != 1 or (
            nest.pad_values[0] is not None or plain_axes(maker.output_maps[0]) is None):
        return nest
    return inline_producer(nest, 0, maker, 0)


def _parts(maximum: SSAValue, length: Expr) -> int | None:
    """How many parts a maximum is the maximum of, if they are as long together as told."""
    last = maximum.owner
    assert isinstance(last, NestOp)
    first = last.inputs[0].owner
    if len(last.inputs) != 1 or not isinstance(first, NestOp) or first.combiner_names != ["max"]:
        return None
    extents = [product(a.extent for a in n.reduce_axes) for n in (last, first)]
    return extents[0].constant if product(extents) == length else None


def sum_parts(at: Rewriter, nest: NestOp, part: str, powers: Powers) -> SSAValue:
    """Sum up each part, then all of them. `nest`: with the axis cut; `part`: the axis of parts."""
    running = powers.running
    [type_], [map_] = result_types(nest), nest.output_maps
    last = running.maximum.owner
    assert isinstance(last, NestOp)
    [own] = last.inputs
    reads = reads_of(nest)
    place = [k for k, r in enumerate(reads) if r.value is running.maximum]
    known = Read(running.maximum, reads[place[0]].map)
    at_part = Read(own, (Expr.symbol(part), *known.map))
    reads = [at_part if k in place else r for k, r in enumerate(reads)]
    stored = [Expr.symbol(part), *map_]
    first = NestOp.of(
        [Axis(a.name, a.extent, a.reduce and a.name != part) for a in nest.axes],
        [r.value for r in reads], [r.map for r in reads],
        [tensor(type_.element, [Expr.of(powers.count), *type_.shape])], [stored], combiners=["add"],
        pads=[r.pad for r in reads], body=_finite(nest, place))
    partial = Read(at.insert(first).results[0], tuple(stored))
    terms = [partial, at_part, known]
    second = NestOp.of(
        [a for a in nest.axes if a.name == part or not a.reduce], [r.value for r in terms],
        [r.map for r in terms], [type_], [map_], combiners=["add"], body=_rescaled(terms, running))
    for unused in {nest, powers.nest}:
        unused.erase()
    return at.insert(carry(nest, second)).results[0]


def _finite(nest: NestOp, places: Sequence[int]) -> Region:
    """The body, with some of its arguments no lower than the lowest finite number."""
    body = nest.body.clone()
    for argument in [body.block.args[k] for k in places]:
        element = argument.type
        assert isinstance(element, Float32Type | Float64Type)
        lowest = arith.ConstantOp(FloatAttr(float(np.finfo(dtype_of(element)).min), element))
        raised = arith.MaximumfOp(argument, lowest.result)
        argument.replace_uses_with_if(raised.result, lambda use, new=raised: (
            use.operation is not new))
        first = body.block.first_op
        assert first is not None
        body.block.insert_ops_before([lowest, raised], first)
    return body


def _rescaled(terms: Sequence[Read], running: Running) -> Region:
    """The sum of a part, its maximum and that of all: k * exp(n - m)."""
    block = Block(arg_types=[scalar_type(r.value) for r in terms])
    total, own, known = block.args
    difference = arith.SubfOp(own, known)
    power = running.function(difference.result)
    scaled = arith.MulfOp(total, power.result)
    block.add_ops([difference, power, scaled, YieldOp.of(scaled.result)])
    return Region(block)
