"""Compiled models on disk: found again, never when anything differs, and never trusted blindly."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import compiler
from compiler.diagnostics import StrataError
from compiler.executable import compile_with
from compiler.instrument.timing import Timing
from compiler.options import CACHE_SIZE, CompileOptions, cache_limit
from compiler.pipeline.driver import Compiler
from compiler.programs import circumstances
from compiler.programs import kept as programs
from compiler.programs.entry import Damaged, read_entry, write_entry
from dialects.strata.mapped import mapping_of
from targets.cpu import stored
from tests import processes
from tests.programs.compilations import count_compilations

ROOT = Path(__file__).parents[2]
X = np.random.default_rng(0).standard_normal((3, 8), np.float32)


def linear_model(scale: float = 1.0) -> onnx.ModelProto:
    """y = relu(x @ w), x: f32[n, 8]; models of all scales have the same length in bytes."""
    w = np.random.default_rng(1).standard_normal((8, 300), np.float32) * np.float32(scale)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 300])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
             helper.make_node("Relu", ["p"], ["y"], name="relu")]
    graph = helper.make_graph(nodes, "linear", [x], [y], [numpy_helper.from_array(w, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class Bench:
    """A model file and a cache folder of its own. `compiled` counts compilations."""

    def __init__(self, folder: Path):
        self.folder, self.model, self.cache = folder, folder / "model.onnx", folder / "cache"
        self.compiled = 0
        onnx.save(linear_model(), self.model)

    def compile(self, **options: Any) -> compiler.Executable:
        return compiler.compile(self.model, **{"threads": 1, "cache": self.cache, **options})

    def is_found(self, **options: Any) -> bool:
        """Whether the model with these options needs no compilation."""
        before = self.compiled
        self.compile(**options)
        return self.compiled == before

    def entries(self) -> list[Path]:
        found = (self.cache / "programs" / "entries").glob("*")
        return sorted(path for path in found if path.suffix != ".whole")

    def entry(self) -> Path:
        (found,) = self.entries()
        return found


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = Bench(tmp_path)

    def count() -> None:
        bench.compiled += 1

    count_compilations(monkeypatch, count)
    return bench


def python(code: str, *words: object) -> processes.Child:
    """A process of its own."""
    return processes.start([sys.executable, "-c", code, *map(str, words)], cwd=ROOT, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)


# ---------------------------------------------------------------------- what is found
def test_a_model_is_found_and_gives_the_same(bench: Bench) -> None:
    first = bench.compile()
    again = bench.compile()
    assert bench.compiled == 1
    assert (again.input_names, again.input_types) == (["x"], ["f32[n, 8]"])
    assert (again.output_names, again.output_types) == (["y"], ["f32[n, 300]"])
    uncached = bench.compile(cache="off")
    for exe in (first, again):
        np.testing.assert_array_equal(exe(X)[0], uncached(X)[0])
    with pytest.raises(ValueError, match="dim 1 of input 'x' is 7 but must be 8"):
        again(X[:, :7].copy())
    assert "graph.matmul" in again.text("graph")


def test_a_found_model_needs_no_compiler(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "_RESTLESS", 0.0)  # the file is new, but nobody changes it
    expected = bench.compile()(X)[0]
    np.save(bench.folder / "x.npy", X)
    code = """
