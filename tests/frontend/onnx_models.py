"""Small ONNX models for tests, and what onnxruntime computes with them.

    op("Clip", f(2, 3), C(0.0), C(1.0), opsets=(11, 13))

An operand is an array that becomes an input of the model, `C(...)` a constant of it (an
initializer), None one that is left out.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from compiler.frontend import ImportedModel, ImportOptions, load_model
from dialects.graph.interpret import evaluate_func
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.func import main_function
from dialects.strata.types import Array
from dialects.verifying import verify
from tests.byte_products import OPERATORS

IR_VERSION = 8


@dataclass(frozen=True)
class C:
    """A constant of the model."""

    value: Any
    dtype: Any = None

    @property
    def array(self) -> Array:
        if self.dtype is not None:
            return np.array(self.value, self.dtype)
        array = np.asarray(self.value)
        kinds = {"f": np.float32, "i": np.int64}
        return array.astype(kinds.get(array.dtype.kind, array.dtype)) \
            if isinstance(self.value, (int, float, list, tuple)) else array


@dataclass(frozen=True)
class F:
    """Random f32 numbers of a shape."""

    shape: tuple[int, ...]
    low: float = -3.0
    high: float = 3.0
    dtype: Any = np.float32

    def make(self, rng: np.random.Generator) -> Array:
        numbers = rng.uniform(self.low, self.high, self.shape)
        return (np.floor(numbers) if self.dtype is np.bool_ else numbers).astype(self.dtype)


def f(*shape: int, low: float = -3.0, high: float = 3.0) -> F:
    return F(shape, low, high)


def i64(*shape: int, low: int = -5, high: int = 6) -> F:
    return F(shape, low, high, np.int64)


def i32(*shape: int, low: int = -5, high: int = 6) -> F:
    return F(shape, low, high, np.int32)


def b(*shape: int) -> F:
    """Truth values."""
    return F(shape, 0, 2, np.bool_)


def u8(*shape: int) -> F:
    return F(shape, 0, 256, np.uint8)


def i8(*shape: int) -> F:
    return F(shape, -128, 128, np.int8)


@dataclass(frozen=True)
class Op:
    """One operator on its operands, at one or several opsets."""

    op_type: str
    operands: tuple[Any, ...]
    opsets: tuple[int, ...] = (13,)
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    outputs: int = 1
    symbolic: bool = True  # whether it can be imported with all sizes open
    tolerance: float = 2e-5
    domain: str = ""  # whose version `opsets` then are, the standard one being 17
    steps: int = 0  # by how much quantized results may differ
    open_sizes: tuple[int, ...] = ()  # the sizes that may be open; none stands for all
    defined: bool = False  # compared with a definition, as onnxruntime cannot run it

    def arrays(self) -> list[Array | C | None]:
        rng = np.random.default_rng(zlib.crc32(repr(self).encode()))
        return [o.make(rng) if isinstance(o, F) else o for o in self.operands]


def op(op_type: str, *operands: Any, opsets: Sequence[int] = (13,), outputs: int = 1,
       symbolic: bool = True, tolerance: float = 2e-5, domain: str = "", steps: int = 0,
       open_sizes: tuple[int, ...] = (), defined: bool = False, **attributes: Any) -> Op:
    return Op(op_type, operands, tuple(opsets), attributes, outputs, symbolic, tolerance, domain,
              steps, open_sizes, defined)


def with_seven_bits(sample: Op) -> Op:
    """The sample with all arrays drawn, and its signed bytes halved."""
    def halved(operand: Array | C | None) -> Array | C | None:
        if isinstance(operand, C):
            return C(halved(operand.array))
        return operand // 2 if operand is not None and operand.dtype == np.int8 else operand

    return replace(sample, operands=tuple(map(halved, sample.arrays())))


# ---------------------------------------------------------------------- models
def value_info(name: str, dtype: Any, shape: Sequence[int | str] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)),
                                         shape)


def make_model(
    nodes: Sequence[onnx.NodeProto], inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[str], constants: Mapping[str, Array] | None = None, opset: int = 17,
    functions: Sequence[onnx.FunctionProto] = (), domains: Sequence[str] | Mapping[str, int] = (),
) -> onnx.ModelProto:
    """A model that says nothing of its outputs but their names."""
    versions = domains if isinstance(domains, Mapping) else dict.fromkeys(domains, 1)
    graph = helper.make_graph(
        nodes, "test", inputs, [onnx.ValueInfoProto(name=o) for o in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()])
    imports = [helper.make_opsetid(d, v) for d, v in {"": opset, **versions}.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION,
                             functions=functions)


def model_of(sample: Op, opset: int, symbolic: bool) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of one node, and its inputs."""
    names: list[str] = []
    inputs: dict[str, Array] = {}
    constants: dict[str, Array] = {}
    for k, operand in enumerate(sample.arrays()):
        names.append("" if operand is None else f"x{k}")
        if isinstance(operand, C):
            constants[names[-1]] = operand.array
        elif operand is not None:
            inputs[names[-1]] = operand
    outputs = [f"y{k}" for k in range(sample.outputs)]
    node = helper.make_node(sample.op_type, names, outputs, name="the node", domain=sample.domain,
                            **sample.attributes)
    infos = [value_info(n, a.dtype, _shape(a, symbolic, sample.open_sizes))
             for n, a in inputs.items()]
    if sample.domain:
        return make_model([node], infos, outputs, constants, domains={sample.domain: opset}), inputs
    return make_model([node], infos, outputs, constants, opset), inputs


