"""`--passes "default,without(X)"` for every X of the pipeline: right numbers, or a refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper, numpy_helper

import compiler
from compiler.diagnostics import StrataError
from compiler.frontend import MemoryModel
from compiler.pipeline.passes_option import DEFAULT
from compiler.pipeline.steps import PIPELINE
from dialects.strata.types import Array
from tests.models import tiny_bert, tiny_cnn, tiny_lstm

Model = tuple[onnx.ModelProto, dict[str, Array]]
NEEDED = sorted({s.name for s in PIPELINE if s.needed})
OPTIONAL = list(dict.fromkeys(s.name for s in PIPELINE if not s.needed))
RNG = np.random.default_rng(0)


def numbers(*shape: int, dtype: Any = np.float32) -> Array:
    return RNG.standard_normal(shape).astype(dtype)


def parsed(text: str, **inputs: Array) -> Model:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{text}'), inputs


def built(
    nodes: list[onnx.NodeProto], inputs: dict[str, tuple[Array, list[int | str]]],
    outputs: list[str], constants: dict[str, Any], opset: int = 17,
) -> Model:
    infos = [helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(array.dtype), shape)
        for name, (array, shape) in inputs.items()]
    graph = helper.make_graph(
        nodes, "g", infos, [onnx.ValueInfoProto(name=o) for o in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return model, {name: array for name, (array, _) in inputs.items()}


def small() -> Model:
    """Few nodes with something for most passes: a product, softmax, sums, a view, constants."""
    return parsed("""
        g (float[n, 6] x, float[3, 1, 6] b) => (y, s, k) {
            w = Constant<value_floats = [1.0, -2.0, 0.5, 3.0, 0.25, -1.0]>()
            shape = Constant<value_ints = [6, 1]>()
            column = Reshape(w, shape)
            wide = Mul(column, w)
            h = MatMul(x, wide)
            all = Add(h, b)
            y = Softmax(all)
            s = ReduceSum<keepdims = 0>(y)
            k = Transpose(y)
        }""", x=numbers(5, 6), b=numbers(3, 1, 6))


def halves() -> Model:
    x = numbers(7, 32, dtype=np.float16)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Gelu", ["h"], ["y"]),
             helper.make_node("LayerNormalization", ["y", "s", "b"], ["z"])]
    return built(nodes, {"x": (x, ["n", 32])}, ["z"], {
        "w": numbers(32, 24, dtype=np.float16), "s": numbers(24, dtype=np.float16),
        "b": numbers(24, dtype=np.float16)}, opset=20)


def quantized() -> Model:
    def node(op_type: str, *names: str) -> onnx.NodeProto:
        return helper.make_node(op_type, names[:-1], names[-1:])

    nodes = [node("QuantizeLinear", "x", "s", "z", "q"),
             node("DequantizeLinear", "q", "s", "z", "d"),
             node("DequantizeLinear", "wq", "ws", "wz", "w"), node("MatMul", "d", "w", "m"),
             node("Relu", "m", "r"), node("QuantizeLinear", "r", "s", "z", "rq"),
             node("DequantizeLinear", "rq", "s", "z", "y")]
    return built(nodes, {"x": (numbers(5, 40), ["n", 40])}, ["y"], {
        "s": np.float32(0.05), "z": np.uint8(120), "ws": np.float32(0.01), "wz": np.int8(0),
        "wq": RNG.integers(-127, 127, (40, 16)).astype(np.int8)})


def attention() -> Model:
    nodes = [helper.make_node("MatMul", ["q", "k"], ["a"]),
             helper.make_node("Mul", ["a", "c"], ["b"]), helper.make_node("Softmax", ["b"], ["p"]),
             helper.make_node("MatMul", ["p", "v"], ["y"])]
    shapes = {"q": [2, 4, 33, 16], "k": [2, 4, 16, 33], "v": [2, 4, 33, 16]}
    return built(nodes, {n: (numbers(*shape), list(shape)) for n, shape in shapes.items()}, ["y"],
                 {"c": np.float32(0.25)})


def branches() -> Model:
    return parsed("""
        g (float[n, m] x, bool c) => (v, i, y) {
            k = Constant<value_ints = [3]>()
            v, i = TopK(x, k)
            s = ReduceSum<keepdims = 0>(x)
            y = If(c) <then_branch = t () => (a) { a = Softmax(x) },
                       else_branch = e () => (b) { b = Add(x, s) }>
        }""", x=numbers(4, 9), c=np.array(True))


def scatters() -> Model:
    return parsed("""
        g (float[n, m] x, int64[k, 1] i, float[k, m] u) => (y, z) {
            y = ScatterND(x, i, u)
            places = NonZero(x)
            z = Transpose(places)
        }""", x=numbers(4, 9), i=np.array([[0], [2]]), u=numbers(2, 9))


def long_rows() -> Model:
    return built([helper.make_node("Softmax", ["x"], ["y"]), helper.make_node(
        "ReduceSum", ["y"], ["z"], keepdims=0), helper.make_node("CumSum", ["x", "one"], ["c"])],
        {"x": (numbers(3, 5000), [3, 5000])}, ["y", "z", "c"], {"one": np.array(1)})


def whole(tiny: Any, is_open: bool = False) -> Callable[[], Model]:
    return lambda: (tiny.make_model(tiny.OPEN if is_open else tiny.CASES[0]),
                    tiny.make_inputs(tiny.CASES[0]))


MODELS: dict[str, Callable[[], Model]] = {
    "small": small, "halves": halves, "quantized": quantized, "attention": attention,
    "branches": branches, "scatters": scatters, "long-rows": long_rows,
    **{f"{tiny.__name__.rpartition('.')[2]}{'-open' * is_open}": whole(tiny, is_open)
       for tiny in (tiny_bert, tiny_cnn, tiny_lstm) for is_open in (False, True)},
}


def run(name: str, target: str, passes: str = DEFAULT) -> list[Array]:
    model, inputs = MODELS[name]()
    memory = MemoryModel(f"{name}.onnx", model.SerializeToString())
    return compiler.compile(memory, target=target, cache="off", passes=passes,
                            interpret=target == "cuda")(**inputs)


def check(name: str, target: str) -> None:
    """Whatever may be left out, the numbers stay what rounding leaves of them."""
    RNG.bit_generator.state = np.random.default_rng(0).bit_generator.state
    expected = run(name, target)
    for left_out in OPTIONAL:
        RNG.bit_generator.state = np.random.default_rng(0).bit_generator.state
        for got, want in zip(run(name, target, f"default,without({left_out})"), expected,
                             strict=True):
            assert (got.shape, got.dtype) == (want.shape, want.dtype), left_out
            tolerance = 5e-3 if want.dtype == np.float16 else 1e-4
            assert np.isfinite(got).all(), left_out
            np.testing.assert_allclose(
                got.astype(np.float64), want.astype(np.float64), rtol=tolerance,
                atol=tolerance * np.abs(want).max(), err_msg=left_out)


def test_every_optional_pass_may_be_left_out() -> None:
    check("small", "cpu")


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in MODELS if n != "small"])
def test_every_optional_pass_may_be_left_out_of(name: str) -> None:
    check(name, "cpu")


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_optional_pass_may_be_left_out_for_cuda(name: str) -> None:
    """As far as the interpreter of kernels, which runs the smaller ones; all compile."""
    pytest.importorskip("triton")
    check(name, "cuda")


@pytest.mark.parametrize("left_out", NEEDED)
@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_what_is_needed_is_refused_before_the_model_is_read(left_out: str, target: str) -> None:
    """The file that is named does not exist."""
    with pytest.raises(StrataError, match=f"{left_out}: .*\n.*\n.*end with --to ") as caught:
        compiler.compile("no-such-file.onnx", target=target, passes=f"default,without({left_out})")
    assert caught.value.exit_status == 2


def test_what_is_needed_later_may_be_left_out_before() -> None:
    """Nests without kernels are of the loop level; a pass of one's own may take another's place."""
    from compiler.pipeline.plan import plan
    from compiler.plugins.plugin_files import load_plugins

    plugins = load_plugins(())
    kinds = {s.name: s.level for s in PIPELINE if s.needed}
    for name in ("loop-outline", "loop-schedule", "graph-decompose"):
        found = plan(f"default,without({name})", "graph", (), None, kinds[name], plugins)
        assert name not in {item.step.name for item in found}
    plan("default,without(loop-outline)", "loop", ("loop-outline",), None, None, plugins)
    own = 'after(loop-lift-constants)=loop-apply-schedules{file="x"}'
    plan(f"default,without(loop-schedule),{own}", "graph", (), None, None, plugins)