import sys, numpy
known = set(sys.modules)
import compiler
model, cache, folder = sys.argv[1:]
y, = compiler.compile(model, threads=1, cache=cache)(numpy.load(folder + "/x.npy"))
numpy.save(folder + "/y.npy", y)
print(*{m.partition(".")[0] for m in set(sys.modules) - known})
"""
    out, err = python(code, bench.model, bench.cache, bench.folder).communicate()
    assert not err
    heavy = {"xdsl", "llvmlite", "onnx", "ml_dtypes", "hashlib", "pathlib", "tempfile", "passes"}
    assert "targets" in out.split() and not heavy & set(out.split())
    np.testing.assert_array_equal(np.load(bench.folder / "y.npy"), expected)


def test_the_command_line_finds_it_too(bench: Bench) -> None:
    bench.compile()
    code = ("import sys; from compiler.__main__ import main; main(sys.argv[1:]); "
            "print('xdsl' in sys.modules)")
    out, _ = python(code, "run", bench.model, "--threads", 1, "--cache",
                    bench.cache).communicate()
    assert out.splitlines()[-1] == "False"


def test_a_copy_and_a_touched_file_are_the_same_model(bench: Bench) -> None:
    bench.compile()
    os.utime(bench.model)
    assert bench.is_found()
    shutil.copy(bench.model, bench.folder / "copy.onnx")
    bench.model = bench.folder / "copy.onnx"
    assert bench.is_found()
    assert len(bench.entries()) == 1


def test_constants_are_in_memory_of_their_own(bench: Bench) -> None:
    """No file that is cut short can end the process later."""
    for options in ({}, {}, {"cache": "off"}):
        exe = bench.compile(**options)
        constants: Sequence[Any] = exe.loaded.constants  # type: ignore[attr-defined]
        assert constants and all(mapping_of(c) is None for c in constants)
        assert not any(c.ctypes.data % 64 for c in constants)


def test_sizes_that_a_run_computes(bench: Bench) -> None:
    """What the host function returns and checks survives, with its messages."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
    k = helper.make_tensor_value_info("k", TensorProto.INT64, [1])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, [1, "found"])
    z = helper.make_tensor_value_info("z", TensorProto.FLOAT, ["a", "b"])
    nodes = [helper.make_node("NonZero", ["x"], ["y"], name="find"),
             helper.make_node("Concat", ["k", "minus"], ["shape"], name="join", axis=0),
             helper.make_node("Reshape", ["x", "shape"], ["z"], name="fold")]
    minus = numpy_helper.from_array(np.array([-1], np.int64), "minus")
    graph = helper.make_graph(nodes, "sizes", [x, k], [y, z], [minus])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
              bench.model)
    values = np.array([1, 0, 2, 0, 3, 4], np.float32)
    expected = bench.compile(cache="off")
    bench.compile()
    exe = bench.compile()
    assert bench.compiled == 2
    for a, b in zip(exe(values, np.array([2])), expected(values, np.array([2])), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError) as wrong:
        expected(values, np.array([4]))
    with pytest.raises(ValueError) as again:
        exe(values, np.array([4]))
    assert str(again.value) == str(wrong.value)
    assert "fold" in str(again.value)


