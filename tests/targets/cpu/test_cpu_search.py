"""The schedules that the tuner tries on the CPU: each is legal, and computes the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from cpu_kernels import each_machine

from compiler.comparison import worst
from compiler.driver import Compiler
from compiler.options import CompileOptions
from compiler.signature import signature_of
from compiler.tuning.bench import random_inputs
from compiler.tuning.jobs import Job
from compiler.tuning.tasks import Task
from compiler.tuning.tuner import TuneOptions, Tuner
from dialects.loop import KernelOp
from dialects.schedule import Schedule, parse_schedule
from passes.loop.outline import is_contraction
from targets.base import TargetOptions, find_target
from targets.cpu.machine import machine_of
from targets.cpu.search import PROGRAMS, _programs, candidates

PRODUCT = """
  strata.func @main(%x: f32[37, 19]) -> (f32[37, 70]) inputs ["x"] outputs ["y"] {
    %r = graph.range {start = -9, step = 1, count = 1330, to = f32} : f32[1330]
    %w = graph.reshape %r {shape = [19, 70]} : f32[19, 70]
    %y = graph.matmul %x, %w : f32[37, 70]
    strata.return %y
  }"""
OPEN_PRODUCT = """
  strata.func @main(%x: f32[n, 19], %w: f32[19, m]) -> (f32[n, m]) inputs ["x", "w"] outputs ["y"] {
    %y = graph.matmul %x, %w : f32[n, m]
    strata.return %y
  }"""
CONVOLUTION = """
  strata.func @main(%x: f32[1, 6, 13, 11]) -> (f32[1, 40, 13, 11]) inputs ["x"] outputs ["y"] {
    %r = graph.range {start = -9, step = 1, count = 2160, to = f32} : f32[2160]
    %w = graph.reshape %r {shape = [40, 6, 3, 3]} : f32[40, 6, 3, 3]
    %c = graph.conv %x, %w {pads = [1, 1, 1, 1]} : f32[1, 40, 13, 11]
    %y = graph.relu %c : f32[1, 40, 13, 11]
    strata.return %y
  }"""
SOFTMAX = """
  strata.func @main(%x: f32[23, 77]) -> (f32[23, 77]) inputs ["x"] outputs ["y"] {
    %y = graph.softmax %x {axis = 1} : f32[23, 77]
    strata.return %y
  }"""
CHAIN = """
  strata.func @main(%x: f32[29, 131], %b: f32[131]) -> (f32[131, 29])
      inputs ["x", "b"] outputs ["y"] {
    %s = graph.add %x, %b : f32[29, 131]
    %e = graph.exp %s : f32[29, 131]
    %y = graph.transpose %e {perm = [1, 0]} : f32[131, 29]
    strata.return %y
  }"""
ATTENTION = """
  strata.func @main(%q: f32[2, 35, 8], %k: f32[2, 8, 33], %v: f32[2, 33, 8]) -> (f32[2, 35, 8])
      inputs ["q", "k", "v"] outputs ["y"] {
    %s = graph.matmul %q, %k : f32[2, 35, 33]
    %p = graph.softmax %s {axis = 2} : f32[2, 35, 33]
    %y = graph.matmul %p, %v : f32[2, 35, 8]
    strata.return %y
  }"""
MODELS = {"product": PRODUCT, "open": OPEN_PRODUCT, "convolution": CONVOLUTION,
          "softmax": SOFTMAX, "chain": CHAIN, "attention": ATTENTION}
SOME = 12
"""Candidates that are executed, evenly among all."""


def tasks_of_text(text: str, folder: Path, features: str) -> list[Task]:
    path = folder / "model.mlir"
    path.write_text(f"builtin.module {{{text}\n}}\n")
    options = CompileOptions(features=features)
    tuner = Tuner(str(path), options, TuneOptions(sizes={"n": 21, "m": 45}, output=path))
    return tuner._tasks(tuner._kernels_of_model())


def job(task: Task, schedule: Schedule | None, folder: Path, features: str) -> Job:
    path = folder / f"{task.name}.mlir"
    path.write_text(task.text(schedule))
    task.weights.save(folder / "weights.npz")
    options = CompileOptions(features=features, cache="off", threads=1, tuned="off")
    return Job(str(path), task.name, replace(options, weights=folder / "weights.npz"), task.sizes)


def rules_schedule(task: Task, features: str) -> Schedule:
    """The rules' choice for a kernel whose operands are not packed."""
    return find_target("cpu").schedule(task.kernel, TargetOptions(features=features))


@each_machine
@pytest.mark.parametrize("name", MODELS)
def test_candidates_compute_the_same(name: str, features: str, tmp_path: Path) -> None:
    for task in tasks_of_text(MODELS[name], tmp_path, features):
        rules = rules_schedule(task, features)
        found = candidates(task.kernel, rules, machine_of(features))
        assert rules not in found and len(set(found)) == len(found)
        executable, signature = job(task, None, tmp_path, features).load()
        inputs = random_inputs(signature, task.sizes, task.indices)
        wanted = executable.run(inputs)
        for schedule in found[:: max(1, len(found) // SOME)]:
            assert {x.axis for x in schedule.levels} == set(task.kernel.axes), schedule
            got = job(task, schedule, tmp_path, features).load()[0].run(inputs)
            assert worst(got, wanted)[1] is None, f"{task.name} {schedule}"


def test_register_tiles_fit(tmp_path: Path) -> None:
    """Sums, a row of the panel and one factor have registers."""
    machine = machine_of("avx2")
    task = tasks_of_text(PRODUCT, tmp_path, "avx2")[0]
    for schedule in candidates(task.kernel, rules_schedule(task, "avx2"), machine):
        tiles = {x.axis: x for x in schedule.levels}
        lanes = next(x for x in tiles.values() if x.lanes)
        rows = next(tiles[a.name].tile for n in task.kernel.nests if is_contraction(n)
                    for a in n.parallel_axes if a.name != lanes.axis)
        vectors = -(-lanes.tile // machine.lanes)
        assert vectors * (rows + 1) < machine.vector_registers or rows == 1


def test_programs_are_left_for_threads() -> None:
    kernel = KernelOp.of("k", [], [])
    schedule = parse_schedule("<loop i0 tile 4>")
    assert _programs(kernel, schedule) == 1 < PROGRAMS


def test_a_panel_follows_from_the_schedule(tmp_path: Path) -> None:
    task = tasks_of_text(PRODUCT, tmp_path, "avx2")[0]
    schedule = parse_schedule("<grid i1 tile 24 lanes, loop i0 tile 3, loop i2 tile 1 unroll 2>")
    made = job(task, schedule, tmp_path, "avx2")
    state = Compiler(made.path, made.options).lower("loop")
    assert "f32[3, 19, 24]" in str(state.module)
    assert signature_of(state.module).input_names == ("x0",)
