"""ONNX operators at the edges of floats: machine code, against onnxruntime.

One test puts NaN, infinities and large numbers at half of the places of the inputs, and compares
where results are NaN or infinite. Another puts the largest, the smallest and the denormal numbers
and both zeros at a third of the places, and compares values, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest

import compiler
from compiler.frontend import MemoryModel
from dialects.strata.types import Array
from tests.frontend.onnx_models import Op, model_of, run_reference
from tests.frontend.operators.test_onnx_operators import ALL
from tests.numerics.test_edge_values import difference, is_float, with_edges

CASES = [pytest.param(sample, id=f"{k}-{sample.op_type}") for k, sample in enumerate(ALL)
         if not sample.defined]


ORDERED = ("ReduceMax", "ReduceMin", "MaxPool", "GlobalMaxPool", "ArgMax", "ArgMin", "TopK",
           "ScatterElements", "RoiAlign")
"""onnxruntime drops a NaN or not, by where it stands; here it wins, as in NumPy and PyTorch."""

COORDINATES = {"GridSample": "x1", "RoiAlign": "x1"}
"""Inputs that stay as they are: what lies at NaN is undefined, and onnxruntime converts infinite
coordinates to integers."""

OTHERWISE = {
    "LRN": "onnxruntime adds and takes away in turn, so that infinity minus infinity stays",
    "LSTM": "onnxruntime clamps what its activations take, NaN too",
    "GRU": "onnxruntime clamps what its activations take, NaN too",
    "STFT": "onnxruntime adds the parts of a transform in turn, so that infinities meet",
    "LayerNormalization": "onnxruntime's mean of a row with one infinity is NaN; it is infinite",
}
WEIGHTED = ("antialias", "exclude_outside")
"""Variants of Resize for which onnxruntime multiplies elements by 0; here they are not read."""

SUMS = {
    **dict.fromkeys(
        ("Conv", "ConvTranspose", "ReduceSum", "ReduceProd", "AveragePool", "GlobalAveragePool",
         "Resize", "Upsample", "GridSample", "DFT", "STFT"),
        "the order in which the largest numbers are combined decides what overflows or cancels"),
    "GroupNormalization": "onnxruntime subtracts the square of the mean, infinity from infinity",
    "LRN": OTHERWISE["LRN"],
}


@pytest.mark.slow
@pytest.mark.parametrize("sample", CASES)
def test_as_onnxruntime(sample: Op) -> None:
    if sample.op_type in OTHERWISE:
        pytest.skip(OTHERWISE[sample.op_type])
    if any(name in sample.attributes for name in WEIGHTED):
        pytest.skip("onnxruntime multiplies elements whose weight is 0")
    rng = np.random.default_rng(0)
    found, wanted = both(sample, lambda a: with_edges(a, rng, integers=False))
    texts = list(map(difference, found, wanted))
    assert not any(texts), texts


@pytest.mark.slow
@pytest.mark.parametrize("sample", CASES)
def test_extremes_as_onnxruntime(sample: Op) -> None:
    if sample.op_type in SUMS:
        pytest.skip(SUMS[sample.op_type])
    rng = np.random.default_rng(1)
    found, wanted = both(sample, lambda a: with_extremes(a, rng))
    for got, want in zip(found, wanted, strict=True):
        assert not (text := difference(got, want)), text
        if is_float(want.dtype):
            assert_near(got, want, sample.tolerance)


def both(sample: Op, edged: Callable[[Array], Array]) -> tuple[list[Array], list[Array]]:
    """The results of machine code and of onnxruntime, for inputs that `edged` changes."""
    model, inputs = model_of(sample, sample.opsets[-1], symbolic=False)
    given = {name: array if COORDINATES.get(sample.op_type) == name else edged(array)
             for name, array in inputs.items()}
    if sample.op_type in ORDERED:
        given = {name: np.where(array != array, 1, array).astype(array.dtype)
                 for name, array in given.items()}
    try:
        wanted = run_reference(model, given)
    except Exception as error:  # onnxruntime has many, and none in common
        pytest.skip(f"onnxruntime: {error}")
    exe = compiler.compile(MemoryModel("model.onnx", model.SerializeToString()), target="cpu",
                           threads=1, denormals="keep", cache="off")
    return list(map(np.asarray, exe(**given))), list(map(np.asarray, wanted))


def with_extremes(array: Array, rng: np.random.Generator) -> Array:
    """The array with the numbers at the ends of its float type at a third of the places."""
    if not is_float(array.dtype):
        return array
    info = cast(Any, ml_dtypes).finfo(array.dtype)
    ends = [float(n) for n in (info.max, info.smallest_normal, info.smallest_subnormal, 0.0)]
    numbers = np.array([*ends, *(-n for n in ends), 1.0]).astype(array.dtype)
    return np.where(rng.random(array.shape) < 0.3, rng.choice(numbers, array.shape), array)


def assert_near(got: Array, want: Array, tolerance: float) -> None:
    """Values to a tolerance, denormal ones to a hundredth, and the sign of each zero.

    Where onnxruntime rounds a denormal result to 0, ours may be the denormal number.
    """
    finite, type_ = np.isfinite(want.astype(np.float64)), cast(Any, ml_dtypes).finfo(want.dtype)
    a, b = got.astype(np.float64)[finite], want.astype(np.float64)[finite]
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    tiny = (b != 0) & (np.abs(b) < float(type_.smallest_normal))
    np.testing.assert_allclose(a[tiny], b[tiny], rtol=1e-2, atol=0)
    assert (np.signbit(a) == np.signbit(b))[(a == 0) & (b == 0)].all()
