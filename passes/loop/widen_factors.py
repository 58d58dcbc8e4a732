"""`loop-widen-factors`: store tensors that products read often in the type of the sums.

    %x = nest (i, k) ins(..) outs(f16[n, 64]) { .. truncf; yield f16 }
    %y = nest (i, j, reduce k: 64) ins(%x[i, k], %w[k, j]) {extf; extf; mulf}
    ->  %x = nest (i, k) ins(..) outs(f32[n, 64]) { .. truncf; extf; yield f32 }
        %y = nest (i, j, reduce k: 64) ins(%x[i, k], %w[k, j]) {extf %w; mulf}

Elements are rounded as before, so the numbers do not change. A processor without instructions for
the narrow type (`Facts.widens`) would otherwise widen each element once per product. Views of such
a tensor and tensors written into it change their type along with it. Inputs and results of the
function keep their types, and so do constants.

Enters: fused nests. Leaves: nests.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import Rewriter

from dialects.loop import EmptyOp, NestOp, ViewOp, YieldOp, scalar_type
from dialects.strata.types import f32, tensor, tensor_type
from dialects.symbolic.size_products import product
from dialects.text.syntax import set_location
from passes.analyses.loop.kinds import is_contraction
from passes.base import StrataContext, StrataPass
from passes.rewrites.loop.nests import gathered_inputs
from passes.rewriting import functions

USES = 16
"""Products per element from which it pays to move twice the bytes."""


class LoopWidenFactors(StrataPass):
    """Store factors that are read often in the type of their sums."""

    name = "loop-widen-factors"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        widened = context.facts.widens
        if not widened:
            return
        for func in functions(module):
            for kept in _alike(func.body.block):
                element = tensor_type(kept[0]).element
                if element in widened and any(map(_is_used_often, kept)) and (
                        context.allowance.take(_maker(kept[0]), self.name)):
                    _widen(kept)


def _maker(value: SSAValue) -> Operation:
    """The operation that makes a value; the function of an argument."""
    owner = value.owner
    made = owner if isinstance(owner, Operation) else owner.parent_op()
    assert made is not None
    return made


# ---------------------------------------------------------------------- which tensors
def _alike(block: Block) -> list[list[SSAValue]]:
    """Groups of tensors that must share a type, without groups that something holds back."""
    parent: dict[SSAValue, SSAValue] = {}
    fixed = list[SSAValue]()

    def find(value: SSAValue) -> SSAValue:
        while parent[value] is not value:
            value = parent[value]
        return value

    for op in block.ops:
        if not isinstance(op, NestOp | EmptyOp | ViewOp):
            continue
        for result in op.results:
            parent[result] = result
            if not _is_free(result):
                fixed.append(result)
        for result, source in _joined(op):
            if source in parent:
                parent[find(result)] = find(source)
            else:
                fixed.append(result)
    stopped = {find(value) for value in fixed}
    found: dict[SSAValue, list[SSAValue]] = {}
    for value in parent:
        if find(value) not in stopped:
            found.setdefault(find(value), []).append(value)
    return list(found.values())


def _joined(op: Operation) -> list[tuple[SSAValue, SSAValue]]:
    """Pairs of a result and a tensor that occupies the same memory."""
    if isinstance(op, ViewOp):
        return [(op.result, op.source)]
    return list(zip(op.results, op.into, strict=False)) if isinstance(op, NestOp) else []


def _is_free(value: SSAValue) -> bool:
    """Whether a tensor is computed element by element and read only by nests."""
    if isinstance(value.owner, NestOp):
        number = value.owner.results.index(value)  # type: ignore[arg-type]
        if value.owner.combiner_names[number] != "none":
            return False
    return all(isinstance(use.operation, NestOp | ViewOp) and not _is_index(use.operation, value)
               for use in value.uses)


def _is_index(op: Operation, value: SSAValue) -> bool:
    return isinstance(op, NestOp) and any(
        op.inputs[k] is value for k in gathered_inputs([e for m in op.input_maps for e in m]))


def _is_used_often(value: SSAValue) -> bool:
    """Whether a contraction multiplies each element at least `USES` times."""
    return any(isinstance(use.operation, NestOp) and is_contraction(use.operation)
               and use.index < len(use.operation.inputs) and _uses(use.operation, use.index) >= USES
               for use in value.uses)


def _uses(nest: NestOp, position: int) -> int:
    """A lower bound on the results that each element of an input contributes to."""
    read = {s for e in nest.input_maps[position] for s in e.symbols}
    count = product(a.extent for a in nest.parallel_axes if a.name not in read)
    return count.constant or 0


# ---------------------------------------------------------------------- doing it
def _widen(values: Sequence[SSAValue]) -> None:
    nests = dict[NestOp, None]()
    for value in values:
        type_ = tensor_type(value)
        wide = Rewriter.replace_value_with_new_type(value, tensor(f32, type_.shape))
        if isinstance(wide.owner, NestOp):
            nests[wide.owner] = None
        nests.update((use.operation, None) for use in wide.uses
                     if isinstance(use.operation, NestOp))
    for nest in nests:
        _follow(nest)


def _follow(nest: NestOp) -> None:
    """Let a nest's body read and yield the element types that its tensors have now. Integers of
    bodies are signless.
    """
    block = nest.body.block
    for value, argument in zip(nest.inputs, tuple(block.args), strict=True):
        if scalar_type(value) != argument.type:
            _read_wide(nest, argument)
    last = block.last_op
    assert isinstance(last, YieldOp)
    for k, result in enumerate(nest.results):
        if scalar_type(result) != last.operands[k].type:
            wide = arith.ExtFOp(last.operands[k], f32)
            set_location(wide, nest)
            block.insert_op_before(wide, last)
            last.operands[k] = wide.result


def _read_wide(nest: NestOp, argument: SSAValue) -> None:
    block, narrow = nest.body.block, argument.type
    wide = Rewriter.replace_value_with_new_type(argument, f32)
    uses = list(wide.uses)
    widened = [use.operation for use in uses if isinstance(use.operation, arith.ExtFOp)
               and use.operation.result.type == f32]
    others = [use for use in uses if use.operation not in widened]
    for op in widened:
        op.result.replace_all_uses_with(wide)
        Rewriter.erase_op(op)
    if others and block.first_op is not None:
        back = arith.TruncFOp(wide, narrow)
        set_location(back, nest)
        block.insert_op_before(back, block.first_op)
        for use in others:
            use.operation.operands[use.index] = back.result
