"""The schedules that the tuner tries on the CPU: each is legal, and computes the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from compiler.io.signature import signature_of
from compiler.measuring.comparison import worst
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from compiler.tuning.bench import random_inputs
from compiler.tuning.jobs import Job
from compiler.tuning.tasks import Task
from dialects.loop import KernelOp
from dialects.strata.schedule import Schedule, parse_schedule
from passes.analyses.loop.kinds import is_contraction
from targets.base import TargetOptions, find_target
from targets.cpu.machine import machine_of
from targets.cpu.scheduling.search import PROGRAMS, _programs, candidates
from tests.targets.cpu.cpu_kernels import each_machine
from tests.targets.searches import ANY, attention, evenly, tasks_of_text, written

PRODUCT = """
  strata.func @main(%x: f32[37, 19]) -> (f32[37, 70]) inputs ["x"] outputs ["y"] {
    %r = graph.range {start = -9, step = 1, count = 1330, to = f32} : f32[1330]
    %w = graph.reshape %r {shape = [19, 70]} : f32[19, 70]
    %y = graph.matmul %x, %w : f32[37, 70]
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
MODELS = {"product": PRODUCT, "convolution": CONVOLUTION, "attention": attention("f32", 8), **ANY}
SOME, MANY = 6, 24
"""Candidates that are executed, evenly among all; the second in the slow tests."""


def options_of(features: str) -> CompileOptions:
    return CompileOptions(features=features, cache="off", threads=1, tuned="off")


def job(task: Task, schedule: Schedule | None, folder: Path, features: str) -> Job:
    path, options = written(task, schedule, folder, options_of(features))
    return Job(task.key, path, task.name, options, task.sizes)


def rules_schedule(task: Task, features: str) -> Schedule:
    """The rules' choice for a kernel whose operands are not packed."""
    parts = find_target("cpu").bind(TargetOptions(features=features))
    return parts.scheduling.schedule(task.kernel)


@each_machine
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("some", [SOME, pytest.param(MANY, marks=pytest.mark.slow)])
def test_candidates_compute_the_same(
    some: int, name: str, features: str, tmp_path: Path
) -> None:
    for task in tasks_of_text(MODELS[name], tmp_path, options_of(features)):
        rules = rules_schedule(task, features)
        found = candidates(task.kernel, rules, machine_of(features))
        assert rules not in found and len(set(found)) == len(found)
        executable, signature = job(task, None, tmp_path, features).load()
        inputs = random_inputs(signature, task.sizes, task.indices)
        wanted = executable.run(inputs)
        for schedule in evenly(found, some):
            assert {x.axis for x in schedule.levels} == set(task.kernel.axes), schedule
            got = job(task, schedule, tmp_path, features).load()[0].run(inputs)
            assert worst(got, wanted)[1] is None, f"{task.name} {schedule}"


def test_register_tiles_fit(tmp_path: Path) -> None:
    """Sums, a row of the panel and one factor have registers."""
    machine = machine_of("avx2")
    task = tasks_of_text(PRODUCT, tmp_path, options_of("avx2"))[0]
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
    task = tasks_of_text(PRODUCT, tmp_path, options_of("avx2"))[0]
    schedule = parse_schedule("<grid i1 tile 24 lanes, loop i0 tile 3, loop i2 tile 1 unroll 2>")
    made = job(task, schedule, tmp_path, "avx2")
    state = Compiler(made.path, made.options).lower("loop")
    assert "f32[3, 19, 24]" in str(state.module)
    assert signature_of(state.module).input_names == ("x0",)
