"""Models that come undivided, with open sizes, in a process per rank, against one process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from tests import processes
from tests.ranks.running import ROOT
from tests.ranks.test_faults_of_ranks import ended
from tests.ranks.test_mesh_runs import SOON, start


def _weight(seed: int, rows: int, columns: int) -> str:
    numbers = ", ".join(f"{np.sin(3.0 * k + seed):.3f}" for k in range(rows * columns))
    return f"graph.constant {{value = literal[{numbers}]}} : f32[{rows}, {columns}]"


MODEL = f"""builtin.module {{
  strata.func @main(%x: f32[n, k, 4]) -> (f32[n, k, 4]) inputs ["x"] outputs ["y"] {{
    %wq = {_weight(0, 4, 4)}
    %up = {_weight(1, 4, 64)}
    %down = {_weight(2, 64, 4)}
    %q = graph.matmul %x, %wq : f32[n, k, 4]
    %t = graph.transpose %x {{perm = [0, 2, 1]}} : f32[n, 4, k]
    %s = graph.matmul %q, %t : f32[n, k, k]
    %p = graph.softmax %s {{axis = 2}} : f32[n, k, k]
    %a = graph.matmul %p, %x : f32[n, k, 4]
    %h = graph.matmul %a, %up : f32[n, k, 64]
    %r = graph.relu %h : f32[n, k, 64]
    %y = graph.matmul %r, %down : f32[n, k, 4]
    strata.return %y
  }}
}}
"""


def given(folder: Path, batch: int, length: int) -> tuple[Path, Path]:
    """The model, and an input of these sizes."""
    file, x = folder / "model.mlir", folder / "x.npy"
    file.write_text(MODEL)
    np.save(x, np.random.default_rng(1).standard_normal((batch, length, 4)).astype(np.float32))
    return file, x


@pytest.mark.parametrize(("mesh", "count", "batch", "length"), [
    ("sp=2", 2, 3, 6),
    pytest.param("dp=2", 2, 2, 1, marks=pytest.mark.slow),
    pytest.param("dp=2,tp=2", 4, 4, 5, marks=pytest.mark.slow),
    pytest.param("sp=2,tp=2", 4, 1, 10, marks=pytest.mark.slow),
])
def test_ranks_give_what_one_process_gives(
    mesh: str, count: int, batch: int, length: int, tmp_path: Path
) -> None:
    file, x = given(tmp_path, batch, length)
    one, all_ = tmp_path / "one.npz", tmp_path / "all.npz"
    processes.run([sys.executable, "-m", "compiler", "run", file, "--input", f"x={x}", "-o", one],
                  check=True, cwd=ROOT, env={**os.environ, "STRATA_CACHE": str(tmp_path)},
                  capture_output=True)
    words = ["run", file, "--mesh", mesh, "--input", f"x={x}", "-o", all_]
    children = start([words] * count, tmp_path)
    found = [child.communicate() for child in children]
    assert [child.returncode for child in children] == [0] * count, found
    np.testing.assert_allclose(np.load(all_)["y"], np.load(one)["y"], 1e-4, 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("mesh", "batch", "length"), [("sp=2", 2, 5), ("dp=2", 3, 4)])
def test_sizes_that_ranks_do_not_divide_are_refused_by_all(
    mesh: str, batch: int, length: int, tmp_path: Path
) -> None:
    file, x = given(tmp_path, batch, length)
    words = ["run", file, "--mesh", mesh, "--input", f"x={x}"]
    for rank, said in enumerate(ended(start([words] * 2, tmp_path), after=SOON)):
        assert f"error on rank {rank}" in said and "dim" in said
