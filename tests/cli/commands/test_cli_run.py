"""`run`, `verify` and `bench`: executing models."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import Run

INPUTS = {"in/x:0": np.random.default_rng(1).standard_normal((5, 8), np.float32),
          "rows": np.array([4, 0, 2], np.int64)}


def expected(model: Path) -> np.ndarray:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(None, INPUTS)[0]


def test_inputs_from_files(strata: Run, small_model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", **INPUTS)
    np.save(tmp_path / "rows.npy", INPUTS["rows"])
    out = tmp_path / "out.npz"
    for words in (["--inputs", "in.npz"],
                  ["--inputs", "in.npz", "--input", "rows=rows.npy"]):
        done = strata("run", small_model, "--target", "reference", *words, "--output", out)
        assert done.status == 0, done.err
        assert done.out.startswith("out/y  float32[3, 32]  min ")
        with np.load(out) as archive:
            assert archive.files == ["out/y"]
            np.testing.assert_allclose(archive["out/y"], expected(small_model), rtol=1e-5)


def test_random_inputs_follow_the_seed(strata: Run, small_model: Path) -> None:
    first, again, other = (strata("run", small_model, "--target", "reference", "--seed", seed,
                                  "--dim", "n=4", "--dim", "m=3") for seed in (1, 1, 2))
    assert first.out == again.out != other.out
    assert "float32[3, 32]" in first.out


def test_what_less_precision_costs_is_told(strata: Run, small_model: Path) -> None:
    sizes = ("--dim", "n=4", "--dim", "m=3")
    for command in (("run",), ("bench", "--rounds", "1")):
        done = strata(command[0], small_model, *command[1:], "--precision", "fast", *sizes)
        assert done.status == 0, done.err
        told = re.search(r"--precision fast: outputs differ from f32 by at most (\S+)", done.err)
        assert told and float(told[1]) < 0.02, done.err
        assert "outputs differ" not in strata(command[0], small_model, *command[1:], *sizes).err


@pytest.mark.parametrize("command", ["run", "profile", "explain"])
def test_sizes_that_are_guessed_fit_the_code(strata: Run, tmp_path: Path, command: str) -> None:
    """The compiler chose the code for 17 rows to 32; two rows would need other code."""
    model = tmp_path / "m.mlir"
    model.write_text("""
