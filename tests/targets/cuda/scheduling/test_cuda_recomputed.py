"""Products that others read are computed again only where tensor cores sum each along one axis."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from dialects.block import KernelOp
from tests.models.test_shared_layers import llama, lowered, model

HEADS = """<ir_version: 10, opset_import: ["": 17]>
heads (float[n, 16, h, w] x) => (float[n, 4, p, q] a, float[n, 2, p, q] b)
<float[32, 16, K, K] k = {...}, float[4, 32, 1, 1] s = {...}, float[2, 32, 1, 1] t = {...}> {
  c = Conv(x, k)
  r = Relu(c)
  a = Conv(r, s)
  b = Conv(r, t)
}"""


@pytest.mark.parametrize("window", [1, 2, 3])
def test_windows_before_two_products(tmp_path: Path, window: int) -> None:
    """As in detectors, at open sizes: a window's sum has several axes."""
    text = HEADS.replace("K", str(window))
    for name, count in (("k", 512 * window**2), ("s", 128), ("t", 64)):
        numbers = ", ".join(str(0.5 + k % 7) for k in range(count))
        text = text.replace(f"{name} = {{...}}", f"{name} = {{{numbers}}}")
    onnx.save(onnx.parser.parse_model(text), tmp_path / "heads.onnx")
    options = CompileOptions("cuda", features="sm_90", cache="off", tuned="off")
    module = Compiler(str(tmp_path / "heads.onnx"), options).lower("block").module
    assert "block.dot" in str(module)


def test_an_open_number_of_rows_keeps_the_schedule() -> None:
    """Of a gated perceptron's products in one kernel: ranges of sizes are for single products,
    whose columns the last one sums over."""
    state = lowered(model(llama, given=True), "default", "block", target="cuda", features="sm_90")
    kernels = [op.sym_name.data for op in state.module.body.block.ops if isinstance(op, KernelOp)]
    joined = [name for name in kernels if name.startswith("again")]
    assert joined and not any("_v" in name for name in joined)
