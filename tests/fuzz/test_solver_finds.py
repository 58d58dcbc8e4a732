"""What the fuzzer of `tests/fuzz/solver` found, small; benchmarks/fuzz.md has the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import compiler
from compiler.frontend import MemoryModel
from tests.frontend.onnx_models import value_info

Array = np.ndarray


def check(
    op: str, inputs: Mapping[str, Array], shapes: Mapping[str, Sequence[int | str]],
    weights: Mapping[str, Array], wanted: Array, opset: int = 17, **attributes: object,
) -> None:
    """One node, whose operands are the inputs and the weights, on the CPU and the reference."""
    names = [*inputs, *weights]
    graph = helper.make_graph(
        [helper.make_node(op, sorted(names), ["y"], **attributes)], "g",
        [value_info(n, a.dtype, shapes.get(n, a.shape)) for n, a in inputs.items()],
        [value_info("y", wanted.dtype, [None] * wanted.ndim)],
        [numpy_helper.from_array(a, n) for n, a in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    for target in ("cpu", "reference"):
        program = compiler.compile(MemoryModel("found.onnx", model.SerializeToString()),
                                   target=target, cache="off", threads=1)
        [found] = program(**inputs)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("rows", [1, 17, 32, 33, 65])
def test_scatters_whose_last_vector_is_one_lane(rows: int) -> None:
    """Along a dim of size 1 every update goes to index 0."""
    x = np.arange(rows, dtype=np.uint32).reshape(rows, 1, 1)
    check("ScatterElements", {"a": x, "b": np.zeros(x.shape, np.int64)}, {},
          {"c": x + 100}, x + 100, axis=2)


@pytest.mark.parametrize("rows", [1, 17, 33])
def test_scatters_along_rows_of_two(rows: int) -> None:
    x = np.zeros((rows, 2), np.float32)
    index = np.random.default_rng(rows).integers(0, 2, (rows, 1))
    wanted = x.copy()
    np.put_along_axis(wanted, index, 5, 1)
    check("ScatterElements", {"a": x, "b": index}, {},
          {"c": np.full((rows, 1), 5, np.float32)}, wanted, axis=1)


def test_updates_that_are_an_empty_constant() -> None:
    x = np.ones((1, 33), np.float16)
    check("ScatterElements", {"a": x, "b": np.zeros((1, 0), np.int64)}, {"b": [1, "n"]},
          {"c": np.zeros((1, 0), np.float16)}, x, axis=0)


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_one_index_of_any_type(kind: type[np.integer]) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    check("Gather", {"a": x, "b": np.asarray(-1, kind)}, {"a": ["n", "m", "k"]}, {}, x[-1])


@pytest.mark.parametrize("rows, inner, mid, out", [
    (16, 3, 2, 2), (64, 32, 8, 8), (5, 7, 3, 11), (17, 16, 1, 4), (32, 8, 4, 2)])
@pytest.mark.parametrize("integers", [True, False])
def test_sums_of_rows_between_two_products(
    rows: int, inner: int, mid: int, out: int, integers: bool
) -> None:
    """Sums over the same rows as a product's, without its columns: a zero point, or a mean."""
    random = np.random.default_rng(rows)
    kind = np.uint8 if integers else np.float32
    a, b = (random.integers(0, 9, s).astype(kind) for s in ((rows, inner), (inner, mid)))
    w = random.integers(-4, 5, (mid, out)).astype(np.float32)
    first = "i = MatMulInteger(a, b, three, two) f = Cast<to = 1>(i)" if integers else (
        "s = ReduceSum<keepdims = 1>(a, last) m = MatMul(a, b) f = Sub(m, s)")
    text = f"""<ir_version: 8, opset_import: ["": 17]>
        g (element[{rows}, {inner}] a, element[{inner}, {mid}] b, float[{mid}, {out}] w) =>
        (float[{rows}, {out}] y) <uint8 three = {{3}}, uint8 two = {{2}}, int64[1] last = {{1}}>
        {{ {first} y = MatMul(f, w) }}"""
    model = onnx.parser.parse_model(text.replace("element", "uint8" if integers else "float"))
    wide = [x.astype(np.float32) for x in (a, b)]
    product = (wide[0] - 3) @ (wide[1] - 2) if integers else (
        wide[0] @ wide[1] - wide[0].sum(1, keepdims=True))
    program = compiler.compile(MemoryModel("found.onnx", model.SerializeToString()),
                               target="cpu", cache="off", threads=1)
    np.testing.assert_array_equal(program(a=a, b=b, w=w)[0], product @ w)
