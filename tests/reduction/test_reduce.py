"""Failing models become small, and what harmed them is named: by passes with planted faults."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest

from compiler.__main__ import main

PLANTED = Path(__file__).with_name("planted.py")


@dataclass(frozen=True)
class Done:
    status: int
    out: str
    err: str
    small: Path

    @property
    def operators(self) -> list[str]:
        return [node.op_type for node in onnx.load(str(self.small)).graph.node]


@pytest.fixture
def reduce(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)

    def run(model: Path, *words: str) -> Done:
        small = tmp_path / "small.onnx"
        status = main(["reduce", str(model), "-o", str(small), *words])
        out, err = capsys.readouterr()
        return Done(status, out, err, small)

    return run


def plant(name: str, after: str = "graph-cse") -> list[str]:
    return ["--plugin", str(PLANTED), "--passes", f"default,after({after})={name}"]


def test_wrong_numbers(reduce, chain: Path) -> None:
    done = reduce(chain, *plant("wrong-tanh"))
    assert done.status == 0, done.err
    assert done.operators == ["Tanh"]
    assert "first wrong pass: wrong-tanh" in done.out
    with np.load(done.small.with_suffix(".npz")) as inputs:
        assert all(array.size <= 8 for array in inputs.values())
    again = main(["verify", str(done.small), "--inputs", str(done.small.with_suffix(".npz")),
                  *plant("wrong-tanh")])
    assert again == 1  # what is written is a model that fails by itself, by the plugin's fault


def test_a_fault_of_the_compiler(reduce, short: Path) -> None:
    done = reduce(short, *plant("faulty-erf"))
    assert done.operators == ["Erf"]
    assert "pass at fault: faulty-erf" in done.out
    assert not list(done.small.parent.glob("reproducer*"))


@pytest.mark.slow
def test_a_refusal(reduce, chain: Path) -> None:
    done = reduce(chain, *plant("refused-erf"))
    assert done.operators == ["Erf"]
    assert "there is an erf" in done.out


@pytest.mark.slow
def test_a_crash(reduce, short: Path) -> None:
    done = reduce(short, *plant("crashing-sqrt"))
    assert done.operators == ["Sqrt"]
    assert "it ended in: crashing-sqrt" in done.out and "signal 11" in done.out


@pytest.mark.slow
def test_a_hang(reduce, chain: Path) -> None:
    hang = plant("hanging-softplus", after="graph-sink-constants")  # before it is decomposed
    done = reduce(chain, *hang, "--timeout", "4", "--seconds", "400")
    assert done.status == 0, done.err
    assert done.operators == ["Softplus"]
    assert "it ended in: hanging-softplus" in done.out


def test_a_command_of_ones_own(reduce, short: Path, tmp_path: Path) -> None:
    """Exit status 1 means that it fails still; others, also of commands that break, that not."""
    script = tmp_path / "check.py"
    script.write_text(
        "import sys\n"
        "model = open(sys.argv[1], 'rb').read()\n"
        "sys.exit(1 if b'MatMul' in model and b'Sqrt' in model else 7)\n")
    done = reduce(short, "--check", f"{sys.executable} {script} {{}}")
    assert done.status == 0, done.err
    assert sorted(done.operators) == ["MatMul", "Sqrt"]


@pytest.mark.slow
def test_little_time_leaves_what_was_found(reduce, chain: Path) -> None:
    done = reduce(chain, *plant("wrong-tanh"), "--seconds", "1")
    assert done.status == 0
    assert "Tanh" in done.operators


def test_a_model_that_does_not_fail(reduce, short: Path) -> None:
    done = reduce(short)
    assert done.status == 1
    assert "does not fail" in done.err and not done.small.exists()


@pytest.mark.parametrize(("name", "text"), [
    ("a.mlir", "only .onnx models become smaller"), ("none.onnx", "there is no file"),
    ("broken.onnx", "cannot read")])
def test_what_is_no_model(reduce, tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"\xff\xfe nothing")
    done = reduce(tmp_path / name)
    assert done.status == 1 and text in done.err
