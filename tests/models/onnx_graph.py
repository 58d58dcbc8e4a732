"""Building ONNX models node by node, with weights that are always the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, np.dtype[Any]]
Sizes = Mapping[str, int]
OPSET, IR_VERSION = 17, 8


@dataclass
class OnnxGraph:
    """Nodes, inputs and weights so far. Names count up, so that a model is the same each time.

    `sizes`: values for the named sizes of inputs; a name that is not there stays open.
    """

    sizes: Sizes
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list[onnx.ValueInfoProto])
    weights: list[onnx.TensorProto] = field(default_factory=list[onnx.TensorProto])

    def input(self, name: str, dtype: Any, shape: Sequence[int | str]) -> str:
        fixed = [self.sizes.get(s, s) if isinstance(s, str) else s for s in shape]
        self.inputs.append(helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), fixed))
        return name

    def node(self, op_type: str, *operands: str, **attributes: Any) -> str:
        """Add a node; its first result."""
        name = f"{op_type}_{len(self.nodes)}"
        result = f"{name}_out"
        self.nodes.append(helper.make_node(op_type, operands, [result], name=name, **attributes))
        return result

    def constant(self, values: Any, dtype: Any = np.float32) -> str:
        name = f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def integers(self, *values: int) -> str:
        return self.constant(values, np.int64)

    def random_weight(self, *shape: int, scale: float | None = None) -> str:
        """Normal numbers, of such a size by default that sums over the first dim stay near 1."""
        spread = shape[0] ** -0.5 if scale is None else scale
        return self.constant(self.random.standard_normal(shape) * spread)

    def size(self, value: str, axis: int) -> str:
        """The size of an axis, as an i64[1]."""
        return self.node("Slice", self.node("Shape", value), self.integers(axis),
                         self.integers(axis + 1))

    def model(self, outputs: Mapping[str, str]) -> onnx.ModelProto:
        """The model; its outputs are floats of any shape. `outputs`: name -> value."""
        for name, value in outputs.items():
            self.nodes.append(helper.make_node("Identity", [value], [name], name=name))
        infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self.nodes, "tiny", self.inputs, infos, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)],
                                 ir_version=IR_VERSION)
