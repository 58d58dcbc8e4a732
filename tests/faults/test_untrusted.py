"""Models that mean harm: bounded memory and time, no path outside the folder, nothing unpickled."""

from __future__ import annotations

import ast
import os
import pickle
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import compiler
from compiler.__main__ import main
from compiler.diagnostics import StrataError
from compiler.tuning.database import Database, Unreadable, Winner
from dialects.strata.schedule import parse_schedule
from dialects.strata.weights import WeightStore
from passes.contract import Choice
from targets.base import TargetOptions, find_target
from tests.faults.models import ROOT, python, save_model

NODE = helper.make_node
F32, I64 = np.float32, np.int64


# ---------------------------------------------------------------------- sizes
def summed(*nodes: onnx.NodeProto, **constants: Any) -> onnx.ModelProto:
    """A few bytes of a model that ask for a huge `c`, of which only the sum is wanted."""
    tail = [NODE("ReduceSum", ["c"], ["r"], keepdims=0), NODE("Cast", ["r"], ["f"], to=1),
            NODE("Add", ["f", "x"], ["y"])]
    tensors = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in "xy")
    graph = helper.make_graph([*nodes, *tail], "bomb", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


ONE, HUGE = np.ones(1, F32), np.array([1 << 17, 1 << 17], I64)
BOMBS = {
    "constant_of_shape": summed(NODE("ConstantOfShape", ["s"], ["c"]), s=HUGE),
    "expand": summed(NODE("Expand", ["v", "s"], ["c"]), v=ONE, s=HUGE),
    "tile": summed(NODE("Tile", ["v", "s"], ["c"]), v=np.arange(4, dtype=F32),
                   s=np.array([1 << 34], I64)),
    "range": summed(NODE("Range", ["a", "b", "d"], ["c"]), a=F32(0), b=F32(1e10), d=F32(1)),
    "range_of_integers": summed(NODE("Range", ["a", "b", "d"], ["c"]), a=I64(0), b=I64(1 << 40),
                                d=I64(1)),
    "pad": summed(NODE("Pad", ["v", "p"], ["c"]), v=ONE, p=np.array([0, 1 << 34], I64)),
    "one_hot": summed(NODE("OneHot", ["i", "d", "v"], ["c"]), i=np.arange(1000), d=I64(1 << 30),
                      v=np.array([0, 1], F32)),
    "resize": summed(NODE("Resize", ["v", "", "", "s"], ["c"], mode="nearest"),
                     v=np.ones((1, 1, 2, 2), F32), s=np.array([1, 1, 1 << 17, 1 << 17], I64)),
    "outer_product": summed(NODE("MatMul", ["a", "b"], ["c"]), a=np.ones((1 << 17, 1), F32),
                            b=np.ones((1, 1 << 17), F32)),
    "doubling": summed(*[NODE("Concat", [f"v{k}"] * 2, [f"v{k + 1}"], axis=0) for k in range(33)],
                       NODE("Identity", ["v33"], ["c"]), v0=ONE),
    "product_of_products": summed(
        NODE("MatMul", ["a", "b"], ["d"]), NODE("MatMul", ["d", "d"], ["c"]),
        a=np.ones((1 << 13, 1), F32), b=np.ones((1, 1 << 13), F32)),
    "running_sum": summed(
        NODE("Expand", ["v", "s"], ["d"]), NODE("CumSum", ["d", "a"], ["c"]), v=ONE,
        s=np.array([1 << 28], I64), a=I64(0)),
    "beyond_counting": summed(NODE("ConstantOfShape", ["s"], ["c"]),
                              s=np.array([1 << 40, 1 << 40], I64)),
}
LIMITED = """
import resource, sys, time
import compiler
from compiler.diagnostics import StrataError
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
compiler.compile(sys.argv[1], threads=1, cache="off")
for path in sys.argv[2:]:
    before, began = peak(), time.process_time()
    try:
        compiler.compile(path, threads=1, cache="off")
        said = "compiled"
    except StrataError as error:
        said = "limit" if "out of memory" not in str(error) else "memory"
    print(path.rpartition("/")[2][:-5], said, peak() - before, int(time.process_time() - began))
"""


@pytest.mark.slow
def test_a_small_file_cannot_ask_for_much_memory_or_time(tmp_path: Path) -> None:
    """Compiling is bounded: what is huge is computed at run time, or refused."""
    paths = [tmp_path / f"{name}.onnx" for name in BOMBS]
    for path, model in zip(paths, BOMBS.values(), strict=True):
        onnx.save(model, path)
    harmless = save_model(tmp_path / "harmless.onnx")
    out, err = python(LIMITED, harmless, *paths).communicate(timeout=500)
    assert not err
    rows = [line.split() for line in out.splitlines()]
    assert [row[0] for row in rows] == list(BOMBS)
    for name, said, megabytes, seconds in rows:
        assert said in ("compiled", "limit"), name
        assert int(megabytes) < 600, name
        assert int(seconds) < 30, name


@pytest.mark.parametrize("name", ["tile"])
def test_a_call_that_needs_more_than_there_is_is_refused(tmp_path: Path, name: str) -> None:
    onnx.save(BOMBS[name], tmp_path / "model.onnx")
    exe = compiler.compile(tmp_path / "model.onnx", threads=1, cache="off")
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if int(exe.loaded.plan.arena_bytes.evaluate({})) < there:  # type: ignore[attr-defined]
        pytest.skip("this machine has the memory")
    with pytest.raises(ValueError, match="this machine has"):
        exe(np.ones(1, F32))


# ---------------------------------------------------------------------- files beside the model
def external(folder: Path, **entries: str) -> Path:
    model = onnx.load(save_model(folder / "model.onnx"))
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "w.bin", **entries}.items():
        tensor.external_data.add(key=key, value=value)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    (folder / "w.bin").write_bytes(bytes(8 * 300 * 4))
    return folder / "model.onnx"


