"""Whole small models through every target, beside onnxruntime: sizes fixed and open, all levels
executed, and the same text every time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest

import compiler
from compiler.__main__ import main
from tests import processes
from tests.models import tiny_bert, tiny_cnn, tiny_lstm
from tests.models.onnx_graph import Array, Sizes

ROOT = Path(__file__).parents[2]
MODELS = [tiny_bert, tiny_cnn, tiny_lstm]
TOLERANCE = 2e-5
"""Of an output's largest magnitude: what the order of sums may change."""
pytestmark = pytest.mark.parametrize("tiny", MODELS, ids=lambda m: m.__name__.rpartition(".")[2])


def save(tiny: ModuleType, folder: Path, sizes: Sizes) -> Path:
    path = folder / "tiny.onnx"
    onnx.save(tiny.make_model(sizes), path)
    return path


def check(tiny: ModuleType, model: Path, exe: compiler.Executable, cases: Sequence[Sizes]) -> None:
    """All cases on one compiled model."""
    onnxruntime: Any = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    for sizes in cases:
        inputs = tiny.make_inputs(sizes)
        expected: list[Array] = session.run(None, inputs)
        for name, got, want in zip(exe.output_names, exe(**inputs), expected, strict=True):
            assert (got.shape, got.dtype) == (want.shape, want.dtype), name
            error = np.abs(got - want).max() / np.abs(want).max()
            assert error <= TOLERANCE, (name, sizes, error)


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_fixed_sizes(tiny: ModuleType, tmp_path: Path, target: str) -> None:
    model = save(tiny, tmp_path, tiny.CASES[0])
    check(tiny, model, compiler.compile(model, target=target, cache="off"), tiny.CASES[:1])


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_open_sizes(tiny: ModuleType, tmp_path: Path, target: str) -> None:
    model = save(tiny, tmp_path, tiny.OPEN)
    check(tiny, model, compiler.compile(model, target=target, cache="off"), tiny.CASES)


@pytest.mark.parametrize("sizes", ["fixed", "open"])
def test_triton_interpreter(tiny: ModuleType, tmp_path: Path, sizes: str) -> None:
    if find_spec("triton") is None:
        pytest.skip("needs Triton")
    model = save(tiny, tmp_path, tiny.CASES[0] if sizes == "fixed" else tiny.OPEN)
    exe = compiler.compile(model, target="cuda", interpret=True, features="sm_90", cache="off")
    check(tiny, model, exe, tiny.CASES[:1] if sizes == "fixed" else tiny.CASES)


@pytest.mark.slow
def test_cubins(tiny: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every kernel compiles for a GPU, where there is none."""
    if find_spec("triton") is None:
        pytest.skip("needs Triton")
    model = save(tiny, tmp_path, tiny.OPEN)
    words = ["lower", str(model), "--target", "cuda", "--features", "sm_90", "--to", "ptx"]
    assert main([*words, "--cache", "off"]) == 0
    out = capsys.readouterr().out
    assert out.count("// kernel @") == out.count(".visible .entry") > 0


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_verify(
    tiny: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], target: str
) -> None:
    """Every pass, for the schedules of either target; on the CPU its code too."""
    model = save(tiny, tmp_path, tiny.OPEN)
    np.savez(tmp_path / "in.npz", **tiny.make_inputs(tiny.CASES[1]))
    words = ["verify", str(model), "--target", target, "--inputs", str(tmp_path / "in.npz")]
    interpret = ["--interpret"] if target == "cuda" else []
    if interpret and find_spec("triton") is None:
        pytest.skip("needs Triton")
    status = main([*words, *interpret, "--cache", "off"])
    out, err = capsys.readouterr()
    assert status == 0, err
    assert out.splitlines()[-1].endswith("executions agree")
    levels = {line.split()[1] for line in out.splitlines()[1:-1]}
    assert levels == {"graph", "loop", "host", "block", "native"}


def test_dumps_are_the_same_every_time(tiny: ModuleType, tmp_path: Path) -> None:
    """Two processes with other hash seeds write the same bytes, target code included."""
    model = save(tiny, tmp_path, tiny.OPEN)
    first, second = (_dump(model, tmp_path / str(seed), seed) for seed in (0, 4711))
    assert first == second and len(first) > 8


def _dump(model: Path, folder: Path, seed: int) -> dict[str, bytes]:
    environment = os.environ | {"PYTHONHASHSEED": str(seed), "PYTHONPATH": str(ROOT)}
    words = ["lower", model, "--target", "cpu", "--dump-dir", folder, "--features", "avx2",
             "-o", folder.with_suffix(".ll")]
    processes.run([sys.executable, "-m", "compiler", *map(str, words)], env=environment,
                  check=True, capture_output=True)
    timed = ("index.md", ".strata-dump.json")
    files = [p for p in folder.iterdir() if p.name not in timed]
    files.append(folder.with_suffix(".ll"))
    return {p.name.removeprefix(f"{seed}."): p.read_bytes() for p in files}
