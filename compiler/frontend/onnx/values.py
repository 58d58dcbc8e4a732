"""What an ONNX value is during import: a tensor, and what is known of its contents.

A value that a model computes from shapes has contents before anything runs. They are either a
NumPy array of the value's dtype, or, when they depend on size symbols, an object array of size
expressions. Such a value becomes an operation only where something needs it as a tensor.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import onnx
from xdsl.ir import Attribute, SSAValue

from compiler.frontend.onnx.faults import Fault
from dialects import types as t
from dialects.expr import Expr
from dialects.graph.constant import expressions
from dialects.graph.fold_sizes import MAX_ELEMENTS
from dialects.types import Array, TensorType

_ELEMENTS: dict[int, Attribute] = {
    onnx.TensorProto.FLOAT: t.f32, onnx.TensorProto.DOUBLE: t.f64,
    onnx.TensorProto.FLOAT16: t.f16, onnx.TensorProto.BFLOAT16: t.bf16,
    onnx.TensorProto.BOOL: t.i1, onnx.TensorProto.INT8: t.i8, onnx.TensorProto.INT16: t.i16,
    onnx.TensorProto.INT32: t.i32, onnx.TensorProto.INT64: t.i64, onnx.TensorProto.UINT8: t.ui8,
    onnx.TensorProto.UINT16: t.ui16, onnx.TensorProto.UINT32: t.ui32,
    onnx.TensorProto.UINT64: t.ui64, onnx.TensorProto.INT2: t.i2, onnx.TensorProto.UINT2: t.ui2,
    onnx.TensorProto.INT4: t.i4, onnx.TensorProto.UINT4: t.ui4,
    onnx.TensorProto.FLOAT8E4M3FN: t.f8E4M3FN, onnx.TensorProto.FLOAT8E4M3FNUZ: t.f8E4M3FNUZ,
    onnx.TensorProto.FLOAT8E5M2: t.f8E5M2, onnx.TensorProto.FLOAT8E5M2FNUZ: t.f8E5M2FNUZ,
    onnx.TensorProto.FLOAT8E8M0: t.f8E8M0FNU, onnx.TensorProto.FLOAT4E2M1: t.f4E2M1FN,
}
_DATA_TYPES = {element: data_type for data_type, element in _ELEMENTS.items()}


@dataclass(eq=False)
class Value:
    """A tensor of `type`: an SSA value, known contents, or both.

    `origin`: the value of an outer function that this is the view of.
    """

    type: TensorType
    ssa: SSAValue | None = None
    contents: Array | None = None
    label: str = ""
    node: str = ""
    origin: Value | None = None

    @property
    def shape(self) -> tuple[Expr, ...]:
        return self.type.shape

    @property
    def rank(self) -> int:
        return self.type.rank

    @property
    def element(self) -> Attribute:
        return self.type.element

    @property
    def array(self) -> Array | None:
        """The contents, if they are plain numbers."""
        known = self.contents is not None and self.contents.dtype != object
        return self.contents if known else None

    @property
    def is_small(self) -> bool:
        """Whether its contents are known and few enough to be followed."""
        return self.contents is not None and self.contents.size <= MAX_ELEMENTS

    @property
    def expressions(self) -> Array | None:
        """Integer contents as an object array of size expressions."""
        if self.contents is None or self.contents.dtype.kind not in "biuO":
            return None
        return self.contents if self.contents.dtype == object else expressions(self.contents)


def constant(array: Array, label: str = "", node: str = "") -> Value:
    """A value of known numbers."""
    type_ = t.tensor(t.element_of(array.dtype), array.shape)
    return Value(type_, contents=array, label=label, node=node)


def computed(contents: Array, type_: TensorType, node: str = "") -> Value:
    """A value of known contents; expressions that are all plain integers become numbers."""
    if contents.dtype == object:
        numbers = [Expr.of(e).constant for e in contents.reshape(-1)]
        if None not in numbers:
            contents = np.array(numbers, np.int64).astype(type_.dtype).reshape(contents.shape)
    return Value(type_, contents=contents, node=node)


# ---------------------------------------------------------------------- element types
def element_type(data_type: int) -> Attribute:
    """The element type of an ONNX TensorProto.DataType. Raises Fault for one we do not have."""
    if data_type not in _ELEMENTS:
        raise Fault(f"element type {_data_type_name(data_type)} is not supported",
                    f"supported are {', '.join(map(_data_type_name, _ELEMENTS))}")
    return _ELEMENTS[data_type]


def data_type_of(element: Attribute) -> int:
    """The ONNX TensorProto.DataType of an element type."""
    return _DATA_TYPES[element]


@cache
def onnx_type_names() -> dict[str, str]:
    """`tensor(float)` -> `f32` and so on: ONNX's names of tensor types, and ours of elements."""
    names = {"float": "f32", "double": "f64", "float16": "f16", "bfloat16": "bf16"}
    texts = {_data_type_name(code).lower(): str(element) for code, element in _ELEMENTS.items()}
    return {f"tensor({name})": names.get(name, text) for name, text in texts.items()}


@cache
def _data_type_name(data_type: int) -> str:
    values = onnx.TensorProto.DataType.DESCRIPTOR.values_by_number
    return values[data_type].name if data_type in values else str(data_type)
