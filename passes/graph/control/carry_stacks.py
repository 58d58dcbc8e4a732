"""graph-carry-stacks: values that a loop stacks become one carried value, written entry by entry.

    %h, %ys = strata.loop @step at k trip 3                 %z = graph.broadcast %zero : f32[3, 8]
        carried(%h0) with() : f32[8], f32[3, 8]        -->  %h, %ys = strata.loop @step at k trip 3
                                                                carried(%h0, %z) with() : ...
    strata.func @step(%0: f32[8]) sizes(k) {                strata.func @step(%0, %1: f32[3, 8]) {
      %1 = graph.tanh %0 : f32[8]                             %2 = graph.tanh %0 : f32[8]
      strata.return %1, %1                                    %3 = graph.scatter_nd %1, [k], %2
    }                                                         strata.return %2, %3

The kernel that computes an entry then writes it into its place, and nothing is copied afterwards.
That pays where iterations take the place of the loop (`loop-unroll-loops`): there, the carried
stack stays in one buffer. So this concerns the loops that will be unrolled: of a constant trip
count, without a condition, whose bodies are plain operators, and not too many in all iterations
together.
"""

from __future__ import annotations

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, ModuleOp

from dialects.graph.base import Build, GraphOp
from dialects.graph.constant import ConstantOp, SizesOp
from dialects.graph.scatter import ScatterNdOp
from dialects.graph.shape import BroadcastOp, ReshapeOp
from dialects.strata.callees import function_of
from dialects.strata.control import LoopOp
from dialects.strata.func import FuncOp, ReturnOp
from dialects.strata.sizes import AssumeOp, defined_sizes
from dialects.strata.types import TensorType, i64, tensor
from dialects.symbolic.expr import Expr
from dialects.text.syntax import strings
from passes.base import StrataContext, StrataPass
from passes.rewriting import functions, replace

_PLAIN = (GraphOp, AssumeOp, ReturnOp)


class GraphCarryStacks(StrataPass):
    """Carry what loops stack, if they will be unrolled."""

    name = "graph-carry-stacks"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        most = context.facts.unrolled_launches
        loops = [op for func in functions(module) for op in func.body.block.ops
                 if isinstance(op, LoopOp)] if most else []
        bodies = [loop.body.data for loop in loops]
        for loop in loops:
            if bodies.count(loop.body.data) == 1 and _concerns(loop, most) and (
                    context.allowance.take(loop, self.name)):
                _carry(loop, context)


def _concerns(loop: LoopOp, most: int) -> bool:
    """Whether a loop stacks values and will be unrolled: no kernel computes less than an operator.
    """
    trip = None if loop.trip is None else loop.trip.data.constant
    if not trip or loop.condition is not None or defined_sizes(loop) or not loop.stacked:
        return False
    ops = function_of(loop, loop.body.data).body.block.ops
    return all(isinstance(op, _PLAIN) for op in ops) and trip * len(list(ops)) <= most


def _carry(loop: LoopOp, context: StrataContext) -> None:
    body = function_of(loop, loop.body.data)
    trip, count, build = loop.trip, len(loop.carried), Build(loop)
    assert trip is not None
    starts = list(loop.carried)
    for stack in loop.stacked:
        assert isinstance(stack.type, TensorType)
        zero = build.insert(ConstantOp.of_array(
            np.zeros([], stack.type.dtype), context.weights, "stack"))
        starts.append(build(BroadcastOp, zero, shape=list(stack.type.shape)))
    _write_entries(body, count, trip.data, loop)
    new = build.insert(LoopOp.of(
        loop.body.data, loop.step_symbol, trip.data, None, starts, loop.inputs,
        [r.type for r in loop.results if isinstance(r.type, TensorType)]))
    replace(loop, list(new.results))


def _write_entries(body: FuncOp, count: int, trip: Expr, loop: LoopOp) -> None:
    """Let the body take the stacks after `count` carried values, and return them with its entries
    written into their places."""
    last = body.return_op
    values, build = list(last.operands), Build(last)
    for k, entry in enumerate(values[count:], count):
        assert isinstance(entry.type, TensorType)
        shape = entry.type.shape
        stack = body.body.block.insert_arg(tensor(entry.type.element, [trip, *shape]), k)
        place = build(SizesOp, values=[Expr.symbol(loop.step_symbol)], shape=[1], to=i64)
        values[k] = build(ScatterNdOp, stack, build(ReshapeOp, place, shape=[1, 1]),
                          build(ReshapeOp, entry, shape=[1, *shape]), combiner="none")
    names = body.input_names
    added = [f"stack_{k}" for k in range(len(values) - count)]
    body.inputs = strings([*names[:count], *added, *names[count:]])
    body.result_types_ = ArrayAttr([v.type for v in values])
    last.operands = values
