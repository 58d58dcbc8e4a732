"""What is undefined is the same on the CPU and on the reference target: values, or a refusal.

Inputs are NaN, infinities, zeros of both signs, numbers that no integer holds, the ends of every
integer type, and shifts by more than its bits. Operators that add or multiply many numbers get
none that overflow, because the order in which they combine them decides what comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

import compiler
import dialects.graph as g
from compiler.frontend import MemoryModel
from dialects.graph.base import ShapeError
from dialects.graph.interpret import EvaluationError, evaluate_func
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.func import main_function
from dialects.strata.types import Array
from passes.base import PassError
from targets.base import TargetOptions, find_target
from tests.frontend.onnx_models import C, Op, f, i32, i64, make_model, model_of, op, value_info
from tests.frontend.operators.test_onnx_operators import ALL
from tests.lowering import lower
from tests.numerics.test_edge_values import INDEXED, difference, is_float
from tests.op_samples.graph_samples import SAMPLES, Sample, build_module

CPU, OPTIONS = find_target("cpu"), TargetOptions(threads=1, denormals="keep")
FLOATS = (np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, 1.5, -2.5, 1e-3, -129.0, 300.0)
LARGE = (2.0**31, -2.0**31, 2.0**32, 2.0**63, -2.0**63, 2.0**64, 1e30, -1e30)
COMBINED = ("conv", "matmul", "cumulative", "pool", "reduce", "norm", "resize", "softmax", "dft",
            "attention", "lstm", "gru", "rnn", "stft", "gemm", "einsum", "grid", "roi", "upsample",
            "lrn", "mean", "sum", "deform", "col2im", "det", "interpolat", "scatter", "affine")
"""Words in the names of operators that combine several numbers."""
UNORDERED = (g.SearchSortedOp,)
"""What they give depends on an order that numbers put in anywhere do not have."""
POWERS = (g.PowOp,)
"""Powers beyond 64 bits are any number, here as in onnxruntime."""
DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


# ---------------------------------------------------------------------- inputs
def ends(dtype: np.dtype[Any], combined: bool) -> Array:
    """The numbers of a type at which operators differ, if they do anywhere."""
    if dtype == np.bool_:
        return np.array([False, True])
    if is_float(dtype):
        info = cast(Any, ml_dtypes).finfo(dtype)
        numbers = FLOATS if combined else (*FLOATS, *LARGE, float(info.max), -float(info.max))
        with np.errstate(all="ignore"):
            return np.array(numbers).astype(dtype)
    low, high = (int(n) for n in (cast(Any, ml_dtypes).iinfo(dtype).min,
                                  cast(Any, ml_dtypes).iinfo(dtype).max))
    small = {0, 1, 2, 3, 8, 16, 31, 32, 33, 63, 64, 65, -1, -2, -8, -64}
    return np.array(sorted(n for n in {*small, low, low + 1, high, high - 1} if low <= n <= high),
                    np.uint64 if low == 0 else np.int64).astype(dtype)


def edged(array: Array, rng: np.random.Generator, combined: bool, part: float) -> Array:
    """The array with such numbers at a part of its places."""
    chosen = rng.choice(ends(array.dtype, combined), array.shape)
    return np.where(rng.random(array.shape) < part, chosen, array).astype(array.dtype)


def combines(name: str) -> bool:
    return any(word in name.lower() for word in COMBINED)


# ---------------------------------------------------------------------- outcomes
def outcome(compute: Callable[[], Sequence[Any]]) -> Sequence[Array] | str:
    """Arrays, or what an error says."""
    with np.errstate(all="ignore"):
        try:
            return [np.asarray(a) for a in compute()]
        except (EvaluationError, ValueError, IndexError, compiler.StrataError) as error:
            return f"{type(error).__name__}: {error}"


def compared(got: Sequence[Array] | str, want: Sequence[Array] | str, tolerance: float) -> str:
    """How the outcomes differ; empty if they do not."""
    if isinstance(got, str) or isinstance(want, str):
        both = isinstance(got, str) and isinstance(want, str)
        return "" if both else f"the CPU gives {got!s:.300}, the reference {want!s:.300}"
    for k, (a, b) in enumerate(zip(got, want, strict=True)):
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            return f"result {k}: {a.dtype}{a.shape}, not {b.dtype}{b.shape}"
        if text := difference(a, b):
            return f"result {k} {text}"
        if is_float(a.dtype):
            x, y = a.astype(np.float64), b.astype(np.float64)
            near = np.isclose(x, y, tolerance, tolerance, equal_nan=True)
            if not near.all():
                return f"result {k}: {x[~near][0]}, not {y[~near][0]}"
    return ""


# ---------------------------------------------------------------------- graph operations
def variants(sample: Sample) -> Iterator[Sample]:
    """The sample, and the same on every type of integers that its operator takes."""
    yield sample
    for dtype in DTYPES:
        operands = tuple(np.zeros(o.shape, dtype) if np.dtype(o.dtype).kind == "f" else o
                         for o in sample.operands)
        other = replace(sample, operands=operands)
        unchanged = all(a is b for a, b in zip(operands, sample.operands, strict=True))
        if unchanged or sample.op in INDEXED:
            continue
        try:
            build_module(other, False)
        except (ShapeError, ValueError, TypeError, KeyError, AssertionError):
            continue
        yield other


def disagreement(sample: Sample, seed: int) -> str:
    """How the two targets differ on a graph operation."""
    module, arrays, context = build_module(sample, False)
    rng, combined = np.random.default_rng(seed), combines(sample.op.name)
    inputs = [a if sample.op in INDEXED and a.dtype.kind in "iu" else
              edged(np.array(a), rng, combined, (0.3, 0.05)[seed]) for a in arrays]
    want = outcome(lambda: evaluate_func(main_function(module), inputs,
                                         EvaluationContext(weights=context.weights)))
    strata = CPU.bind(OPTIONS).context(context.weights)
    try:
        list(lower(module, strata))
    except PassError:
        return ""
    loaded = CPU.bind(OPTIONS).running.load(module, strata.weights)
    return compared(outcome(lambda: loaded.run(inputs)), want,
                    max(20 * (sample.tolerance or 2e-5), 1e-3 if combined else 1e-4))


def found(sample: Sample, every_type: bool) -> list[str]:
    if sample.op in UNORDERED:
        return []
    cases = variants(sample) if every_type else [sample]
    told = [(other.label, seed, disagreement(other, seed)) for other in cases for seed in (0, 1)
            if not (sample.op in POWERS and np.dtype(other.operands[0].dtype).kind in "iu")]
    return [f"{label}, seed {seed}: {text}" for label, seed, text in told if text]


FIRST = list({s.op: s for s in reversed(SAMPLES) if s.operands}.values())
FEW = [s for s in FIRST if s.op in (g.DivOp, g.ModOp, g.ArgMaxOp, g.TopKOp, g.MaxPoolIndicesOp,
                                    g.CastOp, g.ShiftLeftOp, g.ShiftRightOp)]


@pytest.mark.parametrize("sample", FEW, ids=lambda s: s.label)
def test_a_few_operations(sample: Sample) -> None:
    assert found(sample, every_type=False) == []


@pytest.mark.slow
@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.operands], ids=[
    f"{k}-{s.label}" for k, s in enumerate(SAMPLES) if s.operands])
def test_all_operations(sample: Sample) -> None:
    assert found(sample, every_type=True) == []


# ---------------------------------------------------------------------- operators of ONNX
GRIDS = [op("GridSample", f(1, 2, 4, 5), f(1, 2, 3, 2), opsets=(20,), mode=mode,
            padding_mode=padding) for mode, padding in (
                ("linear", "zeros"), ("cubic", "border"), ("nearest", "reflection"))]
OWN = [*GRIDS, op("RoiAlign", f(1, 2, 5, 5), f(3, 4), C([0, 0, 0]), opsets=(16,)),
       op("MaxPool", f(1, 2, 6, 6), opsets=(13,), outputs=2, kernel_shape=[2, 2]),
       op("Cast", f(3, 9), to=6), op("Cast", f(3, 9), to=2), op("Cast", f(3, 9), to=13),
       op("Div", i32(4, 9), i32(4, 9)), op("Mod", i64(4, 9), i64(4, 9)),
       op("Gather", f(4, 3), i64(5)), op("ArgMax", f(4, 9), axis=1)]


def of_onnx(sample: Op) -> list[str]:
    model, inputs = model_of(sample, sample.opsets[-1], symbolic=False)
    memory = MemoryModel("model.onnx", model.SerializeToString())
    cpu = compiler.compile(memory, threads=1, denormals="keep", cache="off")
    reference = compiler.compile(memory, target="reference", cache="off")
    combined, told = combines(sample.op_type), list[str]()
    for seed, part in enumerate((0.3, 0.05, 1.0)):
        rng = np.random.default_rng(seed)
        given = {n: edged(np.asarray(a), rng, combined, part) for n, a in inputs.items()}
        told.append(compared(outcome(lambda g=given: cpu(**g)),
                             outcome(lambda g=given: reference(**g)),
                             max(20 * sample.tolerance, 1e-3 if combined else 1e-4)))
    return [text for text in told if text]


@pytest.mark.parametrize("sample", OWN, ids=[f"{k}-{s.op_type}" for k, s in enumerate(OWN)])
def test_a_few_operators_of_onnx(sample: Op) -> None:
    assert of_onnx(sample) == []


@pytest.mark.slow
@pytest.mark.parametrize("sample", ALL, ids=[f"{k}-{s.op_type}" for k, s in enumerate(ALL)])
def test_all_operators_of_onnx(sample: Op) -> None:
    if not model_of(sample, sample.opsets[-1], symbolic=False)[1]:
        pytest.skip("it has no inputs")
    assert of_onnx(sample) == []


# ---------------------------------------------------------------------- shifts
@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.uint64])
def test_shifts_by_more_than_the_bits(dtype: Any) -> None:
    for direction in ("LEFT", "RIGHT"):
        node = helper.make_node("BitShift", ["x", "y"], ["z"], direction=direction)
        infos = [value_info(n, dtype, ["n"]) for n in ("x", "y")]
        model = make_model([node], infos, ["z"], {}, 18)
        bits = np.iinfo(dtype).bits
        y = np.array([0, 1, bits - 1, bits, bits + 1, np.iinfo(dtype).max], dtype)
        x = np.full(y.shape, np.iinfo(dtype).max, dtype)
        cpu, reference = (compiler.compile(model, target=t, cache="off")(x, y)[0]
                          for t in ("cpu", "reference"))
        np.testing.assert_array_equal(cpu, reference)


# ---------------------------------------------------------------------- whole numbers
@pytest.mark.parametrize("last", ["Floor", "Ceil", "Round", "Cast", "Add"])
def test_whole_numbers_made_of_sums_with_products(last: str) -> None:
    """The last bit of a sum decides, so a product is rounded before it is added."""
    numbers = [value_info(name, np.float32, ["n"]) for name in ("x", "y", "z")]
    nodes = [helper.make_node("Mul", ["x", "y"], ["p"]), helper.make_node("Add", ["p", "z"], ["s"])]
    if last == "Add":  # a sum of sums, converted
        nodes += [helper.make_node("Add", ["s", "z"], ["d"]),
                  helper.make_node("Cast", ["d"], ["w"], to=onnx.TensorProto.INT32)]
    else:
        attributes: dict[str, Any] = {"to": onnx.TensorProto.INT64} if last == "Cast" else {}
        nodes.append(helper.make_node(last, ["s"], ["w"], **attributes))
    rng = np.random.default_rng(0)
    y = rng.integers(1, 50, 4000).astype(np.float32)
    x = rng.integers(1, 900, 4000).astype(np.float32) / y
    z = rng.integers(-9, 9, 4000) + np.float32(0.5 * (last == "Round"))
    model = make_model(nodes, numbers, ["w"], {}, 18)
    cpu, reference = (np.asarray(compiler.compile(model, target=t, cache="off")(
        x, y, z.astype(np.float32))[0]) for t in ("cpu", "reference"))
    np.testing.assert_array_equal(cpu, reference)
