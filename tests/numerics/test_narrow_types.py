"""Narrow floats and integers of less than a byte: every conversion, bit for bit.

The oracles are `ml_dtypes` and ONNX's own definition of Cast. Numbers are converted as the graph
says, by the arithmetic on bits that the block level does instead, and in machine code.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from xdsl.ir import Attribute
from xdsl.parser import Parser
from xdsl.printer import Printer

import dialects.graph as g
from dialects.context import make_context
from dialects.graph.base import ShapeError
from dialects.strata import types as t
from dialects.strata.types import Array
from dialects.strata.weights import WeightStore
from targets.base import TargetOptions, find_target
from targets.cuda.build.interpreter import Interpreter
from targets.reference.interpret import interpret
from tests.lowering import lower
from tests.op_samples.graph_narrow import codes, onnx_cast
from tests.op_samples.sample import S, Sample, build_module

FLOATS = tuple(t.NARROW_FLOATS)
SIGNED = tuple(e for e in FLOATS if e != t.f8E8M0FNU)
FINITE = (t.f4E2M1FN, t.f6E2M3FN, t.f6E3M2FN)
"""Formats without NaN."""
SHORT = (t.i2, t.i4, t.ui2, t.ui4)
CPU, CUDA = find_target("cpu"), find_target("cuda")

each_float = pytest.mark.parametrize("element", FLOATS, ids=str)
each_signed = pytest.mark.parametrize("element", SIGNED, ids=str)
each_short = pytest.mark.parametrize("element", SHORT, ids=str)


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("objects")


@np.errstate(all="ignore")
def numbers(element: Attribute) -> Array:
    """f32 numbers: all of f16; all of the type, what lies halfway, and their neighbours; extremes.

    None is subnormal, for the CPU target takes such for zeros.
    """
    own = np.sort(codes(element).astype(np.float32))
    own = own[np.isfinite(own)]
    halfway = (own[1:] + own[:-1]) / 2
    beyond = np.array([1.5, 2.0, 1e30]) * t.largest(element)
    extremes = [np.inf, np.nan, np.float32(1e-38), np.finfo(np.float32).max, 0.0]
    found = np.concatenate([own, halfway, beyond, extremes]).astype(np.float32)
    found = np.concatenate([found, np.nextafter(found, np.float32(np.inf)),
                            np.nextafter(found, np.float32(-np.inf))])
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    every = np.concatenate([found, -found, halves])
    return every[~(np.abs(every) < np.finfo(np.float32).tiny) | (every == 0)]


def results(sample: Sample, objects: Path) -> Iterator[tuple[str, Array]]:
    """What a sample computes, as a graph, on blocks without narrow conversions, natively."""
    module, inputs, context = build_module(sample, symbolic=False)
    with np.errstate(all="ignore"):
        yield "graph", interpret(module, context.weights, inputs)[0]
        options = TargetOptions(cache=objects)
        list(lower(module, CPU.bind(options).context(context.weights)))
        yield "block", interpret(module, context.weights, inputs)[0]
    yield "native", CPU.bind(options).running.load(module, context.weights).run(inputs)[0]


def assert_bits(got: Array, want: Array, where: str) -> None:
    """Equal bits; any NaN equals any other."""
    assert got.dtype == want.dtype, where
    bits = f"u{got.itemsize}"
    with np.errstate(invalid="ignore"):
        same = (got.view(bits) == want.view(bits)) | (np.isnan(got) & np.isnan(want))
    assert same.all(), f"{where}: {got[~same][:9]} instead of {want[~same][:9]}"


# ---------------------------------------------------------------------- from and to floats
@each_float
@pytest.mark.parametrize("to", [t.f32, t.f16, t.f64], ids=str)
def test_every_code_is_decoded(element: Attribute, to: Attribute, objects: Path) -> None:
    through = element == t.f8E8M0FNU and to == t.f64  # 2^-127 is no normal f32
    every = codes(element)[int(through):]
    with np.errstate(all="ignore"):
        want = every.astype(np.float32).astype(t.dtype_of(to))
    for where, got in results(S(g.CastOp, every, to=to), objects):
        assert_bits(got, want, where)


@each_float
def test_numbers_are_rounded_to_even(element: Attribute, objects: Path) -> None:
    x = numbers(element)
    x = x if element not in FINITE else x[~np.isnan(x)]  # whose NaN is a zero of either sign
    with np.errstate(all="ignore"):
        want = x.astype(t.dtype_of(element))
    for where, got in results(S(g.CastOp, x, to=element), objects):
        assert_bits(got, want, where)


@each_signed
def test_saturation_is_that_of_onnx(element: Attribute, objects: Path) -> None:
    x = numbers(element)
    x = x if element not in FINITE else x[~np.isnan(x)]
    [want] = onnx_cast(element, True)(x)
    for where, got in results(S(g.CastOp, x, to=element, saturate=True), objects):
        assert_bits(got, want, where)


@pytest.mark.parametrize("saturate", [True, None], ids=["saturate", "overflow"])
@pytest.mark.parametrize("rounding", ["up", "down", "nearest"])
def test_powers_of_two_are_those_of_onnx(
    rounding: str, saturate: bool | None, objects: Path
) -> None:
    x = numbers(t.f8E8M0FNU)
    x = x[np.isfinite(x) & (x != 0)]
    [want] = onnx_cast(t.f8E8M0FNU, bool(saturate), rounding)(x)
    sample = S(g.CastOp, x, to=t.f8E8M0FNU, saturate=saturate, round=rounding)
    for where, got in results(sample, objects):
        assert_bits(got, want, where)


def test_powers_of_two_beyond_the_largest_and_the_smallest(objects: Path) -> None:
    """As ONNX's table of Cast to FLOAT8E8M0 says."""
    x = np.array([0.0, np.inf, np.nan, 3e38, 2.0**-127, 2.0**-130], np.float32)
    for rounding in ("up", "down", "nearest"):
        sample = S(g.CastOp, x[:4], to=t.f8E8M0FNU, saturate=True, round=rounding)
        for where, got in results(sample, objects):
            np.testing.assert_array_equal(got.view(np.uint8), [0, 254, 255, 254], where)
        sample = S(g.CastOp, x, to=t.f8E8M0FNU, saturate=True, round=rounding)
        subnormal = [found for where, found in results(sample, objects) if where != "native"]
        assert all((found.view(np.uint8)[4:] == 0).all() for found in subnormal)


