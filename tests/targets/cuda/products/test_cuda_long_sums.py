"""Long sums of products on FMA units are sums of short sums, in registers of their own."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import compiler
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from targets.cuda.scheduling import rules
from targets.cuda.scheduling.products.fma import LONG, PART

PRODUCT = """
strata.func @main(%a: f32[{1}, {0}], %b: f32[{0}, {1}]) -> (f32[{1}, {1}])
    inputs ["a", "b"] outputs ["y"] {{
  %y = graph.matmul %a, %b : f32[{1}, {1}]
  strata.return %y
}}"""


@pytest.mark.parametrize("length", [LONG, LONG + 8, 16 * LONG])
def test_long_sums_begin_again(tmp_path: Path, length: int) -> None:
    (path := tmp_path / "m.mlir").write_text(PRODUCT.format(length, 1024))
    compilation = Compiler(str(path), CompileOptions(
        target="cuda", features="sm_90", cache="off", tuned="off"))
    text = compilation.emit(compilation.lower(), "triton")
    assert (f"% {PART} ==" in text) == (length > LONG)


@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
def test_what_they_sum_up_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In Triton's interpreter, with a last step that has fewer products, and one program."""
    monkeypatch.setattr(rules, "sum_parts", lambda nest, options: None)
    (path := tmp_path / "m.mlir").write_text(PRODUCT.format(LONG + 40, 16))
    a, b = (np.random.default_rng(k).random(s, np.float32)
            for k, s in enumerate([(16, LONG + 40), (LONG + 40, 16)]))
    [y] = compiler.compile(path, target="cuda", features="sm_90", interpret=True, cache="off",
                           tuned="off")(a, b)
    want = a.astype(np.float64) @ b
    assert np.abs(y / want - 1).max() < 16 * 2.0**-24
