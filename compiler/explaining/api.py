"""`compiler.explain`: explanations of models, executables, and programs of `torch.compile`.

A program of PyTorch is captured and compiled as `torch.compile(backend="strata")` does it, which
calls it once. Each graph, or part of one between nodes that run eagerly, has its own explanation.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from compiler.api import model_of_argument, options_of
from compiler.explaining import report
from compiler.explaining.collect import Explanation
from compiler.frontend.torch import in_memory
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler

if TYPE_CHECKING:
    from compiler.executable import Executable
    from compiler.frontend import MemoryModel
    from compiler.torch.messages.breaks import Break


@dataclass
class Explained:
    """What became of a program. `graphs`: an explanation of each compiled graph, or part of one.

    `eager`: nodes that run eagerly, with the reason. `captured`: the number of graphs that PyTorch
    captured, as `torch._dynamo.explain` counts them; `breaks`: why they end before the program
    does. All of these are empty unless `torch.compile` captured the program.
    """

    graphs: list[Explanation] = field(default_factory=list[Explanation])
    eager: list[tuple[Sequence[str], str]] = field(
        default_factory=list[tuple[Sequence[str], str]])
    captured: int = 0
    breaks: list[Break] = field(default_factory=list["Break"])

    @property
    def json(self) -> dict[str, Any]:
        return {"graphs": [found.json for found in self.graphs], "captured": self.captured,
                "breaks": [found.json for found in self.breaks],
                "eager": [{"nodes": list(nodes), "reason": why} for nodes, why in self.eager]}

    def lines(self) -> list[str]:
        texts = [line for found in self.graphs for line in (*report.whole(found), "")]
        breaks = [f"a graph ends at {found}" for found in self.breaks]
        return [*texts, *breaks,
                *(f"runs eagerly: {', '.join(nodes)}: {why}" for nodes, why in self.eager)]


def explain(fn: Any, *args: Any, target: str | None = None, **options: Any) -> Explained:
    """The kernels of a program, why neighbours are not fused, and what became of each node.

    `fn`: an executable of `compile`, a model as `compile` takes it, or a PyTorch module or
    function, also one that `torch.compile` returned. `args`: the inputs of a PyTorch program, which
    is called once; others are not run. `options`: those of `compile`; by default
    those that `torch.compile` was given. Raises StrataError.
    """
    from compiler.executable import Executable

    if isinstance(fn, Executable):
        return Explained([_explained(fn.model, replace(fn.options, specialize=None))])
    chosen = options_of({"target": "cpu" if target is None else target, **options})
    if _is_program(fn):
        return _of_program(fn, args, options if target is None else {"target": target, **options})
    return Explained([_explained(model_of_argument(fn), chosen)])


def _explained(model: str | MemoryModel, options: CompileOptions) -> Explanation:
    found = Explanation(target=options.target, scheduled=options.schedule is not None)
    Compiler(model, options, [found]).lower()
    return found


# ---------------------------------------------------------------------- torch.compile
def _is_program(fn: Any) -> bool:
    """Whether something is a module or a function, and not a model that is a file or exported."""
    torch = sys.modules.get("torch")
    return (torch is not None and callable(fn) and not isinstance(fn, type)
            and in_memory(fn) is None)


def _of_program(fn: Any, args: Sequence[Any], options: dict[str, Any]) -> Explained:
    from compiler.torch.backend import Program, compiled_by
    from compiler.torch.chosen import chosen_of
    from compiler.torch.graphs import compile_graph
    from compiler.torch.messages.breaks import break_of

    found, options = Explained(), {**chosen_of(fn), **options}

    class Anew(Program):
        """A program whose graph is compiled even if the process has code of an equal one."""

        def compiled(self, weights: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
            return compile_graph(self.graph, weights, options)

    def backend(graph: Any, inputs: Sequence[Any]) -> Any:  # a new one, so that PyTorch asks it
        made = compiled_by(Anew, graph, inputs, options)
        found.captured += 1  # if it raises, PyTorch may capture the graph again, otherwise
        found.breaks += filter(None, [break_of(graph)])
        return made

    torch = sys.modules["torch"]
    plain = getattr(fn, "_orig_mod", getattr(fn, "_torchdynamo_orig_callable", fn))
    with _recorded() as records, torch.no_grad():
        torch.compile(plain, backend=backend)(*args)
    found.graphs, found.eager = [_explained(e.model, e.options) for e in records.compiled], (
        records.eager)
    return found


class _Records(logging.Filter):
    """Collects what records of the backend carry; lets through what was to be shown before."""

    def __init__(self, level: int):
        super().__init__()
        self.level = level
        self.compiled: list[Executable] = []
        self.eager: list[tuple[Sequence[str], str]] = []

    def filter(self, record: logging.LogRecord) -> bool:
        from compiler.torch.messages.eager import COMPILED, EAGER

        if (executable := getattr(record, COMPILED, None)) is not None:
            self.compiled.append(executable)
        if (eager := getattr(record, EAGER, None)) is not None:
            self.eager.append(eager)
            return False  # the explanation tells it
        return record.levelno >= self.level


@contextmanager
def _recorded() -> Generator[_Records]:
    from compiler.torch.messages.eager import log

    level, records = log.level, _Records(log.getEffectiveLevel())
    log.addFilter(records)
    log.setLevel(logging.DEBUG)
    try:
        yield records
    finally:
        log.setLevel(level)
        log.removeFilter(records)
