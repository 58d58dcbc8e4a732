"""`compiler.explain`: explanations of models, executables, and programs of `torch.compile`.

A program of PyTorch is captured and compiled as `torch.compile(backend="strata")` does it, which
calls it once. Each graph, or part of one between nodes that run eagerly, has its own explanation.
Where gradients are recorded, these are forward and backward graphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from compiler.api import model_of_argument, prepared_options
from compiler.diagnostics import visible
from compiler.explaining import report
from compiler.explaining.collect import Explanation
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler

if TYPE_CHECKING:
    from compiler.frontend import MemoryModel
    from compiler.torch.messages.breaks import Break


@dataclass
class Explained:
    """What became of a program. `graphs`: an explanation of each compiled graph, or part of one.

    `eager`: nodes that run eagerly, with the reason. `captured`: the number of graphs that PyTorch
    captured, as `torch._dynamo.explain` counts them; `breaks`: why they end before the program
    does. `stages`: "inference", "forward" or "backward" for each of `graphs`. All of these are
    empty unless `torch.compile` captured the program.
    """

    graphs: list[Explanation] = field(default_factory=list[Explanation])
    eager: list[tuple[Sequence[str], str]] = field(
        default_factory=list[tuple[Sequence[str], str]])
    captured: int = 0
    breaks: list[Break] = field(default_factory=list["Break"])
    stages: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        return "\n".join(self.lines())

    @property
    def json(self) -> dict[str, Any]:
        return {"graphs": [found.json for found in self.graphs], "stages": self.stages,
                "captured": self.captured,
                "breaks": [found.json for found in self.breaks],
                "eager": [{"nodes": list(nodes), "reason": why} for nodes, why in self.eager]}

    def lines(self) -> list[str]:
        """What people read."""
        stages = self.stages or ["inference"] * len(self.graphs)
        texts = [line for stage, found in zip(stages, self.graphs, strict=True)
                 for line in (*_heading(stage), *report.whole(found), "")]
        breaks = [f"a graph ends at {found}" for found in self.breaks]
        eager = [f"runs eagerly: {', '.join(nodes)}: {why}" for nodes, why in self.eager]
        return [visible(line) for line in (*texts, *breaks, *eager)]


def _heading(stage: str) -> list[str]:
    """What tells graphs of training apart; nothing for inference."""
    return [] if stage == "inference" else [f"{stage} graph:"]


def explain(fn: Any, *args: Any, target: str | None = None, **options: Any) -> Explained:
    """The kernels of a program, why neighbours are not fused, and what became of each node.

    `fn`: an executable of `compile`, a model as `compile` takes it, or a PyTorch module or
    function, also one that `torch.compile` returned. `args`: the inputs of a PyTorch program, which
    is called once; others are not run. Its gradients are computed, too, if PyTorch's mode records
    any, but not for a module in evaluation mode whose inputs require none. `options`: those of
    `compile`; by default those that `torch.compile` was given. Raises StrataError.
    """
    from compiler.executable import Executable
    from compiler.torch.inspected.chosen import is_program

    if isinstance(fn, Executable):
        return Explained([_explained(fn.model, replace(fn.options, specialize=None))])
    given = options if target is None else {"target": target, **options}
    if is_program(fn):
        return _of_program(fn, args, given)
    model = model_of_argument(fn)
    return Explained([_explained(model, prepared_options(model, {"target": "cpu", **given}))])


def _explained(model: str | MemoryModel, options: CompileOptions) -> Explanation:
    found = Explanation(target=options.target, scheduled=options.schedule is not None)
    Compiler(model, options, [found]).lower()
    return found


def _of_program(fn: Any, args: Sequence[Any], options: dict[str, Any]) -> Explained:
    from compiler.torch.inspected.recorded import recorded

    found = recorded(fn, args, options)
    made = [part.executable for part in found.parts]
    return Explained([_explained(exe.model, exe.options) for exe in made], found.eager,
                     found.captured, found.breaks, [part.stage for part in found.parts])
