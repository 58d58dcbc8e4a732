"""Numbers that were wrong when fuzzing found them, as small as the models become."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import compiler
from compiler.frontend import MemoryModel
from dialects.graph.inference import certain_sign
from dialects.strata.types import Array
from dialects.symbolic.expr import Expr, maximum, minimum
from dialects.symbolic.symbol import Symbol
from tests.frontend.onnx_models import make_model, value_info
from tests.fuzz.seed_models import node


def run(model: onnx.ModelProto, inputs: list[Array], target: str = "cpu") -> list[Array]:
    program = compiler.compile(MemoryModel("model.onnx", model.SerializeToString()),
                               target=target, cache="off", threads=1)
    return list(program.run(inputs))


# ---------------------------------------------------------------------- integers
BYTES = (np.uint8, np.int8)


def random_bytes(dtype: type, *shape: int) -> Array:
    limits = np.iinfo(dtype)
    return np.random.default_rng(0).integers(limits.min, limits.max, shape, endpoint=True).astype(
        dtype)


@pytest.mark.parametrize("size", [8, 16, 17, 32, 64])
def test_sums_of_products_of_bytes(size: int) -> None:
    """Of a row with a column: LLVM made `vpdpbusd` of it, and added up part of its lanes."""
    pairs = list(product(BYTES, repeat=2))
    rows = [random_bytes(p[0], 1, size) for p in pairs]
    columns = [random_bytes(p[1], size, 1)[::-1].copy() for p in pairs]
    infos = [value_info(f"{n}{k}", a.dtype, a.shape)
             for n, arrays in (("a", rows), ("b", columns)) for k, a in enumerate(arrays)]
    nodes = [node("MatMulInteger", f"a{k} b{k}", f"y{k}") for k in range(len(pairs))]
    model = make_model(nodes, infos, [f"y{k}" for k in range(len(pairs))])
    for found, a, b in zip(run(model, rows + columns), rows, columns, strict=True):
        np.testing.assert_array_equal(found, a.astype(np.int32) @ b.astype(np.int32))


@pytest.mark.parametrize("size", [8, 16, 32, 64])
@pytest.mark.parametrize("dtype", BYTES)
def test_sums_of_differences_of_bytes(dtype: type, size: int) -> None:
    """The same with `psadbw`."""
    a, b = random_bytes(dtype, size), random_bytes(dtype, size)[::-1].copy()
    int32 = helper.np_dtype_to_tensor_dtype(np.dtype(np.int32))
    nodes = [helper.make_node("Cast", ["a"], ["p"], to=int32),
             helper.make_node("Cast", ["b"], ["q"], to=int32), node("Sub", "p q", "d"),
             node("Abs", "d", "m"), helper.make_node("ReduceSum", ["m"], ["y"], keepdims=0)]
    model = make_model(nodes, [value_info("a", dtype, [size]), value_info("b", dtype, [size])],
                       ["y"])
    [found] = run(model, [a, b])
    assert found == np.abs(a.astype(np.int32) - b.astype(np.int32)).sum()


# ---------------------------------------------------------------------- sizes
SYMBOLS = Symbol.size("n"), Symbol.size("m")
N, M = map(Expr.symbol, SYMBOLS)


@pytest.mark.parametrize("expr", [
    -maximum(-1, N - 5) - 1, maximum(-3, N - 5) + 1, minimum(N, -1) - 1, (N - 5) // 2 + 1,
    N * (M - 1) + 1, N + M + 1, -N - 1, maximum(N - 9, M) + 1, (N - 9) % 4 + 1])
def test_a_sign_is_that_of_every_size(expr: Expr) -> None:
    """max(-1, n - 5) counted as a size, and so as no less than 0."""
    signs = {int(np.sign(expr.evaluate(dict(zip(SYMBOLS, sizes, strict=True)))))
             for sizes in product(range(12), repeat=2)}
    told = certain_sign(expr)
    assert told is None or signs == {told}


def test_slices_far_beyond_a_dim() -> None:
    """x[-1:-2^30:-1] has the size of x for all sizes that anybody has."""
    bounds = {"start": [-1], "end": [-2**30], "axes": [0], "step": [-1]}
    model = make_model([node("Slice", "x start end axes step", "r"), node("Sub", "r x", "y")],
                       [value_info("x", np.float32, ["n"])], ["y"],
                       {k: np.array(v) for k, v in bounds.items()})
    np.testing.assert_array_equal(run(model, [np.arange(4, dtype="f")])[0], [3, 1, -1, -3])


@pytest.mark.parametrize("back", [0, 1])
def test_a_scan_over_nothing(back: int) -> None:
    """Its body took an entry of what has none, and was refused."""
    info = value_info("x", np.float32, [0, 3])
    start = value_info("s", np.float32, [3])
    body = helper.make_graph(
        [node("Add", "a r", "b"), node("Neg", "b", "c")], "body",
        [value_info(n, np.float32, [3]) for n in "ar"],
        [value_info(n, np.float32, [3]) for n in "bc"])
    scan = helper.make_node("Scan", ["s", "x"], ["y", "z"], body=body, num_scan_inputs=1,
                            scan_input_directions=[back])
    model = make_model([scan], [start, info], ["y", "z"])
    last, stacked = run(model, [np.arange(3, dtype="f"), np.zeros((0, 3), "f")])
    np.testing.assert_array_equal(last, np.arange(3))
    assert stacked.shape == (0, 3)


@pytest.mark.parametrize(("name", "gates"), [("RNN", 1), ("GRU", 3)])
def test_a_layer_over_no_steps(name: str, gates: int) -> None:
    weights = {"w": np.ones((1, 2 * gates, 3), "f"), "r": np.ones((1, 2 * gates, 2), "f")}
    layer = helper.make_node(name, ["x", "w", "r"], ["y", "h"], hidden_size=2)
    model = make_model([layer], [value_info("x", np.float32, [0, 4, 3])], ["y", "h"], weights)
    every, last = run(model, [np.zeros((0, 4, 3), "f")])
    assert every.shape == (0, 1, 4, 2)
    np.testing.assert_array_equal(last, np.zeros((1, 4, 2)))


# ---------------------------------------------------------------------- schedules
@pytest.mark.parametrize("axis", [1, 2, 3])
def test_rows_that_a_chain_of_products_sums_over(axis: int) -> None:
    """Between them a softmax of an axis that is rows of one: its loop was around that of lanes."""
    random = np.random.default_rng(0)
    weights = {"a": random.standard_normal((1, 33, 16, 16)).astype(np.float16),
               "w": random.standard_normal((7, 3)).astype(np.float16)}
    nodes = [node("MatMul", "a x", "p"), helper.make_node("Softmax", ["p"], ["s"], axis=axis),
             node("MatMul", "s w", "q"), node("Relu", "q", "y")]
    model = make_model(nodes, [value_info("x", np.float16, [16, 7])], ["y"], weights)
    x = random.standard_normal((16, 7)).astype(np.float16)
    [wanted] = run(model, [x], "reference")
    np.testing.assert_allclose(run(model, [x])[0].astype("f"), wanted.astype("f"), atol=4e-3)


@pytest.mark.parametrize("size", [1, 5, 40])
def test_a_reduction_with_two_results(size: int, tmp_path: Path) -> None:
    """Only the first of them was stored."""
    path = tmp_path / "two.mlir"
    path.write_text(f"""builtin.module {{
      strata.func @main(%x: f32[6, {size}]) -> (f32[6], f32[6]) inputs ["x"] outputs ["s", "m"] {{
        %s, %m = loop.nest (i0: 6, reduce i1: {size}) ins(%x[i0, i1])
            outs(add f32[6][i0], max f32[6][i0]) {{
        ^bb0(%a: f32):
          %b = arith.mulf %a, %a : f32
          loop.yield %b, %a
        }}
        strata.return %s, %m
      }}
    }}""", encoding="utf-8")
    x = np.random.default_rng(0).standard_normal((6, size)).astype("f")
    squares, largest = compiler.compile(path, cache="off", threads=1)(x)
    np.testing.assert_allclose(squares, (x * x).sum(1), rtol=1e-5)
    np.testing.assert_array_equal(largest, x.max(1))