# ---------------------------------------------------------------------- what is not
def test_another_content_is_another_model(bench: Bench) -> None:
    """Also where the file has the old name, length and time of change."""
    old = bench.compile()(X)[0]
    before = bench.model.stat()
    onnx.save(linear_model(2.0), bench.model)
    os.utime(bench.model, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert bench.model.stat().st_size == before.st_size
    np.testing.assert_allclose(bench.compile()(X)[0], 2 * old, rtol=1e-6)
    assert bench.compiled == 2
    onnx.save(linear_model(), bench.model)
    assert bench.is_found()


def test_weights_beside_the_model_count(bench: Bench) -> None:
    def save(scale: float) -> None:
        (bench.folder / "w.bin").unlink(missing_ok=True)
        onnx.save(linear_model(scale), bench.model, save_as_external_data=True, location="w.bin",
                  size_threshold=0)

    save(1.0)
    content = bench.model.read_bytes()
    old = bench.compile()(X)[0]
    assert bench.is_found()
    save(2.0)
    assert bench.model.read_bytes() == content
    np.testing.assert_allclose(bench.compile()(X)[0], 2 * old, rtol=1e-6)
    assert bench.compiled == 2
    (bench.folder / "w.bin").unlink()
    with pytest.raises(StrataError, match="does not exist"):
        bench.compile()


@pytest.mark.parametrize("options", [
    {"dims": {"n": 3}}, {"shapes": {"x": (4, 8)}}, {"features": "baseline"}, {"precision": "fast"},
    {"exact": True}, {"constants": {"x": X}}, {"constants": {"x": 2 * X}}],
    ids=lambda options: next(iter(options)))
def test_options_count(bench: Bench, options: dict[str, Any]) -> None:
    bench.compile()
    assert not bench.is_found(**options)
    assert bench.is_found(**options)
    assert bench.is_found()
    assert bench.is_found(threads=2)  # is no matter of the code


def test_the_machine_and_the_software_count(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.compile()
    for module, name in ((stored, "identity"), (programs, "software_text")):
        with monkeypatch.context() as changed:
            changed.setattr(module, name, lambda: "another")
            assert not bench.is_found()
            assert bench.is_found()
    with monkeypatch.context() as changed:
        changed.setattr(stored, "identity", lambda: None)  # nobody knows
        assert not bench.is_found()
        assert not bench.is_found()
    assert bench.is_found()  # its record is of other circumstances now; its contents are known


def test_our_own_files_are_part_of_the_software(monkeypatch: pytest.MonkeyPatch) -> None:
    text = circumstances.software_text()
    assert str(ROOT / "passes" / "loop" / "fuse.py") in text
    assert f"numpy-{np.__version__}.dist-info" in text
    monkeypatch.setattr(sys, "version", "3.99")
    assert circumstances.software_text() != text


@pytest.mark.parametrize("options", [
    {"passes": "default,without(graph-cse)"}, {"dump_dir": "dumps"}, {"cache": "off"},
    {"specialize": compiler.Specialize()}, {"target": "reference"}],
    ids=lambda options: next(iter(options)))
def test_what_asks_for_more_is_compiled(
    bench: Bench, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bench.folder)
    assert not bench.is_found(**options)
    assert not bench.is_found(**options)
    assert not (bench.cache / "programs").exists() or not bench.entries()


def test_an_instrument_of_passes_sees_them(bench: Bench) -> None:
    bench.compile()
    options = CompileOptions(threads=1, cache=str(bench.cache))
    compile_with(str(bench.model), options, [timing := Timing()])
    assert timing.rows and bench.compiled == 2


def test_a_model_that_changes_meanwhile_is_not_kept(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = Compiler.load

    def change(self: Compiler, state: Any) -> Any:
        onnx.save(linear_model(2.0), bench.model)
        return load(self, state)

    with monkeypatch.context() as changed:
        changed.setattr(Compiler, "load", change)
        bench.compile()
    assert not bench.is_found()


# ---------------------------------------------------------------------- damage
def damage(path: Path, place: float, how: str) -> None:
    content = bytearray(path.read_bytes())
    at = min(int(place * len(content)), len(content) - 1)
    if how == "flip":
        content[at] ^= 4
    path.write_bytes(content[:at] if how == "cut" else content)


@pytest.mark.parametrize("how", ["flip", "cut"])
@pytest.mark.parametrize("place", [0.0, 0.001, 0.02, 0.1, 0.3, 0.6, 0.9, 0.999])
def test_a_damaged_entry_is_made_again(bench: Bench, place: float, how: str) -> None:
    expected = bench.compile()(X)[0]
    good = bench.entry().read_bytes()
    damage(bench.entry(), place, how)
    np.testing.assert_array_equal(bench.compile()(X)[0], expected)
    assert bench.compiled == 2
    assert bench.entry().read_bytes() == good
    assert bench.is_found()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff", b'{"model": 1}'])
def test_a_damaged_record_counts_as_none(bench: Bench, content: bytes) -> None:
    bench.compile()
    for kind in ("records", "contents"):
        (path,) = (bench.cache / "programs" / kind).iterdir()
        path.write_bytes(content)
    assert not bench.is_found()
    assert bench.is_found()


def test_without_a_note_everything_is_checked(bench: Bench) -> None:
    """As after a start of the machine; what is damaged without a trace is found then."""
    bench.compile()
    path = bench.entry()
    before = path.stat()
    damage(path, 0.9, "flip")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    read_entry(str(path), path.name)  # the system vouches for it: same inode, size and time
    Path(f"{path}.whole").unlink()
    with pytest.raises(Damaged, match="blob"):
        read_entry(str(path), path.name)


def test_an_entry_without_blobs_and_facts(tmp_path: Path) -> None:
    write_entry(str(tmp_path / "e"), "key", {}, [np.zeros(0, np.uint8), np.arange(5.0)])
    facts, blobs = read_entry(str(tmp_path / "e"), "key")
    assert facts == {} and blobs[0].size == 0
    np.testing.assert_array_equal(blobs[1].view(np.float64), np.arange(5.0))


# ---------------------------------------------------------------------- other users and processes
@pytest.mark.parametrize("kind", ["", "entries", "records"])
def test_a_folder_that_others_can_write_to_is_not_used(bench: Bench, kind: str) -> None:
    bench.compile()
    folder = bench.cache / "programs" / kind
    assert folder.stat().st_mode & 0o777 == 0o700
    for path in bench.entries():
        path.unlink()
    folder.chmod(0o770)
    assert not bench.is_found()
    assert not bench.is_found()
    assert not bench.entries()


def test_a_file_that_others_can_write_to_is_not_used(bench: Bench) -> None:
    bench.compile()
    bench.entry().chmod(0o666)
    assert not bench.is_found()
    assert bench.entry().stat().st_mode & 0o777 == 0o600
    assert bench.is_found()


def test_a_folder_that_cannot_be_written_is_no_error(bench: Bench) -> None:
    (bench.folder / "file").write_text("")
    assert not bench.is_found(cache=bench.folder / "file")
    bench.compile()
    (bench.cache / "programs" / "records").chmod(0o500)
    assert bench.is_found()


def test_processes_at_the_same_time(bench: Bench) -> None:
    code = """
import sys, numpy, compiler
y, = compiler.compile(sys.argv[1], threads=1, cache=sys.argv[2])(numpy.ones((2, 8), "float32"))
print(y.astype("float64").sum())
"""
    processes = [python(code, bench.model, bench.cache) for _ in range(3)]
    outputs = {process.communicate() for process in processes}
    expected = bench.compile()(np.ones((2, 8), np.float32))[0].astype(np.float64).sum()
    assert outputs == {(f"{expected}\n", "")}
    assert bench.compiled == 0
    left = [path.name for path in (bench.cache / "programs").rglob("*.part")]
    assert len(bench.entries()) == 1 and not left


def test_the_model_used_longest_ago_makes_room(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    scales, paths = (1.0, 2.0, 3.0), list[Path]()
    for age, scale in zip((50, 20, 0), scales, strict=True):
        onnx.save(linear_model(scale), bench.model)
        if age == 0:
            size = bench.entries()[0].stat().st_size
            monkeypatch.setenv("STRATA_CACHE_SIZE", f"{2 * size // 1024 + 1}K")
        bench.compile()
        (new,) = set(bench.entries()) - set(paths)
        paths.append(new)
        os.utime(new, (new.stat().st_atime - 3600 * age, new.stat().st_mtime))
    assert bench.entries() == sorted(paths[1:])
    assert not Path(f"{paths[0]}.whole").exists()


def test_a_use_is_noted(bench: Bench) -> None:
    bench.compile()
    before = bench.entry().stat()
    os.utime(bench.entry(), ns=(before.st_atime_ns - 10**13, before.st_mtime_ns))
    assert bench.is_found()
    after = bench.entry().stat()
    assert after.st_atime_ns >= before.st_atime_ns and after.st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize("size", ["0", "1K"])
def test_a_model_beyond_the_limit_is_not_kept(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, size: str
) -> None:
    monkeypatch.setenv("STRATA_CACHE_SIZE", size)
    assert not bench.is_found()
    assert not bench.is_found()
    assert not bench.entries()


@pytest.mark.parametrize(("text", "size"), [
    ("", CACHE_SIZE), ("0", 0), ("1000", 1000), ("3k", 3 << 10), ("500M", 500 << 20),
    ("2GB", 2 << 30), ("1T", 1 << 40), ("much", CACHE_SIZE)])
def test_the_limit(monkeypatch: pytest.MonkeyPatch, text: str, size: int) -> None:
    monkeypatch.setenv("STRATA_CACHE_SIZE", text)
    assert cache_limit() == size
