"""Matrix multiplication."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from xdsl.ir import Attribute
from xdsl.irdl import operand_def, opt_prop_def, result_def

from dialects.definition import irdl_op_definition
from dialects.graph.base import Attributes, GraphOp, ShapeError
from dialects.graph.inference import broadcast_shapes, product_element, same_size
from dialects.semantics.evaluation import EvaluationContext
from dialects.semantics.numerics import rounded, widen
from dialects.semantics.products import matmul
from dialects.strata.types import Array, TensorType, dtype_of, tensor, wide_element


@irdl_op_definition
class MatmulOp(GraphOp):
    """The matrix product of the last two dims; leading dims broadcast.

    A one-dimensional first operand is a row, a one-dimensional second operand a column; that dim
    is dropped from the result. f16 and bf16 are accumulated in f32 and rounded once, or with `to`
    = f32 not at all. Narrow floats are widened to f32. Integers wrap around; with `to` they are
    multiplied and summed in that type.
    Constraints: (C1) element types are equal; with an integer `to` they may be any integers, with
    `to` = f32 they are equal half-precision or narrow floats; (C2) numbers; (C3) at least one dim
    each; (C4) the last dim of a is the last but one of b; (C5) leading dims broadcast.
    Source: ONNX MatMul, Gemm; numpy.matmul.
    Example: %c = graph.matmul %a, %b : f32[n, 8, 5, 7]
        given %a: f32[n, 1, 5, 64], %b: f32[8, 64, 7]
    """

    name = "graph.matmul"
    KEPT_DIMS: ClassVar[int | None] = 2
    a = operand_def(TensorType)
    b = operand_def(TensorType)
    to = opt_prop_def(Attribute)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        a, b = types
        element = product_element(types, attributes, "C2")
        if not a.rank or not b.rank:
            raise ShapeError("C3: operands need at least one dim")
        inner = b.shape[-2] if b.rank > 1 else b.shape[0]
        same_size(a.shape[-1], inner, f"C4: inner sizes of {a.short} and {b.short} differ")
        batch = broadcast_shapes([a.shape[:-2], b.shape[:-2]], "C5")
        row = a.shape[-2:-1]
        column = b.shape[-1:] if b.rank > 1 else ()
        return [tensor(element, (*batch, *row, *column))]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        with np.errstate(all="ignore"):
            type_ = self.result_tensors[0]
            dtype = dtype_of(wide_element(type_.element))
            return rounded(matmul(widen(operands[0]), widen(operands[1]), dtype), type_)
