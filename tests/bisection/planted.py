"""Faults in passes, emitters, the runtime and the importer; $PLANTED names the one that is there.

This file is a plugin, so the faults live in processes of trials only.
"""

from __future__ import annotations

import os

import numpy as np
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import FloatAttr, f32

from dialects import graph
from dialects.strata.types import tensor
from passes.base import StrataPass

FAULTS = {}


def fault(function):
    FAULTS[function.__name__] = function
    return function


# ---------------------------------------------------------------------- passes
@fault
def wrong_rule():
    """graph-simplify: 1 / x becomes x."""
    from passes.rewrites.graph.arithmetic import ARITHMETIC_RULES

    def reciprocal_of_itself(op, at):
        return op.x

    ARITHMETIC_RULES[graph.ReciprocalOp] = [reciprocal_of_itself]


@fault
def wrong_lowering():
    """graph-to-loop: sqrt becomes a cube root."""
    from passes.graph_to_loop import elementwise

    elementwise._FUNCTIONS[graph.SqrtOp] = math.CbrtOp


@fault
def wrong_fusion():
    """loop-fuse: a body with tanh and a product uses a quotient instead."""
    from passes.loop import fuse

    def lose_product(nest, at):
        ops = list(nest.body.block.ops)
        found = [op for op in ops if isinstance(op, arith.MulfOp)]
        if not found or not any(isinstance(op, math.TanhOp) for op in ops):
            return None
        new = at.insert(nest.clone())
        product = next(op for op in new.body.block.ops if isinstance(op, arith.MulfOp))
        other = arith.DivfOp(product.lhs, product.rhs)
        new.body.block.insert_op_before(other, product)
        product.result.replace_all_uses_with(other.result)
        product.detach()
        product.erase()
        return list(new.results)

    fuse.NEST_RULES.insert(0, lose_product)


@fault
def wrong_tiles():
    """loop-to-block: a kernel with a logarithm adds 1."""
    from passes import loop_to_block

    real = loop_to_block.lower_kernel

    def lower(kernel):
        new = real(kernel)
        for op in list(new.walk()):
            if isinstance(op, math.LogOp):
                one = arith.ConstantOp(FloatAttr(1.0, f32))
                plus = arith.AddfOp(op.result, one.result)
                op.parent.insert_ops_after([one, plus], op)
                op.result.replace_all_uses_with(plus.result)
                plus.operands[0] = op.result
        return new

    loop_to_block.lower_kernel = lower


@fault
def overlap():
    """host-plan-buffers: all buffers lie at 0."""
    from passes.host import plan_buffers

    real = plan_buffers.plan

    def plan(blocks):
        total = real(blocks)
        for block in blocks:
            block.offset = block.offset - block.offset
        return total

    plan_buffers.plan = plan


@fault
def dead_code():
    """graph-dce: bypasses sigmoids."""
    from passes.graph import dce

    real = dce.erase_unused

    def erase_unused(block, context=None):
        for op in list(block.ops):
            if isinstance(op, graph.SigmoidOp) and context.allowance.take(op, "dead"):
                op.result.replace_all_uses_with(op.x)
        return real(block, context)

    dce.erase_unused = erase_unused


@fault
def invalid():
    """graph-cse: a result has a wrong type."""
    from passes.graph import cse

    real = cse.merge_equal

    def merge(block, context):
        gone = real(block, context)
        for op in list(block.ops):
            if isinstance(op, graph.SinOp) and context.allowance.take(op, "typed"):
                op.result._type = tensor(f32, [1, 2])
        return gone

    cse.merge_equal = merge


@fault
def raising_rule():
    """graph-simplify: a rule for erf raises."""
    from passes.rewrites.graph.arithmetic import ARITHMETIC_RULES

    def fold_erf(op, at):
        raise KeyError("erf")

    ARITHMETIC_RULES[graph.ErfOp] = [fold_erf]


@fault
def seeds():
    """graph-simplify: max(x, c) becomes max(x, c - 2), which few numbers show."""
    from passes.rewrites.graph.arithmetic import ARITHMETIC_RULES

    def greatest_shifted(op, at):
        if isinstance(op.y.owner, graph.SubOp):
            return None
        array = np.array(2, np.float32)
        two = at.insert(graph.ConstantOp.of_array(array, at.context.weights, "two"))
        return at(graph.MaxOp, op.x, at(graph.SubOp, op.y, two.results[0]))

    ARITHMETIC_RULES[graph.MaxOp] = [greatest_shifted]


# ---------------------------------------------------------------------- the CPU target
@fault
def wrong_code():
    """The emitter: sine is cosine."""
    from targets.cpu.emit import scalar

    scalar.SCALAR_ROWS[math.SinOp] = scalar.SCALAR_ROWS[math.CosOp]


@fault
def raising_emitter():
    """The emitter raises for logarithms."""
    from targets.cpu.emit import scalar

    scalar.SCALAR_ROWS.pop(math.LogOp, None)


@fault
def tail():
    """The emitter: masked stores write nothing."""
    from targets.cpu.emit import memory

    memory.Memory._masked_store = lambda *_: None


@fault
def crashing_code():
    """The runtime: kernels with an error function are called at address 0."""
    from targets.cpu.emit import scalar

    def trap(b, op, r):
        b.writer.emit("call void @llvm.trap()")
        return r[0]

    scalar.SCALAR_ROWS[math.ErfOp] = trap


@fault
def runtime():
    """The runtime: outputs lose their last element."""
    from targets.cpu.runtime.executable import CpuExecutable

    real = CpuExecutable.run

    def run(self, inputs):
        outputs = real(self, inputs)
        for array in outputs:
            array.reshape(-1)[-1:] = 0
        return outputs

    CpuExecutable.run = run


# ---------------------------------------------------------------------- the importer
@fault
def raising_import():
    """The importer raises for Sigmoid."""
    from compiler.frontend.onnx.ops import elementwise

    elementwise._UNARY["Sigmoid"] = None


@fault
def wrong_import():
    """The importer takes Sqrt for Abs."""
    from compiler.frontend.onnx.ops import elementwise

    elementwise._UNARY["Sqrt"] = graph.AbsOp


class Harmless(StrataPass):
    """A plugin defines something."""

    name = "harmless"

    def run(self, context, module):
        pass


FAULTS[os.environ["PLANTED"]]()
