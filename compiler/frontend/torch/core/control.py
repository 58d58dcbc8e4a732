"""`torch.cond`, `while_loop`, `scan` and `map`: their graphs become branches and bodies.

Their operands are tensors. A graph becomes a function of its own, which captures what it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from compiler.frontend.branches import Branch, join
from compiler.frontend.builder import Builder
from compiler.frontend.faults import Fault, Skip
from compiler.frontend.loops import Loop, Turn
from compiler.frontend.peeling import repeat
from compiler.frontend.torch.core.conditions import Condition
from compiler.frontend.values import Value, of_size
from dialects.strata import types as t
from dialects.symbolic.expr import Expr

Walk = Callable[[Any, dict[str, Any]], Sequence[tuple[str, Any]]]
"""Imports the nodes of a graph module, given the values of its placeholders."""


def cond(build: Builder, walk: Walk, arguments: Sequence[Any]) -> list[Value]:
    """The results of one of two graphs. Source: torch.cond."""
    condition, *graphs, operands = arguments
    condition = as_tensor(build, condition)
    if not isinstance(condition, Value):
        raise Fault("its condition is no tensor", "write it as an if of Python")
    mark, node = build.mark(), build.node

    def branch(graph: Any, label: str) -> Branch:
        with build.function(f"{node}_{label}") as frame:
            return Branch(frame, _results(build, walk, graph, operands))

    then, otherwise = map(branch, graphs, ("then", "else"))
    build.node = node
    return join(build, condition.cast(t.i1).reshape([]), then, otherwise, mark)


def while_loop(build: Builder, walk: Walk, arguments: Sequence[Any]) -> list[Value]:
    """Carried values once a graph says that no iteration follows. Source: torch's while_loop."""
    test, body, carried, others = arguments
    initial, node = _tensors(build, carried), build.node

    def goes_on(values: Sequence[Value]) -> Value:
        [found] = _results(build, walk, test, [*values, *others])
        return found.cast(t.i1).reshape([])

    def turn(step: Expr, values: list[Value]) -> Turn:
        with _drawing(build, step):
            made = _results(build, walk, body, [*values, *others])
            return Turn(goes_on(made), made, [])

    last, _ = repeat(build, Loop(f"{node}_body", None, goes_on(initial), initial), turn)
    build.node = node
    return list(last)


def scan(build: Builder, walk: Walk, arguments: Sequence[Any]) -> list[Value]:
    """Values carried over the entries of the first dim, then what each step gives, stacked.
    Source: torch's scan."""
    body, initial, sequences, others = arguments
    return _stepped(build, walk, body, _tensors(build, initial), sequences, others)


def map_(build: Builder, walk: Walk, arguments: Sequence[Any]) -> list[Value]:
    """A graph's results for each entry of the first dim, stacked. Source: torch's map."""
    body, sequences, others = arguments
    return _stepped(build, walk, body, [], sequences, others)


def _stepped(
    build: Builder, walk: Walk, body: Any, initial: list[Value], sequences: Sequence[Any],
    others: Sequence[Any],
) -> list[Value]:
    """The loop over the entries of the first dim of sequences."""
    rows, node, count = _tensors(build, sequences), build.node, len(initial)

    def turn(step: Expr, values: list[Value]) -> Turn:
        entries = [x.part(0, step, 1).reshape(x.shape[1:]) for x in rows]
        with _drawing(build, step):
            made = _results(build, walk, body, [*values, *entries, *others])
        return Turn(None, made[:count], made[count:])

    last, stacked = repeat(build, Loop(f"{node}_body", rows[0].shape[0], None, initial), turn)
    build.node = node
    return [*last, *stacked]


CONTROL: Mapping[str, Callable[[Builder, Walk, Sequence[Any]], list[Value]]] = {
    "cond": cond, "while_loop": while_loop, "scan": scan, "map_impl": map_}
"""Higher-order operator -> its importer."""


def _drawing(build: Builder, step: Expr) -> AbstractContextManager[None]:
    """Random numbers of an iteration are others than those of the next one."""
    return nullcontext() if build.draws is None else build.draws.within(step)


def _results(build: Builder, walk: Walk, graph: Any, operands: Sequence[Any]) -> list[Value]:
    """The results of a graph. Raises Skip if a node has a recorded problem."""
    names = [n.name for n in graph.graph.nodes if n.op == "placeholder"]
    found = walk(graph, dict(zip(names, operands, strict=True)))
    return _tensors(build, [value for _, value in found])


def _tensors(build: Builder, values: Sequence[Any]) -> list[Value]:
    """Values as tensors. Raises Skip for one that is missing."""
    found = [as_tensor(build, Expr.of(v) if isinstance(v, int) else v) for v in values]
    if not all(isinstance(v, Value) for v in found):
        raise Skip
    return found


def as_tensor(build: Builder, value: Any) -> Any:
    """A size as i64[], and a condition on sizes as i1[]; any other value unchanged."""
    if isinstance(value, Condition):
        return value.value(build)
    return of_size(build, value) if isinstance(value, Expr) else value
