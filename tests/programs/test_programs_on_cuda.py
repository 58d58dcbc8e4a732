"""Programs of the CUDA target on disk: found again, saved, loaded, and refused where they must be.

What needs no device runs on a driver that records launches; the tests with the marker `gpu` compare
numbers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest

import compiler
from compiler.diagnostics import StrataError
from compiler.programs import kept
from dialects.strata.types import Array
from tests import processes
from tests.programs.compilations import count_compilations
from tests.programs.cuda_process import HEAVY
from tests.programs.test_saved_programs import LINEAR, LOOPED, SIZED
from tests.targets.cuda.fakes.recording_driver import RecordingDriver, forget

ROOT = Path(__file__).parents[2]
STATIC = LINEAR.replace("[n, ", "[4, ")
BRANCH = """
<ir_version: 8, opset_import: ["" : 17]>
branched (float[n, 6] x, bool c) => (float[n, 6] y) {
    y = If(c) <then_branch = first () => (float[n, 6] a) { a = Softmax(x) },
               else_branch = second () => (float[n, 6] b) { b = Tanh(x) }>
}
"""
ROWS = """
<ir_version: 8, opset_import: ["" : 17]>
rows (float[n, m] x) => (float[n, m] y, float[m] s) <int64[1] first = {0}> {
    y = Softmax<axis = 1>(x)  s = ReduceSum<keepdims = 0>(x, first)
}
"""
"""Sizes in strides, so that kernels have variants."""


def numbers(*shape: int) -> Array:
    return np.random.default_rng(shape).standard_normal(shape, np.float32)


class Model(NamedTuple):
    """A model's text, and inputs for some calls."""

    text: str
    calls: Sequence[Sequence[Array]]


MODELS = {
    "static": Model(STATIC, [[numbers(4, 8)]]),
    "open": Model(LINEAR, [[numbers(n, 8)] for n in (3, 16, 1)]),
    "variants": Model(ROWS, [[numbers(n, m)] for n, m in ((3, 16), (5, 7), (2, 33))]),
    "sizes of data": Model(SIZED, [[np.array([1, 0, 2, 0, 3, 4], np.float32), np.array([2])]]),
    "loop": Model(LOOPED, [[numbers(2), np.array(k)] for k in (0, 3)]),
    "branch": Model(BRANCH, [[numbers(3, 6), np.array(c)] for c in (True, False)]),
}
WITHOUT_LATE_SIZES = [name for name in MODELS if name != "sizes of data"]
"""Of sizes that a run computes, a driver that runs nothing knows nothing."""


