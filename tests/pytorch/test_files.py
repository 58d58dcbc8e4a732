"""`.pt2` files, which are data and are not trusted, and `file.py:function`."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.export import Dim

import compiler
from compiler.__main__ import main
from compiler.diagnostics import StrataError
from compiler.frontend import MemoryModel
from tests.pytorch.model_file import Small
from tests.pytorch.programs import check_outputs, export

HERE = Path(__file__).parent


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Small, Path]:
    """A model and the file that it was saved to."""
    torch.manual_seed(0)
    model, path = Small(), tmp_path / "small.pt2"
    torch.export.save(export(model, [torch.randn(2, 8)], {"x": {0: Dim("batch")}}), path)
    return model, path


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_round_trip(saved: tuple[Small, Path], target: str) -> None:
    model, path = saved
    executable = compiler.compile(path, target=target, cache="off", threads=1)
    for batch in (2, 5):
        x = torch.randn(batch, 8)
        check_outputs(executable(x), model(x).detach())


def test_from_bytes(saved: tuple[Small, Path]) -> None:
    model, path = saved
    executable = compiler.compile(MemoryModel("small.pt2", path.read_bytes()), target="reference")
    x = torch.randn(3, 8)
    check_outputs([torch.from_numpy(np.array(v)) for v in executable(x.numpy())], model(x).detach())


def test_weights_are_mapped(saved: tuple[Small, Path]) -> None:
    from compiler.frontend import load_model

    arrays = load_model(saved[1]).weights.arrays.values()
    assert arrays and all(not a.flags.owndata for a in arrays)


# ---------------------------------------------------------------------- files that are not trusted
class Bomb:
    """Unpickling it creates a file."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> Any:
        return open, (str(self.path), "w")


def rewrite(path: Path, change: Callable[[str, bytes], bytes]) -> Path:
    """The archive with every entry changed."""
    new = path.with_name("changed.pt2")
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(new, "w") as target:
        for info in source.infolist():
            target.writestr(info.filename, change(info.filename, source.read(info.filename)))
    return new


