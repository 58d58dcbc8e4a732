"""Bad models, options and inputs: exit status, one message that names what is wrong and where, no
traceback, and no file half written.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import compiler
from tests import processes
from tests.cli.conftest import Outcome, Run, make_model

ROOT = Path(__file__).parents[3]
INPUTS = {"in/x:0": np.random.default_rng(1).standard_normal((5, 8), np.float32),
          "rows": np.array([4, 0, 2], np.int64)}
COMMANDS = (("lower", "-o"), ("run", "--output"))
"""Each with its option for the file that it writes."""


def refused(done: Outcome, *parts: str, status: int = 1, file: Path = Path("out.npz")) -> None:
    """One message with all `parts`, and nothing else."""
    assert done.status == status, done.err
    assert done.out == ""
    assert done.err.count("error: ") == 1
    assert "Traceback" not in done.err
    assert "fault of the compiler" not in done.err
    for part in parts:
        assert part in done.err
    assert not file.exists()
    strange = [p.name for p in Path.cwd().iterdir() if p.name.startswith((".", "reproducer"))]
    assert strange == []


# ---------------------------------------------------------------------- files
Make = Callable[[Path], object]
WHOLE = make_model().SerializeToString()
FILES: dict[str, tuple[Make, str]] = {
    "missing": (lambda path: None, "no such file"),
    "empty": (lambda path: path.write_bytes(b""), "empty"),
    "text": (lambda path: path.write_text("a letter, and no model\n" * 40), "not an ONNX model"),
    "zeros": (lambda path: path.write_bytes(bytes(4096)), "not an ONNX model"),
    "folder": (lambda path: path.mkdir(), "it is not a file"),
    "cut at 30": (lambda path: path.write_bytes(WHOLE[:30]), "cannot read"),
    "cut in half": (lambda path: path.write_bytes(WHOLE[:len(WHOLE) // 2]), "cannot read"),
    "cut by 1": (lambda path: path.write_bytes(WHOLE[:-1]), "cannot read"),
    "no graph": (lambda path: path.write_bytes(b"\x08\x08"), "no graph"),
    "pipe": (os.mkfifo, "it is not a file"),
}


@pytest.mark.parametrize(("command", "option"), COMMANDS)
@pytest.mark.parametrize("kind", FILES)
def test_files_that_are_no_model(strata: Run, kind: str, command: str, option: str) -> None:
    make, part = FILES[kind]
    make(Path("model.onnx"))
    refused(strata(command, "model.onnx", option, "out.npz"), "model.onnx", part)


@pytest.mark.parametrize("command", ["verify", "bench"])
def test_the_other_commands_refuse_them_too(strata: Run, command: str) -> None:
    Path("model.onnx").write_bytes(WHOLE[:100])
    refused(strata(command, "model.onnx"), "model.onnx", "cannot read")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read(strata: Run) -> None:
    path = Path("model.onnx")
    path.write_bytes(WHOLE)
    path.chmod(0)
    refused(strata("lower", path, "-o", "out.npz"), "model.onnx", "ermission")


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"builtin.module {", b"hello\n"])
def test_texts_that_are_no_model(strata: Run, content: bytes) -> None:
    Path("model.mlir").write_bytes(content)
    refused(strata("lower", "model.mlir", "-o", "out.npz"), "model.mlir")


def test_a_folder_named_like_a_text(strata: Run) -> None:
    Path("model.mlir").mkdir()
    refused(strata("lower", "model.mlir", "-o", "out.npz"), "model.mlir")


def test_a_process_of_its_own(tmp_path: Path) -> None:
    """The real command line, once: its status, and both streams."""
    (tmp_path / "model.onnx").write_bytes(WHOLE[:200])
    words = [sys.executable, "-m", "compiler", "run", "model.onnx", "--output", "out.npz"]
    done = processes.run(words, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)},
                         capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ") and "model.onnx" in done.stderr
    assert "Traceback" not in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]


# ---------------------------------------------------------------------- graphs
X = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
Y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)


def node(
    op_type: str, inputs: str, outputs: str, name: str, **attributes: object
) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs.split(), outputs.split(), name=name, **attributes)


def save(nodes: Sequence[onnx.NodeProto], *initializers: onnx.TensorProto) -> None:
    graph = helper.make_graph(nodes, "bad", [X], [Y], initializers)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("my.domain", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    Path("model.onnx").write_bytes(model.SerializeToString())


W = numpy_helper.from_array(np.ones((3, 4), np.float32), "w")
SHORT = onnx.TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3, 4], raw_data=bytes(40))
TWICE = numpy_helper.from_array(np.ones(3, np.float32), "hidden")
GRAPHS: dict[str, tuple[list[onnx.NodeProto], list[onnx.TensorProto], list[str]]] = {
    "cycle": ([node("Add", "x b", "a", "first"), node("Neg", "a", "b", "second"),
               node("Relu", "b", "y", "third")], [], ["cycle", "'first'", "'second'"]),
    "itself": ([node("Add", "x y", "y", "loop")], [], ["cycle", "'loop'"]),
    "no initializer": ([node("MatMul", "x w", "y", "product")], [], ["'w'", "'product'"]),
    "short initializer": ([node("MatMul", "x w", "y", "product")], [SHORT], ["'w'", "40 bytes"]),
    "initializer and result": ([node("Neg", "x", "hidden", "a"), node("Relu", "hidden", "y", "b")],
                               [TWICE], ["'hidden'", "more than once"]),
    "two results": ([node("Neg", "x", "y", "a"), node("Relu", "x", "y", "b")], [],
                    ["'y'", "more than once"]),
    "no result": ([node("Relu", "x", "z", "a")], [], ["'y'", "no node"]),
    "operator": ([node("Fancy", "x", "a", "f", domain="my.domain"),
                  node("NonZero", "x", "b", "g"), node("Relu", "x", "y", "h")], [],
                 ["my.domain.Fancy", "'f'"]),
    "arity": ([node("Add", "x", "y", "lonely")], [], ["Add", "'lonely'"]),
    "attribute": ([node("Softmax", "x", "y", "s", axis=7)], [], ["axis 7", "'s'"]),
    "shapes": ([node("MatMul", "x w", "a", "m"), node("MatMul", "a w", "y", "wrong")], [W],
               ["'wrong'", "MatMul"]),
    "types": ([node("Cast", "x", "a", "c", to=TensorProto.INT64),
               node("Add", "a x", "y", "mixed")], [], ["'mixed'"]),
}


@pytest.mark.parametrize(("command", "option"), COMMANDS)
@pytest.mark.parametrize("kind", GRAPHS)
def test_graphs_that_are_not_valid(strata: Run, kind: str, command: str, option: str) -> None:
    nodes, initializers, parts = GRAPHS[kind]
    save(nodes, *initializers)
    refused(strata(command, "model.onnx", option, "out.npz"), "model.onnx", *parts)


def test_a_model_that_a_peer_refuses(strata: Run) -> None:
    """Our own figures are printed, beside what the peer says."""
    pytest.importorskip("onnxruntime")
    save([node("Relu", "x", "y", "r")])
    model = onnx.load("model.onnx")
    model.ir_version = 99
    onnx.save(model, "new.onnx")
    done = strata("bench", "new.onnx", "--target", "reference", "--against", "onnxruntime")
    assert done.status == 1
    assert "strata" in done.out
    assert "onnxruntime cannot load new.onnx" in done.err


def test_an_initializer_without_a_use_is_no_fault(strata: Run) -> None:
    save([node("Relu", "x", "y", "r")], W)
    assert strata("run", "model.onnx", "--target", "reference").status == 0


# ---------------------------------------------------------------------- external data
def save_external(location: str, **entries: str) -> None:
    tensor = helper.make_tensor("w", TensorProto.FLOAT, [3, 4], bytes(48), raw=True)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    save([node("MatMul", "x w", "y", "product")], tensor)


@pytest.mark.parametrize(("location", "entries", "part"), [
    ("absent.bin", {}, "does not exist"), ("short.bin", {"length": "48"}, "beyond the end"),
    ("short.bin", {"length": "40"}, "has 40 bytes"), ("../secret.bin", {}, "outside"),
    ("/etc/hostname", {}, "outside"), ("link.bin", {}, "outside"), ("", {}, "names no file"),
    ("good.bin", {"offset": "8"}, "bytes"), ("good.bin", {"offset": "-4"}, "not a number of bytes"),
    ("folder", {}, "does not exist"), ("sub/../../secret.bin", {}, "outside"),
])
@pytest.mark.parametrize(("command", "option"), COMMANDS)
def test_external_data(
    strata: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str,
    entries: dict[str, str], part: str, command: str, option: str,
) -> None:
    (tmp_path / "secret.bin").write_bytes(bytes(48))
    folder = tmp_path / "models"
    (folder / "folder").mkdir(parents=True)
    monkeypatch.chdir(folder)
    Path("short.bin").write_bytes(bytes(44))
    Path("good.bin").write_bytes(bytes(48))
    Path("link.bin").symlink_to(tmp_path / "secret.bin")
    save_external(location, **entries)
    done = strata(command, "model.onnx", option, "out.npz")
    refused(done, "model.onnx", "'w'", part)


# ---------------------------------------------------------------------- options
@pytest.mark.parametrize(("words", "status", "parts"), [
    (["--target", "tpu"], 1, ["no target 'tpu'", "cpu", "cuda", "reference"]),
    (["--features", "avx9000"], 1, ["avx9000", "avx2"]),
    (["--target", "cuda", "--features", "sm_1"], 1, ["sm_1"]),
    (["--target", "hip", "--features", "sm_90"], 1, ["no architecture 'sm_90'", "gfx942"]),
    (["--target", "cuda", "--features", "fast"], 1, ["fast", "sm_"]),
    (["--shape", "in/x:0"], 2, ["NAME=1x3x224x224"]),
    (["--shape", "in/x:0=4x"], 2, ["NAME=1x3x224x224"]),
    (["--shape", "in/x:0=-4x8"], 2, ["NAME=1x3x224x224"]),
    (["--shape", "in/x:0=4x9"], 1, ["in/x:0", "9"]),
    (["--shape", "in/x:0=4x8x1"], 1, ["in/x:0"]),
    (["--shape", "nobody=4x8"], 1, ["nobody", "in/x:0"]),
    (["--dim", "n=x"], 2, ["NAME=8"]),
    (["--dim", "n=-3"], 2, ["NAME=8"]),
    (["--dim", "nobody=3"], 1, ["nobody", "'n'"]),
    (["--passes", "default,after(nothing)=graph-cse"], 1, ["no pass 'nothing'"]),
    (["--passes", "default,loop-tile{"], 2, ["--passes: cannot read"]),
    (["--passes", "grph-cse"], 1, ["did you mean graph-cse"]),
    (["--to", "nowhere"], 1, ["nowhere", "graph, loop, host, block"]),
    (["--to", "triton"], 1, ["triton", "llvm"]),
    (["--from", "nowhere"], 2, ["invalid choice"]),
    (["--precision", "f7"], 2, ["invalid choice"]),
    (["--threads", "0"], 2, ["not a positive integer"]),
    (["--schedule", "nothing.txt"], 1, ["nothing.txt"]),
    (["--weights", "nothing.npz"], 2, ["--weights", "small.onnx brings its own"]),
    (["--plugin", "nothing.py"], 1, ["nothing.py"]),
    (["-o", "no/such/folder/file"], 1, ["cannot write", "no/such/folder/file"]),
    (["-o", "."], 1, ["cannot write"]),
    (["--dump-dir", "a file"], 1, ["which is a file", "a file"]),
])
def test_options(
    strata: Run, small_model: Path, words: list[str], status: int, parts: list[str]
) -> None:
    Path("a file").write_text("mine")
    done = strata("lower", small_model, "-o", "out.npz", *words)
    if status == 2:
        assert done.status == 2 and "Traceback" not in done.err
        assert all(part in done.err for part in parts)
        assert not Path("out.npz").exists()
    else:
        refused(done, *parts)
    assert Path("a file").read_text() == "mine"


# ---------------------------------------------------------------------- inputs
@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize(("change", "parts"), [
    ({"strange": np.zeros(1)}, ["no input 'strange'"]),
    ({"rows": np.zeros(3, np.int32)}, ["'rows' is int32, it must be int64"]),
    ({"rows": np.zeros((3, 1), np.int64)}, ["'rows' has shape [3, 1], it must be i64[m]"]),
    ({"in/x:0": np.zeros((5, 8))}, ["'in/x:0' is float64, it must be float32"]),
    ({"in/x:0": np.zeros((5, 9), np.float32)}, ["'in/x:0' has shape [5, 9]", "f32[n, 8]"]),
    ({"in/x:0": np.zeros((5, 8), ">f4")}, ["'in/x:0'"]),
    ({"in/x:0": np.array(["a"])}, ["'in/x:0'"]),
])
def test_arrays_that_do_not_fit(
    strata: Run, small_model: Path, target: str, change: dict[str, np.ndarray], parts: list[str]
) -> None:
    np.savez("in.npz", **(INPUTS | change))
    done = strata("run", small_model, "--target", target, "--inputs", "in.npz", "-o", "out.npz",
                  "--cache", "off")
    refused(done, "it takes 'in/x:0': f32[n, 8], 'rows': i64[m]", *parts)


@pytest.mark.parametrize(("words", "status", "parts"), [
    (["--inputs", "nothing.npz"], 1, ["no file nothing.npz"]),
    (["--inputs", "."], 1, ["cannot read ."]),
    (["--inputs", "one.npy"], 1, ["cannot read one.npy"]),
    (["--inputs", "cut.npz"], 1, ["cannot read cut.npz"]),
    (["--inputs", "broken.npz"], 1, ["cannot read broken.npz"]),
    (["--inputs", "objects.npz"], 1, ["cannot read objects.npz"]),
    (["--input", "rows=nothing.npy"], 1, ["no file nothing.npy"]),
    (["--input", "rows=all.npz"], 1, ["all.npz", "--inputs"]),
    (["--input", "rows"], 2, ["NAME=FILE.npy"]),
    (["--input", "nobody=one.npy"], 1, ["no input 'nobody'"]),
    (["--seed", "x"], 2, ["--seed"]),
])
def test_input_files(
    strata: Run, small_model: Path, words: list[str], status: int, parts: list[str]
) -> None:
    np.save("one.npy", INPUTS["rows"])
    np.savez("all.npz", **INPUTS)
    np.savez("objects.npz", rows=np.array([{}], object))
    whole = Path("all.npz").read_bytes()
    Path("cut.npz").write_bytes(whole[:200])
    Path("broken.npz").write_bytes(whole[:60] + bytes(30) + whole[90:])
    done = strata("run", small_model, "--target", "reference", "-o", "out.npz", *words)
    assert done.status == status, done.err
    assert all(part in done.err for part in parts)
    assert "Traceback" not in done.err and not Path("out.npz").exists()


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_an_index_out_of_range(strata: Run, small_model: Path, target: str) -> None:
    np.savez("in.npz", **(INPUTS | {"rows": np.array([4, 5], np.int64)}))
    done = strata("run", small_model, "--target", target, "--inputs", "in.npz")
    refused(done, "an index of 'rows' is 5 at node 'pick'; it must be from -5 to 4")


@pytest.mark.parametrize(("content", "part"), [
    (None, "no file lost.npz"), (b"", "lost.npz"), (b"PK no archive", "lost.npz"),
    (b"\x93NUMPY", "lost.npz"), (b"PK\x05\x06" + bytes(18), "'w'")])
def test_weights_of_a_text(
    strata: Run, small_model: Path, content: bytes | None, part: str
) -> None:
    assert strata("lower", small_model, "--to", "graph", "--dump-dir", "dumps").status == 0
    if content is not None:
        Path("lost.npz").write_bytes(content)
    refused(strata("run", "dumps/00-graph-import.mlir", "--weights", "lost.npz", "-o", "out.npz"),
            part)


# ---------------------------------------------------------------------- at call time
def make_sum() -> onnx.ModelProto:
    """x + y, both [n, 4]: sizes that contradict are known only at the call."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 4]) for n in "xy")
    z = helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 4])
    graph = helper.make_graph([node("Add", "x y", "z", "sum")], "sum", [x, y], [z])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_a_bad_call_leaves_the_program_usable(tmp_path: Path, target: str) -> None:
    onnx.save(make_sum(), tmp_path / "sum.onnx")
    exe = compiler.compile(tmp_path / "sum.onnx", target=target, cache="off")
    bad = [(ones(2, 4), ones(3, 4)), (ones(2, 4), ones(2, 5)), (ones(2, 4), ones(8)),
           (ones(2, 4), np.ones((2, 4))), (ones(2, 4),), (ones(2, 4), ones(2, 4), ones(2, 4))]
    for inputs in bad:
        with pytest.raises(ValueError):
            exe(*inputs)
        for rows in (2, 5, 0):
            np.testing.assert_array_equal(exe(ones(rows, 4), ones(rows, 4))[0], 2 * ones(rows, 4))