strata.func @main(%x: f32[n, m]) -> (f32[n, m]) inputs ["x"] outputs ["y"] {
  strata.assume (n + 15) floordiv 16 == 2*((n + 31) floordiv 32) chosen a at "s" else b 1 <= n
  %y = graph.exp %x : f32[n, m]
  strata.return %y
}
""")
    done = strata(command, model, *(["--seconds", "0.01"] if command == "profile" else []))
    assert done.status == 0, done.err
    assert "n=32, m=2" in done.out + done.err


def test_sizes_that_are_guessed_are_told(strata: Run, small_model: Path) -> None:
    done = strata("run", small_model, "--target", "reference", "--dim", "n=4")
    assert "sizes set for random inputs: m=2" in done.err
    assert "float32[2, 32]" in done.out


@pytest.mark.parametrize(("change", "part"), [
    ({"z": np.zeros(1)}, "no input 'z'"),
    ({"rows": np.zeros(3, np.int32)}, "input 'rows' is int32, it must be int64"),
    ({"rows": np.zeros((3, 1), np.int64)}, "input 'rows' has shape [3, 1], it must be i64[m]"),
    ({"in/x:0": np.zeros((5, 9), np.float32)},
     "input 'in/x:0' has shape [5, 9], it must be f32[n, 8]"),
])
def test_inputs_that_do_not_fit(
    strata: Run, small_model: Path, tmp_path: Path, change: dict[str, np.ndarray], part: str
) -> None:
    np.savez(tmp_path / "in.npz", **(INPUTS | change))
    done = strata("run", small_model, "--target", "reference", "--inputs", "in.npz")
    assert done.status == 1
    assert part in done.err
    assert "it takes 'in/x:0': f32[n, 8], 'rows': i64[m]" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("content", [None, b"", b"not an archive"])
def test_input_files_that_cannot_be_read(
    strata: Run, small_model: Path, tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "in.npz").write_bytes(content)
    done = strata("run", small_model, "--target", "reference", "--inputs", "in.npz")
    assert done.status == 1
    assert "in.npz" in done.err
    assert "Traceback" not in done.err


def test_pickles_are_refused(strata: Run, small_model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=np.array([{}], object))
    assert strata("run", small_model, "--target", "reference", "--inputs", "in.npz").status == 1


def test_verify_executes_every_level(strata: Run, small_model: Path) -> None:
    done = strata("verify", small_model, "--target", "reference")
    assert done.status == 0, done.err
    rows = done.out.splitlines()
    assert rows[1].startswith("import ")
    assert rows[-1].endswith("executions agree")
    only = strata("verify", small_model, "--target", "reference", "--levels-only")
    assert 3 < len(only.out.splitlines()) <= len(rows)


def test_verify_names_the_first_pass_that_errs(
    strata: Run, small_model: Path, my_pass: Path, tmp_path: Path
) -> None:
    done = strata("verify", small_model, "--target", "reference", "--plugin", my_pass,
                  "--passes", "default,after(graph-cse)=my-pass{base=2.0}")
    assert done.status == 1  # the plugin's fault
    assert "a plugin failed in my-pass" in done.err
    assert f"{my_pass}, line " in done.err
    folder = tmp_path / "reproducer-small-my-pass"
    assert {p.name for p in folder.iterdir()} == {
        "before.mlir", "weights.npz", "inputs.npz", "command.txt", "traceback.txt",
        "versions.txt"}
    again = strata("verify", folder / "before.mlir", "--inputs", folder / "inputs.npz",
                   "--target", "reference", "--plugin", my_pass, "--passes", "my-pass{base=2.0}")
    assert again.status == 1
    assert "in my-pass" in again.err


def test_a_right_pass_agrees(strata: Run, small_model: Path, my_pass: Path) -> None:
    done = strata("verify", small_model, "--target", "reference", "--plugin", my_pass,
                  "--passes", "default,after(graph-cse)=my-pass")
    assert done.status == 0, done.out
    assert "my-pass " in done.out


def test_bench_writes_its_figures(strata: Run, small_model: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    done = strata("bench", small_model, "--target", "reference", "--against", "onnxruntime",
                  "--threads", 1, "--rounds", 2, "--json", "figures.json")
    assert done.status == 0, done.err
    report = json.loads((tmp_path / "figures.json").read_text())
    assert [row["name"] for row in report["results"]] == ["strata", "onnxruntime"]
    assert all(row["median_ms"] > 0 and row["difference"] < 1e-5 for row in report["results"])
    unknown = strata("bench", small_model, "--target", "reference", "--against", "nothing")
    assert unknown.status == 1
    assert "there are: inductor, onnxruntime, openvino, torch" in unknown.err


# ---------------------------------------------------------------------- outputs
def test_an_npy_takes_one_output(strata: Run, small_model: Path) -> None:
    done = strata("run", small_model, "--target", "reference", "-o", "y.npy")
    assert done.status == 0, done.err
    strata("run", small_model, "--target", "reference", "-o", "y.npz")
    one: Any = np.load("y.npy", allow_pickle=False)
    assert one.shape == (2, 32)
    np.testing.assert_array_equal(one, np.load("y.npz")["out/y"])


def test_an_npy_of_several_outputs_is_refused(strata: Run, tmp_path: Path) -> None:
    (tmp_path / "two.mlir").write_text("""
strata.func @main(%x: f32[4]) -> (f32[4], f32[4]) inputs ["x"] outputs ["a", "b"] {
  %y = graph.neg %x : f32[4]
  %z = graph.exp %x : f32[4]
  strata.return %y, %z
}
""")
    done = strata("run", "two.mlir", "--target", "reference", "-o", "y.npy")
    assert done.status == 1 and "2 outputs: a, b" in done.err and "y.npz takes all" in done.err
    assert not Path("y.npy").exists()


def test_an_output_that_cannot_be_written_leaves_what_was_there(
    strata: Run, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("y.npz").write_text("precious")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        done = strata("run", small_model, "--target", "reference", "-o", "y.npz")
    assert done.status == 1 and "cannot write y.npz: No space left on device" in done.err
    assert Path("y.npz").read_text() == "precious"
    assert [p.name for p in Path().iterdir() if p.suffix == ".part"] == []


def test_a_link_and_a_mode_stay(strata: Run, small_model: Path) -> None:
    Path("real.npz").write_bytes(b"")
    Path("real.npz").chmod(0o640)
    Path("y.npz").symlink_to("real.npz")
    assert strata("run", small_model, "--target", "reference", "-o", "y.npz").status == 0
    assert Path("y.npz").is_symlink() and Path("real.npz").stat().st_mode & 0o777 == 0o640
    assert "out/y" in np.load("real.npz")
