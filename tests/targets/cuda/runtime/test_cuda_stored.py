"""Executables as data: what is written and read back launches the same, and compiles nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from dialects.strata.parallel import Arrays
from dialects.strata.types import Array
from dialects.strata.weights import WeightStore
from targets.cuda import stored
from targets.cuda.build.compile import CompileOptions, compile_kernels
from targets.cuda.errors import CudaError
from targets.cuda.planning.program import load_module
from targets.cuda.runtime import kernels
from targets.cuda.runtime.executable import CudaExecutable
from targets.interface import TargetError
from targets.stored_code import Loading
from tests.control.programs import PROGRAMS, Program
from tests.counts.count import SM_90, Subject, lowered
from tests.counts.models import MODELS
from tests.targets.cuda.fakes.fake_driver import FakeDriver
from tests.targets.cuda.fakes.recording_driver import RecordingDriver, forget
from tests.targets.cuda.runtime.control_programs import compare
from tests.targets.cuda.runtime.control_programs import lowered as lowered_program
from tests.targets.cuda.runtime.test_cuda_launch import expected, model

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
Parts = tuple[dict[str, Any], list[Array]]
SIZES = (1, 5, 16, 33)


def written(executable: CudaExecutable) -> Parts:
    """What a file holds of it."""
    parts = stored.parts(executable)
    assert parts is not None
    return json.loads(json.dumps(parts[0])), parts[1]


def read(parts: Parts, weights: WeightStore | None = None) -> CudaExecutable:
    return stored.load(json.loads(json.dumps(parts[0])), parts[1], Loading(), weights)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], RecordingDriver]]:
    """`recorded()`: a device of its own, from now on."""
    yield lambda: RecordingDriver.placed(monkeypatch.setattr)
    forget()


# ---------------------------------------------------------------------- launches
def given(executable: CudaExecutable, size: int) -> list[Array]:
    """Inputs whose open sizes have this value."""
    types = executable.signature.inputs
    sizes = {s: size for type_ in types for e in type_.shape for s in e.symbols}
    return [np.zeros([int(e.evaluate(sizes)) for e in t.shape], t.dtype) for t in types]


def launched(executable: CudaExecutable, device: RecordingDriver, sizes: Sequence[int]) -> Any:
    """What calls with these sizes launch; the errors of those that are refused."""
    errors: list[str] = []
    for size in sizes:
        try:
            executable.run(given(executable, size))
        except ValueError as error:
            errors.append(str(error))
    return device.launches, errors


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("one_launch", [True, False], ids=["graph", "step by step"])
def test_models_launch_the_same(
    make: Callable[[], Subject], one_launch: bool, recorded: Callable[[], RecordingDriver],
) -> None:
    """With the same parameters, in the same order; variants that are missing have the same code."""
    _, state, _ = lowered(make(), SM_90)
    first = recorded()
    executable = load_module(state.module, state.context.weights, CompileOptions(), one_launch)
    parts = written(executable)
    wanted = launched(executable, first, SIZES)
    second = recorded()
    again = read(parts)
    assert launched(again, second, SIZES) == wanted
    third = recorded()
    whole = written(again)  # after all variants have been compiled
    assert launched(read(whole), third, SIZES) == wanted and third.compiled == 0
    assert all(whole[0]["host"]["kernels"][number]["sizes"] for number, *_ in whole[0]["sources"])
    assert (again.input_names, again.output_names, again.notes) == (
        executable.input_names, executable.output_names, executable.notes)


# ---------------------------------------------------------------------- results
def faked(patch: pytest.MonkeyPatch, module: ModuleOp) -> FakeDriver:
    device = FakeDriver.of(module)
    device.install(patch)
    device.install_compiler(patch)
    return device


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_programs_that_decide_compute_the_same(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, weights = lowered_program(program.text)
    device = faked(monkeypatch, module)
    executable = load_module(module, weights, CompileOptions())
    for inputs in program.inputs:
        compare(executable.run(inputs), program, inputs)
    parts = written(executable)
    device.log.clear()
    again = read(parts)
    for inputs in program.inputs:
        compare(again.run(inputs), program, inputs)
    assert not any(line.startswith("compile") for line in device.log)
    assert not device.given


def straight(patch: pytest.MonkeyPatch) -> tuple[FakeDriver, CudaExecutable]:
    weights = WeightStore()
    module = model(weights, np.arange(80, dtype=np.float32))
    return faked(patch, module), load_module(module, weights, CompileOptions())


def check(executable: CudaExecutable, rows: int) -> None:
    x = np.random.default_rng(rows).standard_normal((rows, 80)).astype(np.float32)
    for found, wanted in zip(executable.run([x]), expected(x), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_a_graph_computes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    _, executable = straight(monkeypatch)
    again = read(written(executable))
    for rows in (3, 16, 3, 1):
        check(again, rows)
    assert written(again)[0]["host"] == written(executable)[0]["host"]


def test_kernels_are_shared_with_other_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is compiled again, nor loaded."""
    device, executable = straight(monkeypatch)
    check(executable, 3)
    other = WeightStore(Arrays({c.key: np.arange(80, dtype=np.float32)
                                for c in executable.program.host.constants if c.key}))
    device.log.clear()
    check(executable.with_weights(other), 3)
    assert not any(line.startswith("compile") for line in device.log)


