"""`compiler.profile` of programs that `torch.compile` returned."""

from __future__ import annotations

import pytest

import compiler
from compiler.profiling import measure
from compiler.profiling.roofline import Roofline

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("kind", ["module", "function"])
def test_compiled_programs_are_profiled(
    monkeypatch: pytest.MonkeyPatch, kind: str, compiled: bool
) -> None:
    monkeypatch.setattr(measure, "measured", lambda options, narrow: Roofline(1e11, 1e10))
    module = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU())
    fn = module if kind == "module" else lambda x: torch.softmax(x @ x.T, -1)
    found = compiler.profile(torch.compile(fn, backend="strata") if compiled else fn,
                             torch.ones(8, 16), threads=1)
    assert found.wall_ms > 0 and found.launches
    assert any(x.nodes for x in found.launches)
