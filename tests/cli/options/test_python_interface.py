"""Every parameter of every public function, at values that it cannot have.

Each is refused by a StrataError that names the parameter, before any work: nothing is written, and
no other exception comes out. A test makes sure that no parameter is missing from the tables.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import compiler
from compiler.options import CompileOptions, Specialize

LONG = "x" * 5000
"""Longer than any path."""
class Stranger:
    """An object that means nothing here; its name is the same in each process."""

    def __repr__(self) -> str:
        return "<a stranger>"


NAMELESS = [5, True, 2.5, "", [], ["x"], Stranger(), b"x", np.zeros(2)]
"""What is neither a word that an option knows, nor a path."""
PATHS = [5, True, "", "a\0b", LONG, ["x"], b"x", Stranger(), "\ud800"]
FLAGS = [1, 0, "yes", "", 2.5, [], np.zeros(2), np.zeros(0), Stranger()]
COUNTS = [0, -1, 1.5, "2", True, [2], np.zeros(2), float("nan"), 10**30]
MAPPINGS = [5, True, "x", [("x", 1)], {5: 1}, {None: 1}]
NUMBERS = [*MAPPINGS, {"n": "2"}, {"n": -1}, {"n": 1.5}, {"n": None}, {"n": True}, {"n": 10**30}]

MODELS = [None, 5, True, 2.5, "", b"m.onnx", ["m.onnx"], Stranger(), LONG + ".onnx", "a\0b.onnx",
          "missing.onnx", "model", ".", Path("missing.onnx"), np.zeros(2), {},
          compiler.MemoryModel("m.onnx", "no bytes"), compiler.MemoryModel("m.onnx", b"nonsense"),
          compiler.MemoryModel(5, b""), compiler.MemoryModel("m.onnx", None)]  # type: ignore[arg-type]

SHARED: Mapping[str, Sequence[Any]] = {
    "target": [*NAMELESS, None, "gpu", "CPU ", LONG],
    "shapes": [*MAPPINGS, {"x": 5}, {"x": "1x3"}, {"x": [1.5, 8]}, {"x": [None, 8]}, {"x": [""]},
               {"x": [True, 8]}, {"x": [-1, 8]}, {"x": [10**30, 8]}, {"nope": [1]}],
    "dims": [*NUMBERS, {"nope": 3}],
    "constants": [*MAPPINGS, {"x": Stranger()}, {"x": {1}}, {"nope": np.zeros(1)}],
    "plugins": [5, True, "file.py", [5], [""], [None], [LONG], ["missing.py"], {"a": 1}],
    "features": [*NAMELESS, "avx9"],
    "cache": [5, True, "", ["x"], "a\0b", LONG, Stranger(), b"x"],
    "precision": [*NAMELESS, None, "f33"],
    "exact": [*FLAGS, None],
    "library": [*NAMELESS, None, "always"],
    "mode": [*NAMELESS, None, "fast"],
    "strategy": [*NAMELESS, None, "per_op", "whole"],
    "with_groups": [5, True, "fuse", [5], [""], [None], ["fusion"], [LONG], Stranger()],
    "without_groups": [5, True, "fuse", [5], [""], [None], ["one launch"], [LONG], Stranger()],
}
COMPILE: Mapping[str, Sequence[Any]] = {
    **SHARED, "model": MODELS, "threads": COUNTS, "dump_dir": [*PATHS, __file__],
    "passes": [5, None, True, "", [], ["default"], "defalt", "default,nopass", "a\0b", LONG],
    "schedule": [*PATHS, "missing", "."], "weights": [*PATHS, "missing.npz"],
    "denormals": [*NAMELESS, None, "keeps"], "check": FLAGS, "interpret": [*FLAGS, None],
    "mesh": [5, True, None, ["tp=2"], b"tp=2", "tp", "pp=2", "tp=0", "tp=2,tp=2", LONG, Stranger(),
             np.zeros(2), np.zeros(0)],
    "specialize": [5, True, "yes", {"after": 2}, Specialize],
    "tuned": [5, True, "", ["auto"], "missing", ".", "a\0b", LONG, Stranger()],
}
TUNE: Mapping[str, Sequence[Any]] = {
    **SHARED, "model": MODELS, "seconds": ["5", 0, -1, float("nan"), True, None, [1]],
    "jobs": COUNTS, "kernels": ["a", 5, [5], [None], [""]], "output": [*PATHS, "."],
    "sizes": NUMBERS, "again": [*FLAGS, None],
}
SPECIALIZE = {"after": COUNTS[:-1], "most": COUNTS[:-1], "background": FLAGS}
OF_OPTIONS = {"rank": [0, -1, 1.5, "1", [1]],
              "start": [*NAMELESS, "grph"], "dump_weights": [*FLAGS, None],
              "debug": [*FLAGS, None], "triple": [*NAMELESS, "sparc-plan9"]}
"""The options that only `CompileOptions` has."""


def rows(table: Mapping[str, Sequence[Any]]) -> list[Any]:
    return [pytest.param(name, value, id=f"{name}-{repr(value)[:30]}")
            for name, values in table.items() for value in values]


@pytest.fixture
def nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    yield
    assert list(tmp_path.iterdir()) == []


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(compiler.StrataError) as told:
        call()
    text = str(told.value)
    assert len(text) < 2000
    return text


# ---------------------------------------------------------------------- compile, tune, load
@pytest.mark.usefixtures("nothing_is_written")
@pytest.mark.parametrize(("name", "value"), rows(COMPILE))
def test_compile(small_model: Path, name: str, value: Any) -> None:
    refused(lambda: compiler.compile(**{"model": small_model, name: value}))


@pytest.mark.usefixtures("nothing_is_written")
@pytest.mark.parametrize(("name", "value"), rows(TUNE))
def test_tune(small_model: Path, name: str, value: Any) -> None:
    refused(lambda: compiler.tune(**{
        "model": small_model, "seconds": 1, "kernels": ["none"], name: value}))


@pytest.mark.usefixtures("nothing_is_written")
@pytest.mark.parametrize("model", MODELS, ids=lambda v: repr(v)[:30])
def test_explain(model: Any) -> None:
    refused(lambda: compiler.explain(model))


OF_OTHERS = {name: values for name, values in COMPILE.items() if name not in ("model", "mode")}
"""The options that `explain`, `profile` and `to_fx` pass on. None is their default target."""


@pytest.mark.usefixtures("nothing_is_written")
@pytest.mark.parametrize("function", [compiler.explain, compiler.profile, compiler.to_fx])
@pytest.mark.parametrize(("name", "value"), rows(OF_OTHERS))
def test_options_that_are_passed_on(
    small_model: Path, function: Callable[..., object], name: str, value: Any
) -> None:
    if name == "target" and value is None and function is not compiler.to_fx:
        return
    inputs = [np.ones((2, 8), np.float32), np.array([1])] if function is compiler.profile else []
    refused(lambda: function(small_model, *inputs, **{name: value}))


@pytest.mark.usefixtures("nothing_is_written")
@pytest.mark.parametrize("path", [*PATHS, None, "missing.strata", "."])
def test_load(path: Any) -> None:
    refused(lambda: compiler.load(path))


@pytest.mark.parametrize("threads", COUNTS)
def test_load_with_threads(tmp_path: Path, threads: Any) -> None:
    assert "threads" in refused(lambda: compiler.load(tmp_path, threads=threads))


@pytest.mark.parametrize(("name", "value"), rows(SPECIALIZE))
def test_specialize(name: str, value: Any) -> None:
    assert name in refused(lambda: Specialize(**{name: value}))


OPTIONS = {name: values for name, values in {**COMPILE, **OF_OPTIONS}.items()
           if name in CompileOptions.__dataclass_fields__}


@pytest.mark.usefixtures("nothing_is_written")
@pytest.mark.parametrize(("name", "value"), rows(
    {k: [v for v in values if not isinstance(v, str | list | dict)] for k, values in
     OPTIONS.items()}))
def test_options(name: str, value: Any) -> None:
    if value is None and name in ("start", "check", "features", "triple"):
        return
    assert name in refused(lambda: CompileOptions(**{name: value}))


@pytest.mark.parametrize("name", ["schedule", "weights", "dump_dir"])
def test_options_that_are_paths(name: str) -> None:
    given = str(Path(__file__).parent / "a" if name == "dump_dir" else Path(__file__))
    assert getattr(CompileOptions(**{name: given}), name) == Path(given)
    for value in PATHS:
        assert name in refused(lambda v=value: CompileOptions(**{name: v}))


# ---------------------------------------------------------------------- executables
@pytest.fixture(scope="module")
def program(small_model_again: Path) -> compiler.Executable:
    return compiler.compile(small_model_again, cache="off", threads=1)


@pytest.fixture(scope="module")
def small_model_again(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from onnx import helper

    from tests.frontend.onnx_models import make_model, save, value_info

    node = helper.make_node("Relu", ["x"], ["y"])
    model = make_model([node], [value_info("x", np.float32, ["n", 4])], ["y"])
    return save(model, tmp_path_factory.mktemp("model"))


@pytest.mark.usefixtures("nothing_is_written")
@pytest.mark.parametrize("level", [5, None, "", "grph", ["graph"], b"graph", LONG])
def test_text(program: compiler.Executable, level: Any) -> None:
    refused(lambda: program.text(level))


@pytest.mark.usefixtures("nothing_is_written")
@pytest.mark.parametrize("path", [*PATHS, None, ".", "missing/folder/file"])
def test_save(program: compiler.Executable, path: Any) -> None:
    refused(lambda: program.save(path))


INPUTS = [5, None, "x", Stranger(), [1, 2], {}, {1}, np.zeros(3, np.float32), np.zeros((2, 4)),
          np.zeros((2, 5), np.float32), np.array(["a"]), np.zeros((2, 4), object), b"x",
          np.ma.masked_array(np.zeros((2, 5)))]


@pytest.mark.parametrize("value", INPUTS, ids=lambda v: repr(v)[:30])
def test_inputs_of_a_call(program: compiler.Executable, value: Any) -> None:
    """They are refused by ValueError or TypeError, as Python's own functions do, and named."""
    for call in (lambda: program(value), lambda: program(x=value)):
        with pytest.raises((ValueError, TypeError), match=r"'x'"):
            call()


