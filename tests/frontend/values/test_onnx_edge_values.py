"""ONNX operators on NaN, infinities and large floats: machine code, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

import compiler
from compiler.frontend import MemoryModel
from tests.frontend.onnx_models import Op, model_of, run_reference
from tests.frontend.operators.test_onnx_operators import ALL
from tests.numerics.test_edge_values import difference, with_edges

CASES = [pytest.param(sample, id=f"{k}-{sample.op_type}") for k, sample in enumerate(ALL)
         if not sample.defined]


ORDERED = ("ReduceMax", "ReduceMin", "MaxPool", "GlobalMaxPool", "ArgMax", "ArgMin", "TopK",
           "ScatterElements")
"""onnxruntime drops a NaN or not, by where it stands; here it wins, as in NumPy and PyTorch."""

OTHERWISE = {
    "LRN": "onnxruntime adds and takes away in turn, so that infinity minus infinity stays",
    "LSTM": "onnxruntime clamps what its activations take, NaN too",
}
OPEN = {
    "Clip": "without a bound, infinities stay; onnxruntime makes them the largest number",
    "Resize": "the neighbour whose weight is 0 is multiplied", "Upsample": "as Resize",
    "GridSample": "as Resize", "LayerNormalization": "not looked into", "Col2Im": "not looked into",
}
"""Differences that nobody has decided on."""


@pytest.mark.slow
@pytest.mark.parametrize("sample", CASES)
def test_as_onnxruntime(sample: Op) -> None:
    if sample.op_type in OTHERWISE:
        pytest.skip(OTHERWISE[sample.op_type])
    if sample.op_type == "MaxPool" and sample.outputs > 1:
        pytest.xfail("which of several infinities has the index is not looked into")
    if sample.op_type in OPEN:
        pytest.xfail(OPEN[sample.op_type])
    model, inputs = model_of(sample, sample.opsets[-1], symbolic=False)
    rng = np.random.default_rng(0)
    given = {name: with_edges(array, rng, integers=False) for name, array in inputs.items()}
    if sample.op_type in ORDERED:
        given = {name: np.where(array != array, 1, array).astype(array.dtype)
                 for name, array in given.items()}
    try:
        wanted = run_reference(model, given)
    except Exception as error:  # onnxruntime has many, and none in common
        pytest.skip(f"onnxruntime: {error}")
    exe = compiler.compile(MemoryModel("model.onnx", model.SerializeToString()), target="cpu",
                           threads=1, denormals="keep", cache="off")
    texts = [difference(np.asarray(got), np.asarray(want))
             for got, want in zip(exe(**given), wanted, strict=True)]
    assert not any(texts), texts
