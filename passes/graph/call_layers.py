"""graph-call-layers: layers of a model become one function before any pass rewrites them.

    %t0 = graph.transpose %w0                 %b = strata.call @layer number 0 of ["m0", "e0"] (%x)
    %a = graph.matmul %x, %t0                 %d = strata.call @layer number 1 of ["m1", "e1"] (%b)
    %b = graph.gelu %a
    %t1 = graph.transpose %w1        -->      strata.func @layer(%x: f32[n, 8]) -> (f32[n, 8]) ... {
    %c = graph.matmul %b, %t1                   %w = graph.constant {value = #strata.weights<...>}
    %d = graph.gelu %c                          %t = graph.transpose %w
                                                %a = graph.matmul %x, %t
                                                ...

All passes of the graph level then see one layer, whatever their number. They compute with each
call's constants, but never decide by them: parts are equal only if their constants agree in what
rules may ask for. These are integers but for quantized weights, and floats that are all the same
number, such as a scale or a bias of zeros. What all layers compute from the same values, such as a
mask, is computed once before them.

`passes/analyses/graph/repetition.py` finds the parts, and `graph-inline-layers` undoes calls whose
borders cost something. Parts with windows are left to `graph-share-layers`, which knows what reads
them; so is a model that is to be divided, because the division chooses a layout for each operation.
Assumes nothing; a few layers are not worth a function.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from dialects.graph.constant import ConstantOp
from dialects.graph.contraction import MatmulOp
from dialects.graph.integer_contraction import MatmulIntegerOp
from dialects.records import dataclass
from dialects.strata.control import ControlOp
from dialects.strata.func import FuncOp
from passes.analyses.graph.repetition import (
    Steps,
    attribute_key,
    is_quantization,
    kind_of,
)
from passes.base import StrataContext, StrataPass
from passes.rewrites.graph.matching import uniform
from passes.rewrites.graph.sharing import WINDOWS, Sharing, is_movable, outside_of
from passes.rewriting import functions, replace

PRODUCTS = (MatmulOp, MatmulIntegerOp)
LARGE = 1 << 20
"""Weights of more bytes are stored once: a layer may not have its own copy in another layout."""


@dataclass(frozen=True)
class GraphCallLayers(StrataPass):
    """Make functions of at least `calls` equal parts that save at least `least` operations."""

    name = "graph-call-layers"
    least: int = 36
    calls: int = 4

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        if context.mesh is not None:
            return
        bodies = {name for func in functions(module) for op in func.body.block.ops
                  if isinstance(op, ControlOp) for name in op.callees}
        for func in functions(module):
            if func.sym_name.data not in bodies:  # whose constants are still arguments
                self._share(module, func, context)

    def _share(self, module: ModuleOp, func: FuncOp, context: StrataContext) -> None:
        while len(parts := self._parts(func, context)) >= self.calls:
            kept = _without_common(parts, context)
            if not context.allowance.take(func, self.name):
                return
            Sharing(module, func, kept, context.weights).run()

    def _parts(self, func: FuncOp, context: StrataContext) -> Sequence[Sequence[Operation]]:
        """The layers that are worth most; none if there are no equal parts."""
        ops = [op for op in func.body.block.ops if not isinstance(op, ConstantOp)]
        if len(ops) < 2 * self.least // 3:
            return []
        asked = dict[ConstantOp, Hashable]()
        found = Steps(ops, [_kind(op, asked, context) for op in ops]).best(self.least)
        if found is None or not any(isinstance(ops[k], PRODUCTS) for k in found.part(0)):
            return []
        parts = [[ops[k] for k in found.part(n)] for n in range(found.count)]
        own = {op for part in parts for op in part}
        shared = any(_is_read_elsewhere(v, own) for part in parts for v in outside_of(part))
        return [] if shared else parts


def _kind(op: Operation, asked: dict[ConstantOp, Hashable], context: StrataContext) -> Hashable:
    """What operations must share to be equal; None for those that stay where they are."""
    if not is_movable(op) or isinstance(op, WINDOWS):
        return None
    constants = [v.owner for k, v in enumerate(op.operands) if isinstance(v.owner, ConstantOp)
                 and not is_quantization(v.owner, op, k)]
    for constant in constants:
        if constant not in asked:
            asked[constant] = _asked(constant, context)
    return kind_of(op), *(asked[c] for c in constants)


def _asked(constant: ConstantOp, context: StrataContext) -> Hashable:
    """What rules may ask of a constant of floats, beside its type."""
    return None if uniform(constant.result, context) is None else attribute_key(constant.value)


def _is_read_elsewhere(value: SSAValue, own: set[Operation]) -> bool:
    """Whether a large weight of layers is read by others, too."""
    if not isinstance(value.owner, ConstantOp):
        return False
    size = value.owner.type.byte_size.constant or 0
    return size > LARGE and any(use.operation not in own for use in value.uses)


# ---------------------------------------------------------------------- what layers have in common
def _without_common(
    parts: Sequence[Sequence[Operation]], context: StrataContext
) -> Sequence[Sequence[Operation]]:
    """The parts without operations whose operands are the same values in all of them.

    These are computed once, before the first part.
    """
    common = _common(parts)
    if not common:
        return parts
    kept = [[op for k, op in enumerate(part) if k not in common] for part in parts]
    for k in common:
        _move_before(parts[0][k], kept[0][0])
        for part in parts[1:]:
            replace(part[k], parts[0][k].results, context, "equal")
    return kept


def _common(parts: Sequence[Sequence[Operation]]) -> list[int]:
    """The places of operations that compute the same in all parts, and not from constants alone."""
    places = [{op: k for k, op in enumerate(part)} for part in parts]
    found: dict[int, None] = {}
    for k in range(len(parts[0])):
        operands = [*zip(*(part[k].operands for part in parts), strict=True)]
        is_one = all(_is_one_value(values, places, found) for values in operands)
        if is_one and not all(isinstance(v[0].owner, ConstantOp) for v in operands):
            found[k] = None
    return list(found)


def _is_one_value(
    values: Sequence[SSAValue], places: Sequence[dict[Operation, int]], common: dict[int, None]
) -> bool:
    """Whether an operand is the same in all parts."""
    owners = [v.owner for v in values]
    constants = [owner for owner in owners if isinstance(owner, ConstantOp)]
    if constants:
        return len({attribute_key(c.value) for c in constants}) == 1
    first = owners[0]
    if isinstance(first, Operation) and (place := places[0].get(first)) is not None:
        return place in common
    return all(v is values[0] for v in values)


def _move_before(op: Operation, anchor: Operation) -> None:
    """Move an operation that comes after an anchor before it, with its constants."""
    later, block = set[Operation](), op.parent
    assert block is not None
    at = anchor.next_op
    while at is not None:
        later.add(at)
        at = at.next_op
    for moved in (*(v.owner for v in op.operands), op):
        if isinstance(moved, Operation) and moved in later and moved.parent is block:
            moved.detach()
            block.insert_op_before(moved, anchor)