def test_f64_goes_through_f32(objects: Path) -> None:
    x = np.array([1.0625 + 2.0**-40, 1.0625, -1.0, 1e300, np.nan])
    with np.errstate(all="ignore"):
        want = x.astype(np.float32).astype(t.dtype_of(t.f8E4M3FN))
    for where, got in results(S(g.CastOp, x, to=t.f8E4M3FN), objects):
        assert_bits(got, want, where)


@pytest.mark.slow
@each_float
def test_triton_converts_the_same(element: Attribute) -> None:
    pytest.importorskip("triton")
    from dialects.host.interpret import interpret_host

    interpreter = Interpreter()
    for x, to in ((codes(element), t.f32), (numbers(element), element)):
        module, inputs, context = build_module(S(g.CastOp, x, to=to), symbolic=False)
        [want] = interpret(module, context.weights, inputs)
        options = TargetOptions(interpret=True)
        list(lower(module, CUDA.bind(options).context(context.weights)))
        [got] = interpret_host(module, inputs, context.weights, interpreter.run)
        np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))


@pytest.mark.parametrize(("features", "is_native"), [("sm_80", False), ("sm_90", True)])
def test_triton_decodes_by_itself_where_the_gpu_can(features: str, is_native: bool) -> None:
    sample = S(g.CastOp, codes(t.f8E4M3FN), to=t.f32)
    module, _, context = build_module(sample, symbolic=False)
    options = TargetOptions(features=features)
    list(lower(module, CUDA.bind(options).context(context.weights)))
    assert ("tl.float8e4nv" in CUDA.bind(options).emission.emit(module, "triton")) == is_native


@pytest.mark.parametrize(("features", "is_native"), [("sm_80", False), ("sm_90", True)])
def test_triton_encodes_by_itself_where_the_gpu_can(features: str, is_native: bool) -> None:
    """Where it does, there is no arithmetic on bits."""
    pytest.importorskip("triton")
    sample = S(g.CastOp, numbers(t.f8E4M3FN), to=t.f8E4M3FN)
    module, _, context = build_module(sample, symbolic=False)
    options = TargetOptions(features=features)
    list(lower(module, CUDA.bind(options).context(context.weights)))
    source = CUDA.bind(options).emission.emit(module, "triton")
    assert ("tl.float8e4nv" in source) == is_native == (">>" not in source)
    assembly = CUDA.bind(options).emission.emit(module, "ptx")
    assert ("cvt.rn.satfinite.e4m3x2.f32" in assembly) == is_native


