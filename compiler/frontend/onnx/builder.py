"""Builds graph operations from ONNX values, following shape computations while it does.

    Shape(x) -> Gather(0) -> Mul(2)         becomes the known contents [2*batch], and no operation
    Add(y, that)                            %s = graph.sizes {values = [2*batch], ...}; graph.add

Where all operands of an operation have known, few elements, its result is computed at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block, Operation, SSAValue

from compiler.frontend.onnx.faults import Fault
from compiler.frontend.onnx.values import Value, computed
from dialects.graph.base import EvaluationContext, GraphOp
from dialects.graph.constant import ConstantOp, SizesOp
from dialects.graph.fold_sizes import MAX_ELEMENTS, fold_sizes
from dialects.graph.shape import ReshapeOp
from dialects.syntax import identifier, location
from dialects.types import Array, WeightAttr
from dialects.weights import WeightStore


@dataclass(eq=False)
class Builder:
    """Appends operations to `block`; `node` is the model's node that they come from."""

    block: Block
    weights: WeightStore
    node: str = ""

    def __call__(self, op_type: type[GraphOp], *operands: Value, **attributes: Any) -> Value:
        """The only result of a new operation. Raises ShapeError when the operands do not fit."""
        return self.results(op_type, *operands, **attributes)[0]

    def results(self, op_type: type[GraphOp], *operands: Value, **attributes: Any) -> list[Value]:
        """All results of a new operation; their contents where those are known."""
        if operands and all(v.is_small for v in operands):
            known = self._fold(op_type, operands, attributes)
            if known is not None:
                return [known]
        op = op_type.of(*map(self.ssa, operands), **attributes)
        self._add(op, self.node)
        values = [Value(t, r) for t, r in zip(op.result_tensors, op.results, strict=True)]
        if not operands:  # a range: it may stay, and its contents may be followed
            values[0].contents = fold_sizes(op, [], EvaluationContext())
        return values

    def ssa(self, value: Value) -> SSAValue:
        """The SSA value; known contents become a constant or a `graph.sizes` at the first use."""
        if value.ssa is None:
            value.ssa = self._of_contents(value)
            value.ssa.name_hint = identifier(value.label) if value.label else None
        return value.ssa

    def _of_contents(self, value: Value) -> SSAValue:
        contents = value.contents
        assert contents is not None
        if contents.dtype != object:
            label = value.label or value.node
            return self._add(ConstantOp.of_array(contents, self.weights, label), value.node)
        shape = contents.shape if contents.ndim < 2 else (contents.size,)
        sizes = SizesOp.of(values=list(contents.reshape(-1)), shape=shape, to=value.element)
        result = self._add(sizes, value.node)
        if contents.ndim < 2:
            return result
        return self._add(ReshapeOp.of(result, shape=contents.shape), value.node)

    def _add(self, op: Operation, node: str) -> SSAValue:
        op.location = location(node)
        self.block.add_op(op)
        return op.results[0]

    # ------------------------------------------------------------------ known contents
    def _fold(
        self, op_type: type[GraphOp], operands: tuple[Value, ...], attributes: dict[str, Any]
    ) -> Value | None:
        """The result computed now; None when it is not known, or too large."""
        stand_ins = Block(arg_types=[v.type for v in operands]).args
        op = op_type.of(*stand_ins, **attributes)
        if len(op.results) != 1:
            return None
        contents = _evaluate(op, operands)
        return None if contents is None else computed(contents, op.result_tensors[0], self.node)

    # ------------------------------------------------------------------ the end
    def finish(self) -> None:
        """Remove operations without a use, and weights that no operation names."""
        for op in reversed(list(self.block.ops)):
            if op.results and all(r.first_use is None for r in op.results):
                op.detach()
                op.erase()
        used = {op.value.key.data for op in self.block.ops if isinstance(op, ConstantOp)
                and isinstance(op.value, WeightAttr) and isinstance(op.value.key, StringAttr)}
        for key in self.weights.arrays.keys() - used:
            del self.weights.arrays[key]


def _evaluate(op: GraphOp, operands: tuple[Value, ...]) -> Array | None:
    """The result's contents, if the operands tell."""
    count = op.result_tensors[0].count.constant
    numbers = [v.array for v in operands if v.array is not None]
    if len(numbers) < len(operands):
        return fold_sizes(op, [v.expressions for v in operands], EvaluationContext())
    return _compute(op, numbers) if count is not None and count <= MAX_ELEMENTS else None


def _compute(op: GraphOp, operands: list[Array]) -> Array:
    try:
        result = op.evaluate(EvaluationContext(), *operands)
    except (IndexError, ValueError, ArithmeticError) as error:
        raise Fault(f"it cannot be computed from its constant inputs: {error}") from error
    return np.asarray(result, op.result_tensors[0].dtype)
