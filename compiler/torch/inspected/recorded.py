"""Calls a program as `torch.compile(backend="strata")` compiles it, and records its parts.

    program(*args)   -->   part, part, ... with the arguments of each, and what runs eagerly

The program is compiled anew with the options that it has, so that a program which runs has nothing
of this in it. Where gradients are recorded, its backward graphs run, too, and no `.grad` changes.
Programs of `torch.compile` that it calls outside of its own graphs keep their code, and are not
recorded.
"""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from compiler.io.arrays import to_numpy
from compiler.modes import check_mode
from compiler.torch.backend import Program, compiled_by
from compiler.torch.graphs import compile_graph
from compiler.torch.inspected.chosen import Chosen, chosen_of, plain_of
from compiler.torch.inspected.failures import refused
from compiler.torch.messages.breaks import Break, break_of
from compiler.torch.messages.eager import COMPILED, EAGER, log
from compiler.torch.vocabulary.translation import check_values, target_of

if TYPE_CHECKING:
    from compiler.executable import Executable
    from dialects.strata.types import Array


@dataclass(eq=False)
class RecordedPart:
    """A compiled graph, or a compiled part of one between nodes that run eagerly.

    `stage`: "inference", or "forward" or "backward" where gradients are recorded. `calls`: how
    often the program calls it. `inputs`: what the first call gives its code.
    """

    stage: str
    executable: Executable
    calls: int = 0
    inputs: list[Array] = field(default_factory=list["Array"])

    def see(self, values: Sequence[Any]) -> None:
        """Record a call. The arrays are copies, since later code may write to the originals."""
        if not self.calls:
            self.inputs = [to_numpy(v).copy() for v in values]
        self.calls += 1


@dataclass
class Recording:
    """A call of a program. `eager`: nodes that run eagerly, with the reason. `captured`: the number
    of graphs that PyTorch captured; `breaks`: why they end before the program does."""

    parts: list[RecordedPart] = field(default_factory=list[RecordedPart])
    eager: list[tuple[Sequence[str], str]] = field(
        default_factory=list[tuple[Sequence[str], str]])
    captured: int = 0
    breaks: list[Break] = field(default_factory=list[Break])


def recorded(fn: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Recording:
    """A call of a program, with the options it was made with; `options` override them.

    A module in evaluation mode whose inputs need no gradients runs as it does in inference; for
    other programs, gradients are recorded if PyTorch's mode says so. Raises StrataError.
    """
    torch, plain = sys.modules["torch"], plain_of(fn)
    found, chosen = Recording(), chosen_of(fn) or Chosen()
    given = {**chosen.options, **options}
    check_mode(given.get("mode", "default"))
    check_values(given, target_of(_leaves(args)))

    def backend(graph: Any, inputs: Sequence[Any]) -> Any:  # a new one, so that PyTorch asks it
        made = compiled_by(Recorded, graph, inputs, given)
        found.captured += 1  # if it raises, PyTorch may capture the graph again, otherwise
        found.breaks += filter(None, [break_of(graph)])
        return made

    with _watched(found) as records, refused("run", plain, args):

        class Recorded(Program):
            """A program whose graph is compiled even if the process has code of an equal one."""

            def compiled(self, weights: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
                with records.of(self.stage):
                    return compile_graph(self.graph, weights, options)

        with torch.set_grad_enabled(_needs_gradients(fn, args)):
            results = torch.compile(plain, backend=backend, dynamic=chosen.dynamic,
                                    fullgraph=chosen.fullgraph, **_apart())(*args)
            if all(part.stage != "backward" for part in found.parts):  # the program's own
                _run_backward(results, args)
    return found


def _apart() -> dict[str, bool]:
    """Newer versions of PyTorch can count how often a function is compiled apart from the function
    itself, which is not compiled any more after some times."""
    known = inspect.signature(sys.modules["torch"].compile).parameters
    return {"isolate_recompiles": True} if "isolate_recompiles" in known else {}


# ---------------------------------------------------------------------- gradients
def _needs_gradients(fn: Any, args: Sequence[Any]) -> bool:
    torch = sys.modules["torch"]
    module = getattr(fn, "_orig_mod", fn)
    if not isinstance(module, torch.nn.Module) or module.training:
        return torch.is_grad_enabled()
    return torch.is_grad_enabled() and any(
        getattr(v, "requires_grad", False) for v in _leaves(args))


def _run_backward(results: Any, args: Sequence[Any]) -> None:
    """The backward of results whose gradients are ones; nothing where none are recorded."""
    torch = sys.modules["torch"]
    ends = [v for v in _leaves(results) if getattr(v, "grad_fn", None) is not None]
    given = [v for v in _leaves(args) if getattr(v, "grad_fn", None) is not None]
    wanted = [*given, *_variables([v.grad_fn for v in ends], [v.grad_fn for v in given])]
    if wanted:
        torch.autograd.grad(ends, wanted, [torch.ones_like(v) for v in ends], allow_unused=True)


def _variables(nodes: Sequence[Any], outside: Sequence[Any]) -> list[Any]:
    """The tensors for which nodes of autograd accumulate gradients, without those before `outside`,
    which are the caller's."""
    seen, todo, found = set(outside), list(nodes), list[Any]()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.append(node.variable)
        todo += [before for before, _ in node.next_functions]
    return found


def _leaves(tree: Any) -> list[Any]:
    return sys.modules["torch"].utils._pytree.tree_leaves(tree)


# ---------------------------------------------------------------------- log records
class _Records(logging.Filter):
    """Collects what records of the backend carry; lets through what was to be shown before.

    `stage`: that of the recorded program which is being compiled; empty while there is none.
    """

    def __init__(self, found: Recording, level: int):
        super().__init__()
        self.found = found
        self.level = level
        self.stage = ""

    @contextmanager
    def of(self, stage: str) -> Generator[None]:
        """While a program of this stage is compiled."""
        self.stage = stage
        try:
            yield
        finally:
            self.stage = ""

    def filter(self, record: logging.LogRecord) -> bool:
        if (part := getattr(record, COMPILED, None)) is not None and self.stage:
            self.found.parts.append(RecordedPart(self.stage, part.executable))
            part.watch = self.found.parts[-1].see
        if (eager := getattr(record, EAGER, None)) is not None:
            self.found.eager.append(eager)
            return False  # what is recorded tells it
        return record.levelno >= self.level


@contextmanager
def _watched(found: Recording) -> Generator[_Records]:
    level, records = log.level, _Records(found, log.getEffectiveLevel())
    log.addFilter(records)
    log.setLevel(logging.DEBUG)
    try:
        yield records
    finally:
        log.setLevel(level)
        log.removeFilter(records)
