"""The schedules that the tuner tries on GPUs: each is legal, and computes the same."""

from __future__ import annotations

from math import ceil, prod
from pathlib import Path

import pytest

from compiler.io.signature import signature_of
from compiler.measuring.comparison import worst
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from compiler.pipeline.state import State
from compiler.tuning.bench import random_inputs
from compiler.tuning.tasks import Task
from dialects.host.interpret import interpret_host
from dialects.loop import KernelOp
from dialects.strata.schedule import Schedule, parse_schedule
from dialects.strata.types import Array
from targets.base import TargetOptions, find_target
from targets.cuda.machine import machine_of
from targets.cuda.scheduling.products import rules as products
from targets.cuda.scheduling.search import FIRST_TILES, Space, candidates
from tests.targets.searches import ANY, attention, evenly, tasks_of_text, written

PRODUCT = """
  strata.func @main(%x: f16[70, 100], %w: f16[100, 90]) -> (f16[70, 90])
      inputs ["x", "w"] outputs ["y"] {
    %y = graph.matmul %x, %w : f16[70, 90]
    strata.return %y
  }"""
VECTOR = """
  strata.func @main(%x: f16[1, 100], %w: f16[100, 90]) -> (f16[1, 90])
      inputs ["x", "w"] outputs ["y"] {
    %y = graph.matmul %x, %w : f16[1, 90]
    strata.return %y
  }"""
CONVOLUTION = """
  strata.func @main(%x: f16[1, 6, 13, 11]) -> (f16[1, 40, 13, 11]) inputs ["x"] outputs ["y"] {
    %r = graph.range {start = -9, step = 1, count = 2160, to = f32} : f32[2160]
    %h = graph.cast %r {to = f16} : f16[2160]
    %w = graph.reshape %h {shape = [40, 6, 3, 3]} : f16[40, 6, 3, 3]
    %c = graph.conv %x, %w {pads = [1, 1, 1, 1]} : f16[1, 40, 13, 11]
    %y = graph.relu %c : f16[1, 40, 13, 11]
    strata.return %y
  }"""
STRIPS = """
  strata.func @main(%x: f32[66, 4, 8, 6]) -> (f32[66, 8, 6, 4]) inputs ["x"] outputs ["y"] {
    %r = graph.range {start = -9, step = 1, count = 36, to = f32} : f32[36]
    %w = graph.reshape %r {shape = [4, 1, 3, 3]} : f32[4, 1, 3, 3]
    %z = graph.relu %x : f32[66, 4, 8, 6]
    %c = graph.conv %z, %w {pads = [1, 1, 1, 1], group = 4} : f32[66, 4, 8, 6]
    %y = graph.transpose %c {perm = [0, 2, 3, 1]} : f32[66, 8, 6, 4]
    strata.return %y
  }"""
COLUMNS = """
  strata.func @main(%x: f32[130, 70]) -> (f32[70]) inputs ["x"] outputs ["y"] {
    %y = graph.reduce_sum %x {axes = [0], keepdims = false} : f32[70]
    strata.return %y
  }"""
MODELS = {"product": PRODUCT, "vector": VECTOR, "convolution": CONVOLUTION, "strips": STRIPS,
          "columns": COLUMNS,
          "attention": attention("f16", 16), **ANY}
SOME, MANY = 5, 20
"""Candidates that are executed, evenly among all; the second in the slow tests."""
OPTIONS = CompileOptions(target="cuda", features="sm_90", cache="off", tuned="off")


def lowered(task: Task, schedule: Schedule | None, folder: Path) -> tuple[State, str]:
    """The task's module at block level, and its Triton source."""
    compilation = Compiler(*written(task, schedule, folder, OPTIONS))
    state = compilation.lower()
    return state, compilation.emit(state, "triton")


def computed(state: State, task: Task) -> list[Array]:
    inputs = random_inputs(signature_of(state.module), task.sizes, task.indices)
    return interpret_host(state.module, inputs, state.context.weights)


