"""A sample of one graph operation: operands, attributes, symbolic sizes, and a reference.

    S(AddOp, F32(4, 7), F32(7), dims="n 7; 7", reference=onnx("Add"))

`build_module` makes a `strata.func @main` around the operation, with constant or symbolic sizes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from dialects.graph import ConstantOp
from dialects.graph.base import GraphOp
from dialects.graph.interpret import bind_sizes
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.func import FuncOp
from dialects.strata.types import Array, TensorType, element_of, tensor
from dialects.symbolic.expr import Expr, Size
from dialects.symbolic.expr_syntax import expr_of
from dialects.symbolic.symbol import Symbol
from tests.byte_products import OPERATORS

Reference = Callable[..., Sequence[Array]]


@dataclass(frozen=True)
class Random:
    """An array of random numbers: normal ones, or uniform in a range for integers."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    low: float = -9
    high: float = 9

    def make(self, rng: np.random.Generator) -> Array:
        if self.dtype == np.bool_:
            return np.asarray(rng.integers(0, 2, self.shape)).astype(np.bool_)
        if self.dtype.kind in "iu":
            low = max(self.low, 0) if self.dtype.kind == "u" else self.low
            whole = rng.integers(int(low), int(self.high), self.shape)
            return np.asarray(whole).astype(self.dtype)
        numbers = np.asarray(rng.standard_normal(self.shape))
        return np.clip(numbers, self.low, self.high, out=numbers).astype(self.dtype)


def _maker(dtype: Any) -> Callable[..., Random]:
    return lambda *shape, **bounds: Random(shape, np.dtype(dtype), **bounds)


F16, BF16, F32, F64 = map(_maker, (np.float16, ml_dtypes.bfloat16, np.float32, np.float64))
I8, I32, I64, U8, I1 = map(_maker, (np.int8, np.int32, np.int64, np.uint8, np.bool_))

TOLERANCES = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5, "float64": 1e-9}
"""Relative and absolute, per dtype, unless a sample says otherwise."""