@pytest.mark.gpu
@each_float
def test_a_gpu_converts_the_same(element: Attribute) -> None:
    for x, to in ((codes(element), t.f32), (numbers(element), element)):
        module, inputs, context = build_module(S(g.CastOp, x, to=to), symbolic=False)
        [want] = interpret(module, context.weights, inputs)
        options = TargetOptions()
        list(lower(module, CUDA.bind(options).context(context.weights)))
        [got] = CUDA.bind(options).running.load(module, context.weights).run(inputs)
        np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))


# ---------------------------------------------------------------------- short integers
@each_short
@pytest.mark.parametrize("to", [t.i8, t.ui8, t.i32, t.ui64, t.f32, t.f16, t.i1], ids=str)
def test_every_short_integer_is_widened(element: Attribute, to: Attribute, objects: Path) -> None:
    every = np.arange(256, dtype=np.uint8)  # the other bits of a byte do not count
    want = codes(element).astype(np.int8).astype(t.dtype_of(to))
    want = np.tile(want, 256 // len(want))
    for where, got in results(S(g.CastOp, every.view(t.dtype_of(element)), to=to), objects):
        np.testing.assert_array_equal(got, want, where)


@each_short
@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint16, np.int64, np.float32], ids=str)
def test_short_integers_keep_low_bits(element: Attribute, dtype: type, objects: Path) -> None:
    x = np.arange(0 if dtype is np.uint16 else -99, 99).astype(dtype)
    want = x.astype(t.dtype_of(element))
    for where, got in results(S(g.CastOp, x, to=element), objects):
        np.testing.assert_array_equal(got.view(np.uint8), want.view(np.uint8), where)


# ---------------------------------------------------------------------- types
@pytest.mark.parametrize("element", t.ELEMENTS, ids=str)
def test_text_names_every_element(element: Attribute) -> None:
    context = make_context()
    for type_ in (t.tensor(element, (2, 3)), t.tile(element, (4, 8), 1)):
        assert Parser(context, _written(type_)).parse_type() == type_


def _written(type_: Attribute) -> str:
    """As a type is printed where any type may stand."""
    out = StringIO()
    Printer(out).print_attribute(type_)
    return out.getvalue()


def test_elements_take_whole_bytes() -> None:
    assert {t.byte_width(e) for e in (*FLOATS, *SHORT)} == {1}
    assert t.tensor(t.i4, (3, 5)).byte_size.constant == 15
    assert [t.bit_width(e) for e in (t.i1, t.i2, t.ui4, t.f4E2M1FN, t.f8E5M2, t.index)] == [
        1, 2, 4, 4, 8, 64]


@pytest.mark.parametrize("element", t.ELEMENTS, ids=str)
def test_weights_are_kept_in_files(element: Attribute, tmp_path: Path) -> None:
    store = WeightStore()
    array = np.arange(3).astype(t.dtype_of(element))
    handle = store.add("w", array)
    store.save(tmp_path / "w.npz")
    kept = WeightStore.load(tmp_path / "w.npz").get(handle)
    assert kept.dtype == array.dtype and kept.tobytes() == array.tobytes()


@pytest.mark.parametrize("element", [t.i4, t.f8E4M3FN], ids=str)
def test_nothing_is_computed_with_them(element: Attribute) -> None:
    x = g.ConstantOp.of_array(np.zeros(3, t.dtype_of(element)), WeightStore(), "x")
    with pytest.raises(ShapeError, match=r"only moved and converted: cast it first"):
        g.AddOp.of(x, x)


@pytest.mark.parametrize(("attributes", "fault"), [
    ({"to": t.f16, "saturate": True}, r"C2: only narrow floats saturate, not f16"),
    ({"to": t.f8E4M3FN, "round": "up"}, r"C3: 'up' is not a rounding mode of f8E4M3FN"),
    ({"to": t.f8E8M0FNU, "round": "away"}, r"C3: 'away' is not a rounding mode"),
])
def test_casts_that_make_no_sense(attributes: dict[str, object], fault: str) -> None:
    x = g.ConstantOp.of_array(np.zeros(3, np.float32), WeightStore(), "x")
    with pytest.raises(ShapeError, match=fault):
        g.CastOp.of(x, **attributes)
