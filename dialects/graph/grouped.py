"""Grouped matrix multiplication, as in a mixture of experts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.irdl import operand_def, result_def

from dialects.definition import irdl_op_definition
from dialects.graph.base import Attributes, GraphOp
from dialects.graph.inference import (
    FLOATS,
    INTEGERS,
    check_kind,
    check_rank,
    check_same_element,
    same_size,
)
from dialects.semantics.carriers import as_in
from dialects.semantics.evaluation import EvaluationContext
from dialects.semantics.numerics import rounded, widen
from dialects.semantics.products import matmul
from dialects.strata.types import Array, TensorType, dtype_of, tensor, wide_element


@irdl_op_definition
class GroupedMatmulOp(GraphOp):
    """Multiplies consecutive groups of rows of a, each group by its own matrix of b.

    Group g ends before row ends[g]: row r belongs to the group whose number is the number of ends
    that are at most r. Rows after the last group yield 0. Products are summed as in matmul. If the
    ends are not ascending, the assignment of rows to groups is undefined.
    Constraints: (C1) a and b have equal element types; (C2) these are floats, the ends integers;
    (C3) a has two dims, b three, and the ends one; (C4) the last dim of a is the last but one of
    b; (C5) there is one end per matrix.
    Source: PyTorch _grouped_mm.
    Example: %c = graph.grouped_matmul %a, %b, %ends : f32[n, 7]
        given %a: f32[n, 64], %b: f32[3, 64, 7], %ends: i32[3]
    """

    name = "graph.grouped_matmul"
    a = operand_def(TensorType)
    b = operand_def(TensorType)
    ends = operand_def(TensorType)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        a, b, ends = types
        check_same_element([a, b], "C1")
        check_kind(FLOATS, a.element)
        check_kind(INTEGERS, ends.element)
        for type_, rank, what in ((a, 2, "a"), (b, 3, "b"), (ends, 1, "the ends")):
            check_rank(type_, rank, what, "C3")
        same_size(a.shape[1], b.shape[1], f"C4: inner sizes of {a.short} and {b.short} differ")
        same_size(ends.shape[0], b.shape[0], f"C5: {ends.short} are not the ends of {b.short}")
        return [tensor(a.element, (a.shape[0], b.shape[2]))]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        a, b, ends = operands
        type_ = self.result_tensors[0]
        dtype = dtype_of(wide_element(type_.element))
        result = as_in(np.zeros((len(a), b.shape[2]), dtype), a)
        group = np.sum(ends[:, None] <= np.arange(len(a)), 0)
        with np.errstate(all="ignore"):
            for number, matrix in enumerate(b):
                rows = group == number
                result[rows] = matmul(widen(a[rows]), widen(matrix), dtype)
            return rounded(result, type_)