def schedule_of(state: State, name: str) -> Schedule:
    kernel = next(op for op in state.module.body.block.ops
                  if getattr(op, "sym_name", None) is not None and op.sym_name.data == name)
    return parse_schedule(kernel.properties["schedule"].text)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("some", [SOME, pytest.param(MANY, marks=pytest.mark.slow)])
def test_candidates_compute_the_same(some: int, name: str, tmp_path: Path) -> None:
    for task in tasks_of_text(MODELS[name], tmp_path, OPTIONS):
        state, _ = lowered(task, None, tmp_path)
        rules, wanted = schedule_of(state, task.name), computed(state, task)
        found = candidates(task.kernel, rules, OPTIONS.target_options())
        assert found and rules not in found and len(set(found)) == len(found)
        for schedule in evenly(found, some):
            assert {x.axis for x in schedule.levels} == {x.axis for x in rules.levels}
            state, text = lowered(task, schedule, tmp_path)
            assert "@triton.jit" in text
            assert worst(computed(state, task), wanted)[1] is None, f"{task.name} {schedule}"


# ---------------------------------------------------------------------- what is tried, and when
def product_kernel(folder: Path, rows: int, columns: int, depth: int) -> KernelOp:
    text = (PRODUCT.replace("70", str(rows)).replace("90", str(columns))
            .replace("100", str(depth)))
    return tasks_of_text(text, folder, OPTIONS)[0].kernel


def test_large_products_begin_with_large_tiles(tmp_path: Path) -> None:
    kernel = product_kernel(tmp_path, 4096, 4096, 4096)
    around = find_target("cuda").bind(OPTIONS.target_options()).scheduling.schedule(kernel)
    first = candidates(kernel, around, OPTIONS.target_options())[:FIRST_TILES]
    tiles = [[x.tile for x in s.levels if x.kind == "grid"] for s in first]
    # groups of warps that share a step have a tile each
    groups = [int(s.given("warps") or 0) // 4 if s.given("specialize") else 1 for s in first]
    programs = [[rows * n, columns] for (rows, columns), n in zip(tiles, groups, strict=True)]
    assert [128, 256] in programs[:4] and all(prod(t) >= 8192 for t in tiles)
    assert any(s.given("specialize") for s in first)


def test_what_the_rules_choose_from_comes_first(tmp_path: Path) -> None:
    options = OPTIONS.target_options()
    kernel = product_kernel(tmp_path, 4096, 4096, 4096)
    rules, *others = products.candidates(kernel, options)
    assert candidates(kernel, rules, options)[:FIRST_TILES] == others[:FIRST_TILES]
    convolution = tasks_of_text(CONVOLUTION, tmp_path, OPTIONS)[0].kernel
    around = find_target("cuda").bind(options).scheduling.schedule(convolution)
    others = [*products.candidates(convolution, options)]
    assert around not in others[:1] and candidates(convolution, around, options)[0] not in others


def test_small_products_leave_programs_for_all_multiprocessors(tmp_path: Path) -> None:
    kernel = product_kernel(tmp_path, 256, 256, 4096)
    around = find_target("cuda").bind(OPTIONS.target_options()).scheduling.schedule(kernel)
    for schedule in candidates(kernel, around, OPTIONS.target_options())[:3]:
        extents = {a: size.constant or 0 for a, size in kernel.axes.items()}
        assert prod(ceil(extents[x.axis] / x.tile)
                    for x in schedule.levels if x.kind == "grid") >= 16


def test_what_a_program_keeps_fits_the_machine(tmp_path: Path) -> None:
    kernel = product_kernel(tmp_path, 4096, 4096, 4096)
    around = find_target("cuda").bind(OPTIONS.target_options()).scheduling.schedule(kernel)
    for arch in ("sm_86", "sm_90"):
        machine = machine_of(arch)
        space = Space(kernel, around, machine)
        found = candidates(kernel, around, TargetOptions(features=arch))
        assert found and all(space.shared(s) <= machine.shared for s in found)
