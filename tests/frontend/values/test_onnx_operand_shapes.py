"""Operands of shapes that no operator has are refused with the node, and not taken as others."""

from __future__ import annotations

import onnx.parser
import pytest

import compiler
from compiler.frontend import MemoryModel

HEADER = '<ir_version: 10, opset_import: ["": 21]> g '
SINGLE = {
    "OneHot": "(int64[2] x, int64{} n, float[2] v) => (z) {{ z = OneHot(x, n, v) }}",
    "TopK": "(float[9] x, int64{} n) => (z, i) {{ z, i = TopK(x, n) }}",
    "CumSum": "(float[9, 3] x, int64{} n) => (z) {{ z = CumSum(x, n) }}",
    "length of DFT": "(float[1, 9, 1] x, int64{} n) => (z) {{ z = DFT(x, n) }}",
    "axis of DFT": "(float[1, 9, 1] x, int64{} n) => (z) {{ z = DFT(x, , n) }}",
    "Range": "(int64 x, int64{} n) => (z) {{ z = Range(x, n, x) }}",
    "Trilu": "(float[9, 3] x, int64{} n) => (z) {{ z = Trilu(x, n) }}",
    "NonMaxSuppression": """(float[1, 9, 4] x, float[1, 1, 9] s, int64{} n) => (z)
        {{ z = NonMaxSuppression(x, s, n) }}""",
}


def compiled(text: str) -> compiler.Executable:
    source = onnx.parser.parse_model(HEADER + text).SerializeToString()
    return compiler.compile(MemoryModel("m.onnx", source), cache="off")


@pytest.mark.parametrize("shape", ["[2]", "[2, 1]"])
@pytest.mark.parametrize("operator", SINGLE)
def test_one_number_is_expected(operator: str, shape: str) -> None:
    with pytest.raises(compiler.StrataError, match=operator.split(" ")[-1]):
        compiled(SINGLE[operator].format(shape))


@pytest.mark.parametrize("operator", SINGLE)
def test_one_number_may_be_in_a_list(operator: str) -> None:
    compiled(SINGLE[operator].format("[1]" if operator != "Range" else ""))


@pytest.mark.parametrize(("left", "right"), [
    ("4, 5, 6", "6, 3"), ("6", "6, 3"), ("4, 6", "6"), ("4, 6", "2, 6, 3"), ("n, 1, 6", "6, 3")])
def test_factors_of_gemm_are_matrices(left: str, right: str) -> None:
    with pytest.raises(compiler.StrataError, match="Gemm"):
        compiled(f"(float[{left}] x, float[{right}] w) => (z) {{ z = Gemm(x, w) }}")


def test_a_squeeze_makes_the_matrix_that_gemm_needs() -> None:
    """Where an open size is 1, which the model needs."""
    exe = compiled("(float[n, 4, 6] x, float[6, 3] w) => (z) { s = Squeeze(x) z = Gemm(s, w) }")
    assert exe.signature.output_types[0].rank == 2
