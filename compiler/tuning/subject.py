"""A model whose kernels are tuned, lowered to the point before kernels have schedules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from compiler.diagnostics import Problem, StrataError, some_of
from compiler.io.signature import signature_of
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from compiler.pipeline.source import weight_labels
from compiler.pipeline.state import State
from compiler.tuning.options import TuneOptions
from compiler.tuning.tasks import Task, tasks_of
from dialects.symbolic.symbol import Symbol
from passes.loop.inline_layers import LoopInlineLayers
from passes.loop.scheduling.apply_tuned import LoopApplyTuned

if TYPE_CHECKING:
    from compiler.frontend import MemoryModel
    from compiler.instrument import Instrument


class Subject:
    """A model. `notes`: remarks for the report."""

    def __init__(
        self, model: str | MemoryModel, options: CompileOptions,
        instruments: Sequence[Instrument] = (),
    ):
        self.model, self.compilation = model, Compiler(model, options, instruments)
        self.notes: list[str] = []

    def tasks(self, wanted: TuneOptions) -> list[Task]:
        """The selected kernels. Raises StrataError if there are none."""
        state = self.lowered()
        signature = signature_of(state.module)
        sizes = {Symbol.size(name): value for name, value in wanted.sizes.items()}
        open_sizes = signature.unsized(sizes)
        if open_sizes:
            self.notes.append(f"sizes set for measuring: {signature.told(open_sizes)}; --open and "
                              f"--dim {open_sizes[0].name}=N set another")
        sizes = {s: sizes.get(s, signature.example(s)) for s in signature.symbols()}
        rules = self.compilation.parts.scheduling.schedule
        tasks, unknown = tasks_of(state.module, state.context.weights, sizes,
                                  rules, _footprint(state))
        if unknown:
            self.notes.append(f"{len(unknown)} kernels have sizes that only a run knows, and are "
                              f"left to the rules: {some_of(unknown)}")
        found = [t for t in tasks if wanted.names(t.name)]
        if tasks and not found:
            raise StrataError("--kernels names no kernel of the model", [Problem(
                f"it has {some_of([t.name for t in tasks], 20)}")])
        return found

    def lowered(self) -> State:
        """The lowered module from which tasks are extracted."""
        state = self.compilation.read()
        planned = self.compilation.plan(state, None)
        labels = [step.label for step in planned]
        if LoopApplyTuned.name not in labels:
            raise StrataError("kernels are tuned at loop level before they are packed, and none "
                              "of the passes that run is at that point")
        layers = [step for step in planned if step.label == LoopInlineLayers.name]
        self.compilation.run(state, [*planned[:labels.index(LoopApplyTuned.name)], *layers])
        state.after = tuple(label for label in state.after if label != LoopInlineLayers.name)
        return state  # in which each launch of a shared layer counts; its text goes on from here


def _footprint(state: State) -> int:
    """The number of bytes of a model's constants."""
    arrays = state.context.weights.arrays
    keys = {key for key, _ in weight_labels(state.module)}
    return sum(arrays[key].nbytes for key in keys if key in arrays)
