"""Libraries with code of their own for some sizes: each call runs what fits, and computes the
same."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import compiler
from compiler.__main__ import main
from targets.cpu.machine import lacking
from targets.library_file import read_facts
from tests import processes
from tests.programs.test_libraries import AT, CHOSEN, X, model_of, outcome
from tests.programs.test_saved_programs import LOOPED, SIZED
from tests.targets.cpu.artifact.shipped import build, needs_sanitizers, needs_tools, output_of, ship
from tests.targets.cpu.artifact.test_c_programs import HERE, MLP

pytestmark = needs_tools


@pytest.mark.parametrize("sanitized", [False, pytest.param(True, marks=needs_sanitizers)])
def test_c_programs_see_one_model(tmp_path: Path, sanitized: bool) -> None:
    """All refusals, and every allocation that fails, with code for sizes that the calls have."""
    model = ship(model_of(MLP), tmp_path / "mlp", "mlp", also=[{"n": 3}, {"n": 200}])
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover"] if sanitized else []
    if sanitized:
        made_again(model, *flags)
    build([HERE / "errors.c", model / "mlp.a"], tmp_path / "program", *flags, f"-I{model}",
          strict=not sanitized)
    assert output_of(tmp_path / "program") == "0 failures\n"


def made_again(model: Path, *flags: str) -> None:
    """Make the archive of a folder with other flags for the C around the code."""
    if not shutil.which("make"):
        pytest.skip("there is no make")
    archive = model / f"{model.name}.a"
    archive.unlink()
    done = processes.run(["make", "-C", model, archive.name, f"CFLAGS=-O1 {' '.join(flags)}"],
                         text=True, capture_output=True, limit=240)
    assert done.returncode == 0, done.stderr


def test_sizes_that_need_other_code_get_it(tmp_path: Path) -> None:
    path = ship(model_of(CHOSEN), tmp_path / "model.so", also=[{"n": 1}, {"n": 3}])
    loaded, exe = compiler.load(path, threads=2), compiler.compile(model_of(CHOSEN), threads=2)
    w = X[:, 4:]
    for _ in range(2):
        for inputs in ([X[:1, :4], w, np.array([0, 0])], [X[:, :4], w, AT],
                       [X[:1, :4], w, np.array([0, 5])], [X[:2, :4], w, AT], [X[:1, :4], w[:2], AT],
                       [X[0], w, AT]):
            assert outcome(loaded, inputs) == outcome(exe, inputs)


def test_outputs_that_only_a_run_knows(tmp_path: Path) -> None:
    x = np.array([1, 0, 2, 0, 3, 4], np.float32)
    loaded = compiler.load(ship(model_of(SIZED), tmp_path / "sized.so", also=[{"n": 6}]))
    exe = compiler.compile(model_of(SIZED))
    for inputs in ([x, np.array([2])], [x[:4], np.array([1])], [x[:2], np.array([1])]):
        assert outcome(loaded, inputs) == outcome(exe, inputs)
    with pytest.raises(compiler.SizeError, match="which is 6 == 4"):
        loaded(x, np.array([4]))


def test_a_signal_ends_a_loop_in_code_for_some_sizes(tmp_path: Path) -> None:
    model = model_of(LOOPED.replace("float[2]", "float[n]"))
    loaded = compiler.load(ship(model, tmp_path / "looped.so", also=[{"n": 2}]), threads=2)

    def handler(*_: object) -> None:
        raise TimeoutError("enough")

    for x in (X[0, :2], X[0, :3]):
        before = signal.signal(signal.SIGALRM, handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(TimeoutError, match="enough"):
                loaded(x, np.array(2**47))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        np.testing.assert_array_equal(loaded(x, np.array(3))[0], x * 8)


def test_each_set_of_features_has_its_own(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    path = ship(model_of(MLP), tmp_path / "mlp.so", "mlp", variants=["baseline", "avx2"],
                also=[{"n": 2}])
    again = ship(model_of(MLP), tmp_path / "again" / "mlp.so", "mlp",
                 variants=["baseline", "avx2"], also=[{"n": 2}])
    assert again.read_bytes() == path.read_bytes()
    facts = read_facts(str(path))
    assert (facts["sizes"], len(facts["variants"])) == ([{"n": 2}], 2)
    best = "baseline" if lacking("avx2") else "avx2"
    exe, loaded = compiler.compile(model_of(MLP), features=best), compiler.load(path)
    for rows in (1, 2, 3):
        np.testing.assert_allclose(loaded(X[:rows])[0], exe(X[:rows])[0], rtol=1e-5, atol=1e-6)


def test_a_folder_makes_them_again(tmp_path: Path) -> None:
    folder = ship(model_of(MLP), tmp_path / "mlp", "mlp", also=[{"n": 2}])
    wanted = output_of(printing(folder), "2"), output_of(printing(folder), "4")
    made_again(folder)
    assert (output_of(printing(folder), "2"), output_of(printing(folder), "4")) == wanted


def printing(folder: Path) -> Path:
    """The example of a folder."""
    build([folder / "main.c", folder / "mlp.a"], folder / "main")
    return folder / "main"


def test_the_command_line_takes_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(model_of(MLP), tmp_path / "m.onnx")
    words = ["compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.so")]
    assert main([*words, "--also", "n=2", "--also", "n=5"]) == 0
    assert read_facts(str(tmp_path / "m.so"))["sizes"] == [{"n": 2}, {"n": 5}]
    capsys.readouterr()
    assert main(["inspect", str(tmp_path / "m.so")]) == 0
    assert "code of its own for n = 2\ncode of its own for n = 5\n" in capsys.readouterr().out
    assert main([*words, "--also", "m=2"]) == 1
    assert "m" in capsys.readouterr().err
    assert main([*words, "--also", "n"]) == 2
