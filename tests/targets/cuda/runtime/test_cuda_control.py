"""Control flow and late sizes above the driver's calls: without a GPU, and without Triton."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from dialects.host import LaunchOp
from dialects.strata.types import Array
from targets.base import TargetOptions
from targets.cuda import TARGET
from targets.cuda.build.compile import CompileOptions
from targets.cuda.errors import CudaError
from targets.cuda.planning.plan import host_notes, kernel_call, planned_kernels
from targets.cuda.planning.program import load_module
from targets.cuda.runtime.call_steps import LaunchStep
from targets.cuda.runtime.control import LoopStep
from targets.cuda.runtime.control_runner import ControlProgram, ControlRunner
from targets.cuda.runtime.executable import CudaExecutable
from targets.cuda.runtime.memory.device import KeptBlocks
from tests.control.programs import (
    BRANCHES,
    COUNTED,
    DERIVED_SIZE,
    GROWING,
    LOOP_IN_LOOP,
    PREFIX,
    PROGRAMS,
    STEPS,
    TWO_SIZES,
    WHILE,
    Program,
)
from tests.symbols import by_symbol
from tests.targets.cuda.fakes.fake_driver import FakeDriver
from tests.targets.cuda.fakes.fake_torch import STREAM, FakeTorch
from tests.targets.cuda.runtime.control_programs import REFUSALS, compare, lowered

NUMBERS = np.random.default_rng(3).standard_normal((40, 4)).astype(np.float32)
each_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)


@dataclass
class Loaded:
    """A program on a fake device."""

    device: FakeDriver
    executable: CudaExecutable

    def check(self, program: Program, inputs: Sequence[Array]) -> None:
        """Run it; the outputs are right, and nothing is left on the device."""
        compare(self.executable.run(inputs), program, inputs)
        assert not self.device.given

    @property
    def steps(self) -> list[Any]:
        program = self.executable._program  # pyright: ignore[reportPrivateUsage]
        assert isinstance(program, ControlProgram)
        return [s for f in program.functions.values() for s in f.plan.steps]


Load = Callable[..., Loaded]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    """`load(program)`: lowered, emitted, and on a fake device with these options."""
    def make(program: Program, **options: Any) -> Loaded:
        module, weights = lowered(program.text)
        device = FakeDriver.of(module, **options)
        device.install(monkeypatch)
        device.install_compiler(monkeypatch)
        return Loaded(device, load_module(module, weights, CompileOptions()))
    return make


# ---------------------------------------------------------------------- what programs compute
@each_program
@pytest.mark.parametrize("has_pools", [True, False], ids=["pool", "kept blocks"])
def test_arrays(program: Program, has_pools: bool, load: Load) -> None:
    """All inputs on one compiled program, twice: what a run leaves does not touch the next."""
    loaded = load(program, has_pools=has_pools)
    for inputs in (*program.inputs, *program.inputs):
        loaded.check(program, inputs)


@each_program
def test_tensors_on_the_device(
    program: Program, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the caller's stream, with torch's memory, unless the whole program is one graph; also from
    where kernels cannot read them."""
    loaded = load(program)
    torch = FakeTorch(loaded.device)
    torch.install(monkeypatch)
    for shift in (0, 4):
        for inputs in program.inputs[:3]:
            tensors = [torch.tensor(np.asarray(a), shift) for a in inputs]
            outputs = loaded.executable.run(tensors)
            compare([o.numpy() for o in outputs], program, inputs)
    assert not loaded.device.given
    is_graph = "replay" in loaded.device.log
    assert is_graph == (program is DERIVED_SIZE) and set(torch.streams) == (
        set[int]() if is_graph else {STREAM})


