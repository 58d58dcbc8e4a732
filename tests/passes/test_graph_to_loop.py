"""Nests compute what the operations they come from compute, with static and symbolic sizes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

import dialects.graph as g
from dialects.graph import collective
from dialects.graph.base import CompositeOp, GraphOp
from dialects.graph.dialect import Graph
from dialects.graph.foreign import ForeignKernelOp
from dialects.graph.interpret import evaluate_func
from dialects.loop import NestOp
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata import types as t
from dialects.strata.func import main_function
from dialects.strata.types import Array, LiteralAttr
from dialects.verifying import verify
from passes.base import PassError, StrataContext
from passes.graph_to_loop.rules import lowering_rules
from passes.registry import parse_passes
from tests.op_samples.graph_samples import SAMPLES, Sample, build_module
from tests.op_samples.sample import BF16, F16, F32, F64, I1, I8, I32, I64, U8, S
from tests.passes.harness import check_locations, parse

PASSES = "graph-decompose,graph-to-loop"


def _resize(mode: str, coordinates: str, nearest: str, scale: float, size: int = 6) -> Sample:
    shape = [2, int(size * scale), size]
    return S(g.ResizeOp, F32(2, size, size), dims="n 6 6", shape=shape, mode=mode,
             scales=LiteralAttr((1.0, scale, 1.0)), coordinates=coordinates, nearest=nearest)


RULES = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel",
               "half_pixel_symmetric")
LOWEST = np.array([-2**31, -2**31, -7, 7, -7, 0, 5], np.int32)
DIVISORS = np.array([-1, 0, 2, -2, -2, 0, 0], np.int32)

TRICKY: list[Sample] = [
    # groups with several channels in and out, one channel in, one channel out
    S(g.ConvOp, F32(2, 6, 5), F32(9, 2, 3), dims="n 6 h; 9 2 3", group=3, pads=[1, 1]),
    S(g.ConvOp, F32(2, 3, 5), F32(9, 1, 3), dims="n 3 h; 9 1 3", group=3, dilations=[2]),
    S(g.ConvOp, F32(2, 6, 5), F32(3, 2, 2), dims="n 6 h; 3 2 2", group=3, strides=[2]),
    S(g.ConvOp, F16(2, 4, 5), F16(4, 1, 3), F16(4), dims="n 4 h; 4 1 3; 4", group=4),
    # transposed: windows side by side in one dim only, depthwise, with gaps between windows
    S(g.ConvTransposeOp, F32(2, 4, 3, 3), F32(4, 1, 2, 2), dims="n 4 h w; 4 1 2 2", group=4,
      strides=[2, 2]),
    S(g.ConvTransposeOp, F32(1, 2, 3, 4), F32(2, 3, 2, 3), dims="n 2 h w; 2 3 2 3",
      strides=[2, 1], pads=[0, 1, 0, 1]),
    S(g.ConvTransposeOp, F32(1, 4, 3, 4), F32(4, 3, 2, 2), dims="n 4 h w; 4 3 2 2", group=2,
      strides=[3, 2], output_padding=[1, 1]),
    S(g.ConvTransposeOp, F32(1, 2, 5), F32(2, 3, 3), dims="n 2 h; 2 3 3", dilations=[2],
      strides=[3], pads=[1, 2], output_padding=[2]),
    *(S(g.AvgPoolOp, F32(1, 2, 9, 10), dims="n 2 h w", kernel=[3, 2], strides=[2, 3],
        dilations=[2, 1], pads=[1, 0, 2, 1], ceil_mode=ceil, count_include_pad=include)
      for ceil in (False, True) for include in (False, True)),
    S(g.MaxPoolOp, U8(1, 2, 9), dims="n 2 h", kernel=[3], strides=[2], pads=[1, 1],
      ceil_mode=True),
    S(g.MaxPoolOp, BF16(1, 2, 9), dims="n 2 h", kernel=[3], pads=[1, 1], dilations=[2]),
    *(S(g.PadOp, F32(4, 5), dims="n m", low=[3, 0], high=[2, 4], mode=mode, value=2.0)
      for mode in ("constant", "reflect", "edge", "wrap")),
    S(g.PadOp, I1(4), dims="n", low=[1], high=[2], mode="constant", value=1.0),
    S(g.PadOp, U8(4), dims="n", low=[1], high=[2], mode="constant", value=200.0),
    *(_resize("nearest", c, rule, scale) for c in COORDINATES for rule in RULES
      for scale in (3.0, 0.5, 1.5)),
    *(_resize(mode, c, "floor", scale) for mode in ("linear", "cubic") for c in COORDINATES
      for scale in (2.0, 0.7)),
    S(g.ResizeOp, F32(2, 4), dims="n m", shape=[6, 2], scales=LiteralAttr(()), mode="nearest",
      coordinates="asymmetric", nearest="floor"),
    S(g.ResizeOp, BF16(3, 4, 5), dims="n 4 5", shape=[3, 7, 9], scales=LiteralAttr(()),
      mode="linear", coordinates="half_pixel", nearest="floor"),
    *(S(op, LOWEST, DIVISORS, dims="n; n") for op in (g.DivOp, g.ModOp, g.FmodOp)),
    *(S(op, I8(40), I8(40), dims="n; n") for op in (g.DivOp, g.ModOp, g.FmodOp)),
    *(S(op, U8(40), U8(40, high=5), dims="n; n") for op in (g.DivOp, g.ModOp, g.FmodOp)),
    *(S(op, make(200), make(200), dims="n; n") for op in (g.ModOp, g.FmodOp)
      for make in (F32, F16, F64)),
    *(S(op, np.array([5, -5, 0, np.inf, 5, -6], np.float32),
        np.array([np.inf, np.inf, 3, 3, 0, 3], np.float32), dims="n; n")
      for op in (g.ModOp, g.FmodOp)),
    S(g.PowOp, np.array([3, -3, 2, -1, -1, 1, 0, 0, 2, -1], np.int64),
      np.array([39, 3, 62, 63, 100, -5, 0, 99, -1, -3], np.int64), dims="n; n"),
    S(g.ReduceMaxOp, U8(3, 5, high=255), dims="n 5", axes=[1], keepdims=True),
    S(g.ReduceMinOp, U8(3, 5, high=255), dims="n 5", axes=[0]),
    S(g.ReduceMaxOp, I1(3, 5), dims="n 5", axes=[0, 1]),
    S(g.ReduceMinOp, I1(3, 5), dims="n 5", axes=[1]),
    S(g.ReduceProdOp, BF16(3, 5), dims="n 5", axes=[1]),
    S(g.MatmulOp, I32(2, 1, 3, 4), I32(5, 4, 2), dims="n 1 3 4; 5 4 2"),
    S(g.MatmulOp, F32(4), F32(2, 4, 3), dims="4; n 4 3"),
    S(g.MatmulOp, F32(2, 3, 4), F32(4), dims="n 3 4; 4"),
    S(g.GatherOp, F32(4, 5), U8(3, high=4), dims="4 5; n", axis=0),
    S(g.ConcatOp, F32(2, 0), F32(2, 3), F32(2, 1), dims="n 0; n 3; n m", axis=1),
    S(g.CastOp, np.array([0, -0.0, np.nan, 1, 0.25], ml_dtypes.bfloat16), dims="n", to=t.i1),
]

COLLECTIVES = {op.name for op in Graph.operations if issubclass(op, collective.CollectiveOp)}
"""They remain, as operations between kernels."""

ALL = [*SAMPLES, *TRICKY]
each_sample = pytest.mark.parametrize(
    "sample", ALL, ids=[f"{k}-{s.label}" for k, s in enumerate(ALL)])


def lower(module: ModuleOp, context: EvaluationContext) -> StrataContext:
    strata = StrataContext.with_dialects(context.weights)
    for pass_ in parse_passes(PASSES):
        pass_.apply(strata, module)
    verify(module)
    left = {op.name for op in module.walk() if isinstance(op, GraphOp)}
    assert left <= {g.ConstantOp.name, *COLLECTIVES}
    return strata


def run(module: ModuleOp, inputs: list[Array], context: EvaluationContext) -> list[Array]:
    return evaluate_func(main_function(module), inputs, context)


def assert_same(actual: Array, expected: Array, tolerance: float) -> None:
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    if actual.dtype.kind in "biu":
        np.testing.assert_array_equal(actual, expected)
        return
    np.testing.assert_allclose(actual.astype(np.float64), expected.astype(np.float64),
                               rtol=tolerance, atol=tolerance)


@each_sample
@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
def test_nests_compute_what_the_operation_does(sample: Sample, symbolic: bool):
    module, inputs, context = build_module(sample, symbolic)
    expected = run(module, inputs, context)
    strata = lower(module, context)
    for actual, wanted in zip(run(module, inputs, context), expected, strict=True):
        assert_same(actual, wanted, sample.allowed(wanted.dtype))
    text = str(module)
    assert str(Parser(strata, text).parse_module()) == text


def test_every_operation_has_one_lowering():
    composites = {op for op in Graph.operations if issubclass(op, CompositeOp)}
    others = {op for op in Graph.operations if op.name in COLLECTIVES}
    rules = lowering_rules()
    assert rules.keys() - composites == {*Graph.operations} - composites - others - {
        g.ConstantOp, ForeignKernelOp}
    assert rules.keys() & composites == {g.ConvFilterGradientOp}, "that a target may claim"
    assert all(len(functions) == 1 for functions in rules.values())


# ---------------------------------------------------------------------- constants
def check(arguments: str, results: str, body: str, *inputs: Array) -> ModuleOp:
    """Lower a function of some operations, %r last; it must compute what it did. The module."""
    names = ", ".join(f'"{a.split(":")[0]}"' for a in arguments.split("%")[1:])
    text = (f"builtin.module {{ strata.func @main({arguments}) -> ({results}) inputs [{names}] "
            f"outputs [\"r\"] {{ {body} strata.return %r }} }}")
    context = StrataContext.with_dialects()
    module = parse(text, context)
    expected = run(module, list(inputs), EvaluationContext())
    strata = lower(module, EvaluationContext(weights=context.weights))
    check_locations(module)
    actual = run(module, list(inputs), EvaluationContext(weights=strata.weights))
    assert_same(actual[0], expected[0], 1e-6)
    return module


def nests(module: ModuleOp) -> list[NestOp]:
    return [op for op in module.walk() if isinstance(op, NestOp)]


def names_of(nest: NestOp) -> list[str]:
    return [op.name.split(".")[1] for op in nest.body.block.ops]


@pytest.mark.parametrize("exponent, names", [
    (2.0, ["mulf"]), (3.0, ["mulf", "mulf"]), (0.5, ["sqrt"]), (1.0, []),
    (-1.0, ["constant", "divf"]), (2.5, ["powf"])])
def test_powers_with_constant_exponents(exponent: float, names: list[str]):
    body = (f"%c = graph.constant {{value = literal[{exponent}]}} : f32[] "
            "%r = graph.pow %x, %c : f32[n]")
    [nest] = nests(check("%x: f32[n]", "f32[n]", body, np.array([0.5, 2, 3], np.float32)))
    assert names_of(nest) == ["constant", *names, "yield"]


@pytest.mark.parametrize("divisor", [3, -3, 0, -1, 1])
@pytest.mark.parametrize("op", ["div", "mod", "fmod"])
def test_division_by_a_constant(op: str, divisor: int):
    body = (f"%c = graph.constant {{value = literal[{divisor}]}} : i32[1] "
            f"%r = graph.{op} %x, %c : i32[n]")
    module = check("%x: i32[n]", "i32[n]", body, LOWEST)
    assert (names_of(nests(module)[0]).count("select") == 0) == (divisor not in (0, -1)
                                                                 and op != "mod")


GATHERS = [
    # indices, how many nests, the index in the last
    ("literal[2]} : i64[]", 1, "2"),
    ("literal[-1]} : i64[]", 1, "3"),
    ("literal[3, 0]} : i64[2]", 1, "in0"),
    ("literal[3, -4]} : i64[2]", 1, "in0"),
]


@pytest.mark.parametrize("indices, count, place", GATHERS)
def test_gather_by_constants(indices: str, count: int, place: str):
    shape = "2, 5" if "[2]" in indices and "i64[2]" in indices else "5"
    body = (f"%i = graph.constant {{value = {indices} "
            f"%r = graph.gather %x, %i {{axis = 0}} : f32[{shape}]")
    module = check("%x: f32[4, 5]", f"f32[{shape}]", body,
                   np.arange(20, dtype=np.float32).reshape(4, 5))
    found = nests(module)
    assert len(found) == count
    assert str(found[-1].input_maps[-1][0]) == place


def test_gather_by_constants_along_a_symbolic_dim():
    body = ("%i = graph.constant {value = literal[3, -1]} : i64[2] "
            "%r = graph.gather %x, %i {axis = 0} : f32[2]")
    module = check("%x: f32[n]", "f32[2]", body, np.arange(6, dtype=np.float32))
    assert len(nests(module)) == 2


def test_wrong_indices_stay_inside():
    module, _, context = build_module(
        S(g.GatherOp, F32(4), I64(3), dims="n; m", axis=0), symbolic=True)
    lower(module, context)
    x = np.arange(4, dtype=np.float32)
    [result] = run(module, [x, np.array([-9, 99, -1])], context)
    np.testing.assert_array_equal(result, [0, 3, 3])


def test_scalar_constants_are_written_into_the_body():
    body = ("%c = graph.constant {value = literal[0.1]} : f16[1, 1] "
            "%r = graph.mul %x, %c : f16[n, 2]")
    module = check("%x: f16[n, 2]", "f16[n, 2]", body, np.ones((3, 2), np.float16))
    [nest] = nests(module)
    assert len(nest.inputs) == 1
    assert names_of(nest) == ["constant", "extf", "mulf", "truncf", "yield"]


def test_sizes_become_selects():
    body = "%r = graph.sizes {values = [n, 2*m, 7], shape = [3], to = i32} : i32[3]"
    check("%x: f32[n, m]", "i32[3]", body, np.zeros((2, 3), np.float32))


# ---------------------------------------------------------------------- refusals
def test_a_composite_operation_must_be_decomposed_before():
    module, _, context = build_module(S(g.ReluOp, F32(3)), symbolic=False)
    [pass_] = parse_passes("graph-to-loop")
    with pytest.raises(PassError, match=r"graph.relu has no nest of its own; graph-decompose must"):
        pass_.apply(StrataContext.with_dialects(context.weights), module)
