"""The parser: help by topic, short errors with near names, and nothing imported for them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from compiler.cli.commands import commands
from compiler.cli.parser import TOPICS, make_parser
from compiler.suggestions import described_by, hint_for, nearest
from tests import processes
from tests.cli.conftest import Run

ROOT = Path(__file__).parents[3]


def test_help_lists_every_command_by_topic(strata: Run) -> None:
    told = strata("--help").out
    places = [told.index(f"{topic}:") for topic in TOPICS]
    assert places == sorted(places)
    for name, command in commands().items():
        assert f"  {name} " in told and command.SUMMARY in told


@pytest.mark.parametrize("name", sorted(commands()))
def test_help_of_a_command(strata: Run, name: str) -> None:
    done = strata(name, "--help")
    assert done.status == 0
    usage = done.out.splitlines()[0]
    assert usage.startswith("usage: ") and f" {name} " in usage and usage.endswith("[options]")
    assert "positional arguments" not in done.out or name in ("list", "completion")


@pytest.mark.parametrize(("words", "parts"), [
    (["lwoer", "x"], ["invalid choice: 'lwoer'", "did you mean lower?"]),
    (["lower", "x", "--precison", "f32"], ["no option '--precison'", "did you mean --precision?"]),
    (["lower", "x", "--precision", "fp61"], ["--precision: invalid choice", "fp16"]),
    (["lower", "x", "--tagret=cpu"], ["no option '--tagret'", "did you mean --target?"]),
    (["lower", "x", "y"], ["unexpected argument 'y'"]),
    (["lower", "x", "--to"], ["--to: expected one argument"]),
    (["list", "opps"], ["did you mean ops or groups or options?"]), ([], ["COMMAND"]),
    (["run", "x", "--input", "y"], ["NAME=16000"]), (["run", "x", "--seed", "-1"], ["--seed"]),
    (["verify", "x", "--tolerance", "nan"], ["not a number >= 0"]),
    (["verify", "x", "--tolerance=-1"], ["not a number >= 0"]),
])
def test_errors_are_short(strata: Run, words: list[str], parts: list[str]) -> None:
    done = strata(*words)
    assert done.status == 2 and done.out == ""
    assert done.err.startswith("error: ") and "usage:" not in done.err
    assert len(done.err.splitlines()) <= 3
    assert all(part in done.err for part in parts), done.err
    assert done.err.splitlines()[-1].endswith("--help")


@pytest.mark.parametrize(("words", "part"), [
    (["--target", "gpu"], "did you mean cuda"), (["--target", "nvidia"], "did you mean cuda"),
    (["--target", "amd"], "did you mean hip"), (["--target", "CPU"], "did you mean cpu"),
    (["--target", "numpy"], "did you mean reference"), (["--to", "lop"], "did you mean 'loop'"),
    (["--passes", "default,without(grph-cse)"], "did you mean graph-cse"),
    (["--passes", "default,after(loop-fus)=graph-cse"], "did you mean loop-fuse"),
    (["--passes", "graph-cs"], "did you mean graph-cse"),
    (["--dim", "N=3"], "did you mean 'n'"), (["--shape", "row=3"], "did you mean 'rows'"),
])
def test_near_names(strata: Run, small_model: Path, words: list[str], part: str) -> None:
    done = strata("lower", small_model, *words)
    assert done.status == 1
    assert part in done.err, done.err


def test_nearest() -> None:
    assert nearest("Rows", ["cols", "rows"])[0] == "rows"
    assert nearest("zzz", ["cols"]) == [] == nearest("x", [])
    assert described_by("gpu", {"a": "NVIDIA GPUs", "b": "graphics"}) == ["a"]
    assert hint_for("c", [str(k) for k in range(20)]).startswith("there are: 0")


@pytest.mark.parametrize("words", [["--help"], ["lower", "--help"], ["lower", "x", "--nothing"],
                                   ["list", "opps"]])
def test_help_and_errors_are_quick(words: list[str]) -> None:
    """No library is imported for them: rich, NumPy and xDSL take longer than all the rest."""
    script = ("import sys; from compiler.__main__ import main\n"
              f"main({words!r})\n"
              "found = {'rich', 'shtab', 'torch', 'triton', 'llvmlite'} & set(sys.modules)\n"
              "assert not found, found\n"
              "assert not {'numpy', 'xdsl', 'onnx'} & set(sys.modules)")
    done = processes.run([sys.executable, "-c", script], capture_output=True, text=True,
                         env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "tcsh"])
def test_completion(strata: Run, shell: str) -> None:
    pytest.importorskip("shtab")
    done = strata("completion", shell)
    assert done.status == 0, done.err
    for word in (*commands(), "precision", "cuda", "max-autotune"):
        assert word in done.out
    if shell == "bash":
        processes.run(["bash", "-n"], input=done.out, text=True, check=True)


def test_bash_completes(strata: Run) -> None:
    pytest.importorskip("shtab")
    script = strata("completion", "bash").out
    probe = ("COMP_WORDS=(strata lower model.onnx --target c); COMP_CWORD=4\n"
             "_shtab_strata; echo \"${COMPREPLY[@]}\"")
    done = processes.run(["bash", "-c", f"{script}\n{probe}"], capture_output=True, text=True)
    assert done.stdout.split() == ["cpu", "cuda"], done.stderr


def test_the_name_that_it_was_started_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/strata"])
    assert make_parser("", "", commands()).prog == "strata"
    monkeypatch.setattr(sys, "argv", ["/x/compiler/__main__.py"])
    assert make_parser("", "", commands()).prog == "python -m compiler"