def test_arrays_while_torch_is_there(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's memory, on the program's own stream."""
    loaded = load(GROWING)
    torch = FakeTorch(loaded.device)
    torch.install(monkeypatch)
    loaded.check(GROWING, GROWING.inputs[0])
    [state] = loaded.executable._states.idle  # pyright: ignore[reportPrivateUsage]
    assert set(torch.streams) == {state.order.own}


@pytest.mark.parametrize(("program", "inputs"), [
    (STEPS, lambda n: [NUMBERS[:n], NUMBERS[0]]), (LOOP_IN_LOOP, lambda n: [NUMBERS[:n]])])
def test_loops_with_many_calls(
    program: Program, inputs: Callable[[int], Sequence[Array]], load: Load
) -> None:
    """They take no more memory than those with few, and keep few packed launches."""
    loaded = load(program)
    loaded.check(program, inputs(4))
    blocks = len(loaded.device.memory)
    loaded.check(program, inputs(40))
    assert len(loaded.device.memory) <= blocks + 4  # inputs and results of other sizes
    [state] = loaded.executable._states.idle  # pyright: ignore[reportPrivateUsage]
    assert isinstance(state.runner, ControlRunner)
    assert {*map(type, state.runner.packed)} == {LaunchStep}
    assert all(len(packed) <= 16 for packed in state.runner.packed.values())


def test_stacks_grow_by_doubling_or_to_the_size_that_is_certain(load: Load) -> None:
    inputs = [np.zeros((1000, 3), np.float32), np.array(64)]
    loaded = load(COUNTED)
    loaded.check(COUNTED, inputs)
    assert f"allocate {64 * 12000}" in loaded.device.log
    loaded = load(WHILE)
    loaded.check(WHILE, [np.array([2.0**99], np.float32), np.array(True)])
    assert [f"allocate {size}" in loaded.device.log for size in (256, 512, 1024, 2048)] == [
        True, True, True, False]


# ---------------------------------------------------------------------- what runs where
VIEW = Program("view", """
strata.func @main(%count: i64[1, 2]) -> (f32[a, b]) inputs ["count"] outputs ["y"] {
  %c = graph.reshape %count {shape = [2]} : i64[2]
  strata.size a, b = %c
  %one = graph.constant {value = literal[1.0]} : f32[]
  %y = graph.broadcast %one {shape = [a, b]} : f32[a, b]
  strata.return %y
}
""", lambda count: (np.ones(count[0], np.float32),), [(np.array([[2, 3]]),)])


def test_the_host_waits_only_for_what_it_does_not_know(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes and conditions that came as arrays, and constants, are not read back."""
    def downloads(inputs: Sequence[Any]) -> int:
        loaded.device.log.clear()
        loaded.executable.run(inputs)
        return sum(line.startswith("download") for line in loaded.device.log)

    for program, outputs in ((PREFIX, 2), (TWO_SIZES, 2), (BRANCHES, 2), (COUNTED, 2), (VIEW, 1)):
        loaded = load(program)
        assert downloads(program.inputs[0]) == outputs
    loaded = load(GROWING)
    assert downloads(GROWING.inputs[2]) == 2 + 1  # one call: whether to go on
    loaded = load(PREFIX)
    torch = FakeTorch(loaded.device)
    torch.install(monkeypatch)
    assert downloads([torch.tensor(a) for a in PREFIX.inputs[0]]) == 1


def test_kernels_that_are_missing_are_compiled_together(load: Load) -> None:
    """Before the run, those that no size can change; then all of a function whose sizes are known.
    """
    loaded = load(LOOP_IN_LOOP)
    compiled = [line for line in loaded.device.log if line.startswith("compile")]
    loaded.check(LOOP_IN_LOOP, LOOP_IN_LOOP.inputs[0])
    later = [line for line in loaded.device.log if line.startswith("compile")][len(compiled):]
    assert (compiled, later) == (["compile 3"], ["compile 2"])
    loaded.device.log.clear()
    loaded.check(LOOP_IN_LOOP, LOOP_IN_LOOP.inputs[0])
    assert not any(line.startswith("compile") for line in loaded.device.log)


def test_a_program_that_decides_has_no_graph(load: Load) -> None:
    with pytest.raises(CudaError, match="it has control flow"):
        load(PREFIX).executable.replay(3)


NOTES = [(PREFIX, "1 size"), (TWO_SIZES, "2 sizes"), (LOOP_IN_LOOP, "2 strata.loop"),
         (BRANCHES, "1 strata.if, 1 size")]


@pytest.mark.parametrize(("program", "note"), NOTES, ids=lambda x: getattr(x, "name", ""))
def test_what_the_host_decides_is_told(program: Program, note: str, load: Load) -> None:
    module, _ = lowered(program.text)
    assert host_notes(module) == [f"on the host: {note}"]
    text = TARGET.bind(TargetOptions()).emission.emit(module, "triton")
    assert f"\n# on the host: {note}\n" in text
    assert load(program).executable.notes == [f"on the host: {note}"]


# ---------------------------------------------------------------------- what goes wrong
@pytest.mark.parametrize("torch_is_there", [False, True])
@pytest.mark.parametrize(("program", "inputs", "message"), REFUSALS)
def test_what_is_refused_leaves_nothing_and_the_program_stays_usable(
    program: Program, inputs: Sequence[Array], message: str, torch_is_there: bool, load: Load,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded = load(program)
    if torch_is_there:
        FakeTorch(loaded.device).install(monkeypatch)
    for _ in range(2):
        with pytest.raises(ValueError, match=re.escape(message)):
            loaded.executable.run(inputs)
        assert not loaded.device.given
        loaded.check(program, program.inputs[0])


def test_sizes_that_kernels_cannot_count() -> None:
    module, _ = lowered(WHILE.text)
    op = next(op for op in module.walk() if isinstance(op, LaunchOp)
              and op.sizes.data and str(op.sizes.data[0]) == "k")
    call = kernel_call(op, planned_kernels(module))
    assert call.size_values(by_symbol({"k": 2**31 - 1})) == by_symbol({"k": 2**31 - 1})
    with pytest.raises(CudaError, match="the size k = 2147483648 at node"):
        call.size_values(by_symbol({"k": 2**31}))


def test_a_failure_in_a_call_leaves_nothing(load: Load) -> None:
    """An error of the device deep inside loops: all frames' memory goes, the program stays."""
    loaded = load(LOOP_IN_LOOP)
    inputs = LOOP_IN_LOOP.inputs[2]
    loaded.check(LOOP_IN_LOOP, inputs)
    loop = next(s for s in loaded.steps if isinstance(s, LoopStep))
    inputs_of_loop = loop.inputs
    object.__setattr__(loop, "inputs", (10_000,))
    with pytest.raises(IndexError):
        loaded.executable.run(inputs)
    assert not loaded.device.given
    object.__setattr__(loop, "inputs", inputs_of_loop)
    loaded.check(LOOP_IN_LOOP, inputs)


# ---------------------------------------------------------------------- kept blocks
def test_blocks_are_kept_up_to_a_limit(load: Load) -> None:
    device = load(PREFIX).device
    blocks = KeptBlocks(most=10_000)
    first = blocks.allocate(1000, 7)
    blocks.free(first, 7)
    assert blocks.allocate(1010, 7) == first  # both are 1024 bytes
    blocks.free(first, 7)
    large = [blocks.allocate(6000, 7), blocks.allocate(6000, 7)]
    blocks.free(large[0], 7)
    assert blocks.kept == 1024 + 6144
    blocks.free(large[1], 7)
    assert blocks.kept == 0
    assert not {first, *large} & device.memory.keys()


def test_a_full_device_gets_kept_blocks_back(load: Load) -> None:
    loaded = load(PREFIX)
    device, blocks = loaded.device, KeptBlocks()
    used = sum(a.size for a in device.memory.values())
    device.limit = used + 3500
    for size in (2000, 3000):  # not both at a time
        blocks.free(blocks.allocate(size, 7), 7)
    with pytest.raises(CudaError, match="out of memory"):
        blocks.allocate(4000, 7)
    assert sum(a.size for a in device.memory.values()) == used
