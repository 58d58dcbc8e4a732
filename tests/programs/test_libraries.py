"""Models as shared libraries in Python: they compute and refuse what the model in this process
does, need no compiler, and are refused where they do not fit."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import compiler
from compiler.__main__ import main
from targets.cpu import stored
from targets.library_file import read_facts, sums_of, trailer
from tests import processes
from tests.programs.test_saved_programs import LINEAR, LOOPED, ROOT, SIZED, X
from tests.targets.cpu.artifact.shipped import needs_tools, ship

pytestmark = needs_tools
CHOSEN = """
<ir_version: 8, opset_import: ["" : 17]>
chosen (float[n, 4] x, float[3, 4] w, int64[2] at) => (float[n, 4] y, float[2, 4] z) {
    y = Add(x, w)  z = Gather<axis = 0>(x, at)
}
"""
QUANTIZED = """
<ir_version: 8, opset_import: ["" : 17]>
quantized (float[n, 8] x) => (float[n, 5] y)
<float s = {0.05}, uint8 z = {128}, int8[8, 5] w = {NUMBERS}, float r = {0.02}, int8 o = {0}> {
    q = QuantizeLinear(x, s, z)  a = DequantizeLinear(q, s, z)  b = DequantizeLinear(w, r, o)
    p = MatMul(a, b)  t = QuantizeLinear(p, s, z)  y = DequantizeLinear(t, s, z)
}
""".replace("NUMBERS", ", ".join(str(k % 9 - 4) for k in range(40)))
AT = np.array([0, 2])
CALLS: list[tuple[str, list[list[np.ndarray]]]] = [
    (LINEAR, [[X], [X[:1]], [X[:0]], [X[:, :7]], [X.astype(np.float64)], [X[0]], []]),
    (LOOPED, [[X[0, :2], np.array(5)], [X[0, :2], np.array(0)], [X[0, :2], np.array(-1)]]),
    (SIZED, [[np.array([1, 0, 2, 0, 3, 4], np.float32), np.array([2])],
             [np.zeros(4, np.float32), np.array([1])],
             [np.ones(6, np.float32), np.array([4])]]),
    (CHOSEN, [[X[:, :4], X[:, 4:], AT], [X[:, :4], X[:, 4:], np.array([0, 3])],
              [X[:, :4], X[:, 4:], np.array([-4, 2])]]),
    (QUANTIZED, [[X], [X[:2] * 100]]),
]


def model_of(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A library."""
    return ship(model_of(LINEAR), tmp_path / "linear.so", "linear")


def outcome(exe: compiler.Executable, inputs: list[np.ndarray]) -> object:
    """The outputs, or the error."""
    try:
        return [(a.dtype, a.shape, a.tobytes()) for a in exe(*inputs)]
    except (ValueError, IndexError) as error:
        return type(error), str(error)


# ---------------------------------------------------------------------- what is computed
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("text", "calls"), CALLS, ids=[t.split("(")[0].split()[-1]
                                                        for t, _ in CALLS])
def test_a_library_computes_and_refuses_the_same(
    tmp_path: Path, text: str, calls: list[list[np.ndarray]], threads: int
) -> None:
    path = ship(model_of(text), tmp_path / "model.so")
    loaded = compiler.load(path, threads=threads)
    exe = compiler.compile(model_of(text), threads=threads)
    assert (loaded.input_types, loaded.output_types) == (exe.input_types, exe.output_types)
    for _ in range(2):
        for inputs in calls:
            assert outcome(loaded, inputs) == outcome(exe, inputs)


@pytest.mark.parametrize("options", [
    {"check": True}, {"strategy": "per-op"}, {"denormals": "keep", "exact": True}])
def test_options_that_change_how_code_is_called(tmp_path: Path, options: dict[str, Any]) -> None:
    for text, calls in (CALLS[0], CALLS[3]):
        loaded = compiler.load(ship(model_of(text), tmp_path / "model.so", **options), threads=2)
        exe = compiler.compile(model_of(text), threads=2, **options)
        for inputs in calls:
            assert outcome(loaded, inputs) == outcome(exe, inputs)


