"""graph-share-layers: equal parts of a function become one function that is called for each.

    %a = graph.matmul %x, %w0                 %b = strata.call @layer number 0 of ["m0", "e0"] (%x)
    %b = graph.exp %a                         %d = strata.call @layer number 1 of ["m1", "e1"] (%b)
    %c = graph.matmul %b, %w1        -->
    %d = graph.exp %c                         strata.func @layer(%x: f32[n, 8]) -> (f32[n, 8]) ... {
                                                %w = graph.constant {value = #strata.weights<...>}
                                                %a = graph.matmul %x, %w
                                                %b = graph.exp %a
                                                strata.return %b
                                              }

Layers of a model are equal but for their weights. The passes on nests and kernels then transform
one of them, whatever their number, until `loop-inline-layers` puts its kernels in the place of
each call. This pass comes after all passes that look at the contents of constants; it finds the
layers that only they have made equal, or that are too few for `graph-call-layers`. Numbers may
differ, too, such as scales and zero points of quantized tensors; they become inputs of kernels.

`passes/analyses/graph/repetition.py` finds the parts. They are cut where nothing would be fused
anyway. Parts with windows are left alone, since a function's arguments fix layouts. Assumes
nothing; few or short parts are not worth a function.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from dialects.graph.constant import ConstantOp
from dialects.graph.contraction import MatmulOp
from dialects.graph.elementwise import AddOp, MaxOp, MinOp, MulOp, SubOp
from dialects.graph.logic import CompareOp, WhereOp
from dialects.strata.func import FuncOp
from dialects.strata.types import LiteralAttr, f32
from passes.analyses.graph.repetition import Steps, kind_of
from passes.base import StrataContext, StrataPass
from passes.graph.cse import merge_equal
from passes.rewrites.calls import called
from passes.rewrites.graph.sharing import Sharing, is_movable
from passes.rewriting import functions


@dataclass(frozen=True)
class GraphShareLayers(StrataPass):
    """Make functions of equal parts that save at least `least` operations."""

    name = "graph-share-layers"
    least: int = 48

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        shared = called(module)
        for func in functions(module):
            if func.sym_name.data in shared:
                continue
            _split_numbers(func)
            while (parts := _repetition(func, self.least)) and (
                    context.allowance.take(func, self.name)):
                Sharing(module, func, parts, context.weights).run()
            merge_equal(func.body.block, context)


def _split_numbers(func: FuncOp) -> None:
    """Give each operand that may be another number in another part a constant of its own: numbers
    that are equal in one part need not be so in another."""
    for op in [*func.body.block.ops]:
        for k, value in enumerate(op.operands):
            constant = value.owner
            if isinstance(constant, ConstantOp) and not value.has_one_use() and (
                    isinstance(constant.value, LiteralAttr) and _may_differ(constant, op, k)):
                copy = constant.clone()
                func.body.block.insert_op_before(copy, constant)
                op.operands[k] = copy.result


def _repetition(func: FuncOp, least: int) -> Sequence[Sequence[Operation]]:
    """The repetition in a function that is worth most; no parts if there is none."""
    ops = [op for op in func.body.block.ops if not isinstance(op, ConstantOp)]
    if len(ops) < 2 * least // 3:
        return []
    found = Steps(ops, [_kind(op) for op in ops]).best(least)
    if found is None or not any(isinstance(ops[k], MatmulOp) for k in found.part(0)):
        return []
    return [[ops[k] for k in found.part(n)] for n in range(found.count)]


def _kind(op: Operation) -> Hashable:
    """What operations must share to be equal; None for those that stay where they are."""
    return kind_of(op, _may_differ) if is_movable(op) else None


def _may_differ(constant: ConstantOp, op: Operation, number: int) -> bool:
    """Whether an operand may be another constant in another part: arithmetic with any number is the
    same, and so are products of integers.

    A divisor stays, and so do numbers that save work where they are known.
    """
    literal = constant.value.data if isinstance(constant.value, LiteralAttr) else ()
    single, is_real = len(literal) == 1, constant.type.element == f32
    match op:
        case MatmulOp():
            return not single
        case AddOp() | SubOp():
            return not single or literal != (0,)
        case MulOp() | MaxOp() | MinOp() | CompareOp():
            return is_real and single and literal not in ((0,), (1,), (-1,))
        case WhereOp():
            return is_real and single and number > 0
        case _:
            return False
