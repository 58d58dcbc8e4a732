"""Writes the module after every pass that changed it into a folder, with an index.

    00-graph-import.mlir     the model as it was read
    01-graph-fold-sizes.mlir after that pass; a pass that changed nothing writes nothing
    ...
    23-llvm.ll               the target's code
    schedules.txt            the schedules of all kernels as scripts, for --schedule
    weights.npz              the weights that the texts refer to
    index.md                 a list of these files, with operation counts and times

Of the files that are already in the folder, only those of an earlier dump are removed (see
`dump_folder.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from compiler.faults import WEIGHTS_LIMIT, byte_size
from compiler.instrument import Instrument
from compiler.instrument.dump_folder import DumpFolder
from compiler.instrument.provenance import without_node
from compiler.instrument.timing import count_operations
from compiler.pipeline.passes_option import TARGET_SCHEDULES
from compiler.pipeline.source import WEIGHTS_FILE
from passes.scripts.printing import scripts_of

if TYPE_CHECKING:
    from compiler.pipeline.state import State
    from compiler.pipeline.steps import Step

INDEX = "index.md"
SCRIPTS = "schedules.txt"
SUFFIXES = {"llvm": ".ll", "asm": ".s", "triton": ".py"}
"""The customary file suffixes of code levels; others use their own name."""


@dataclass(frozen=True)
class Row:
    """A line of the index."""

    file: str
    level: str
    made_by: str
    operations: int | None
    seconds: float | None


@dataclass
class Dump(Instrument):
    """Dumps into `folder`. `all_weights`: write them however large they are."""

    folder: Path
    all_weights: bool = False
    rows: list[Row] = field(default_factory=list[Row])
    idle: list[str] = field(default_factory=list[str])
    head: str = ""
    tail: str = ""
    wants_changes = True

    def __post_init__(self) -> None:
        self.files = DumpFolder(self.folder)

    def start(self, state: State) -> None:
        self.files.begin()
        self._write_module(state, f"{state.level}-import", "import", None)

    def after(self, step: Step, state: State, seconds: float, changed: bool) -> None:
        if changed:
            self._write_module(state, step.name, state.after[-1], seconds)
        else:
            self.idle.append(state.after[-1])
        if step.name == TARGET_SCHEDULES:
            self.files.write(SCRIPTS, scripts_of(state.module))

    def finish(self, state: State) -> None:
        size = byte_size(state.context.weights)
        if size <= WEIGHTS_LIMIT or self.all_weights:
            with self.files.writing(WEIGHTS_FILE) as file:
                state.context.weights.save(file)
            note = f"The weights are in [{WEIGHTS_FILE}]({WEIGHTS_FILE})."
        else:
            note = (f"The weights ({size / 1e6:.0f} MB) were not written. To start from one of "
                    "these files give `--weights MODEL` with the model that they come from, or "
                    "write them with `--dump-weights`.")
        self._finish_index(state, note)

    def emitted(self, level: str, text: str, seconds: float) -> None:
        self._write(level, SUFFIXES.get(level, f".{level}"), text)
        self.rows[-1] = Row(self.rows[-1].file, level, "emit", None, seconds)
        self._write_index()

    # ------------------------------------------------------------------ files
    def _write_module(
        self, state: State, name: str, made_by: str, seconds: float | None
    ) -> None:
        self._write(name, ".mlir", state.text)
        operations = count_operations(state.module)
        self.rows[-1] = Row(self.rows[-1].file, state.level, made_by, operations, seconds)
        self._write_index()

    def _write(self, name: str, suffix: str, text: str) -> None:
        file = f"{len(self.rows):02}-{name}{suffix}"
        self.files.write(file, text)
        self.rows.append(Row(file, "", "", None, None))

    # ------------------------------------------------------------------ the index
    def _finish_index(self, state: State, note: str) -> None:
        self.head = f"# {state.name}\n\n{note}\n"
        if self.idle:
            self.tail = f"\nPasses that changed nothing: {', '.join(self.idle)}\n"
        lost = ", ".join(f"{name} ({n})" for name, n in without_node(state.module).items())
        if lost:
            self.tail += f"\nOperations that name no node of the model: {lost}\n"
        reasons = "\n".join(f"- {remark}" for remark in state.context.remarks)
        if reasons:
            self.tail += f"\n## What was not done, and why\n\n{reasons}\n"
        self._write_index()

    def _write_index(self) -> None:
        lines = ["| file | level | after | operations | seconds |", "|---|---|---|---:|---:|"]
        lines += [f"| [{r.file}]({r.file}) | {r.level} | {r.made_by} | {_or_blank(r.operations)} "
                  f"| {'' if r.seconds is None else f'{r.seconds:.3f}'} |" for r in self.rows]
        text = f"{self.head}\n" + "\n".join(lines) + f"\n{self.tail}"
        self.files.write(INDEX, text)


def _or_blank(number: int | None) -> str:
    return "" if number is None else str(number)
