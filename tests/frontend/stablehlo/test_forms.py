"""How a program may be written: its attributes, its generic form, and scans."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import compiler
from compiler.diagnostics import StrataError
from dialects.strata import types as t
from tests.op_samples.graph_narrow import codes


def results(path: Path, text: str, *inputs: Any, target: str = "reference") -> list[Any]:
    path.write_text(text)
    return list(compiler.compile(path, target=target, cache="off", threads=1)(*inputs))


ATTRIBUTES = (
    "unit", "affine_map<(d0, d1)[s0] -> (d0 + s0, d1 floordiv 2)>", "[i32, !stablehlo.token]",
    "affine_set<(d0) : (d0 - 3 >= 0, d0 == 0)>", "(tensor<2xcomplex<f32>>, i1) -> (f32)",
    'loc("model.py":3:7 to :9)', 'loc(callsite("f"("a\\"b.py":1:2) at fused<{k = 1}>[#loc1]))',
    "@outer::@inner", '"a, } ] text" : !other.type<"}">', "1 : si8", "0x7FC0 : bf16",
    "-1.5e-3 : f8E4M3B11FNUZ", "tensor<?x3xf32, #stablehlo.bounds<4, ?>>",
    "#stablehlo.type_extensions<bounds = [?, 4]>", '#other<"opaque" {a = [1, 2]}>', "#loc1",
    "#other.nested<a = #other.b<1, {c}>, (2, [3])>", "distinct[0]<42 : i32>", "[]", "{}",
    "#stablehlo.result_accuracy<atol = 1.0, ulps = 10, mode = #stablehlo.result_accuracy_mode<X>>",
    "dense<[[1, 2], [3, 4]]> : tensor<2x2xi64>", "dense<> : tensor<0x3xi64>", "array<i1: true>",
    "array<f32>", "sparse<[[0, 1]], [1.0]> : vector<4xf32>", "strided<[?, 1], offset: 4>",
    "dense_resource<weights> : memref<2xf32, 1>", "vector<[4]x2xf32>", "none")


@pytest.mark.parametrize("written", ATTRIBUTES)
def test_any_attribute(written: str, tmp_path: Path) -> None:
    """Of a module, a function, an argument, and operations of both forms."""
    x = np.array([1.0, 2.0], np.float32)
    for value in (written, f"[{written}, {written}]", f"{{ inner = {written}, last }}"):
        text = f"""
