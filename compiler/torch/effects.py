"""Checks of results that only PyTorch can raise errors for, such as those of `torch.linalg.inv`.

    %e = with_effects(%token, aten._linalg_check_errors, %info, "linalg.inv", is_matrix=True)

The graph returns what is checked instead, and PyTorch checks it after the compiled code has run.
Tokens, which only order such operators, are neither taken nor returned by the compiled code.

The module can be imported without torch.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from compiler.frontend.torch.captured_graph import output_nodes
from compiler.frontend.torch.library import torch_module

CHECK = "aten._linalg_check_errors.default"
EFFECT = "with_effects"
Run = Callable[[list[Any]], Any]


@contextmanager
def kept_checks() -> Generator[None]:
    """Graphs that AOTAutograd traces keep such checks as effects. Before PyTorch 2.13 they are only
    operators without results, which it drops."""
    effects = torch_module("torch._higher_order_ops.effects")
    name = CHECK.replace(".", "::", 1).removesuffix(".default")
    if effects._get_effect(name) is not None:
        yield
        return
    handle = effects._register_effectful_op(name, effects._EffectType.ORDERED)
    try:
        yield
    finally:
        handle.destroy()


@dataclass
class Checks:
    """The checks of a graph: arguments and named arguments besides the first one. `tokens`: the
    numbers of the graph's arguments that are tokens. `returned`: how many tokens come first among
    its results."""

    each: list[tuple[tuple[Any, ...], dict[str, Any]]] = field(
        default_factory=list[tuple[tuple[Any, ...], dict[str, Any]]])
    tokens: list[int] = field(default_factory=list[int])
    returned: int = 0


def take_checks(graph: Any) -> Checks:
    """Remove checks and tokens from a graph, which then returns what is checked as its last
    results. A graph with other effects stays as it is."""
    effects = [n for n in graph.graph.nodes if getattr(n.target, "__name__", "") == EFFECT]
    found = Checks()
    if not effects or any(str(node.args[1]) != CHECK for node in effects):
        return found
    infos: list[Any] = []
    for node in effects:
        for item in list(node.users):
            item.replace_all_uses_with(node.args[0])
            graph.graph.erase_node(item)
        infos.append(node.args[2])
        found.each.append((tuple(node.args[3:]), dict(node.kwargs)))
        token = node.args[0]
        graph.graph.erase_node(node)
        _drop_token(graph, token, found)
    graph.graph.output_node().args = ((*output_nodes(graph), *infos),)
    graph.recompile()
    return found


def _drop_token(graph: Any, token: Any, found: Checks) -> None:
    """Remove a token that nothing but the results uses."""
    output = graph.graph.output_node()
    if token.op != "placeholder" or any(user is not output for user in token.users):
        return
    kept = [node for node in output_nodes(graph) if node is not token]
    found.returned += len(output_nodes(graph)) - len(kept)
    output.args = (tuple(kept),)
    places = [n for n in graph.graph.nodes if n.op == "placeholder"]
    found.tokens.append(places.index(token) + len(found.tokens))
    graph.graph.erase_node(token)


def with_checks(run: Run, checks: Checks) -> Run:
    """The code of a graph without these checks and tokens, and then the checks."""
    if not checks.each:
        return run

    def call(arguments: list[Any]) -> Any:
        given = [v for k, v in enumerate(arguments) if k not in checks.tokens]
        arguments.clear()
        results = list(run(given))
        check = torch_module().ops.aten._linalg_check_errors.default
        count = len(results) - len(checks.each)
        for info, (others, named) in zip(results[count:], checks.each, strict=True):
            check(info, *others, **named)
        return [*[None] * checks.returned, *results[:count]]

    boxed: Any = call
    boxed._boxed_call = True
    return call
