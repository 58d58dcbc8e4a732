"""A tensor-level module in f64, which computes its results without rounding to f32.

Every f32 becomes f64: arguments, results, constants and types in attributes. Half-precision and
narrower floats are kept, since a model uses them to round on purpose.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.ir import Attribute, SSAValue

from dialects.graph import ConstantOp
from dialects.graph.base import GraphOp
from dialects.strata.func import FuncOp
from dialects.strata.types import Array, TensorType, WeightAttr, WeightsAttr, f32, f64
from dialects.strata.weights import WeightStore


def in_doubles(module: ModuleOp, weights: WeightStore) -> tuple[ModuleOp, WeightStore] | None:
    """A copy of a module at graph level, and its weights, in f64; None for a later level."""
    wide, store = module.clone(), weights.copy()
    for op in wide.walk():
        if isinstance(op, ConstantOp):
            _widen_constant(op, store)
        for region in op.regions:
            for block in region.blocks:
                for argument in block.args:
                    _widen_value(argument)
        if isinstance(op, FuncOp):
            op.result_types_ = ArrayAttr(map(_widened, op.result_types_))
        elif op.name.startswith("loop."):
            return None
        for result in op.results:
            _widen_value(result)
        if isinstance(op, GraphOp):
            op.properties.update({k: _widened(v) for k, v in op.properties.items()})
    return wide, store


def widen_inputs(inputs: Sequence[Array]) -> list[Array]:
    return [x.astype(np.float64) if x.dtype == np.float32 else x for x in inputs]


def _widen_constant(op: ConstantOp, store: WeightStore) -> None:
    arrays = op.arrays(store)
    if arrays[0].dtype != np.float32:
        return
    wide = [ConstantOp.of_array(a.astype(np.float64), store, op.label) for a in arrays]
    values = [constant.value for constant in wide]
    weights = [value for value in values if isinstance(value, WeightAttr)]
    op.value = WeightsAttr(ArrayAttr(weights)) if op.varies else values[0]
    for constant in wide:
        constant.erase()


def _widen_value(value: SSAValue) -> None:
    value._type = _widened(value.type)  # pyright: ignore[reportPrivateUsage]


def _widened(attribute: Attribute) -> Attribute:
    """A type in f64, any other attribute as it is."""
    if isinstance(attribute, TensorType) and attribute.element == f32:
        return TensorType(f64, attribute.sizes)
    return f64 if attribute == f32 else attribute
