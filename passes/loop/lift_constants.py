"""`loop-lift-constants`: turn numbers in which otherwise equal kernels differ into inputs.

    %a = loop.call @k0(%x)        loop.kernel @k0(%p) { .. arith.constant 2.0 .. }
    %b = loop.call @k1(%y)        loop.kernel @k1(%p) { .. arith.constant 3.0 .. }
    ->
    %2 = constant 2.0             loop.kernel @k0(%p, %c: f32[]) { .. }
    %3 = constant 3.0             loop.kernel @k1(%p, %c: f32[]) { .. }
    %a = loop.call @k0(%x, %2)
    %b = loop.call @k1(%y, %3)

`loop-deduplicate-kernels` then merges the kernels, so that layers with learned scales, say, are
compiled once. A number stays in the kernel where knowing it saves work: only numbers that are
added, multiplied or compared are lifted, and divisors are not. Numbers that are the same in all
kernels stay as well.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import FloatAttr, ModuleOp
from xdsl.ir import Operation

from dialects.graph import ConstantOp
from dialects.loop import CallOp, KernelOp, NestOp
from dialects.strata.types import f32, tensor
from dialects.text.syntax import set_location
from passes.analyses.loop.canonical import Canonical, with_equals
from passes.base import StrataContext, StrataPass
from passes.rewrites.loop.nests import carry, reads_of, replace_nest, result_types
from passes.rewriting import functions

_TAKES_ANY_NUMBER = (arith.AddfOp, arith.SubfOp, arith.MulfOp, arith.MaximumfOp, arith.MinimumfOp)

MAX_LIFTED = 8
"""The most numbers to lift; kernels that differ in more are treated as different."""


class LoopLiftConstants(StrataPass):
    """Turn numbers in which otherwise equal kernels differ into inputs."""

    name = "loop-lift-constants"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        calls = _calls(module)
        for group in _groups(module):
            differing = _differing(group)
            if not 0 < len(differing) <= MAX_LIFTED or (
                    not context.allowance.take(group[0].kernel, self.name)):
                continue
            for kernel in group:
                lifted = [kernel.constants[k] for k in differing]
                for call in calls.get(kernel.kernel.sym_name.data, []):
                    _pass_numbers(call, lifted, context)
                _lift(kernel.kernel, lifted)


def _calls(module: ModuleOp) -> dict[str, list[CallOp]]:
    """The calls of each kernel."""
    found: dict[str, list[CallOp]] = {}
    for func in functions(module):
        for op in func.body.block.ops:
            if isinstance(op, CallOp):
                found.setdefault(op.kernel.data, []).append(op)
    return found


def _groups(module: ModuleOp) -> list[list[Canonical]]:
    """Kernels that are equal except for numbers, in the order of the module."""
    groups: dict[Hashable, list[Canonical]] = {}
    for op in with_equals(module):
        this = Canonical.of(op, _could_be_read)
        groups.setdefault(this.key, []).append(this)
    return [group for group in groups.values() if len(group) > 1]


def _could_be_read(op: Operation) -> bool:
    """Whether a constant may be an input: a number in a nest's body that is not a divisor."""
    if not isinstance(op, arith.ConstantOp) or op.result.type != f32:
        return False
    inside = isinstance(op.parent_op(), NestOp)
    return inside and all(isinstance(u.operation, _TAKES_ANY_NUMBER) for u in op.result.uses)


def _differing(group: Sequence[Canonical]) -> list[int]:
    """The positions at which the kernels have different numbers."""
    values = [[str(op.value) for op in kernel.constants] for kernel in group]
    return [k for k, same in enumerate(zip(*values, strict=True)) if len(set(same)) > 1]


def _pass_numbers(
    call: CallOp, lifted: Sequence[arith.ConstantOp], context: StrataContext
) -> None:
    """Append the numbers to a call's inputs."""
    block = call.parent_block()
    assert block is not None
    for op in lifted:
        assert isinstance(op.value, FloatAttr)
        number = np.array(op.value.value.data, np.float32)
        constant = ConstantOp.of_array(number, context.weights, "number")
        set_location(constant, call)
        block.insert_op_before(constant, call)
        call.operands = [*call.operands, constant.results[0]]


def _lift(kernel: KernelOp, lifted: Sequence[arith.ConstantOp]) -> None:
    """Append the numbers to a kernel's arguments, and let its nests read them."""
    block = kernel.body.block
    scalar = tensor(f32, [])
    arguments = {op: block.insert_arg(scalar, len(block.args)) for op in lifted}
    for nest in kernel.nests:
        own = [op for op in nest.body.block.ops
               if isinstance(op, arith.ConstantOp) and op in arguments]
        if not own:
            continue
        reads = reads_of(nest)
        body = nest.body.clone()
        copies = dict(zip(nest.body.block.ops, body.block.ops, strict=True))
        for op in own:
            copy = copies[op]
            copy.results[0].replace_all_uses_with(
                body.block.insert_arg(f32, len(body.block.args)))
            body.block.erase_op(copy)
        replace_nest(nest, carry(nest, NestOp.of(
            nest.axes, [*nest.inputs, *(arguments[op] for op in own)],
            [*(r.map for r in reads), *(() for _ in own)], result_types(nest), nest.output_maps,
            combiners=nest.combiner_names, pads=[*nest.pad_values, *(None for _ in own)],
            into=list(nest.into), body=body)))