# ---------------------------------------------------------------------- constants
def test_open_weights_are_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    _, executable = straight(monkeypatch)
    [key] = {c.key for c in executable.program.host.constants if c.key}
    parts = stored.parts(executable, [key])
    assert parts is not None and len(parts[1]) == 1 and not parts[0]["constants"]
    with pytest.raises(TargetError, match="needs weights that its caller does not have"):
        read(parts)
    check(read(parts, WeightStore(Arrays({key: np.arange(80, dtype=np.float32)}))), 5)


def test_equal_contents_are_written_once(recorded: Callable[[], RecordingDriver]) -> None:
    from tests.targets.cuda.runtime.test_cuda_constants import arrays, module_of

    weights = WeightStore()
    module = module_of(weights, arrays())
    recorded()
    facts, blobs = written(load_module(module, weights, CompileOptions()))
    assert len(facts["constants"]) == 4 and len(blobs) == 1 + 3
    again = written(read((facts, blobs)))
    assert again[0] == facts
    assert all(np.array_equal(a, b) for a, b in zip(again[1], blobs, strict=True))


# ---------------------------------------------------------------------- what does not fit
def harmed(change: Callable[[dict[str, Any]], Any], parts: Parts) -> Parts:
    facts = json.loads(json.dumps(parts[0]))
    change(facts)
    return facts, parts[1]


HARM: dict[str, Callable[[dict[str, Any]], Any]] = {
    "code before": lambda facts: facts["compiled"][0].__setitem__(3, -1),
    "code behind": lambda facts: facts["compiled"][0].__setitem__(4, 1 << 40),
    "no code": lambda facts: facts["compiled"][0].__setitem__(4, 0),
    "kernel": lambda facts: facts["compiled"][0].__setitem__(0, 99),
    "kind": lambda facts: facts.update(kind="other"),
    "blob": lambda facts: facts["constants"][0].__setitem__(1, 7),
    "size": lambda facts: facts["constants"][0][0][0].__setitem__(2, [81]),
    "text": lambda facts: facts["host"]["inputs"][0].__setitem__(2, ["n +", 80]),
    "plan": lambda facts: facts.update(host={}),
}


@pytest.mark.parametrize("name", HARM)
def test_parts_that_make_no_sense_are_refused(
    name: str, recorded: Callable[[], RecordingDriver]
) -> None:
    """With one of the errors that a damaged file may raise."""
    from compiler.programs.entry import DAMAGE

    weights = WeightStore()
    recorded()
    executable = load_module(model(weights, np.zeros(80, np.float32)), weights, CompileOptions())
    executable.run([np.zeros((3, 80), np.float32)])
    parts = written(executable)
    read(parts)
    with pytest.raises(DAMAGE):
        read(harmed(HARM[name], parts))


def test_code_that_a_file_lacks(recorded: Callable[[], RecordingDriver]) -> None:
    weights = WeightStore()
    recorded()
    parts = written(load_module(model(weights, np.zeros(80, np.float32)), weights,
                                CompileOptions()))
    again = read(harmed(lambda facts: facts.update(sources=[], compiled=[]), parts))
    with pytest.raises(CudaError, match="has no code for kernel @add at these sizes"):
        again.run([np.zeros((3, 80), np.float32)])


def test_the_convention_follows_the_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    from pathlib import Path

    known = stored.convention()
    for name in stored._AGREED:  # pyright: ignore[reportPrivateUsage]
        assert (Path(stored.__file__).parent / name).exists(), name
    monkeypatch.setattr(stored, "_AGREED", ("runtime",))
    assert stored.convention() != known


# ---------------------------------------------------------------------- Triton's code
@needs_triton
def test_code_of_triton_is_read_back(
    recorded: Callable[[], RecordingDriver], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Cubins are the same bytes; a variant that is missing is compiled from its source."""
    device = recorded()
    monkeypatch.setattr(kernels, "compile_kernels", compile_kernels)
    weights = WeightStore()
    options = CompileOptions(cache=tmp_path / "cuda")
    executable = load_module(model(weights, np.zeros(80, np.float32)), weights, options)
    executable.run([np.zeros((3, 80), np.float32)])
    parts, wanted = written(executable), [*device.launches]
    device.launches.clear()
    lacking = harmed(lambda facts: facts.update(compiled=[]), parts)
    for (facts, blobs), first in ((parts, 0), (lacking, 1)):  # lines of code name the source's file
        again = stored.load(facts, blobs, Loading(cache=str(tmp_path / "other")))
        again.run([np.zeros((3, 80), np.float32)])
        assert [line[first:6] for line in device.launches] == [line[first:6] for line in wanted]
        assert (tmp_path / "other").exists() == (facts is lacking[0])
        device.launches.clear()
