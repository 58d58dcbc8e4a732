"""Smaller dims and simpler numbers, for a model that has few nodes already."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import numpy_helper

from compiler.reduction.candidate import Candidate

if TYPE_CHECKING:
    from dialects.strata.types import Array

FEW = 16
"""The largest number of integers in an array that may be a shape, whose entries shrink, too."""


def smaller_dims(candidate: Candidate) -> Iterator[Candidate]:
    """Models in which a size is smaller everywhere, then ones where one dim of one tensor is."""
    arrays = _arrays(candidate)
    sizes = sorted({n for array in arrays.values() for n in array.shape if n > 1}, reverse=True)
    for size in sizes:
        for less in dict.fromkeys((1, 2, 3, size // 2, size - 1)):
            if 0 < less < size:
                yield _with_size(candidate, size, less)
    for name, array in arrays.items():
        for axis, size in enumerate(array.shape):
            if size > 1:
                yield _with_dim(candidate, name, axis, 1 if size == 2 else size // 2)


def _with_size(candidate: Candidate, size: int, less: int) -> Candidate:
    """Every dim of that size cut off, in shapes that are constants as well."""
    model = onnx.ModelProto()
    model.CopyFrom(candidate.model)
    for k, weight in enumerate(candidate.model.graph.initializer):
        array = _cut(numpy_helper.to_array(weight), size, less)
        if array.dtype.kind == "i" and array.ndim <= 1 and array.size <= FEW:
            array = np.where(array == size, np.asarray(less, array.dtype), array)
        _set_weight(model.graph.initializer[k], array)
    for info in model.graph.input:
        for dim in info.type.tensor_type.shape.dim:
            if dim.HasField("dim_value") and dim.dim_value == size:
                dim.dim_value = less
    del model.graph.value_info[:]
    _forget_shapes(model)
    inputs = {name: _cut(array, size, less) for name, array in candidate.inputs.items()}
    return Candidate(model, inputs)


def _with_dim(candidate: Candidate, name: str, axis: int, less: int) -> Candidate:
    """One dim of one tensor cut off."""
    model = onnx.ModelProto()
    model.CopyFrom(candidate.model)
    for weight in model.graph.initializer:
        if weight.name == name:
            _set_weight(weight, np.take(numpy_helper.to_array(weight), range(less), axis))
    inputs = dict(candidate.inputs)
    for info in model.graph.input:
        dims = info.type.tensor_type.shape.dim
        if info.name == name:
            inputs[name] = np.take(inputs[name], range(less), axis)
            if dims[axis].HasField("dim_value"):
                dims[axis].dim_value = less
    _forget_shapes(model)
    return Candidate(model, inputs)


def array_names(candidate: Candidate) -> list[str]:
    """The inputs and weights whose numbers may become simpler."""
    return [name for name, array in _arrays(candidate).items()
            if array.dtype.kind in "fiu" and array.size > 1]


def simpler_numbers(candidate: Candidate, name: str) -> Iterator[Candidate]:
    """Models in which one array is zeros, ones, or round numbers."""
    array = _arrays(candidate)[name]
    if (array == array.reshape(-1)[0]).all():
        return
    for plain in _plainer(array):
        if not np.array_equal(plain, array, equal_nan=array.dtype.kind == "f"):
            yield _with_array(candidate, name, plain)


def _plainer(array: Array) -> Iterator[Array]:
    yield np.zeros_like(array)
    yield np.ones_like(array)
    if array.dtype.kind == "f":
        with np.errstate(all="ignore"):
            yield np.round(array)
            yield np.round(array, 1)


def _with_array(candidate: Candidate, name: str, array: Array) -> Candidate:
    if name in candidate.inputs:
        return Candidate(candidate.model, {**candidate.inputs, name: array})
    model = onnx.ModelProto()
    model.CopyFrom(candidate.model)
    for weight in model.graph.initializer:
        if weight.name == name:
            _set_weight(weight, array)
    return Candidate(model, candidate.inputs)


# ---------------------------------------------------------------------- arrays of a model
def _arrays(candidate: Candidate) -> dict[str, Array]:
    """Inputs and weights by name."""
    weights: dict[str, Any] = {
        t.name: numpy_helper.to_array(t) for t in candidate.model.graph.initializer}
    return {**weights, **candidate.named_inputs()}


def _cut(array: Array, size: int, less: int) -> Array:
    for axis, found in enumerate(array.shape):
        if found == size:
            array = np.take(array, range(less), axis)
    return array


def _set_weight(weight: onnx.TensorProto, array: Array) -> None:
    """Other contents of the same element type, which NumPy's dtype does not always show."""
    name, kind = weight.name, weight.data_type
    made = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
    if made.data_type == kind:
        weight.CopyFrom(made)


def _forget_shapes(model: onnx.ModelProto) -> None:
    """Outputs and inner values keep their types only."""
    del model.graph.value_info[:]
    for info in model.graph.output:
        if info.type.HasField("tensor_type"):
            info.type.tensor_type.ClearField("shape")
