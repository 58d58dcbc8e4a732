"""Symbolic evaluation of the operations that compute shapes.

A model computes the shape of a reshape with a chain such as `sizes -> gather -> mul -> concat`.
`fold_sizes` computes each step's value as size expressions, so that the last one can become an
attribute.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from xdsl.dialects.builtin import IntegerType

from dialects.graph.base import GraphOp
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.types import Array
from dialects.symbolic.expr import Expr

MAX_ELEMENTS = 64
"""Larger tensors are data, not shapes."""

MIN_SIZE_BYTES = 4
"""Narrower integers might not hold a size that is only known at run time."""


def fold_sizes(
    op: GraphOp, operand_values: Sequence[Array | None], context: EvaluationContext
) -> Array | None:
    """The value of the op's only result, an object array of `Expr` of the result's shape.

    `operand_values` has such an array for each operand, or None if it is unknown. Truth values are
    the expressions 0 and 1. Size symbols with a value in `context.sizes` are replaced by it. None
    if the value depends on more than sizes, is not the same expression for all sizes, or is not an
    integer tensor of constant shape with at most 64 elements.
    """
    if len(op.result_tensors) != 1 or not isinstance(op.result_tensors[0].element, IntegerType):
        return None
    shape = op.result_tensors[0].static_shape
    if shape is None or np.prod(shape, dtype=np.int64) > MAX_ELEMENTS:
        return None
    operands = [v for v in operand_values if v is not None]
    if len(operands) != len(operand_values):
        return None
    value = op.evaluate_sizes(*operands)
    if value is None:
        return None
    settled = [Expr.of(e).substitute(context.sizes) for e in np.asarray(value, object).reshape(-1)]
    if not all(_fits(e, op.result_tensors[0].dtype) for e in settled):
        return None
    result = np.empty(shape, object)
    result.reshape(-1)[:] = settled
    return result


def _fits(value: Expr, dtype: np.dtype[Any]) -> bool:
    """Whether an integer type holds the value without wrapping; any size fits 32 bits."""
    if dtype == np.bool_:
        return True
    if value.constant is None:
        return dtype.itemsize >= MIN_SIZE_BYTES
    limits = ml_dtypes.iinfo(dtype)
    return bool(limits.min <= value.constant <= limits.max)
