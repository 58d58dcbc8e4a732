"""`-` in place of files, and readers that have had enough."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests import processes
from tests.cli.conftest import Run

ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {
    "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


def strata(
    *words: object, data: bytes = b"", cwd: Path, check: bool = True
) -> subprocess.CompletedProcess[bytes]:
    done = processes.run(
        [sys.executable, "-m", "compiler", *map(str, words)], input=data, capture_output=True,
        cwd=cwd, env=ENVIRONMENT)
    assert done.returncode == 0 or not check, done.stderr.decode()
    return done


def test_everything_through_pipes(small_model: Path, tmp_path: Path) -> None:
    """A model in, a text out; the text in, arrays in, arrays out."""
    model = small_model.read_bytes()
    text = strata("lower", "-", "--to", "graph", "-o", "-", data=model, cwd=tmp_path).stdout
    assert b"graph.matmul" in text
    words = ("--weights", small_model, "--target", "reference")
    fused = strata("opt", "-", "--passes", "graph-dce", *words, data=text, cwd=tmp_path).stdout
    assert b"graph.matmul" in fused
    given = io.BytesIO()
    np.savez(given, **{"in/x:0": np.ones((5, 8), np.float32), "rows": np.array([4, 0, 2])})
    (tmp_path / "model.mlir").write_bytes(text)
    done = strata("run", "model.mlir", *words, "--inputs", "-", "--output", "-",
                  data=given.getvalue(), cwd=tmp_path)
    with np.load(io.BytesIO(done.stdout)) as found:
        assert found["out/y"].shape == (3, 32)
    assert b"out/y  float32[3, 32]" in done.stderr
    rows = io.BytesIO()
    np.save(rows, np.array([1]))
    done = strata("run", "model.mlir", *words, "--input", "rows=-", data=rows.getvalue(),
                  cwd=tmp_path)
    assert b"float32[1, 32]" in done.stdout


def test_figures_on_standard_output(small_model: Path, tmp_path: Path) -> None:
    done = strata("bench", small_model, "--target", "reference", "--rounds", 1, "--json", "-",
                  cwd=tmp_path)
    assert json.loads(done.stdout)["results"][0]["name"] == "strata"
    assert b"strata" in done.stderr


def test_nothing_on_standard_input(tmp_path: Path) -> None:
    done = strata("run", "-", cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert b"standard input, which is empty" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("data", [b"no model", b"\xff\xfe", b"PK\x03\x04 no archive",
                                  b"strata.func @", b"// \xff"])
def test_something_else_on_standard_input(tmp_path: Path, data: bytes) -> None:
    done = strata("lower", "-", "--to", "graph", data=data, cwd=tmp_path, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith(b"error: ") and b"stdin" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("words", "both"), [
    (["--help"], False), (["--help"], True), (["lower", "--help"], False),
    (["lower", "MODEL", "--to", "graph", "-o", "/dev/stdout"], False),
    (["lower", "MODEL", "--to", "graph", "-o", "-"], True),
    (["run", "MODEL", "--target", "reference", "-o", "-"], False),
    (["inspect", "MODEL"], False), (["completion", "bash"], False),
    (["lower", "nothing.onnx"], False), (["lower", "nothing.onnx"], True),
])
def test_a_reader_that_has_had_enough(
    small_model: Path, tmp_path: Path, words: list[str], both: bool
) -> None:
    """The pipe is closed before anything is written: silence, and no error."""
    if words[0] == "completion":
        pytest.importorskip("shtab")
    read, write = os.pipe()
    os.close(read)
    command = [str(small_model) if word == "MODEL" else word for word in words]
    done = processes.run(
        [sys.executable, "-m", "compiler", *command], stdout=write,
        stderr=write if both else subprocess.PIPE, stdin=subprocess.DEVNULL, cwd=tmp_path,
        env=ENVIRONMENT)
    os.close(write)
    silent = words[-1] == "nothing.onnx" and not both  # its message is on the other stream
    assert done.returncode == (1 if silent else 0)
    if not both and not silent:
        assert b"rror" not in done.stderr and b"roken" not in done.stderr, done.stderr


def test_standard_output_is_no_file_to_replace(small_model: Path, tmp_path: Path) -> None:
    """`-o /dev/stdout > FILE` writes into FILE, and leaves /dev/stdout what it is."""
    with open(tmp_path / "code", "wb") as file:
        processes.run(
            [sys.executable, "-m", "compiler", "lower", str(small_model), "--to", "graph",
             "-o", "/dev/stdout"], stdout=file, check=True,
            env=ENVIRONMENT)
    assert "graph.matmul" in (tmp_path / "code").read_text()
    assert os.path.islink("/dev/stdout")


def test_a_terminal_is_no_file(strata: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal())
    done = strata("run", "-")
    assert done.status == 1
    assert "which is a terminal" in done.err
