"""Operations that write elements at positions given by index tensors.

An index out of range is an error as in `dialects/graph/gather.py`; if it is not checked, the
element at the nearest end of the dim is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import StringAttr
from xdsl.irdl import operand_def, opt_prop_def, prop_def, result_def

from dialects.definition import irdl_op_definition
from dialects.graph.base import Attributes, GraphOp, ShapeError, int_of, text_of
from dialects.graph.gather import check_indices
from dialects.graph.inference import (
    certain_sign,
    check_axis,
    check_rank,
    check_same_element,
    same_size,
)
from dialects.semantics.evaluation import EvaluationContext
from dialects.semantics.numerics import rounded, widen
from dialects.strata.types import Array, ExprAttr, TensorType, i1

COMBINERS: dict[str, np.ufunc] = {
    "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
}
"""How an update is combined with the element; `none`, the default, replaces it."""

ORDERS = ("fixed", "any")
"""Whether sums add their updates in an order that only the indices determine, or in any order."""


def _check_updates(updates: Array, wanted: Sequence[int]) -> None:
    """Check that run-time sizes agree, since NumPy would broadcast them."""
    if updates.shape != tuple(wanted):
        raise ValueError(f"updates of shape {list(updates.shape)} must be {list(wanted)}")


def _check(types: Sequence[TensorType], attributes: Attributes) -> None:
    x, indices, updates = types
    check_indices(indices)
    check_same_element([x, updates], "C2")
    combiner = text_of(attributes, "combiner", "none")
    if combiner != "none" and (combiner not in COMBINERS or x.element == i1):
        raise ShapeError(f"C2: elements of {x.element} have no combiner {combiner!r}")
    if (order := text_of(attributes, "order", "fixed")) not in ORDERS:
        raise ShapeError(f"C5: there is no order {order!r} of updates, only fixed and any")


def _merge(x: Array, places: Any, updates: Array, combiner: str) -> Array:
    result = np.array(widen(x))
    if combiner == "none":
        result[places] = widen(updates)
    else:
        with np.errstate(all="ignore"):
            COMBINERS[combiner].at(result, places, widen(updates))
    return result


@irdl_op_definition
class ScatterElementsOp(GraphOp):
    """x with single elements updated: y[i, indices[i, j, k], k] = updates[i, j, k] for axis 1.

    `combiner` add, mul, max or min combines the update with the element; none replaces it. If an
    element is updated several times, the last update wins, or all are combined. f16 and bf16 are
    combined in f32 and rounded once. With the `order` any, floating-point sums may be rounded
    differently on each run. A negative index counts from the end. An index outside the axis is an
    error.
    Constraints: (C1) indices are integers; (C2) x and updates have equal element types, numbers
    where they are combined; (C3) x, indices and updates have the same rank, with the axis inside;
    (C4) indices and updates have the same shape, outside the axis not larger than x's; (C5) the
    order is fixed, the default, or any.
    Source: ONNX ScatterElements.
    Example: %y = graph.scatter_elements %x, %i, %u {axis = 1, combiner = "add"} : f32[n, 5]
        given %x: f32[n, 5], %i: i64[n, 2], %u: f32[n, 2]
    """

    name = "graph.scatter_elements"
    x = operand_def(TensorType)
    indices = operand_def(TensorType)
    updates = operand_def(TensorType)
    axis = prop_def(ExprAttr)
    combiner = opt_prop_def(StringAttr)
    order = opt_prop_def(StringAttr)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        x, indices, updates = types
        axis = int_of(attributes, "axis")
        _check(types, attributes)
        check_rank(indices, x.rank, "indices", "C3")
        check_rank(updates, x.rank, "updates", "C3")
        check_axis(axis, x.rank, "C3")
        for dim, (size, wanted) in enumerate(zip(x.shape, indices.shape, strict=True)):
            same_size(wanted, updates.shape[dim], "C4: indices and updates differ in shape")
            if dim != axis and certain_sign(size - wanted) == -1:
                raise ShapeError(f"C4: dim {dim} of indices is {wanted}, larger than x's {size}")
        return [x]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        x, indices, updates = operands
        _check_updates(updates, indices.shape)
        places = [np.asarray(place) for place in np.indices(indices.shape)]
        places[int_of(self.properties, "axis")] = indices
        merged = _merge(x, tuple(places), updates, text_of(self.properties, "combiner", "none"))
        return rounded(merged, self.result_tensors[0])


@irdl_op_definition
class ScatterNdOp(GraphOp):
    """x with slices updated: y[indices[i, :]] = updates[i], i over the first dims of indices.

    `combiner` add, mul, max or min combines the update with the slice; none replaces it. If a
    slice is updated several times, the last update wins, or all are combined. f16 and bf16 are
    combined in f32 and rounded once. With the `order` any, floating-point sums may be rounded
    differently on each run. Negative indices count from the end. An index outside its dim is an
    error.
    Constraints: (C1) indices are integers of rank 1 or more; (C2) x and updates have equal element
    types, numbers where they are combined; (C3) the last dim of indices is a constant, at most x's
    rank; (C4) updates have all dims of indices except the last, then the dims of x that are not
    indexed; (C5) the order is fixed, the default, or any.
    Source: ONNX ScatterND.
    Example: %y = graph.scatter_nd %x, %i, %u {combiner = "none"} : f32[3, 4, 5]
        given %x: f32[3, 4, 5], %i: i64[n, 2], %u: f32[n, 5]
    """

    name = "graph.scatter_nd"
    x = operand_def(TensorType)
    indices = operand_def(TensorType)
    updates = operand_def(TensorType)
    combiner = opt_prop_def(StringAttr)
    order = opt_prop_def(StringAttr)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        x, indices, updates = types
        _check(types, attributes)
        if indices.rank == 0:
            raise ShapeError("C1: indices must have at least one dim")
        depth = indices.shape[-1].constant
        if depth is None or depth > x.rank:
            raise ShapeError(f"C3: index vectors of {indices.shape[-1]} do not fit {x.short}")
        wanted = (*indices.shape[:-1], *x.shape[depth:])
        check_rank(updates, len(wanted), "updates", "C4")
        for own, size in zip(updates.shape, wanted, strict=True):
            same_size(own, size, "C4: updates do not fit indices and x")
        return [x]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        x, indices, updates = operands
        # A leading dim of size 1 makes empty index vectors valid positions, too.
        places = (np.zeros(indices.shape[:-1], np.int64), *np.moveaxis(indices, -1, 0))
        combiner = text_of(self.properties, "combiner", "none")
        _check_updates(updates, (*indices.shape[:-1], *x.shape[indices.shape[-1]:]))
        merged = _merge(x[None], places, updates, combiner)[0]
        return rounded(merged, self.result_tensors[0])
