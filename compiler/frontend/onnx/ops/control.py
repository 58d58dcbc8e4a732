"""Constants, copies and conversions."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto
from xdsl.ir import Attribute

from compiler.frontend.faults import Fault
from compiler.frontend.onnx.element_types import element_type
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.onnx.sequences import AnyValue
from compiler.frontend.values import Value
from dialects.graph.unary import CastOp
from dialects.strata import types as t


@onnx_op("Constant")
def constant(n: Node) -> Value:
    found = n.tensor("value")
    if found is not None:
        return n.constant(found)
    sparse = n.sparse_tensor("sparse_value")
    if sparse is not None:
        return n.constant(sparse)
    if n.has("value_float"):
        return n.constant(np.array(n.real("value_float"), np.float32))
    if n.has("value_floats"):
        return n.constant(np.array(n.floats("value_floats"), np.float32))
    if n.has("value_int"):
        return n.constant(np.array(n.integer("value_int"), np.int64))
    if n.has("value_ints"):
        return n.constant(np.array(n.ints("value_ints"), np.int64))
    given = ", ".join(n.attributes) or "nothing"
    raise Fault(f"its value is given as {given}; only numbers are supported")


@onnx_op("Identity", structured=True)
def identity(n: Node, x: AnyValue) -> AnyValue:
    return x


@onnx_op("Dropout", since=7)
def dropout(
    n: Node, x: Value, ratio: Value | None = None, training: Value | None = None
) -> list[Value]:
    """In inference mode, nothing is dropped, and the mask is true everywhere."""
    active = training is not None and bool(n.known_numbers(training, "training flags").any())
    share = 0.5 if ratio is None else float(n.known_numbers(ratio, "ratios")) if active else 0.0
    if active and share:
        return _dropped(n, x, share)
    mask = [n.constant(np.array(True)).broadcast(x.shape)] if n.wants(1) else []
    return [x, *mask]


def _dropped(n: Node, x: Value, share: float) -> list[Value]:
    """In training mode with a seed, the mask is that of ONNX's reference implementation."""
    shape = x.type.static_shape
    if shape is None or not n.has("seed"):
        raise Fault("it is in training mode, and its seed or its size is not fixed",
                    "export the model for inference")
    random = np.random.RandomState(n.integer("seed"))
    kept = random.uniform(0, 1, shape) >= share
    scale = n.constant((kept / (1 - share)).astype(x.type.dtype))
    return [x * scale, n.constant(kept)]


@onnx_op("Cast", since=6)
def cast(n: Node, x: Value) -> Value:
    return narrowed(n, x, element_type(n.integer("to", TensorProto.UNDEFINED)))


@onnx_op("CastLike")
def cast_like(n: Node, x: Value, like: Value) -> Value:
    return narrowed(n, x, like.element)


def narrowed(n: Node, x: Value, element: Attribute) -> Value:
    """Convert x to an element type.

    Numbers outside the range of a narrow float saturate, unless the node's `saturate` is 0.
    """
    if not t.is_narrow_float(element):
        return x.cast(element)
    saturate = True if n.integer("saturate", 1) else None
    rounding = n.text("round_mode", "up") if element == t.f8E8M0FNU else None
    if x.element == element and (rounding or not saturate):
        return x
    return n(CastOp, x, to=element, saturate=saturate, round=rounding)