def test_sizes_that_contradict(strata: Run) -> None:
    Path("sum.onnx").write_bytes(make_sum().SerializeToString())
    np.savez("in.npz", x=ones(2, 4), y=ones(3, 4))
    done = strata("run", "sum.onnx", "--inputs", "in.npz", "-o", "out.npz", "--cache", "off")
    refused(done, "'y'", "n", "it takes 'x': f32[n, 4], 'y': f32[n, 4]")


# ---------------------------------------------------------------------- starting from a dump
@pytest.mark.parametrize(("target", "code"), [("cpu", "llvm"), ("cuda", "triton")])
def test_every_dump_leads_to_the_same_code(
    strata: Run, small_model: Path, target: str, code: str
) -> None:
    """From any dump, where it was left and from the start of its level."""
    whole = strata("lower", small_model, "--target", target, "--dump-dir", "dumps", "-o", "code")
    assert whole.status == 0, whole.err
    expected = Path("code").read_text()
    last = {p.read_text().partition("level=")[2].split()[0]: p
            for p in sorted(Path("dumps").glob("*.mlir"))}
    assert list(last) == ["graph", "loop", "host", "block"]
    for dump in sorted(Path("dumps").glob("*.mlir")):
        done = strata("lower", dump, "--target", target, "--to", code)
        assert done.status == 0, done.err
        assert done.out == expected, dump.name
    for level, dump in last.items():
        done = strata("lower", dump, "--target", target, "--from", level, "--to", code)
        assert done.status == 0, (dump, done.err)
        assert done.out == expected, dump.name
