"""Binary search in ordered tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.irdl import operand_def, result_def

from dialects.definition import irdl_op_definition
from dialects.graph.base import Attributes, GraphOp
from dialects.graph.inference import NUMBERS, check_kind, check_rank, check_same_element
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.types import Array, TensorType, i64, tensor


@irdl_op_definition
class SearchSortedOp(GraphOp):
    """For each value, the number of elements of an ascending list that are at most the value.

    If the list is not ascending or contains NaN, results are undefined numbers from 0 to its size.
    Constraints: (C1) equal element types; (C2) numbers; (C3) a list has one dim.
    Source: numpy.searchsorted(list, values, side="right").
    Example: %y = graph.search_sorted %list, %values : i64[m, 3]
        given %list: f32[n], %values: f32[m, 3]
    """

    name = "graph.search_sorted"
    list_ = operand_def(TensorType)
    values = operand_def(TensorType)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        check_same_element(types, "C1")
        check_kind(NUMBERS, types[0].element)
        check_rank(types[0], 1, "the list", "C3")
        return [tensor(i64, types[1].shape)]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        ordered, values = operands
        return np.asarray(np.searchsorted(ordered, values, side="right"), np.int64)