#loc1 = loc("file.py":1:1)
#map = affine_map<(d0) -> (d0 + 1)>
module @m attributes {{a.b = {value}, flag}} {{
  func.func public @main(%x: tensor<2xf32> {{jax.note = {value}}} loc("x")) -> (tensor<2xf32>
      {{jax.note = {value}}}) attributes {{other = {value}}} {{
    %0 = stablehlo.add %x, %x {{note = {value}, more}} : tensor<2xf32> loc(#loc1)
    %1 = "stablehlo.negate"(%0) <{{note = {value}}}> {{last = {value}}}
      : (tensor<2xf32>) -> tensor<2xf32> loc(fused[#loc1, "a"])
    return %1 : tensor<2xf32> loc(unknown)
  }} loc(#loc1)
}} loc(#loc1)
{{-#
  dialect_resources: {{ builtin: {{ weights: "0x04000000FFFF" }} }}
#-}}"""
        np.testing.assert_array_equal(results(tmp_path / "f.mlir", text, x)[0], -2 * x)


def test_generic_module(tmp_path: Path) -> None:
    text = """
"builtin.module"() <{sym_name = "m"}> ({
  "func.func"() <{function_type = (tensor<3xf32>) -> tensor<3xf32>, sym_name = "main"}> ({
  ^bb0(%arg0: tensor<3xf32>):
    %0 = "func.call"(%arg0) <{callee = @twice}> : (tensor<3xf32>) -> tensor<3xf32>
    "func.return"(%0) : (tensor<3xf32>) -> ()
  }) : () -> ()
  "func.func"() <{function_type = (tensor<3xf32>) -> tensor<3xf32>, sym_name = "twice",
                  sym_visibility = "private"}> ({
  ^bb0(%arg0: tensor<3xf32>):
    %0 = "stablehlo.add"(%arg0, %arg0) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
    "func.return"(%0) : (tensor<3xf32>) -> ()
  }) : () -> ()
}) {jax.uses_shape_polymorphism = false} : () -> ()"""
    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(results(tmp_path / "f.mlir", text, x)[0], 2 * x)


def scan(op: str, element: str, axis: int, attributes: str) -> str:
    """A scan over [4, 3] with starts for each row or column, of which both results return."""
    entry = "tensor<3x{0}>" if axis == 0 else "tensor<4x{0}>"
    entry = entry.format(element)
    whole = f"tensor<4x3x{element}>"
    return f"""
func.func @main(%x: {whole}, %c: {entry}) -> ({whole}, {entry}) {{
  %0:2 = chlo.scan(%x) inits (%c) dimension={axis} {attributes} {{
  ^bb0(%input: {entry}, %carry: {entry}):
    {op.format(entry)}
    stablehlo.return %1, %1 : {entry}, {entry}
  }} : ({whole}, {entry}) -> ({whole}, {entry})
  return %0#0, %0#1 : {whole}, {entry}
}}"""


def twice_less(carry: Any, x: Any) -> Any:
    return 2 * carry - x


SCANS: dict[str, Any] = {
    "%1 = stablehlo.add %input, %carry : {0}": np.add,
    "%1 = stablehlo.multiply %input, %carry : {0}": np.multiply,
    "%1 = stablehlo.maximum %carry, %input : {0}": np.maximum,
    "%1 = stablehlo.minimum %input, %carry : {0}": np.minimum,
    "%0 = stablehlo.add %carry, %carry : {0} %1 = stablehlo.subtract %0, %input : {0}":
        twice_less,
}


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("op", SCANS)
def test_scan(op: str, axis: int, backward: bool, tmp_path: Path) -> None:
    """Those with an operation of their own, and any other, from both ends."""
    rng = np.random.default_rng(3)
    attributes = "attributes {is_reverse = true, is_associative = true}" if backward else ""
    for dtype, element in ((np.float32, "f32"), (np.int32, "i32")):
        x: Any = rng.integers(-4, 5, (4, 3)).astype(dtype)
        carry: Any = rng.integers(-4, 5, 3 if axis == 0 else 4).astype(dtype)
        rows: Any = np.moveaxis(x, axis, 0)
        entries, wanted = list[Any](), carry
        for row in rows[::-1] if backward else rows:
            wanted = SCANS[op](wanted, row)
            entries.append(wanted)
        stacked = np.moveaxis(np.stack(entries[::-1] if backward else entries), 0, axis)
        found = results(tmp_path / "f.mlir", scan(op, element, axis, attributes), x, carry)
        np.testing.assert_array_equal(found[0], stacked)
        np.testing.assert_array_equal(found[1], wanted)


def test_scan_of_several(tmp_path: Path) -> None:
    """Running maxima with their last places, in the generic form; the second input may be open."""
    text = """
func.func @main(%x: tensor<?xi32>, %k: tensor<?xi32>) -> (tensor<?xi32>, tensor<?xi32>, tensor<i32>) {
  %low = stablehlo.constant dense<-100> : tensor<i32>
  %none = stablehlo.constant dense<0> : tensor<i32>
  %0:4 = "chlo.scan"(%x, %k, %low, %none) <{dimension = 0 : i64, is_reverse = false,
      operandSegmentSizes = array<i32: 2, 2>, resultSegmentSizes = array<i32: 2, 2>}> ({
  ^bb0(%a: tensor<i32>, %i: tensor<i32>, %b: tensor<i32>, %j: tensor<i32>):
    %new = stablehlo.maximum %a, %b : tensor<i32>
    %gt = stablehlo.compare GT, %b, %a : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %at = stablehlo.select %gt, %j, %i : tensor<i1>, tensor<i32>
    stablehlo.return %new, %at, %new, %at : tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>
  }) : (tensor<?xi32>, tensor<?xi32>, tensor<i32>, tensor<i32>) -> (tensor<?xi32>, tensor<?xi32>, tensor<i32>, tensor<i32>)
  return %0#0, %0#1, %0#3 : tensor<?xi32>, tensor<?xi32>, tensor<i32>
}"""  # noqa: E501
    x, k = np.array([3, 1, 4, 4, 2], np.int32), np.arange(5, dtype=np.int32)
    for target in ("reference", "cpu"):
        found = results(tmp_path / "f.mlir", text, x, k, target=target)
        np.testing.assert_array_equal(found[0], np.maximum.accumulate(x))
        np.testing.assert_array_equal(found[1], [0, 0, 2, 3, 3])
        assert found[2] == 3


def test_an_unknown_operation_with_regions(tmp_path: Path) -> None:
    """Whatever its form is, it is named, and the rest of the text is read."""
    with pytest.raises(StrataError, match=r"other\.loop is not supported \(1 uses\)"):
        results(tmp_path / "f.mlir", """
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.negate %x : tensor<2xf32>
  %1 = other.loop(%0) while {
    %2 = stablehlo.negate %0 : tensor<2xf32>
    stablehlo.return %2 : tensor<2xf32>
  } {order = #other<x>} {
  ^bb0(%a: tensor<2xf32>):
    stablehlo.return %a : tensor<2xf32>
  } : (tensor<2xf32>) -> tensor<2xf32>
  return %1 : tensor<2xf32>
}""")


def test_parts_of_complex_constants(tmp_path: Path) -> None:
    """An infinite part does not change the other one."""
    [found] = results(tmp_path / "f.mlir", """
func.func @main(%x: tensor<2xf32>) -> tensor<2xcomplex<f32>> {
  %0 = stablehlo.constant dense<[(1.0, 0x7F800000), (0xFF800000, 2.0)]> : tensor<2xcomplex<f32>>
  return %0 : tensor<2xcomplex<f32>>
}""", np.zeros(2, np.float32))
    np.testing.assert_array_equal(found.view(np.float32), [1, np.inf, -np.inf, 2])


def test_the_place_is_shown(tmp_path: Path) -> None:
    """The line, and a caret below what is unexpected."""
    with pytest.raises(StrataError) as error:
        results(tmp_path / "f.mlir", """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.slice %x [0:2) : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}""")
    lines = str(error.value).splitlines()
    [at] = [k for k, line in enumerate(lines) if "[0:2)" in line]
    assert "line 2" in str(error.value)
    assert lines[at + 1].index("^") == lines[at].index(")")


@pytest.mark.parametrize(("element", "wide", "numbers"), [
    ("i8", "i32", [100, -100, 90, 3]), ("ui8", "i32", [200, 255, 7, 1]),
    ("f16", "f32", [1000.0, 1001.0, 999.0, 3.0])])
@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_sums_of_a_wider_type(
    element: str, wide: str, numbers: list[Any], target: str, tmp_path: Path
) -> None:
    """Convolutions and products of bytes or halves whose results are wider do not overflow."""
    dtype: Any = {"i8": np.int8, "ui8": np.uint8, "f16": np.float16}[element]
    x: Any = np.array(numbers, dtype)
    text = f"""
func.func @main(%x: tensor<4x{element}>) -> (tensor<1x1x3x{wide}>, tensor<{wide}>) {{
  %a = stablehlo.reshape %x : (tensor<4x{element}>) -> tensor<1x1x4x{element}>
  %w = stablehlo.slice %a [0:1, 0:1, 0:2] : (tensor<1x1x4x{element}>) -> tensor<1x1x2x{element}>
  %0 = stablehlo.convolution(%a, %w) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], window = {{}}
    {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
    : (tensor<1x1x4x{element}>, tensor<1x1x2x{element}>) -> tensor<1x1x3x{wide}>
  %1 = stablehlo.dot_general %x, %x, contracting_dims = [0] x [0]
    : (tensor<4x{element}>, tensor<4x{element}>) -> tensor<{wide}>
  return %0, %1 : tensor<1x1x3x{wide}>, tensor<{wide}>
}}"""
    found = results(tmp_path / "f.mlir", text, x, target=target)
    exact: Any = x.astype(np.float64)
    np.testing.assert_allclose(found[0][0, 0], np.correlate(exact, exact[:2]), rtol=1e-6)
    np.testing.assert_allclose(found[1], exact @ exact, rtol=1e-6)


def test_upper_halves_and_parts_of_reals(tmp_path: Path) -> None:
    found = results(tmp_path / "f.mlir", """
func.func @main(%a: tensor<3xi8>, %b: tensor<3xui32>)
    -> (tensor<3xi8>, tensor<3xui32>, tensor<3xi8>, tensor<3xi8>) {
  %0 = chlo.mulhi %a, %a : tensor<3xi8>, tensor<3xi8> -> tensor<3xi8>
  %1 = "chlo.mulhi"(%b, %b) : (tensor<3xui32>, tensor<3xui32>) -> tensor<3xui32>
  %2 = stablehlo.real %a : tensor<3xi8>
  %3 = stablehlo.imag %a : tensor<3xi8>
  return %0, %1, %2, %3 : tensor<3xi8>, tensor<3xui32>, tensor<3xi8>, tensor<3xi8>
}""", np.array([100, -128, 3], np.int8), np.array([2 ** 32 - 1, 2 ** 31, 5], np.uint32))
    np.testing.assert_array_equal(found[0], [39, 64, 0])
    np.testing.assert_array_equal(found[1], [2 ** 32 - 2, 2 ** 30, 0])
    np.testing.assert_array_equal(found[2], [100, -128, 3])
    np.testing.assert_array_equal(found[3], [0, 0, 0])


SMALL = [e for e in t.NARROW_FLOATS if e != t.f8E8M0FNU]


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_signs_of_zeros(target: str, tmp_path: Path) -> None:
    """The sign of -0 is -0 here, unlike in ONNX and PyTorch."""
    x = np.array([0.0, -0.0, -3.0, 2.0, np.inf, np.nan], np.float32)
    text = """
func.func @main(%x: tensor<6xf32>) -> tensor<6xf32> {
  %0 = stablehlo.sign %x : tensor<6xf32>
  return %0 : tensor<6xf32>
}
"""
    [found] = results(tmp_path / "signs.mlir", text, x, target=target)
    np.testing.assert_array_equal(found, np.sign(x))
    np.testing.assert_array_equal(np.signbit(found[:5]), np.signbit(x[:5]))


@pytest.mark.parametrize("element", [*SMALL, t.i2, t.ui2, t.i4, t.ui4], ids=str)
@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_small_elements(element: Any, target: str, tmp_path: Path) -> None:
    """Constants of numbers and of bits, conversions, and results: every code of a format."""
    every = codes(element)
    rows = f"tensor<{len(every)}x{element}>"
    text = f"""
func.func @main(%x: tensor<9xf32>) -> (tensor<9x{element}>, tensor<{len(every)}xf32>, {rows}) {{
  %0 = stablehlo.convert %x : (tensor<9xf32>) -> tensor<9x{element}>
  %1 = stablehlo.constant dense<"0x{every.tobytes().hex()}"> : {rows}
  %2 = stablehlo.convert %1 : ({rows}) -> tensor<{len(every)}xf32>
  %3 = stablehlo.constant dense<1> : {rows}
  return %0, %2, %3 : tensor<9x{element}>, tensor<{len(every)}xf32>, {rows}
}}""".replace("dense<1>", "dense<1.0>" if t.is_float(element) else "dense<1>")
    x = np.float32([0, 1, 1.25, 1.5, 1.75, 0.5, 0.3, 1.125, 1.0625])
    dtype = t.dtype_of(element)
    found = results(tmp_path / "f.mlir", text, x, target=target)
    for got, want in zip(found, (x.astype(dtype), every.astype(np.float32),
                                 np.ones(len(every), dtype)), strict=True):
        np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "wrong.mlir"
    path.write_text("""func.func @main(%a: tensor<3xf32>, %b: tensor<4xf32>) -> tensor<3xf32> {
  %0 = stablehlo.add %a, %b : tensor<3xf32>
  return %0 : tensor<3xf32>
}""")
    with pytest.raises(StrataError, match=rf"cannot import {re.escape(str(path))} \(1 problem"):
        compiler.compile(path, target="reference")
