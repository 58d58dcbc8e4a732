"""The kernels of a model as small models: what they compute, and that they are found again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.io.signature import signature_of
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from compiler.pipeline.source import Snapshot, Source
from compiler.pipeline.state import State
from compiler.tuning.bench import random_inputs
from compiler.tuning.options import TuneOptions
from compiler.tuning.subject import Subject
from compiler.tuning.tasks import Task
from dialects.loop import CallOp, KernelOp
from dialects.strata.schedule import Level, Schedule
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.choices import text_key
from passes.contract import Choice
from passes.rewriting import functions
from targets.base import TargetOptions, find_target

MODEL = """\
builtin.module {
  strata.func @main(%x: f32[n, 12], %k: i64[m]) -> (f32[m, 20], f32[m, 20])
      inputs ["x", "k"] outputs ["y", "z"] {
    %r = graph.range {start = -100, step = 1, count = 240, to = f32} : f32[240]
    %w = graph.reshape %r {shape = [12, 20]} : f32[12, 20]
    %p = graph.matmul %x, %w : f32[n, 20]
    %s = graph.softmax %p {axis = 1} : f32[n, 20]
    %y = graph.gather %s, %k {axis = 0} : f32[m, 20]
    %q = graph.matmul %y, %w2 : f32[m, 20]
    strata.return %y, %q
  }
}
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    lines = MODEL.replace("%w2", "%w3").replace(
        "    %p =", "    %w3 = graph.matmul %t, %w : f32[20, 20]\n    %p =").replace(
        "    %w3 =", "    %t = graph.transpose %w {perm = [1, 0]} : f32[20, 12]\n    %w3 =")
    path = tmp_path / "model.mlir"
    path.write_text(lines)
    return path


def kernels_of(model: Path, **sizes: int) -> tuple[State, list[Task]]:
    subject = Subject(str(model), CompileOptions())
    return subject.lowered(), subject.tasks(TuneOptions(sizes=sizes))


def test_tasks_compile_to_the_kernels_of_the_model(model: Path, tmp_path: Path) -> None:
    """Behind all passes a task's kernel is the model's own, to the letter."""
    def texts(path: Path) -> dict[str, str]:
        state = Compiler(str(path), CompileOptions(weights=weights(path))).lower("loop")
        return {op.sym_name.data: str(op) for op in state.module.body.block.ops
                if isinstance(op, KernelOp)}

    def weights(path: Path) -> Path | None:
        return None if path == model else tmp_path / "weights.npz"

    whole = texts(model)
    _, tasks = kernels_of(model, n=7, m=3)
    assert {t.name for t in tasks} <= whole.keys()
    for task in tasks:
        task.weights.save(tmp_path / "weights.npz")
        path = tmp_path / f"{task.name}.mlir"
        path.write_text(task.text(None))
        assert texts(path)[task.name] == whole[task.name]


def test_tasks_run_alone(model: Path) -> None:
    """All sizes are given by inputs, and indices are valid."""
    _, tasks = kernels_of(model, n=7, m=3)
    for task in tasks:
        source = Source(task.module.clone(), task.weights, task.name, "loop", ("loop-outline",))
        compilation = Compiler(Snapshot(task.name, source), CompileOptions(cache="off"))
        state = compilation.lower()
        inputs = random_inputs(signature_of(state.module), task.sizes, task.indices)
        for output in compilation.load(state).run(inputs):
            assert np.isfinite(output).all()


def test_launches_are_counted_and_keys_stay(model: Path) -> None:
    state, tasks = kernels_of(model)
    calls = [op for f in functions(state.module) for op in f.body.block.ops
             if isinstance(op, CallOp)]
    assert sum(t.launches for t in tasks) == len(calls)
    again = {text_key(call, call.target(), state.context.weights)[0] for call in calls}
    assert {t.key.partition(".")[0] for t in tasks} == again
    assert [t.key for t in kernels_of(model)[1]] == [t.key for t in tasks]


def test_a_weight_that_the_caller_holds_has_a_key_of_its_own(model: Path) -> None:
    """It is not packed, so a schedule for packed ones does not suit it."""
    state, _ = kernels_of(model)
    weights = state.context.weights
    call = next(op for f in functions(state.module) for op in f.body.block.ops
                if isinstance(op, CallOp) and op.kernel.data.startswith("contract"))
    packed = text_key(call, call.target(), weights)[0]
    weights.held |= weights.arrays.keys()
    assert text_key(call, call.target(), weights)[0] != packed


def test_tuned_schedules_reach_the_kernels(model: Path) -> None:
    """A choice for a key is put on the model's kernel, with the kernel's own names of axes."""
    _, tasks = kernels_of(model)
    task = next(t for t in tasks if t.name.startswith("contract"))
    axes = list(task.kernel.axes)
    mine = Schedule((Level("grid", axes[1], 12, lanes=True), Level("loop", axes[0], 3),
                     Level("loop", axes[2], 1, unroll=2)))
    neutral = task.canonical.neutral(mine)
    compilation = Compiler(str(model), CompileOptions())
    compilation.choices = {task.key: Choice(neutral, 1.5)}
    state = compilation.lower("loop")
    kernels = {op.sym_name.data: op for op in state.module.body.block.ops
               if isinstance(op, KernelOp)}
    schedule = kernels[task.name].schedule
    assert schedule is not None and schedule.data == mine
    assert any("has a tuned schedule, 1.50x" in str(r) for r in state.context.remarks)
    assert task.canonical.own(Schedule((Level("grid", Symbol.axis("a0")),))) is None


def test_a_choice_counts_while_rules_choose_what_it_has_beaten(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, tasks = kernels_of(model)
    task = next(t for t in tasks if t.name.startswith("contract"))
    scheduling = find_target("cpu").bind(TargetOptions()).scheduling
    mine = scheduling.candidates(task.kernel, scheduling.schedule(task.kernel))[0]
    compilation = Compiler(str(model), CompileOptions())
    compilation.choices = {task.key: Choice(task.canonical.neutral(mine), 1.5)}
    kind, rules = type(scheduling), type(scheduling).schedule

    def otherwise(self: Any, kernel: KernelOp) -> Schedule:
        found = rules(self, kernel)
        return replace(found, options=(*found.options, ("stream", 1)))

    monkeypatch.setattr(kind, "schedule", otherwise)
    state = compilation.lower("loop")
    assert not any("has a tuned schedule" in str(r) for r in state.context.remarks)
