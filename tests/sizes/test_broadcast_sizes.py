"""Open sizes that are 1 at run time stretch, as in NumPy: every operator that broadcasts.

One model holds all operators of a kind on the same operands, whose dims are all open, and is called
with sizes of 0, 1, 3 and 5 in each dim. NumPy decides what comes out: the result, with its shape,
or an error, which must then name the sizes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import compiler
from compiler.frontend import MemoryModel

Array = np.ndarray[Any, np.dtype[Any]]
SIZES = (0, 1, 3, 5)
TARGETS = ("cpu", "reference")
FLOATS, TRUTHS, INTEGERS = np.dtype(np.float32), np.dtype(np.bool_), np.dtype(np.int32)


def fold(function: Any) -> Any:
    return lambda *xs: function(function(xs[0], xs[1]), xs[0])


POINTWISE: Mapping[np.dtype[Any], Mapping[str, Any]] = {
    FLOATS: {
        "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide,
        "Pow": lambda x, y: np.power(np.abs(x), y), "PRelu": lambda x, y: np.where(x < 0, x * y, x),
        "Max": np.maximum, "Min": np.minimum, "Sum": lambda x, y: x + y + x,
        "Mean": lambda x, y: (x + y) / 2, "Greater": np.greater, "Less": np.less,
        "GreaterOrEqual": np.greater_equal, "LessOrEqual": np.less_equal, "Equal": np.equal,
        "Where": lambda x, y: np.where(x > y, x, y), "Expand": lambda x, y: x + 0 * y,
    },
    TRUTHS: {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor},
    INTEGERS: {"Mod": np.mod, "BitwiseAnd": np.bitwise_and, "BitwiseXor": np.bitwise_xor,
               "Max": np.maximum},
}
"""What each operator gives in NumPy. Sum and others take several operands."""


@dataclass(frozen=True)
class Operand:
    """Dims, of which those that are names are open; `constant`: it is part of the model."""

    dims: tuple[int | str, ...]
    constant: bool = False


def nodes_of(name: str, x: str, y: str) -> list[onnx.NodeProto]:
    """The nodes that compute an operator of two tensors; the last result is called after it."""
    node = helper.make_node
    match name:
        case "Pow":
            return [node("Abs", [x], ["abs"]), node("Pow", ["abs", y], [name])]
        case "Sum":
            return [node("Sum", [x, y, x], [name])]
        case "Where":
            return [node("Greater", [x, y], ["c"]), node("Where", ["c", x, y], [name])]
        case "Expand":
            return [node("Shape", [y], ["shape"]), node("Expand", [x, "shape"], [name])]
        case _:
            return [node(name, [x, y], [name])]


def numbers(dtype: np.dtype[Any], shape: Sequence[int], seed: int) -> Array:
    random = np.random.default_rng(seed)
    if dtype == FLOATS:
        return random.standard_normal(shape, np.float32)
    return random.integers(1, 2 if dtype == TRUTHS else 9, shape).astype(dtype)


def model(
    nodes: Sequence[onnx.NodeProto], outputs: Sequence[str], dtype: np.dtype[Any],
    operands: Mapping[str, Operand], opset: int = 18,
) -> MemoryModel:
    element = helper.np_dtype_to_tensor_dtype(dtype)
    inputs = [helper.make_tensor_value_info(name, element, o.dims)
              for name, o in operands.items() if not o.constant]
    weights = [numpy_helper.from_array(contents(dtype, name, o), name)
               for name, o in operands.items() if o.constant]
    results = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None)
               for name in outputs]
    graph = helper.make_graph(nodes, "g", inputs, results, weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    return MemoryModel("broadcasts.onnx", proto.SerializeToString())


def contents(dtype: np.dtype[Any], name: str, operand: Operand) -> Array:
    return numbers(dtype, [d for d in operand.dims if isinstance(d, int)], ord(name))


def settings(operands: Mapping[str, Operand]) -> Iterator[dict[str, int]]:
    """All sizes of the open dims."""
    names = sorted({d for o in operands.values() for d in o.dims if isinstance(d, str)})
    for values in itertools.product(SIZES, repeat=len(names)):
        yield dict(zip(names, values, strict=True))


def check(
    model: MemoryModel, dtype: np.dtype[Any], operands: Mapping[str, Operand],
    wanted: Mapping[str, Any], target: str, tolerance: float = 1e-6,
) -> None:
    """Run at all sizes, and compare with NumPy. `wanted`: functions of the operands."""
    executable = compiler.compile(model, target=target, cache="off", tuned="off", threads=1)
    names = [n for n, o in operands.items() if not o.constant]
    for sizes in settings(operands):
        arrays = {n: contents(dtype, n, o) if o.constant else numbers(
            dtype, [sizes.get(d, d) for d in o.dims], k)  # type: ignore[misc, call-overload]
            for k, (n, o) in enumerate(operands.items())}
        try:
            with np.errstate(all="ignore"):
                expected = [f(*arrays.values()) for f in wanted.values()]
        except ValueError:
            with pytest.raises(ValueError, match=r"sizes|size|must be"):
                executable(*(arrays[n] for n in names))
            continue
        for name, got, want in zip(wanted, executable(*(arrays[n] for n in names)), expected,
                                   strict=True):
            assert got.shape == want.shape, f"{name} at {sizes}: {got.shape}, not {want.shape}"
            np.testing.assert_allclose(got, want, tolerance, tolerance, err_msg=f"{name} {sizes}")


RANKS = [
    (Operand(("a",)), Operand((3,), True)), (Operand(("a", 3)), Operand((5, 1), True)),
    (Operand(("a", "b")), Operand((3,), True)), (Operand((3,), True), Operand(("a", "b"))),
    (Operand(("a",)), Operand(("b",))), (Operand(("a", 3)), Operand(("b",))),
    (Operand(("a", "b")), Operand(("c", "b"))), (Operand((3, "a")), Operand(("b", 1, "a"))),
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("pair", RANKS, ids=lambda p: "-".join(
    "x".join(map(str, o.dims)) + ("c" if o.constant else "") for o in p))
@pytest.mark.parametrize("dtype", POINTWISE, ids=str)
def test_pointwise(dtype: np.dtype[Any], pair: tuple[Operand, Operand], target: str) -> None:
    operators, operands = POINTWISE[dtype], dict(zip("xy", pair, strict=True))
    nodes = [n for name in operators for n in nodes_of(name, "x", "y")]
    check(model(nodes, list(operators), dtype, operands), dtype, operands, operators, target)


# ---------------------------------------------------------------------- other operators
def product(x: Array, y: Array) -> Array:
    return np.matmul(x.astype(np.float64), y).astype(np.float32)


def gemm(x: Array, y: Array, z: Array) -> Array:
    return product(x, y) + 2 * np.broadcast_to(z, (x.shape[0], y.shape[1]))


OTHERS = {
    "MatMul": ([helper.make_node("MatMul", ["x", "y"], ["r"])], product, [
        (Operand(("a", 2, 4)), Operand(("b", 4, 3))),
        (Operand(("a", 2, 4)), Operand((3, 4, 5), True)),
        (Operand(("a", 1, 2, 4)), Operand(("b", 4, 3))), (Operand((2, "a")), Operand(("a",)))]),
    "Gemm": ([helper.make_node("Gemm", ["x", "y", "z"], ["r"], beta=2.0)], gemm, [
        (Operand(("a", 4)), Operand((4, 3), True), Operand(("b", 3))),
        (Operand((3, 4)), Operand((4, 5), True), Operand(("a", "b")))]),
    "Einsum": ([helper.make_node("Einsum", ["x", "y"], ["r"], equation="bij,bjk->bik")],
               lambda x, y: np.einsum("bij,bjk->bik", x, y), [
        (Operand(("a", 2, 4)), Operand((3, 4, 5), True))]),
    "Clip": ([helper.make_node("Add", ["x", "y"], ["s"]), helper.make_node("Relu", ["s"], ["t"]),
              helper.make_node("Mul", ["t", "x"], ["r"])], lambda x, y: np.maximum(x + y, 0) * x, [
        (Operand(("a", "b")), Operand(("c", "d")))]),
    "MatMulInteger": ([
        *(helper.make_node("Cast", [n], [f"{n}_i"], to=TensorProto.INT8) for n in "xy"),
        helper.make_node("MatMulInteger", ["x_i", "y_i"], ["i"]),
        helper.make_node("Cast", ["i"], ["r"], to=TensorProto.FLOAT)],
        lambda x, y: product(np.trunc(x), np.trunc(y)), [
        (Operand(("a", 2, 4)), Operand(("b", 4, 3)))]),
    "Concat": ([helper.make_node("Mul", ["x", "y"], ["s"]),
                helper.make_node("Concat", ["s", "y"], ["r"], axis=1)],
               lambda x, y: np.concatenate([x * y, y], 1), [
        (Operand(("a", 2)), Operand(("b", 2)))]),
}
"""Nodes with the result r, its value in NumPy, and operands."""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("name", "operands"), [
    (name, operands) for name, (_, _, rows) in OTHERS.items() for operands in rows])
def test_other_operators(name: str, operands: Sequence[Operand], target: str) -> None:
    nodes, function, _ = OTHERS[name]
    named = dict(zip("xyz", operands, strict=False))
    check(model(nodes, ["r"], FLOATS, named), FLOATS, named, {"r": function}, target, 2e-5)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dims", [("a",), ("a", 3), ("a", "b"), (1, "a", "b"), ("a", 2, "a")],
                         ids=str)
def test_squeeze(dims: tuple[int | str, ...], target: str) -> None:
    operands = {"x": Operand(dims)}
    nodes = [helper.make_node("Squeeze", ["x"], ["s"]), helper.make_node("Neg", ["s"], ["r"])]
    check(model(nodes, ["r"], FLOATS, operands), FLOATS, operands,
          {"r": lambda x: -np.squeeze(x)}, target)
