"""What goes wrong on one rank, or on all: each says so within half a minute, and none is left."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests import processes
from tests.ranks.running import ROOT, free_port
from tests.ranks.test_mesh_runs import SOON, model, start

_SCRIPT = """
import os, sys
from datetime import timedelta
import numpy as np, torch, torch.distributed as dist
import compiler, compiler.agreement
path, rank = sys.argv[1], int(os.environ["RANK"])
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
{before}
exe = compiler.compile(path, mesh="tp=2", threads=1)
{between}
y = exe({given})
"""


def ended(children: Sequence[processes.Child], after: float = 0.0) -> list[str]:
    """What each rank has said on its standard error. All end with status 1, soon: at most SOON
    seconds after the fault, which was `after` seconds after their start at the earliest."""
    started = time.perf_counter()
    said = [child.communicate()[1] for child in children]
    assert [child.returncode for child in children] == [1] * len(children), said
    assert time.perf_counter() - started < after + SOON, said
    assert all("Traceback" not in text for text in said), said
    return said


def script(
    folder: Path, before: str = "", between: str = "", text: str = "",
    given: str = "np.ones((4, 4), np.float32)",
) -> list[str]:
    """What two ranks have said that use Strata from Python; both must fail. `before`, `between`:
    what they do before they compile, and before they call the program."""
    pytest.importorskip("torch")
    file, program = folder / "model.mlir", folder / "rank.py"
    file.write_text(text or model(1.0))
    program.write_text(_SCRIPT.format(before=before, between=between, given=given))
    variables = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": str(free_port()), "STRATA_CACHE": str(folder),
                 "OMP_NUM_THREADS": "1"}
    children = [processes.start([sys.executable, program, file], 120.0, text=True, cwd=ROOT,
                                env={**variables, "RANK": str(k)}, stdout=-1, stderr=-1)
                for k in range(2)]
    started = time.perf_counter()
    said = [child.communicate()[1] for child in children]
    assert [child.returncode for child in children] == [1, 1], said
    assert time.perf_counter() - started < 2 * SOON, said
    return said


# ---------------------------------------------------------------------- the same on all ranks
@pytest.mark.parametrize(("mesh", "rows", "told"), [
    ("tp=4", 4, "the mesh tp=4 has 4 ranks, and 2 processes are running"),
    pytest.param("dp=2", 5, "dim 0, and its size 5 is no multiple of 2", marks=pytest.mark.slow),
])
def test_what_does_not_fit_is_said_by_all(mesh: str, rows: int, told: str, tmp_path: Path) -> None:
    file = tmp_path / "model.mlir"
    file.write_text(plain(rows))
    said = ended(start([["run", file, "--mesh", mesh]] * 2, tmp_path), after=SOON)
    for rank, text in enumerate(said):
        assert f"error on rank {rank}" in text and told in text


def plain(rows: int, width: int = 4) -> str:
    """A product without annotations."""
    return f"""builtin.module {{
  strata.func @main(%x: f32[{rows}, 4], %w: f32[4, {width}]) -> (f32[{rows}, {width}]) \
inputs ["x", "w"] outputs ["y"] {{
    %y = graph.matmul %x, %w : f32[{rows}, {width}]
    strata.return %y
  }}
}}
"""


# ---------------------------------------------------------------------- on one rank
@pytest.mark.slow
def test_a_rank_that_never_starts_is_missed(tmp_path: Path) -> None:
    file = tmp_path / "model.mlir"
    file.write_text(model(1.0))
    children = start([["run", file, "--mesh", "tp=2"]] * 2, tmp_path)
    children[1].kill()
    [said] = ended(children[:1], after=SOON)
    assert "error on rank 0: the other ranks did not come" in said


@pytest.mark.slow
def test_a_rank_that_does_not_compile_ends_the_others(tmp_path: Path) -> None:
    file = tmp_path / "model.mlir"
    file.write_text(model(1.0))
    words = [["run", f, "--mesh", "tp=2"] for f in (file, tmp_path / "missing.mlir")]
    said = ended(start(words, tmp_path), after=SOON)
    assert "error on rank 0: the other ranks did not compile the model" in said[0]
    assert "error on rank 1" in said[1] and "missing.mlir" in said[1]


@pytest.mark.slow
def test_ranks_with_another_version_are_refused(tmp_path: Path) -> None:
    said = script(tmp_path, "if rank: compiler.agreement.__version__ = 'another'")
    assert all("the ranks have different programs" in text and "the version" in text
               for text in said)


@pytest.mark.slow
def test_a_rank_without_memory_ends_the_others(tmp_path: Path) -> None:
    """Rank 1 has no room for its part of what is computed in between."""
    limit = ("x = np.ones((1 << 23, 4), np.float32)\n"
             "if rank:\n"
             "    import resource\n"
             "    used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
             "    resource.setrlimit(resource.RLIMIT_AS, (used + (50 << 20),) * 2)\n")
    said = script(tmp_path, between=limit, text=model(1.0, rows=1 << 23), given="x")
    assert "failed" in said[0] and "all_reduce in group 'tp'" in said[0]
    assert "Unable to allocate" in said[1]
