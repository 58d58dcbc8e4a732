"""Operators as they were before opset 7: explicit broadcasting, and attributes instead of inputs.

    Add {broadcast = 1, axis = 1}  x [2, 3, 4, 5], y [3, 4]   ->   Add  x, Reshape(y) [3, 4, 1]

An operator that has only gained inputs, element types or defaults since then has one importer for
all versions.
"""

from __future__ import annotations

from onnx import TensorProto

from compiler.frontend.faults import Fault
from compiler.frontend.onnx.element_types import element_type
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.onnx.ops.activation import p_relu
from compiler.frontend.onnx.ops.elementwise import binary, pow_
from compiler.frontend.onnx.ops.shape import reshape, tile
from compiler.frontend.values import Value
from dialects.graph.activation import EluOp
from dialects.strata import types as t


# ---------------------------------------------------------------------- broadcasting
@onnx_op("Add", "Sub", "Mul", "Div", "And", "Or", "Xor", "Equal", "Less", "Greater")
def binary_before_7(n: Node, x: Value, y: Value) -> Value:
    return binary(n, x, _aligned(n, x, y))


@onnx_op("Pow")
def pow_before_7(n: Node, x: Value, y: Value) -> Value:
    return pow_(n, x, _aligned(n, x, y))


def _aligned(n: Node, x: Value, y: Value) -> Value:
    """y reshaped so that its dims match those of x from `axis` on, by default the last ones."""
    if not n.flag("broadcast"):
        pairs = zip(x.shape, y.shape, strict=False)
        if x.rank != y.rank or any((a - b).constant not in (0, None) for a, b in pairs):
            raise Fault(f"{x.type.short} and {y.type.short} differ in shape, and its attribute "
                        "broadcast is not set")
        return y
    if y.rank > x.rank:
        raise Fault(f"{y.type.short} cannot be broadcast to {x.type.short}, which has fewer dims")
    first = n.axis(n.integer("axis"), x.rank) if n.has("axis") and x.rank else x.rank - y.rank
    trailing = x.rank - first - y.rank
    if trailing < 0:
        raise Fault(f"{y.type.short} at axis {first} reaches beyond {x.type.short}")
    return y.reshape([*y.shape, *[1] * trailing])


@onnx_op("PRelu")
def p_relu_of_channels(n: Node, x: Value, slope: Value) -> Value:
    """The slope is a single number, or has one element per channel."""
    if slope.type.count.constant == 1:
        return p_relu(n, x, slope.reshape(()))
    per_channel = slope.rank == 1 and x.rank > 2
    return p_relu(n, x, slope.reshape([*slope.shape, *[1] * (x.rank - 2)]) if per_channel
                  else slope)


# ---------------------------------------------------------------------- contents in attributes
@onnx_op("Reshape")
def reshape_by_attribute(n: Node, x: Value) -> Value:
    return reshape(n, x, n.of_sizes(n.ints("shape")))


@onnx_op("Tile")
def tile_of_axis(n: Node, x: Value, tiles: Value, axis: Value) -> Value:
    """`tiles` copies of x along one axis; both are single numbers, of any type."""
    [times], [at] = (n.known_numbers(v, "numbers").reshape(-1) for v in (tiles, axis))
    repeats = [1] * x.rank
    repeats[n.axis(int(at), x.rank)] = int(times)
    return tile(n, x, n.of_sizes(repeats))


@onnx_op("Cast")
def cast_to_name(n: Node, x: Value) -> Value:
    """`to` is the name of an element type."""
    name = n.text("to")
    if name not in TensorProto.DataType.keys():  # noqa: SIM118  (it is not a mapping)
        raise Fault(f"there is no element type '{name}'")
    return x.cast(element_type(TensorProto.DataType.Value(name)))


# ---------------------------------------------------------------------- other defaults
@onnx_op("Selu")
def selu_of_four_digits(n: Node, x: Value) -> Value:
    alpha, gamma = n.real("alpha", 1.6732), n.real("gamma", 1.0507)
    return gamma * n(EluOp, x, alpha=alpha)


@onnx_op("Dropout")
def dropout_by_attribute(n: Node, x: Value) -> list[Value]:
    if not n.flag("is_test"):
        raise Fault("it is in training mode", "export the model for inference (is_test = 1)")
    kept = [n.scalar(1, x).cast(t.i1).broadcast(x.shape)] if n.wants(1) else []
    return [x, *kept]
