"""Compares the declared types of a model's values with their inferred types.

    value_info y: float[2, 4]    y = MatMul(a: float[2, 3], b: float[3, 5])    # [2, 5]: a warning

Open and named sizes are not checked, since exporters write them carelessly. A wrong shape is only
a warning, as in onnxruntime, because the nodes determine the shape. A wrong element type is an
error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import onnx

from compiler.frontend.faults import Fault, Faults
from compiler.frontend.onnx.element_types import element_type
from compiler.frontend.values import Value
from dialects.graph.inference import certainly_differ
from dialects.symbolic.expr import Expr


def check_declared(
    infos: Iterable[onnx.ValueInfoProto], values: Mapping[str, object], faults: Faults
) -> None:
    """Note every value whose element type differs from the declared one, and warn about shapes that
    differ.
    """
    for info in infos:
        value = values.get(info.name)
        if isinstance(value, Value) and info.type.HasField("tensor_type"):
            _check(info, value, faults)


def _check(info: onnx.ValueInfoProto, value: Value, faults: Faults) -> None:
    declared, found = info.type.tensor_type, f"value '{info.name}' is {value.type.short}"
    if declared.elem_type and not _is_element(declared.elem_type, value):
        faults.add(f"{found}, but the model declares elements of {_type_name(declared.elem_type)}")
    if not declared.HasField("shape"):
        return
    sizes = [d.dim_value if d.dim_value > 0 else None for d in declared.shape.dim]
    if _conflict(value, sizes):
        shown = ", ".join("?" if size is None else str(size) for size in sizes)
        faults.warn(f"{found}, as its node computes it; the model declares the shape [{shown}]")


def _conflict(value: Value, sizes: Sequence[int | None]) -> bool:
    """Whether the shapes contradict each other. Exporters also write wrong ranks beside open sizes.
    """
    if len(sizes) != value.rank:
        return None not in sizes
    return any(size is not None and certainly_differ(own, Expr.of(size))
               for own, size in zip(value.shape, sizes, strict=True))


def _type_name(data_type: int) -> str:
    known = onnx.TensorProto.DataType
    return known.Name(data_type) if data_type in known.values() else f"unknown type {data_type}"


def _is_element(data_type: int, value: Value) -> bool:
    try:
        return element_type(data_type) == value.element
    except Fault:  # an element type that is not supported
        return False
