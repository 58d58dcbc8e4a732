"""ONNX's backend interface: run a ModelProto with the compiler.

    from compiler.onnx_backend import StrataBackend
    prepared = StrataBackend.prepare(model, "CPU", target="cpu")
    outputs = prepared.run([x, y])

`target` is `cpu`, or `reference` for NumPy. If a model takes shapes, axes and the like as inputs,
it is compiled for each distinct contents of these inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, helper
from onnx.backend.base import Backend, BackendRep, Device, DeviceType

from compiler.api import compile as compile_model
from compiler.executable import Executable
from compiler.frontend import MemoryModel, UnknownContents
from compiler.io.arrays import contiguous
from dialects.strata.types import Array


class StrataRep(BackendRep):
    """A model, compiled as far as that is possible without its inputs."""

    def __init__(self, model: ModelProto, options: Mapping[str, Any]):
        weights = {t.name for t in model.graph.initializer}
        self.input_names = [i.name for i in model.graph.input if i.name not in weights]
        self.output_names = [o.name for o in model.graph.output]
        self.model = MemoryModel(f"{model.graph.name or 'model'}.onnx", model.SerializeToString())
        self.options = dict(options)
        self.fixed: frozenset[str] = frozenset()
        """The inputs whose contents the import needs."""
        self.compiled: dict[tuple[bytes, ...], Executable] = {}
        try:
            self._compile({})
        except UnknownContents as error:
            self.fixed = error.inputs

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs. `inputs`: a list in the model's order, or a mapping by name."""
        arrays = self._by_name(inputs)
        while True:
            try:
                executable = self._compile({n: arrays[n] for n in sorted(self.fixed)})
            except UnknownContents as error:
                if error.inputs <= self.fixed:
                    raise
                self.fixed |= error.inputs
            else:
                return self._run(executable, arrays)

    def _run(self, executable: Executable, values: Mapping[str, Any]) -> tuple[Any, ...]:
        given = {n: v for n, v in values.items() if n not in self.fixed}
        outputs = executable.gathered(executable.run(executable.spread((), given)))
        return tuple(outputs.get(name, []) for name in self.output_names)

    def _by_name(self, inputs: Any) -> dict[str, Any]:
        return {name: v if v is None or isinstance(v, list) else contiguous(v)
                for name, v in _named(inputs, self.input_names).items()}

    def _compile(self, constants: Mapping[str, Array]) -> Executable:
        key = tuple(part for name, array in constants.items()
                    for part in (name.encode(), str(array.shape).encode(), array.tobytes()))
        if key not in self.compiled:
            self.compiled[key] = compile_model(self.model, constants=constants, **self.options)
        return self.compiled[key]


class StrataBackend(Backend):
    """Models on the processor. Options: `target`, and all others of `compiler.compile`."""

    targets: ClassVar[Sequence[str]] = ("cpu", "reference")

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> StrataRep:
        """Compile a model.

        Raises ValueError for an unknown device or target, and StrataError for a model that cannot
        be compiled.
        """
        if not cls.supports_device(device):
            raise ValueError(f"device {device} is not supported; there is CPU")
        target = kwargs.setdefault("target", "cpu")
        if target not in cls.targets:
            raise ValueError(f"target {target} is none of {', '.join(cls.targets)}")
        return StrataRep(model, kwargs)

    @classmethod
    def run_model(
        cls, model: ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls, node: NodeProto, inputs: Any, device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run one node on arrays, at the newest opset or that of the option `opset_version`."""
        version = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        arrays = _named(inputs, [name for name in node.input if name])
        model = _model_of_node(node, arrays, version)
        return cls.run_model(model, arrays, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return Device(device).type == DeviceType.CPU


def _named(inputs: Any, names: Sequence[str]) -> dict[str, Any]:
    """Values by name, from a list in the order of `names` or from a mapping.

    Lists of arrays and None are kept: they are sequences and optional values.
    """
    if isinstance(inputs, Mapping):
        given = cast("Mapping[str, Any]", inputs)
    else:
        given = dict(zip(names, inputs, strict=True))
    return {name: value if value is None or _is_sequence(value) else np.asarray(value)
            for name, value in given.items()}


def _is_sequence(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(v, np.ndarray) for v in cast("list[Any]", value))


def _model_of_node(node: NodeProto, arrays: Mapping[str, Array], version: int) -> ModelProto:
    inputs = [helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for name, a in arrays.items()]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    graph = helper.make_graph([node], node.op_type, inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, version)])


prepare = StrataBackend.prepare
run_model = StrataBackend.run_model
run_node = StrataBackend.run_node
supports_device = StrataBackend.supports_device