def change_model(path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """The archive with its graph changed."""
    def at(name: str, data: bytes) -> bytes:
        if "/models/" not in name:
            return data
        program = json.loads(data)
        change(program)
        return json.dumps(program).encode()

    return rewrite(path, at)


def pickled(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def test_example_inputs_are_not_unpickled(saved: tuple[Small, Path], tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    bomb = pickled(((Bomb(trace),), {}))
    path = rewrite(saved[1], lambda name, data: bomb if "sample_inputs" in name else data)
    compiler.compile(path, target="reference")
    assert not trace.exists()


def test_pickled_weights_are_not_executed(saved: tuple[Small, Path], tmp_path: Path) -> None:
    trace = tmp_path / "trace"

    def change(name: str, data: bytes) -> bytes:
        if name.endswith("weights_config.json"):
            config = json.loads(data)
            for meta in config["config"].values():
                meta["use_pickle"] = True
            return json.dumps(config).encode()
        return pickled(Bomb(trace)) if "/weights/weight_" in name else data

    with pytest.raises(StrataError, match="pickled, and is not a plain tensor"):
        compiler.compile(rewrite(saved[1], change), target="reference")
    assert not trace.exists()


def test_pickled_objects_are_refused(saved: tuple[Small, Path], tmp_path: Path) -> None:
    trace = tmp_path / "trace"

    def change(name: str, data: bytes) -> bytes:
        if name.endswith("constants_config.json"):
            meta = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True,
                    "tensor_meta": None}
            return json.dumps({"config": {"bomb": meta}}).encode()
        return data

    path = rewrite(saved[1], change)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("small/data/constants/opaque_obj_0", pickle.dumps(Bomb(trace)))
    with pytest.raises(StrataError, match="unpickling may run code"):
        compiler.compile(path, target="reference")
    assert not trace.exists()


def first_node(program: dict[str, Any]) -> dict[str, Any]:
    return program["graph_module"]["graph"]["nodes"][0]


CODE = "__import__('os').system('touch trace')"


@pytest.mark.parametrize("target", [
    "torch.os.system", "torchx.os.system", "math.__loader__.load_module", "_operator.attrgetter",
    "torch.ops.higher_order.triton_kernel_wrapper_functional", "torch.ops.aten.x.y\nimport os",
    "#os:x", None,
])
def test_operators_are_from_a_list(saved: tuple[Small, Path], target: object) -> None:
    path = change_model(saved[1], lambda p: first_node(p).update(target=target))
    with pytest.raises(StrataError, match=r"is not allowed|may only have letters"):
        compiler.compile(path, target="reference")


@pytest.mark.parametrize("size", [
    CODE, "s0.__class__", "Pow(Integer(9), Pow(Integer(9), Integer(9)))", "9**9**9", "open('x')",
    "().__class__", "lambda: 0", "Symbol('s0\\n')",
])
def test_sizes_are_not_evaluated(saved: tuple[Small, Path], size: str) -> None:
    def change(program: dict[str, Any]) -> None:
        values = program["graph_module"]["graph"]["tensor_values"]
        values["x"]["sizes"][0] = {"as_expr": {"expr_str": size, "hint": {"as_int": 2}}}

    with pytest.raises(StrataError, match="is not arithmetic"):
        compiler.compile(change_model(saved[1], change), target="reference")


def test_names_are_not_source(saved: tuple[Small, Path]) -> None:
    def change(program: dict[str, Any]) -> None:
        graph = program["graph_module"]["graph"]
        graph["inputs"][-1]["as_tensor"]["name"] = f"x={CODE}"

    with pytest.raises(StrataError, match="may only have letters"):
        compiler.compile(change_model(saved[1], change), target="reference")


def test_guards_and_descriptions_of_inputs_are_not_used(
    saved: tuple[Small, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def change(program: dict[str, Any]) -> None:
        program["guards_code"] = [CODE]
        [call, *_] = program["graph_module"]["module_call_graph"]
        spec = {"type": "x", "context": "os:system", "children_spec": []}
        call["signature"]["in_spec"] = json.dumps([1, spec])

    compiler.compile(change_model(saved[1], change), target="reference")
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize("data", [b"", b"no archive", b"PK\x05\x06" + bytes(18)])
def test_files_that_are_no_archives(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "bad.pt2"
    path.write_bytes(data)
    with pytest.raises(StrataError, match=r"bad\.pt2"):
        compiler.compile(path, target="reference")


def test_truncated_files(saved: tuple[Small, Path]) -> None:
    whole = saved[1].read_bytes()
    for size in range(0, len(whole), len(whole) // 12):
        with pytest.raises(StrataError):
            compiler.compile(MemoryModel("small.pt2", whole[:size]), target="reference")


def test_weights_stay_inside_their_bytes(saved: tuple[Small, Path]) -> None:
    def change(name: str, data: bytes) -> bytes:
        if not name.endswith("weights_config.json"):
            return data
        config = json.loads(data)
        for meta in config["config"].values():
            meta["tensor_meta"]["storage_offset"] = {"as_int": 1000}
        return json.dumps(config).encode()

    with pytest.raises(StrataError, match="outside of its bytes"):
        compiler.compile(rewrite(saved[1], change), target="reference")


def test_programs_that_are_not_sound(saved: tuple[Small, Path]) -> None:
    """Whatever is wrong, it is the file's fault."""
    def change(program: dict[str, Any]) -> None:
        nodes = program["graph_module"]["graph"]["nodes"]
        nodes[-1]["target"] = "torch.ops.aten.matmul.default"

    with pytest.raises(StrataError):
        compiler.compile(change_model(saved[1], change), target="reference")


# ---------------------------------------------------------------------- file.py:function
def test_the_command_line_runs_a_function(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = f"{HERE / 'model_file.py'}:small"
    assert main(["lower", model, "--to", "graph"]) == 0
    assert "%x: f32[batch, 8]" in capsys.readouterr().out
    np.savez(tmp_path / "in.npz", x=np.ones((3, 8), np.float32))
    assert main(["verify", model, "--target", "reference", "--inputs",
                 str(tmp_path / "in.npz")]) == 0


@pytest.mark.parametrize(("function", "message"), [
    ("broken", "no such checkpoint"), ("nothing", "must return"), ("missing", "no function"),
])
def test_functions_that_make_no_model(
    function: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lower", f"{HERE / 'model_file.py'}:{function}", "--to", "graph"]) == 1
    assert message in capsys.readouterr().err


def test_a_static_model() -> None:
    executable = compiler.compile(f"{HERE / 'model_file.py'}:static", target="reference")
    assert executable.input_types == ["f32[2, 8]"]