def test_sequences_and_optional_values_are_passed_as_always(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    parts (float[n] x, seq(float[m]) s) => (seq(float[k]) t) { t = SequenceInsert(s, x) }"""
    loaded = compiler.load(ship(model_of(text), tmp_path / "model.so"))
    given = [X[0], [X[1, :3], X[2, :3]]]
    for found, wanted in zip(loaded(*given)[0], compiler.compile(model_of(text))(*given)[0],
                             strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_sizes_that_need_other_code_are_refused_with_what_to_do(tmp_path: Path) -> None:
    loaded = compiler.load(ship(model_of(CHOSEN), tmp_path / "model.so"))
    with pytest.raises(compiler.SizeError, match=r"--dim n=1|fixed \(--dim\)"):
        loaded(X[:1, :4], X[:, 4:], AT)


def test_constants_may_be_in_a_file_that_is_checked(tmp_path: Path) -> None:
    weights = tmp_path / "linear.weights"
    path = ship(model_of(LINEAR), tmp_path / "linear.so", weights=weights)
    expected = compiler.compile(model_of(LINEAR))(X)[0]
    np.testing.assert_array_equal(compiler.load(path)(X)[0], expected)
    content = bytearray(weights.read_bytes())
    content[100] ^= 1
    weights.write_bytes(content)
    assert "weights" in refusal(path)
    weights.write_bytes(content[:90])
    assert "length" in refusal(path)
    weights.unlink()
    assert "No such file" in refusal(path)


def test_each_set_of_features_that_runs_here_computes_alike(tmp_path: Path) -> None:
    from targets.cpu.machine import features_here

    expected = compiler.compile(model_of(LINEAR))(X)[0]
    for features in features_here():
        path = ship(model_of(LINEAR), tmp_path / f"{features}.so", features=features)
        np.testing.assert_allclose(compiler.load(path)(X)[0], expected, rtol=1e-5)


def test_loading_needs_no_compiler(file: Path) -> None:
    code = """
import sys, numpy
known = set(sys.modules)
import compiler
exe = compiler.load(sys.argv[1])
numpy.save(sys.argv[2], exe(numpy.ones((3, 8), numpy.float32))[0])
print(*{m.partition(".")[0] for m in set(sys.modules) - known})
"""
    done = processes.run([sys.executable, "-c", code, file, file.with_suffix(".npy")], cwd=ROOT,
                         text=True, capture_output=True, limit=120)
    assert not done.stderr
    assert not {"xdsl", "llvmlite", "onnx", "passes", "hashlib"} & {*done.stdout.split()}
    np.testing.assert_array_equal(np.load(file.with_suffix(".npy")), compiler.compile(
        model_of(LINEAR))(np.ones((3, 8), np.float32))[0])


def test_a_path_may_get_another_model(tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    models = [model_of(LINEAR), model_of(LINEAR.replace("Relu", "Neg"))]
    loaded = [compiler.load(ship(model, path)) for model in models]
    for exe, model in zip(loaded, models, strict=True):
        np.testing.assert_array_equal(exe(X)[0], compiler.compile(model)(X)[0])


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    made = [ship(model_of(SIZED), tmp_path / folder, "model") for folder in ("one", "other")]
    for file in made[0].iterdir():
        assert file.read_bytes() == (made[1] / file.name).read_bytes(), file.name


def test_other_processes_make_the_same_bytes(tmp_path: Path) -> None:
    """Hashes of Python, folders, time zones, umasks and times of files leave no trace."""
    folders = [tmp_path / "one", tmp_path / "another" / "deeper"]
    for seed, folder in enumerate(folders, 1):
        folder.mkdir(parents=True)
        onnx.save(model_of(QUANTIZED), folder / "m.onnx")
        os.utime(folder / "m.onnx", (seed << 20, seed << 20))
        done = processes.run(
            [sys.executable, "-m", "compiler", "compile", "m.onnx", "-o", "made", "--cache", "off"],
            cwd=folder, text=True, capture_output=True, limit=300, umask=0o22 << seed & 0o77,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": str(seed),
                 "TZ": f"UTC{seed}"})
        assert done.returncode == 0, done.stderr
    made = [{file.name: file.read_bytes() for file in (folder / "made").iterdir()}
            for folder in folders]
    assert {"made.so", "made.a", "made.h", "made_numpy.py"} <= made[0].keys() == made[1].keys()
    assert [name for name in made[0] if made[0][name] != made[1][name]] == []


def test_a_library_needs_the_c_library_only(file: Path) -> None:
    readelf = shutil.which("readelf")
    if readelf is None:
        pytest.skip("there is no readelf")
    done = processes.run([readelf, "-dW", file], text=True, capture_output=True, limit=60)
    needed = {line.partition("[")[2].rstrip("]") for line in done.stdout.splitlines()
              if "(NEEDED)" in line}
    assert needed <= {"libc.so.6", "libm.so.6", "libpthread.so.0", "ld-linux-x86-64.so.2"}


def test_a_signal_ends_a_loop_that_takes_for_ever(tmp_path: Path) -> None:
    loaded = compiler.load(ship(model_of(LOOPED), tmp_path / "model.so"), threads=2)

    def handler(*_: object) -> None:
        raise TimeoutError("enough")

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(TimeoutError, match="enough"):
            loaded(X[0, :2], np.array(2**47))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    np.testing.assert_array_equal(loaded(X[0, :2], np.array(3))[0], X[0, :2] * 8)


def test_threads_call_a_library_at_once(tmp_path: Path) -> None:
    loaded = compiler.load(ship(model_of(SIZED), tmp_path / "model.so"), threads=3)
    exe = compiler.compile(model_of(SIZED), threads=1)
    inputs = [[np.arange(k * 2, dtype=np.float32) % 3, np.array([2])] for k in range(1, 30)]
    wanted = [outcome(exe, i) for i in inputs]
    with ThreadPoolExecutor(6) as pool:
        for _ in range(5):
            assert list(pool.map(partial(outcome, loaded), inputs)) == wanted


# ---------------------------------------------------------------------- what is refused
def refusal(path: Path) -> str:
    with pytest.raises(compiler.StrataError) as caught:
        compiler.load(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_any_change_is_found(file: Path) -> None:
    content = file.read_bytes()
    for place in (*range(64, len(content), len(content) // 40), len(content) - 1):
        changed = bytearray(content)
        changed[place] ^= 0x10
        file.write_bytes(changed)
        assert "what was written" in (text := refusal(file)) or "made by others" in text
    for length in (4, 100, len(content) // 2, len(content) - 1):
        file.write_bytes(content[:length])
        refusal(file)
    file.write_bytes(content + b"\0")
    assert "made by others" in refusal(file)


@pytest.mark.parametrize(("suffix", "reason"), [
    (".a", "a static library, for linkers"), (".o", "an object, for linkers"),
    (".weights", "the constants of a library")])
def test_what_else_is_written_is_no_program_to_load(
    tmp_path: Path, suffix: str, reason: str
) -> None:
    weights = tmp_path / "model.weights" if suffix == ".weights" else None
    ship(model_of(LINEAR), tmp_path / f"model{'.so' if weights else suffix}", weights=weights)
    found = refusal(tmp_path / f"model{suffix}")
    assert reason in found and "-o model.so" in found


def changed_facts(file: Path, **changes: Any) -> None:
    """Replace what a library says of itself, with right checksums."""
    facts = read_facts(str(file)) | changes
    content = file.read_bytes()
    file.write_bytes(content[: content.rindex(b'{"strata_library"')])
    with file.open("r+b") as opened:
        assert sums_of(opened.fileno(), 1)
        tail = trailer(opened, facts)
        opened.seek(0, os.SEEK_END)
        opened.write(tail)


@pytest.mark.parametrize(("changes", "reason"), [
    ({"strata_library": 99}, "version 99 of the interface"),
    ({"system": "Plan9 mips"}, "compiled for Plan9 mips"),
    ({"target": "abacus"}, "no target 'abacus'"),
    ({"needs": ["avx1024"]}, "this processor lacks: avx1024"),
    ({"name": "other"}, "no function other_create"),
    ({"signature": {}}, "not what was written"),
    ({"signature": {"input_names": [], "input_types": [], "output_names": [],
                    "output_types": [], "defaults": []}}, "does not fit its code"),
])
def test_a_library_that_does_not_fit_is_refused(
    file: Path, changes: dict[str, Any], reason: str
) -> None:
    changed_facts(file, **changes)
    assert reason in refusal(file)


def test_a_library_of_others_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.so"
    done = foreign_library(path)
    assert done == 0
    assert "made by others" in refusal(path)


def foreign_library(path: Path) -> int:
    """Make a shared library without Strata."""
    return processes.run(["cc", "-shared", "-x", "c", "-o", path, "-"], input="int x;", text=True,
                         capture_output=True, limit=60).returncode


def test_others_must_not_be_able_to_write_it(file: Path) -> None:
    file.chmod(0o666)
    assert "user" in refusal(file)


def test_code_for_other_processors_says_so(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "lacking", lambda needs: ["avx512f"])
    assert "lacks: avx512f" in refusal(file)


# ---------------------------------------------------------------------- the command line
def test_the_command_line_writes_and_describes_libraries(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(model_of(LINEAR), tmp_path / "m.onnx")
    for suffix in (".so", ".a", ".o"):
        path = tmp_path / f"my-model{suffix}"
        assert main(["compile", str(tmp_path / "m.onnx"), "-o", str(path)]) == 0
        assert {path, tmp_path / "my_model.h", tmp_path / "my_model_main.c"} <= {
            *tmp_path.iterdir()}
        capsys.readouterr()
        assert main(["inspect", str(path)]) == 0
        shown = capsys.readouterr().out
        assert "x  f32[n, 8]" in shown and "m.onnx: sha256" in shown
        assert main(["inspect", str(path), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["name"] == "my_model"


@pytest.mark.parametrize(("words", "status", "reason"), [
    (["-o", "m.lib"], 2, "no library is named so"),
    (["-o", "nowhere/m.so"], 1, "there is no such folder"),
    (["-o", "m.so", "--name", "1m"], 2, "functions of C cannot start with that"),
    (["-o", "m.so", "--target", "reference"], 1, "writes no libraries"),
    (["-o", "m.so", "--features", "sse9"], 1, "no feature set 'sse9'"),
])
def test_what_cannot_be_written_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    words: list[str], status: int, reason: str,
) -> None:
    onnx.save(model_of(LINEAR), tmp_path / "m.onnx")
    monkeypatch.chdir(tmp_path)
    assert main(["compile", "m.onnx", *words]) == status
    assert reason in capsys.readouterr().err


def test_a_missing_linker_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx.save(model_of(LINEAR), tmp_path / "m.onnx")
    monkeypatch.setenv("CC", "no-such-compiler")
    assert main(["compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.so")]) == 1
    assert "no program 'no-such-compiler'" in capsys.readouterr().err


def test_files_of_weights_are_described(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = tmp_path / "model.weights"
    path = ship(model_of(LINEAR), tmp_path / "model.so", weights=weights)
    assert main(["inspect", str(weights)]) == 0
    shown = capsys.readouterr().out
    assert main(["inspect", str(path)]) == 0
    digest = shown.split("sha256 ")[1].strip()
    assert len(digest) == 64 and digest in capsys.readouterr().out
    weights.write_bytes(weights.read_bytes()[:-1])
    assert main(["inspect", str(weights)]) == 1
    assert "cut short" in capsys.readouterr().err


def test_what_is_no_library_is_not_described(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.so").write_bytes(b"nothing")
    assert main(["inspect", str(tmp_path / "x.so")]) == 1
    assert "no library of Strata's" in capsys.readouterr().err
    assert main(["inspect", str(tmp_path / "missing.so")]) == 1