@dataclass(frozen=True)
class Sample:
    """One row. `operands` are the function's arguments; the op takes the first `used` of them."""

    op: type[GraphOp]
    operands: tuple[Random | Array, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    dims: str = ""
    """The sizes of the operands with symbols, `n 3; 3` for two. Empty: all stay constant."""
    reference: Reference | None = None
    tolerance: float | None = None
    used: int | None = None

    @property
    def label(self) -> str:
        shapes = ",".join("x".join(map(str, o.shape)) + o.dtype.name[0] for o in self.operands)
        return f"{self.op.name.removeprefix('graph.')}-{shapes}"

    def arrays(self) -> list[Array]:
        """The inputs, the same every time."""
        rng = np.random.default_rng(zlib.crc32(self.label.encode()))
        return [o.make(rng) if isinstance(o, Random) else o for o in self.operands]

    def allowed(self, dtype: np.dtype[Any]) -> float:
        return self.tolerance if self.tolerance is not None else TOLERANCES.get(dtype.name, 0.0)


def S(
    op: type[GraphOp], *operands: Random | Array, dims: str = "",
    reference: Reference | None = None, tolerance: float | None = None, used: int | None = None,
    **attributes: Any,
) -> Sample:
    """A row of the table."""
    return Sample(op, operands, attributes, dims, reference, tolerance, used)


def E(text: str) -> Expr:
    """A size expression in an attribute; constant sizes are put in where none are symbolic."""
    return expr_of(text)


# ---------------------------------------------------------------------- modules
def build_module(
    sample: Sample, symbolic: bool
) -> tuple[ModuleOp, list[Array], EvaluationContext]:
    """A module whose `strata.func @main` holds the one op; its inputs; and where its weights are.

    With `symbolic`, and where the sample names sizes, these are symbols in the types.
    """
    arrays, context = sample.arrays(), EvaluationContext()
    types, sizes = _types(sample, arrays)
    if not symbolic:
        types = [_with_sizes(type_, sizes) for type_ in types]
    func = _empty_function(types)
    op = _make_op(sample, func.body.block.args, {} if symbolic else sizes, context)
    func.body.block.add_op(op)
    func.finish([f"y{k}" for k in range(len(op.results))], op.results)
    return ModuleOp([func]), arrays, context


class Joined(NamedTuple):
    """One module of several samples, each with inputs of its own.

    `counts`: how many of the outputs are each sample's.
    """

    module: ModuleOp
    arrays: list[Array]
    context: EvaluationContext
    counts: list[int]


def join_samples(samples: Sequence[Sample], symbolic: bool = False) -> Joined:
    """A module whose `strata.func @main` holds the ops of all samples, one after another.

    With `symbolic`, the sizes that samples name are symbols, of which each sample has its own.
    """
    context, arrays, types = EvaluationContext(), list[Array](), list[TensorType]()
    valued: list[Mapping[Symbol, Size]] = []
    for number, sample in enumerate(samples):
        given = sample.arrays()
        named, sizes = _types(sample, given)
        valued.append({s: expr_of(f"{s}_{number}") for s in sizes} if symbolic else sizes)
        arrays += given
        types += [_with_sizes(type_, valued[-1]) for type_ in named]
    func = _empty_function(types)
    arguments, results = iter(func.body.block.args), list[SSAValue]()
    counts: list[int] = []
    for sample, sizes in zip(samples, valued, strict=True):
        op = _make_op(sample, [next(arguments) for _ in sample.operands], sizes, context)
        func.body.block.add_op(op)
        results += op.results
        counts.append(len(op.results))
    func.finish([f"y{k}" for k in range(len(results))], results)
    return Joined(ModuleOp([func]), arrays, context, counts)


def _empty_function(types: Sequence[TensorType]) -> FuncOp:
    """A `strata.func @main` with named arguments, and nothing in it."""
    names = [f"x{k}" for k in range(len(types))]
    func = FuncOp.of("main", names, types)
    for argument, name in zip(func.body.block.args, names, strict=True):
        argument.name_hint = name
    return func


def _types(sample: Sample, arrays: list[Array]) -> tuple[list[TensorType], dict[Symbol, int]]:
    """The argument types with symbols, and the values of these."""
    if not sample.dims:
        return [tensor(element_of(a.dtype), a.shape) for a in arrays], {}
    shapes = [[expr_of(word) for word in part.split()] for part in sample.dims.split(";")]
    types = [tensor(element_of(a.dtype), s) for a, s in zip(arrays, shapes, strict=True)]
    return types, bind_sizes(types, arrays)


def _with_sizes(type_: TensorType, sizes: Mapping[Symbol, Size]) -> TensorType:
    """The type with values of its symbols put in."""
    return tensor(type_.element, [size.substitute(sizes) for size in type_.shape])


def _make_op(
    sample: Sample, operands: Sequence[SSAValue], sizes: Mapping[Symbol, Size],
    context: EvaluationContext,
) -> Operation:
    if sample.op is ConstantOp:
        return ConstantOp.of_array(sample.attributes["array"], context.weights, "weight")
    attributes = {k: _settled(v, sizes) for k, v in sample.attributes.items()}
    return sample.op.of(*operands[:sample.used], **attributes)


def _settled(value: Any, sizes: Mapping[Symbol, Size]) -> Any:
    """An attribute's value with known sizes put in."""
    if isinstance(value, list):
        return [_settled(v, sizes) for v in value]
    return value.substitute(sizes) if isinstance(value, Expr) else value


# ---------------------------------------------------------------------- references
def onnx(
    op_type: str, *layout: int | Array | None, outputs: int = 1, **attributes: Any
) -> Reference:
    """The ONNX operator, run by onnxruntime.

    `layout` lists its inputs: a number is an operand, an array a constant, None a missing input;
    empty, they are the operands. It must multiply no bytes: see `tests/byte_products.py`.
    """
    assert op_type not in OPERATORS, f"{op_type} multiplies bytes: use its definition"

    def run(*arrays: Array) -> Sequence[Array]:
        import onnxruntime

        inputs = list(layout) or list(range(len(arrays)))
        model = _onnx_model(op_type, inputs, arrays, outputs, attributes)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return session.run(None, {f"x{k}": a for k, a in enumerate(arrays) if k in inputs})

    return run


def _onnx_model(
    op_type: str, inputs: list[Any], arrays: Sequence[Array], outputs: int, attributes: Any
) -> bytes:
    from onnx import helper, numpy_helper

    results = [f"y{k}" for k in range(outputs)]
    names = ["" if i is None else f"x{i}" if isinstance(i, int) else f"c{k}"
             for k, i in enumerate(inputs)]
    constants = [numpy_helper.from_array(i, f"c{k}") for k, i in enumerate(inputs)
                 if isinstance(i, np.ndarray)]
    declared = [helper.make_tensor_value_info(
        f"x{k}", helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for k, a in enumerate(arrays) if k in [i for i in inputs if isinstance(i, int)]]
    graph = helper.make_graph(
        [helper.make_node(op_type, names, results, **attributes)], "sample", declared,
        [helper.make_empty_tensor_value_info(r) for r in results], constants)
    opset = [helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()


def torch(function: Callable[..., Any]) -> Reference:
    """A function `(torch, *tensors) -> tensor`; bf16 goes in and comes out as such."""
    def run(*arrays: Array) -> Sequence[Array]:
        import pytest

        module = pytest.importorskip("torch")
        return [_from_torch(module, function(module, *(_to_torch(module, a) for a in arrays)))]

    return run


def _to_torch(module: Any, array: Array) -> Any:
    if array.dtype == ml_dtypes.bfloat16:
        return module.from_numpy(array.view(np.int16).copy()).view(module.bfloat16)
    return module.from_numpy(array.copy())


def _from_torch(module: Any, value: Any) -> Array:
    if value.dtype == module.bfloat16:
        return value.view(module.int16).numpy().view(ml_dtypes.bfloat16)
    return value.numpy()
