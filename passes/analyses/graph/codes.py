"""Weights that stay integer codes: few rows are multiplied by them, so that memory decides.

    %w = graph.constant : i8[1024, 4096]   %f = graph.cast %w : bf16   %s = graph.mul %f, %scale
    %y = graph.matmul %x, (graph.transpose %s)          %x: bf16[1, 4096]

Folded, %s would take twice the bytes of %w, and each step would read them all.
"""

from __future__ import annotations

from xdsl.ir import SSAValue, Use

from dialects.graph.base import GraphOp
from dialects.graph.bits import ShiftRightOp
from dialects.graph.constant import ConstantOp
from dialects.graph.contraction import MatmulOp
from dialects.graph.elementwise import ElementwiseOp
from dialects.graph.logic import AndOp
from dialects.graph.quantization import DequantizeLinearOp
from dialects.graph.reduce import ReduceSumOp
from dialects.graph.shape import BroadcastOp, TransposeOp
from dialects.graph.unary import CastOp
from dialects.strata.types import i1, is_float, tensor_type, ui8
from dialects.symbolic.size_products import product
from passes.contract import Facts

_STEPS = 12
"""The most operations between codes and a product."""
_BETWEEN = (ElementwiseOp, CastOp, DequantizeLinearOp, TransposeOp, BroadcastOp)
"""What a product computes where it reads codes. A reshape, as for scales of blocks, is none of it:
the floats would be computed and stored anew in each call, but see graph-delay-scales."""


def keeps_codes(op: GraphOp, facts: Facts) -> bool:
    """Whether an operation widens codes that only products of few rows read."""
    return facts.coded_rows > 0 and _widens_codes(op, facts.coded_growth) and reaches_few_rows(
        op.results[0], facts.coded_rows)


def _widens_codes(op: GraphOp, growth: int) -> bool:
    """Whether an operation makes floats of constant integers, which take fewer bytes."""
    if not (isinstance(op, CastOp | DequantizeLinearOp)
            and is_float(op.result_tensors[0].element)):
        return False
    source = op.operands[0].owner
    if not isinstance(source, ConstantOp) or is_float(source.type.element) or (
            source.type.element == i1):
        return False
    made, taken = op.result_tensors[0].byte_size.constant, source.type.byte_size.constant
    return made is not None and taken is not None and made >= growth * taken


def takes_codes_apart(op: GraphOp, facts: Facts) -> bool:
    """Whether an operation takes a half of each byte of a constant, of which sums alone are made,
    as `graph-pack-codes` leaves it: folded, each half would take a byte."""
    if not facts.packs_codes or not isinstance(op, AndOp | ShiftRightOp):
        return False
    source = op.operands[0].owner
    return isinstance(source, ConstantOp) and source.type.element == ui8 and (
        source.type.shape == op.result_tensors[0].shape) and _reaches_sum(op.results[0], _STEPS)


def _reaches_sum(value: SSAValue, steps: int) -> bool:
    return steps > 0 and value.first_use is not None and all(
        isinstance(use.operation, ReduceSumOp) or (isinstance(use.operation, _BETWEEN) and (
            _reaches_sum(use.operation.results[0], steps - 1))) for use in value.uses)


def reaches_few_rows(value: SSAValue, rows: int, steps: int = _STEPS) -> bool:
    """Whether all that is computed from a value, element by element, are factors of few rows."""
    uses = list(value.uses)
    return steps > 0 and bool(uses) and all(_is_few(use, rows, steps) for use in uses)


def _is_few(use: Use, rows: int, steps: int) -> bool:
    op = use.operation
    if isinstance(op, MatmulOp):
        other = tensor_type(op.operands[1 - use.index]).shape
        own = other[:-1] if use.index else (*other[:-2], *other[-1:]) if len(other) > 1 else ()
        count = product(own).constant
        return count is not None and count <= rows
    return isinstance(op, _BETWEEN) and reaches_few_rows(op.results[0], rows, steps - 1)