def _shape(array: Array, symbolic: bool, open_sizes: tuple[int, ...]) -> list[int | str]:
    """Equal sizes get equal names, so that operands still fit each other; 1 stays."""
    return [f"s{s}" if symbolic and s > 1 and s in (open_sizes or (s,)) else s
            for s in array.shape]


def save(model: onnx.ModelProto, folder: Path, name: str = "model.onnx") -> Path:
    path = folder / name
    path.write_bytes(model.SerializeToString())
    return path


# ---------------------------------------------------------------------- running
def run_imported(imported: ImportedModel, inputs: Mapping[str, Array]) -> list[Array]:
    """The results of an imported model by our interpreter; the module is verified before."""
    verify(imported.module)
    function = main_function(imported.module)
    context = EvaluationContext(weights=imported.weights)
    return evaluate_func(function, [inputs[n] for n in function.input_names], context)


def run_import(
    model: onnx.ModelProto, inputs: Mapping[str, Array], folder: Path,
    options: ImportOptions | None = None,
) -> list[Array]:
    return run_imported(load_model(save(model, folder), options), inputs)


def run_reference(
    model: onnx.ModelProto, inputs: Mapping[str, Array], seven_bits: bool = False
) -> list[Array]:
    """What onnxruntime computes, on one thread and without its optimizations.

    Its products of bytes are not exact on every processor (`tests/byte_products.py`), so it must
    not be asked for them, unless signed factors keep to seven bits: 255 * 64 * 2 fits 16 bits.
    """
    import onnxruntime

    bytes_ = {node.op_type for node in model.graph.node} & OPERATORS
    assert seven_bits or not bytes_, f"{', '.join(bytes_)} multiplies bytes: use its definition"
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    typed = onnx.ModelProto()
    typed.CopyFrom(model)
    for output in typed.graph.output:
        output.ClearField("type")  # onnxruntime infers them
    session = onnxruntime.InferenceSession(typed.SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])
    return session.run(None, dict(inputs))


def assert_close(
    actual: Sequence[Array], expected: Sequence[Array], tolerance: float, steps: int = 0
) -> None:
    """Equal shapes and dtypes, close values; integers differ by `steps` at most."""
    for got, want in zip(actual, expected, strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        relative, absolute = (0, steps) if want.dtype.kind in "biu" else (tolerance, tolerance)
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64),
                                   rtol=relative, atol=absolute)
