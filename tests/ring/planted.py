"""Faults too small for any tolerance, as passes: a plugin for `verify --ring`.

Each pass harms one place of what it finds: a lane at a tail, an epsilon, the last of many terms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import FloatAttr, f32
from xdsl.ir import Operation, SSAValue

from dialects import block, graph
from dialects.loop import AxesAttr, Axis, IndexOp, NestOp
from dialects.loop.nest import NestOp as Nest
from dialects.strata.types import i64
from dialects.symbolic.expr import Expr
from passes.base import StrataPass

STEP = 1 + 2.0**-23
"""One unit in the last place of 1."""
AFTER = {
    "small-epsilon": "graph-fold-sizes", "small-scale": "graph-cse", "small-bias": "graph-cse",
    "small-literal": "graph-cse", "small-lane": "loop-fuse", "small-terms": "loop-simplify-nests",
    "small-exponential": "loop-fuse", "small-maximum": "loop-fuse", "small-tile": "loop-to-block",
    "small-constant": "loop-to-block"}
"""Which pass each of them follows."""


def _after(op: Operation, *new: Operation) -> None:
    """Insert operations after one whose result the last of them replaces."""
    block_, last = op.parent, new[-1].results[0]
    assert block_ is not None
    op.results[0].replace_all_uses_with(last)
    block_.insert_ops_after(new, op)


def _only(value: SSAValue, op: Operation, new: Operation) -> None:
    """Let one operand of `new` be the value again that all readers have lost."""
    for k, operand in enumerate(new.operands):
        if operand is new.results[0]:
            new.operands[k] = value


def _scalar(op: Operation, make: type[Operation], number: float) -> None:
    """Combine an operation's scalar result with a number."""
    constant = arith.ConstantOp(FloatAttr(number, f32))
    new = make(op.results[0], constant.result)
    _after(op, constant, new)
    _only(op.results[0], op, new)


def _ops(module: Operation, kind: type) -> list:
    return [op for op in module.walk() if isinstance(op, kind)]


@dataclass(frozen=True)
class Epsilon(StrataPass):
    """The epsilon of a layer norm is a thousandth larger."""

    name = "small-epsilon"

    def run(self, context, module):
        for op in _ops(module, graph.LayerNormOp):
            value = op.properties["epsilon"].value.data
            op.properties["epsilon"] = FloatAttr(value * 1.001, 64)


@dataclass(frozen=True)
class Scale(StrataPass):
    """A product is one unit in the last place larger."""

    name = "small-scale"

    def run(self, context, module):
        op = _ops(module, graph.MatmulOp)[-1]
        self.scaled(context, op, graph.MulOp, STEP)

    def scaled(self, context, op, kind, number):
        from dialects.graph.base import Build

        build = Build(op.next_op)
        constant = build.insert(
            graph.ConstantOp.of_array(np.array(number, np.float32), context.weights, "small"))
        uses = list(op.results[0].uses)
        new = build(kind, op.results[0], constant.results[0])
        for use in uses:
            use.operation.operands[use.index] = new


@dataclass(frozen=True)
class Bias(Scale):
    """Something tiny is added to a product."""

    name = "small-bias"

    def run(self, context, module):
        self.scaled(context, _ops(module, graph.MatmulOp)[-1], graph.AddOp, 1e-12)


@dataclass(frozen=True)
class Literal(StrataPass):
    """A literal has another last digit."""

    name = "small-literal"

    def run(self, context, module):
        from dialects.strata.types import LiteralAttr

        for op in _ops(module, graph.ConstantOp):
            if isinstance(op.value, LiteralAttr) and op.value.data == (0.75,):
                op.properties["value"] = LiteralAttr((float(np.float32(0.75 * STEP)),))


@dataclass(frozen=True)
class Lane(StrataPass):
    """The last element along an axis is one unit in the last place larger."""

    name = "small-lane"

    def run(self, context, module):
        nest = next(n for n in _ops(module, NestOp) if _ops(n, math.TanhOp))
        body, axis = nest.body.block, nest.axes[-1]
        tanh = _ops(nest, math.TanhOp)[0]
        index = IndexOp.of(Expr.symbol(axis.name) - axis.extent + 1)
        zero = arith.ConstantOp.from_int_and_width(0, 64)
        place = arith.IndexCastOp(index.results[0], i64)
        last = arith.CmpiOp(place.result, zero.result, "eq")
        step = arith.ConstantOp(FloatAttr(STEP, f32))
        larger = arith.MulfOp(tanh.result, step.result)
        chosen = arith.SelectOp(last.result, larger.result, tanh.result)
        uses = list(tanh.result.uses)
        body.insert_ops_after([index, place, zero, last, step, larger, chosen], tanh)
        for use in uses:
            if use.operation not in (larger, chosen):
                use.operation.operands[use.index] = chosen.result


@dataclass(frozen=True)
class Terms(StrataPass):
    """A sum loses its last term."""

    name = "small-terms"

    def run(self, context, module):
        nest = next(n for n in _ops(module, Nest) if n.reduce_axes and _ops(n, arith.MulfOp)
                    and n.reduce_axes[0].extent.constant == 67)
        axes = [Axis(a.name, a.extent - 1, a.reduce) if a.reduce else a for a in nest.axes]
        nest.properties["axes"] = AxesAttr(tuple(axes))


@dataclass(frozen=True)
class Exponential(StrataPass):
    """Powers are tiny instead of 0."""

    name = "small-exponential"

    def run(self, context, module):
        _scalar(_ops(module, math.ExpOp)[0], arith.AddfOp, 1e-20)


@dataclass(frozen=True)
class Maximum(StrataPass):
    """A maximum is a little larger than all elements, which softmax does not show."""

    name = "small-maximum"

    def run(self, context, module):
        _scalar(_ops(module, math.TanhOp)[0], arith.MaximumfOp, -0.99999994)


@dataclass(frozen=True)
class Tile(StrataPass):
    """A tile that is added to a sum has a smaller factor."""

    name = "small-tile"

    def run(self, context, module):
        maps = [op for op in _ops(module, block.MapOp) if _ops(op, math.TanhOp)]
        _scalar(_ops(maps[-1], math.TanhOp)[0], arith.MulfOp, 1 - 2.0**-24)


@dataclass(frozen=True)
class Constant(StrataPass):
    """A constant of a tile has another last digit."""

    name = "small-constant"

    def run(self, context, module):
        for op in _ops(module, arith.ConstantOp):
            if isinstance(op.value, FloatAttr) and op.value.value.data == 0.75:
                op.properties["value"] = FloatAttr(0.75 * STEP, f32)