@pytest.mark.parametrize("entries", [
    {"offset": "1"}, {"offset": "-1"}, {"offset": str(1 << 62)}, {"offset": str(1 << 70)},
    {"offset": "9" * 5000}, {"offset": "1e3"}, {"offset": "٣"}, {"offset": ""},
    {"length": "0"}, {"length": "-1"}, {"length": str(1 << 63)}, {"length": "9" * 5000},
    {"location": "../secret"}, {"location": "/etc/hostname"}, {"location": "sub/../../secret"},
    {"location": "link"}, {"location": "linked/secret"}, {"location": ""}, {"location": "."},
    {"location": "a\0b"}, {"location": "x" * 100_000}, {"location": "pipe"},
    {"location": "circle"}], ids=lambda e: "-".join(f"{k}={v[:12]!r}" for k, v in e.items()))
def test_references_that_lie(tmp_path: Path, entries: dict[str, str]) -> None:
    folder = tmp_path / "inside"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(bytes(8 * 300 * 4))
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "linked").symlink_to(tmp_path)
    (folder / "circle").symlink_to("circle")
    os.mkfifo(folder / "pipe")
    with pytest.raises(StrataError, match="external data"):
        compiler.compile(external(folder, **entries), target="reference")


# ---------------------------------------------------------------------- nesting
def nested_ifs(depth: int) -> onnx.ModelProto:
    """An If in a branch of an If ..."""
    graph = helper.make_graph([NODE("Identity", ["x"], ["y0"])], "g", [],
                              [helper.make_tensor_value_info("y0", 1, None)])
    for k in range(1, depth):
        node = NODE("If", ["b"], [f"y{k}"], then_branch=graph, else_branch=helper.make_graph(
            [NODE("Neg", ["x"], [f"e{k}"])], "e", [],
            [helper.make_tensor_value_info(f"e{k}", 1, None)]))
        graph = helper.make_graph([node], "g", [], [
            helper.make_tensor_value_info(f"y{k}", 1, None)])
    graph.input.extend([helper.make_tensor_value_info("x", 1, [1]),
                        helper.make_tensor_value_info("b", 9, [])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_branches_in_branches(tmp_path: Path) -> None:
    """As deep as protobuf takes."""
    (tmp_path / "m.onnx").write_bytes(nested_ifs(20).SerializeToString())
    exe = compiler.compile(tmp_path / "m.onnx", target="reference")
    assert exe(np.ones(1, F32), np.array(True)) == [1]


def _field(number: int, data: bytes) -> bytes:
    """A part of a protobuf message that has a length."""
    length, size = len(data), b""
    while length > 127:
        size, length = size + bytes([length & 127 | 128]), length >> 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + data


@pytest.mark.parametrize("depth", [100, 20_000])
def test_messages_in_messages(tmp_path: Path, depth: int) -> None:
    """Deeper than any model: graph, node, attribute, graph ..."""
    graph = b""
    for _ in range(depth):
        graph = _field(1, _field(4, b"If") + _field(5, _field(1, b"a") + _field(6, graph)))
    (tmp_path / "m.onnx").write_bytes(b"\x08\x08" + _field(7, graph) + _field(8, b"\x10\x11"))
    with pytest.raises(StrataError, match="cannot read"):
        compiler.compile(tmp_path / "m.onnx", target="reference")


def in_dims(expression: str) -> str:
    return f"""
strata.func @main(%x: f32[{expression}]) -> f32[{expression}] inputs ["x"] outputs ["y"] {{
  strata.return %x
}}
"""


@pytest.mark.parametrize("text", [
    in_dims("(" * 5000 + "n" + ")" * 5000), in_dims("(" * 100_000),
    in_dims("min(n, " * 5000 + "n" + ")" * 5000), in_dims("n" + " + 1" * 5000 + " floordiv 0"),
    "module {" * 5000 + "}" * 5000, "[" * 100_000, '"builtin.module"() ({' * 3000,
    "#a = " + "[" * 50_000], ids=range(8))
def test_deep_texts(tmp_path: Path, text: str) -> None:
    """Read, or refused with a message: no fault of the compiler."""
    (tmp_path / "deep.mlir").write_text(text)
    with pytest.raises(StrataError):
        compiler.compile(tmp_path / "deep.mlir", target="reference")


def test_deep_schedules(tmp_path: Path) -> None:
    model = save_model(tmp_path / "model.onnx")
    (tmp_path / "deep").write_text("@k <grid " + "(" * 5000 + ">\n@k <" + "<" * 9000 + ">\n")
    with pytest.raises(StrataError, match="line 1"):
        compiler.compile(model, cache="off", schedule=tmp_path / "deep")


# ---------------------------------------------------------------------- weights of texts
def dumped(tmp_path: Path) -> Path:
    status = main(["lower", str(save_model(tmp_path / "model.onnx")), "--target", "reference",
                   "--to", "graph", "--dump-dir", str(tmp_path / "dumps")])
    assert status == 0
    return tmp_path / "dumps" / "00-graph-import.mlir"


def test_weights_changed_under_their_hash(tmp_path: Path) -> None:
    text = dumped(tmp_path)
    place = text.with_name("weights.npz")
    with np.load(place) as archive:
        changed = {name: archive[name] + 1 for name in archive.files}
    np.savez(place, **changed)
    with pytest.raises(StrataError, match="cannot read the weights"):
        compiler.compile(text, target="reference")


@pytest.mark.parametrize("name", ["bfloat16", "float8_e5m2", "int4", "__file__", "finfo", ""])
def test_weights_of_types_that_lie(tmp_path: Path, name: str) -> None:
    np.savez(tmp_path / "w.npz", **{f"key|{name}": np.zeros(3, np.uint16)})
    with pytest.raises((ValueError, TypeError, AttributeError)):
        WeightStore.load(tmp_path / "w.npz")


# ---------------------------------------------------------------------- pickle
class Bomb:
    def __init__(self, trace: Path):
        self.trace = trace

    def __reduce__(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return Path.touch, (self.trace,)


def test_nothing_is_unpickled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Wherever a user's file of arrays is read."""
    trace = tmp_path / "exploded"
    bomb = np.array([Bomb(trace)], dtype=object)
    np.save(tmp_path / "bomb.npy", bomb, allow_pickle=True)
    np.savez(tmp_path / "bomb.npz", **{"x": bomb, "key|object": bomb})
    (tmp_path / "raw").write_bytes(pickle.dumps(Bomb(trace)))
    model, text = save_model(tmp_path / "model.onnx"), dumped(tmp_path)
    run = ["run", str(model), "--target", "reference"]
    commands = [[*run, "--inputs", "bomb.npz"], [*run, "--input", "x=bomb.npy"],
                [*run, "--input", "x=bomb.npz"], [*run, "--inputs", "bomb.npy"],
                [*run, "--input", "x=raw"], [*run, "--inputs", "raw"],
                ["run", str(text), "--target", "reference", "--weights", "bomb.npz"],
                ["run", "raw.mlir", "--target", "reference"], ["run", "raw.onnx"]]
    for ending in (".mlir", ".onnx", ".pt2"):
        (tmp_path / f"raw{ending}").write_bytes((tmp_path / "raw").read_bytes())
    for words in commands:
        words = [str(tmp_path / w) if (tmp_path / w).exists() else
                 w.replace("x=", f"x={tmp_path}/") for w in words]
        assert main(words) in (1, 2), words
        capsys.readouterr()
        assert not trace.exists(), words
    assert np.load(tmp_path / "bomb.npy", allow_pickle=True) is not None
    assert trace.exists()  # the bomb is one


TRUSTED = {"targets/cpu/build/helpers.py", "targets/cpu/build/worker.py",
           "targets/cuda/build/interpreter.py",
           "targets/cuda/build/workers/interpret_kernels.py", "compiler/tuning/processes.py",
           "compiler/tuning/worker.py"}
"""What pickles: messages through pipes between a process and one that it started itself."""
RESTRICTED = {"compiler/frontend/torch/files/archive.py"}
"""What names an error of pickle's, and calls PyTorch's restricted unpickler."""
FORBIDDEN = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}


LOADS = {"load", "loads", "eval", "read_array", "fromfile"}


def sources() -> list[Path]:
    return [p for folder in ("compiler", "dialects", "passes", "targets")
            for p in (ROOT / folder).rglob("*.py")]


def test_no_file_is_unpickled_by_any_source() -> None:
    found: set[str] = set()
    for path in sources():
        name = str(path.relative_to(ROOT))
        text = path.read_text("utf-8")
        if not any(word in text for word in FORBIDDEN | LOADS):
            continue
        for node in ast.walk(ast.parse(text)):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if FORBIDDEN & {n.partition(".")[0] for n in names}:
                found.add(name)
            if isinstance(node, ast.Call) and _called(node) in LOADS:
                _check_call(name, node)
    assert found == TRUSTED | RESTRICTED


def _called(node: ast.Call) -> str:
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def _check_call(name: str, node: ast.Call) -> None:
    """Loads of NumPy's and PyTorch's say that nothing is unpickled."""
    function = ast.unparse(node.func)
    keywords = {k.arg: ast.unparse(k.value) for k in node.keywords}
    where = f"{name}, line {node.lineno}: {function}"
    if function in ("np.load", "numpy.load", "np.lib.format.read_array", "np.fromfile"):
        assert keywords.get("allow_pickle") == "False", where
    if function.endswith("torch.load") or "weights_only" in keywords:
        assert keywords.get("weights_only") == "True", where
    if function == "pickle.load":
        assert name in TRUSTED and ast.unparse(node.args[0]).endswith(
            ("stdin.buffer", "stdout", "stdin")), where
    assert function not in ("eval", "pickle.loads", "marshal.loads"), where


# ---------------------------------------------------------------------- tuned schedules
MACHINE = str(find_target("cpu").bind(TargetOptions()).tuning.key())
WINNER = Winner("k", Choice(parse_schedule("<grid i0 tile 1>"), 1.5), 1e-3, "quick", "kernel")


def database(folder: Path) -> str:
    path = str(folder / "tuned.sqlite")
    Database(path, MACHINE).write(WINNER)
    return path


@pytest.mark.parametrize("change", [
    "UPDATE winners SET schedule = CAST(x'ff00fe' AS TEXT)",
    "UPDATE winners SET kernel = CAST(x'ff' AS TEXT), schedule = x'00ff'",
    "UPDATE winners SET gain = 'much'", "UPDATE winners SET gain = x'00'",
    "UPDATE winners SET name = x'00'", "UPDATE winners SET mode = x'07'",
    "UPDATE winners SET schedule = '<' || hex(zeroblob(100000)) || '>'",
    f"UPDATE winners SET schedule = '<grid {'(' * 5000}>'",
    "DROP TABLE winners",
    "DROP TABLE winners; CREATE VIEW winners AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL "
    "SELECT i + 1 FROM n) SELECT 'm' AS machine, 'k' || i AS kernel, NULL AS schedule, 1.0 AS gain,"
    " 1.0 AS seconds, 'quick' AS mode, 'n' AS name FROM n",
    "DROP TABLE machines; CREATE VIEW machines AS SELECT 1 AS machine, 2 AS description",
    "PRAGMA user_version = 99", "PRAGMA application_id = 1"], ids=range(13))
def test_tuned_schedules_that_somebody_made_up(
    tmp_path: Path, change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = database(tmp_path)
    connection = sqlite3.connect(path)
    connection.executescript(change)
    connection.close()
    with pytest.raises(Unreadable):
        Database(path, MACHINE).read()
    model = save_model(tmp_path / "model.onnx")
    assert main(["lower", str(model), "--tuned", path, "--to", "block"]) == 1
    assert "cannot use the tuned schedules" in capsys.readouterr().err
