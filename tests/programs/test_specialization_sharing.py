"""What programs for some sizes share with the general one, and how commands ask for them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import compiler
from compiler.__main__ import main
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from tests import processes
from tests.programs.specialized import (
    AT_ONCE,
    TOLERANCE,
    Make,
    check_rows,
    numbers,
    states,
)

ROOT = Path(__file__).parents[2]


def test_the_file_is_not_needed_any_more(rows: Make, tmp_path: Path) -> None:
    exe = rows(AT_ONCE)
    (tmp_path / "rows.onnx").unlink()
    check_rows(exe, 5)
    check_rows(exe, 5)
    assert states(exe) == [(5, "ready", 1)]


def test_weights_are_shared_and_the_snapshot_stays(bert: Path) -> None:
    """On a machine of wide vectors, where panels are as wide for few rows as for many."""
    options = CompileOptions(threads=1, cache="off", features="avx512")
    compilation = Compiler(str(bert), options)
    snapshot = compilation.keep()
    before = str(snapshot.source.module)
    general = compilation.prepare().context.weights.arrays
    own = replace(snapshot, sizes={"batch": 2, "seq": 8}, known=general)
    state = Compiler(own, options).prepare()
    assert "seq" not in str(state.module)
    made = state.context.weights.arrays
    assert all(made[key] is array for key, array in general.items())
    assert sum(a.nbytes for k, a in made.items() if k not in general) < 4096  # masks and the like
    assert str(snapshot.source.module) == before


def test_compiled_code_comes_from_the_cache(rows: Make, tmp_path: Path) -> None:
    def code() -> set[Path]:
        return set((tmp_path / "code").rglob("*.o"))

    exe = rows(AT_ONCE, "cpu", tmp_path / "code")
    general = code()
    check_rows(exe, 5)
    own = code()
    assert own > general
    check_rows(rows(AT_ONCE, "cpu", tmp_path / "code"), 5)
    assert code() == own


ENDS = """
import sys, numpy as np, compiler
from tests.models import tiny_bert
exe = compiler.compile(sys.argv[1], cache="off", threads=1, specialize=compiler.Specialize(after=1))
exe(**tiny_bert.make_inputs({"batch": 1, "seq": 4}))
print(exe.specializations[0].state)
"""


def test_a_process_may_end_while_a_thread_compiles(bert: Path) -> None:
    done = processes.run([sys.executable, "-c", ENDS, str(bert)], cwd=ROOT, text=True,
                         capture_output=True, limit=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "compiling\n", "")


# ---------------------------------------------------------------------- the command line
@pytest.mark.parametrize(("words", "shown"), [
    (("lower", "--to", "graph"), "%x: f32[6, 4]"), (("run",), "float32[6, 4]"),
    (("verify", "--levels-only"), "executions agree"),
    (("bench", "--rounds", "2", "--threads", "1"), "strata "),
], ids=lambda words: words[0])
def test_dim_fixes_a_size_everywhere(
    words: Sequence[str], shown: str, rows: Make, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = [words[0], str(tmp_path / "rows.onnx"), "--cache", "off", *words[1:]]
    assert main([*command, "--dim", "rows.n=6"]) == 0
    assert shown in capsys.readouterr().out
    assert main([*command, "--dim", "cols=6"]) == 1
    assert "--dim names 'cols', which is not a size of the model" in capsys.readouterr().err


def test_bench_times_both(
    rows: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["bench", str(tmp_path / "rows.onnx"), "--specialize", "--rounds", "2", "--cache",
               "off", "--threads", "1", "--json", str(tmp_path / "figures.json")]
    assert main([*command, "--dim", "rows.n=6"]) == 0
    assert "strata, sizes fixed" in capsys.readouterr().out
    figures = json.loads((tmp_path / "figures.json").read_text())["results"]
    assert [row["name"] for row in figures] == ["strata", "strata, sizes fixed"]
    assert figures[1]["difference"] <= TOLERANCE
    assert main([*command, "--dim", "cols=6"]) == 1
    assert "--dim names 'cols'" in capsys.readouterr().err
    assert main([*command, "--shape", "x=2x4"]) == 1
    assert "the model has no open sizes" in capsys.readouterr().err


# ---------------------------------------------------------------------- torch
@pytest.mark.slow
def test_exported_programs_and_captured_graphs() -> None:
    torch: Any = pytest.importorskip("torch")
    from compiler.torch.backend import strata

    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU()).eval()
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(model, (torch.ones(3, 4),), dynamic_shapes=({0: batch},))
    exe = compiler.compile(program, cache="off", specialize=AT_ONCE)
    captured = torch.compile(model, backend=strata, dynamic=True,
                             options={"cache": "off", "specialize": AT_ONCE})
    with torch.no_grad():
        for n in (3, 3, 5, 5, 3):
            x = torch.from_numpy(numbers(n))
            torch.testing.assert_close(exe(x)[0], model(x))
            torch.testing.assert_close(captured(x), model(x))
    assert [(s.sizes, s.calls) for s in exe.specializations] == [
        ({"batch": 5}, 1), ({"batch": 3}, 2)]
