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
anyway. `loop-assign-layouts` chooses one layout for an argument and what is passed in all calls, so
one image whose layout is fixed, such as what a reshape reads, would fix that of all layers. Parts
with windows are therefore shared only where filters are constants, and where operators that take
any layout compute and read all images that cross borders, a product among them. Assumes nothing;
few or short parts are not worth a function.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from dialects.graph.constant import ConstantOp
from dialects.graph.contraction import MatmulOp
from dialects.graph.convolution import ConvOp
from dialects.graph.elementwise import AddOp, ElementwiseOp, MaxOp, MinOp, MulOp, SubOp
from dialects.graph.logic import CompareOp, WhereOp
from dialects.graph.pooling import AvgPoolOp, MaxPoolOp
from dialects.graph.reduce import ReduceMeanOp, ReduceOp
from dialects.graph.shape import PadOp
from dialects.graph.unary import CastOp
from dialects.records import dataclass
from dialects.strata.func import FuncOp
from dialects.strata.types import LiteralAttr, TensorType, f32
from dialects.text.syntax import location, location_names
from passes.analyses.graph.repetition import CONVOLUTIONS, Steps, kind_of
from passes.base import StrataContext, StrataPass
from passes.graph.cse import merge_equal
from passes.rewrites.calls import called
from passes.rewrites.graph.sharing import WINDOWS, Sharing, is_movable, outside_of
from passes.rewriting import functions

PRODUCTS = (MatmulOp, *CONVOLUTIONS)
ANY_LAYOUT = (ElementwiseOp, CastOp, PadOp, ConvOp, MaxPoolOp, AvgPoolOp, ReduceOp, ReduceMeanOp)
"""Operators that compute and read images in any layout, as one nest each."""


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
    that are equal in one part need not be so in another.

    A constant that is split stands for nodes of all parts. Each copy stands for those that it has
    in common with its reader; otherwise every part would name the nodes of all.
    """
    split: dict[ConstantOp, dict[str, None]] = {}
    named: dict[ConstantOp, set[str]] = {}
    for op in [*func.body.block.ops]:
        for k, value in enumerate(op.operands):
            constant = value.owner
            if isinstance(constant, ConstantOp) and not value.has_one_use() and (
                    isinstance(constant.value, LiteralAttr) and _may_differ(constant, op, k)):
                nodes = split.setdefault(constant, dict.fromkeys(location_names(constant)))
                copy = constant.clone()
                func.body.block.insert_op_before(copy, constant)
                op.operands[k] = copy.result
                if common := [name for name in location_names(op) if name in nodes]:
                    copy.location = location(*common)
                    named.setdefault(constant, set()).update(common)
    for constant, given in named.items():  # keeps the nodes that no copy has, and its readers'
        readers = {n for use in constant.result.uses for n in location_names(use.operation)}
        constant.location = location(
            *(name for name in split[constant] if name not in given or name in readers))


def _repetition(func: FuncOp, least: int) -> Sequence[Sequence[Operation]]:
    """The repetition in a function that is worth most; no parts if there is none."""
    ops = [op for op in func.body.block.ops if not isinstance(op, ConstantOp)]
    kinds = [_kind(op) for op in ops]
    while True:
        found = Steps(ops, kinds).best(least)
        if found is None:
            return []
        parts = [[ops[k] for k in found.part(n)] for n in range(found.count)]
        if any(isinstance(op, WINDOWS) for op in parts[0]):
            parts = _with_free_borders(parts)
        if found.work * (len(parts) - 1) >= least and any(
                isinstance(op, PRODUCTS) for op in parts[0]):
            return parts
        for n in range(found.count):  # another search finds what is worth less
            for k in found.part(n):
                kinds[k] = None


def _with_free_borders(parts: Sequence[list[Operation]]) -> list[list[Operation]]:
    """The parts without a first and a last one whose borders differ; no parts if others do."""
    free = [_has_free_borders(part) for part in parts]
    first, last = int(not free[0]), len(parts) - int(not free[-1])
    return [*parts[first:last]] if all(free[first:last]) else []


def _has_free_borders(part: Sequence[Operation]) -> bool:
    """Whether what crosses the borders of a part is in memory anyway, and may lie there as layers
    want it."""
    own = set(part)
    results = (r for op in part for r in op.results)
    crossing = [*outside_of(part), *(r for r in results if {u.operation for u in r.uses} - own)]
    return all(_is_read_by_products(v) and _takes_any_layout(v) for v in crossing
               if not isinstance(v.owner, ConstantOp))


def _is_read_by_products(value: SSAValue) -> bool:
    """Whether a product reads a value, with which nothing that computes it is fused."""
    return any(isinstance(use.operation, PRODUCTS) for use in value.uses)


def _takes_any_layout(value: SSAValue) -> bool:
    """Whether a value is no image, or one whose layout nothing fixes."""
    image = isinstance(value.type, TensorType) and value.type.rank > 2
    return not image or all(isinstance(op, ANY_LAYOUT) for op in (
        value.owner, *(use.operation for use in value.uses)))


def _kind(op: Operation) -> Hashable:
    """What operations must share to be equal; None for those that stay where they are."""
    if not is_movable(op) or (isinstance(op, WINDOWS) and not all(
            isinstance(v.owner, ConstantOp) for v in op.operands[1:])):
        return None
    return kind_of(op, _may_differ)


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
        case ConvOp():
            return number > 0 and not single
        case AddOp() | SubOp():
            return not single or literal != (0,)
        case MulOp() | MaxOp() | MinOp() | CompareOp():
            return is_real and single and literal not in ((0,), (1,), (-1,))
        case WhereOp():
            return is_real and single and number > 0
        case _:
            return False
