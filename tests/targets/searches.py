"""What the tests of all targets' search spaces share: models, and their kernels as tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from compiler.options import CompileOptions
from compiler.tuning.options import TuneOptions
from compiler.tuning.subject import Subject
from compiler.tuning.tasks import Task
from dialects.strata.schedule import Schedule

OPEN_PRODUCT = """
  strata.func @main(%x: f32[n, 19], %w: f32[19, m]) -> (f32[n, m]) inputs ["x", "w"] outputs ["y"] {
    %y = graph.matmul %x, %w : f32[n, m]
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
ANY = {"open": OPEN_PRODUCT, "softmax": SOFTMAX, "chain": CHAIN}


def attention(element: str, width: int) -> str:
    """Scores, softmax and their product with values, of two heads."""
    return f"""
  strata.func @main(%q: {element}[2, 35, {width}], %k: {element}[2, {width}, 33],
      %v: {element}[2, 33, {width}]) -> ({element}[2, 35, {width}])
      inputs ["q", "k", "v"] outputs ["y"] {{
    %s = graph.matmul %q, %k : {element}[2, 35, 33]
    %p = graph.softmax %s {{axis = 2}} : {element}[2, 35, 33]
    %y = graph.matmul %p, %v : {element}[2, 35, {width}]
    strata.return %y
  }}"""


def evenly(found: Sequence[Schedule], count: int) -> list[Schedule]:
    """At most `count` of the candidates, from the first to the last."""
    count = min(count, len(found))
    return [found[k * (len(found) - 1) // max(1, count - 1)] for k in range(count)]


def tasks_of_text(text: str, folder: Path, options: CompileOptions) -> list[Task]:
    """The kernels of a function, in a folder; open sizes `n` and `m` are 21 and 45."""
    path = folder / "model.mlir"
    path.write_text(f"builtin.module {{{text}\n}}\n")
    return Subject(str(path), options).tasks(TuneOptions(sizes={"n": 21, "m": 45}))


def written(
    task: Task, schedule: Schedule | None, folder: Path, options: CompileOptions
) -> tuple[str, CompileOptions]:
    """A task's module with a schedule in a file, and the options to compile it with."""
    path = folder / f"{task.name}.mlir"
    path.write_text(task.text(schedule))
    task.weights.save(folder / "weights.npz")
    return str(path), replace(options, weights=folder / "weights.npz")