class Bench:
    """A model file and a cache folder of its own, on a device that records. `prepared` counts
    compilations."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch):
        self.folder, self.patch, self.prepared = folder, patch, 0
        self.device = self.another_device()
        self.write("open")

    def write(self, name: str) -> None:
        self.path = self.folder / "model.onnx"
        onnx.save(onnx.parser.parse_model(MODELS[name].text), self.path)

    def another_device(self, **facts: Any) -> RecordingDriver:
        """A device that takes the place of the last one."""
        self.device = RecordingDriver.placed(self.patch.setattr, **facts)
        return self.device

    def compile(self, **options: Any) -> compiler.Executable:
        return compiler.compile(self.path, target="cuda", **{
            "cache": self.folder / "cache", **options})

    def is_found(self, **options: Any) -> bool:
        before = self.prepared
        self.compile(**options)
        return self.prepared == before

    def entry(self) -> Path:
        (found,) = [p for p in (self.folder / "cache/programs/entries").glob("*")
                    if p.suffix != ".whole"]
        return found


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    bench = Bench(tmp_path, monkeypatch)

    def count() -> None:
        bench.prepared += 1

    count_compilations(monkeypatch, count)
    yield bench
    forget()


def launches(bench: Bench, exe: compiler.Executable, model: Model) -> list[Any]:
    """What the calls of a model launch, with parameters."""
    for inputs in model.calls:
        exe(*inputs)
    found = bench.device.launches
    bench.another_device()
    return found


# ---------------------------------------------------------------------- what is found
@pytest.mark.parametrize("name", WITHOUT_LATE_SIZES)
def test_a_model_is_found_and_launches_the_same(name: str, bench: Bench) -> None:
    bench.write(name)
    wanted = launches(bench, bench.compile(), MODELS[name])
    again = bench.compile()
    assert bench.prepared == 1
    assert launches(bench, again, MODELS[name]) == wanted and wanted
    assert "graph." in again.text("graph")


def process(bench_: Path, how: str, model: Path, name: str) -> tuple[Any, dict[str, Array]]:
    """What a process of its own says and computes; see `cuda_process.py`."""
    calls, cache = MODELS[name].calls, bench_ / "cache"
    loaded = onnx.parser.parse_model(MODELS[name].text).graph.input
    np.savez(bench_ / "in.npz", calls=len(calls), **{
        f"{k}.{i.name}": a for k, call in enumerate(calls)
        for i, a in zip(loaded, call, strict=True)})
    done = processes.run(
        [sys.executable, ROOT / "tests/programs/cuda_process.py", how, model, cache,
         bench_ / "in.npz", bench_ / "out.npz"], cwd=ROOT, text=True, capture_output=True,
        env={**kept.os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    with np.load(bench_ / "out.npz") as found:
        return json.loads(done.stdout.splitlines()[-1]), dict(found)


@pytest.mark.parametrize("name", ["static", "open", "loop"])
def test_a_second_process_loads_no_compiler(
    name: str, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "_RESTLESS", 0.0)  # the file is new, but nobody changes it
    bench.write(name)
    exe = bench.compile()
    exe.save(bench.folder / "model.strata")
    wanted = launches(bench, exe, MODELS[name])
    for path in (bench.path, bench.folder / "model.strata"):
        said, _ = process(bench.folder, "recorded", path, name)
        assert said["modules"] == []
        assert said["launches"] == wanted
        assert said["compiled"] == 0 or name == "open"  # a variant, from its source


# ---------------------------------------------------------------------- what is not
@pytest.mark.parametrize("options", [
    {"dims": {"n": 3}}, {"shapes": {"x": (4, 8)}}, {"precision": "fast"}, {"exact": True},
    {"constants": {"x": numbers(3, 8)}}, {"check": True}, {"strategy": "per-op"}],
    ids=lambda options: next(iter(options)))
def test_options_count(bench: Bench, options: dict[str, Any]) -> None:
    bench.compile()
    assert not bench.is_found(**options)
    assert bench.is_found(**options)
    assert bench.is_found()
    assert bench.is_found(threads=2)  # is no matter of the code


@pytest.mark.parametrize("facts", [
    {"arch": "sm_80"}, {"name": "another"}, {"multiprocessors": 114}, {"version": 12080}],
    ids=lambda facts: next(iter(facts)))
def test_the_device_counts(bench: Bench, facts: dict[str, Any]) -> None:
    bench.compile()
    bench.another_device(**facts)
    assert not bench.is_found()
    assert bench.is_found()
    bench.another_device()
    assert bench.is_found()


def test_the_software_and_the_target_count(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.compile()
    with monkeypatch.context() as changed:
        changed.setattr(kept, "software_text", lambda: "another")
        assert not bench.is_found()
    before = bench.prepared
    compiler.compile(bench.path, cache=bench.folder / "cache", threads=1)
    assert bench.prepared == before + 1
    assert bench.is_found()


def test_programs_of_the_interpreter_are_not_kept(bench: Bench) -> None:
    exe = bench.compile(interpret=True)
    assert not (bench.folder / "cache/programs/entries").exists()
    with pytest.raises(StrataError, match="it runs in an interpreter"):
        exe.save(bench.folder / "program")


# ---------------------------------------------------------------------- damage
def cut(content: bytes, place: float) -> bytes:
    return content[: int(place * len(content))]


def flipped(content: bytes, place: float) -> bytes:
    """One bit is another, of the next byte that is not 0: zeros fill places that nobody reads."""
    at = next(k for k in range(int(place * len(content)), len(content)) if content[k])
    return content[:at] + bytes([content[at] ^ 4]) + content[at + 1:]


@pytest.mark.parametrize("harm", [cut, flipped])
@pytest.mark.parametrize("place", [0.0, 0.01, 0.3, 0.6, 0.9, 0.95])
def test_a_damaged_entry_is_made_again(
    bench: Bench, place: float, harm: Callable[[bytes, float], bytes]
) -> None:
    wanted = launches(bench, bench.compile(), MODELS["open"])
    good = bench.entry().read_bytes()
    bench.entry().write_bytes(harm(good, place))
    assert launches(bench, bench.compile(), MODELS["open"]) == wanted
    assert bench.prepared == 2
    assert bench.entry().read_bytes() == good
    assert bench.is_found()


def test_an_entry_of_another_model_is_not_run(bench: Bench) -> None:
    bench.compile()
    first, content = bench.entry(), bench.entry().read_bytes()
    first.unlink()
    bench.write("static")
    bench.compile()
    wanted = launches(bench, bench.compile(), MODELS["static"])
    bench.entry().write_bytes(content)
    assert launches(bench, bench.compile(), MODELS["static"]) == wanted
    assert bench.prepared == 3


# ---------------------------------------------------------------------- saved programs
def test_a_saved_program_launches_the_same(bench: Bench) -> None:
    for name in WITHOUT_LATE_SIZES:
        bench.write(name)
        exe = bench.compile()
        exe.save(bench.folder / "program")
        wanted = launches(bench, exe, MODELS[name])
        loaded = compiler.load(bench.folder / "program")
        assert (loaded.input_types, loaded.output_types) == (exe.input_types, exe.output_types)
        assert launches(bench, loaded, MODELS[name]) == wanted
        loaded.save(bench.folder / "again")
        again = compiler.load(bench.folder / "again")
        assert launches(bench, again, MODELS[name]) == wanted


@pytest.mark.parametrize(("facts", "why"), [
    ({"arch": "sm_80"}, "GPUs of the architecture sm_90, and the device is sm_80"),
    ({}, "GPUs of the architecture sm_90, and there is no GPU")])
def test_a_saved_program_of_another_device_is_refused(
    facts: dict[str, Any], why: str, bench: Bench
) -> None:
    from targets.cuda.runtime import driver

    bench.compile().save(bench.folder / "program")
    bench.another_device(**facts)
    if not facts:
        bench.patch.setattr(driver, "is_available", lambda: False)
    with pytest.raises(StrataError, match=why):
        compiler.load(bench.folder / "program")


# ---------------------------------------------------------------------- on a device
@pytest.mark.gpu
@pytest.mark.parametrize("name", MODELS)
def test_a_second_process_computes_the_same(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the cache, and from a saved program."""
    for variable in ("STRATA_DEBUG", "STRATA_CACHE_SIZE"):
        monkeypatch.delenv(variable, raising=False)
    model = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(MODELS[name].text), model)
    reference = compiler.compile(model, target="reference", cache="off")
    said, _ = process(tmp_path, "gpu", model, name)
    assert "xdsl" in said["modules"]
    exe = compiler.compile(model, target="cuda", cache=tmp_path / "cache")
    exe.save(tmp_path / "program")
    for path in (model, tmp_path / "program"):
        said, found = process(tmp_path, "gpu", path, name)
        assert not {*said["modules"]} & {*HEAVY}
        for k, inputs in enumerate(MODELS[name].calls):
            for output, wanted in zip(exe.output_names, reference(*inputs), strict=True):
                np.testing.assert_allclose(found[f"{k}.{output}"], wanted, rtol=1e-4, atol=1e-5)
