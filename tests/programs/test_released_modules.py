"""What a compilation has made of a model is freed, at every level, once the program is there."""

from __future__ import annotations

import gc
from collections import Counter
from pathlib import Path

import pytest
from xdsl.ir import Operation

import compiler

MODEL = """
strata.func @main(%x: f32[6, 8], %w: f32[8, 8]) -> (f32[6, 8], f32[6, 8])
    inputs ["x", "w"] outputs ["positive", "shares"] {
  %product = graph.matmul %x, %w : f32[6, 8]
  %positive = graph.relu %product : f32[6, 8]
  %shares = graph.softmax %x {axis = 1} : f32[6, 8]
  strata.return %positive, %shares
}
"""


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_no_operation_outlives_its_use(tmp_path: Path, target: str) -> None:
    """Calls find kernels and functions in tables, which must not keep the modules."""
    path = tmp_path / "model.mlir"
    path.write_text(MODEL)
    before = _operations()
    kept = compiler.compile(path, target=target, cache="off")
    if target == "reference":  # whose program is the module
        del kept
    assert not _operations() - before


def _operations() -> Counter[str]:
    """How many operations there are, by name."""
    gc.collect()
    return Counter(o.name for o in gc.get_objects() if isinstance(o, Operation))