@pytest.mark.parametrize("values", [5, None, "x", [5], [None], [[1.0]], ["x"], [],
                                    [np.zeros((2, 4), np.float32)] * 2, [np.zeros((2, 4))],
                                    [np.zeros((4, 2), np.float32)]],
                         ids=lambda v: repr(v)[:30])
def test_inputs_of_a_run(program: compiler.Executable, values: Any) -> None:
    for call in (program.run, program.precision_error):
        with pytest.raises((ValueError, TypeError)):
            call(values)


# ---------------------------------------------------------------------- all of them
@pytest.mark.parametrize(("function", "table"), [
    (compiler.compile, COMPILE), (compiler.tune, TUNE), (Specialize, SPECIALIZE),
    (CompileOptions, {**COMPILE, **OF_OPTIONS})], ids=["compile", "tune", "Specialize", "options"])
def test_no_parameter_is_missing(function: Any, table: Mapping[str, Any]) -> None:
    internal = {"outcomes",  # what is decided when a call breaks a choice
                "beside"}  # what `compile --features avx2,avx512` sets for a library's codes
    of_modules = {"args", "kwargs", "dynamic_shapes"}  # tests/pytorch/operators/test_fx.py
    assert set(inspect.signature(function).parameters) - internal - of_modules <= table.keys()
    assert compiler.__all__ == [
        "AccessError", "CompileOptions", "CompilerFault", "DivisionByZeroError", "Executable",
        "IndexRangeError", "MemoryModel", "SizeError", "Specialize", "StrataError", "__version__",
        "compile", "explain", "free_graphs", "load", "profile", "to_fx", "tune"]


def test_values_of_numpy_are_values(small_model: Path) -> None:
    exe = compiler.compile(small_model, threads=np.int64(2), exact=np.False_, check=np.True_,
                           cache="off", dims={"n": np.int64(4)})
    assert exe.options.threads == 2
    assert exe.input_types[0] == "f32[4, 8]"
    assert len(exe(np.ones((4, 8), np.float32), np.arange(3))) == 1
