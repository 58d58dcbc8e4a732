"""Checks of results that only PyTorch can raise errors for, such as those of `torch.linalg.inv`.

    %e = with_effects(%token, aten._linalg_check_errors, %info, "linalg.inv", is_matrix=True)
    aten._assert_async.msg(%truth, "negative lengths")

The graph returns what is checked instead, and PyTorch checks it after the compiled code has run,
before results are written to arguments: an error leaves these as they were. Tokens, which only
order such operators, are neither taken nor returned by the compiled code.

The module can be imported without torch.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from compiler.frontend.torch.captured_graph import output_nodes
from compiler.frontend.torch.library import torch_module

CHECK = "aten._linalg_check_errors.default"
ASSERTION = "aten._assert_async.msg"
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
    """The checks of a graph: operators, and their arguments and named arguments besides the first
    one. `tokens`: the numbers of the graph's arguments that are tokens. `returned`: how many tokens
    come first among its results."""

    each: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = field(
        default_factory=list[tuple[Any, tuple[Any, ...], dict[str, Any]]])
    tokens: list[int] = field(default_factory=list[int])
    returned: int = 0

    def check(self, results: Sequence[Any]) -> None:
        """Raise the errors of a graph's results, of which the last ones are checked."""
        last = results[len(results) - len(self.each):]
        for value, (operator, others, named) in zip(last, self.each, strict=True):
            operator(value, *others, **named)


def take_checks(graph: Any) -> Checks:
    """Remove checks and tokens from a graph, which then returns what is checked as its last
    results. A graph with other effects stays as it is."""
    effects = [n for n in graph.graph.nodes if getattr(n.target, "__name__", "") == EFFECT]
    assertions = [n for n in graph.graph.nodes if str(n.target) == ASSERTION]
    found = Checks()
    if not effects + assertions or any(str(node.args[1]) != CHECK for node in effects):
        return found
    checked: list[Any] = []
    for node in assertions:
        checked.append(node.args[0])
        found.each.append((node.target, tuple(node.args[1:]), dict(node.kwargs)))
        graph.graph.erase_node(node)
    for node in effects:
        for item in list(node.users):
            item.replace_all_uses_with(node.args[0])
            graph.graph.erase_node(item)
        checked.append(node.args[2])
        found.each.append((node.args[1], tuple(node.args[3:]), dict(node.kwargs)))
        token = node.args[0]
        graph.graph.erase_node(node)
        _drop_token(graph, token, found)
    graph.graph.output_node().args = ((*output_nodes(graph), *checked),)
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


def with_tokens(run: Run, checks: Checks) -> Run:
    """The code of a graph with tokens and checks. `run` takes no tokens, and what is checked is its
    last results."""
    if not checks.each:
        return run

    def call(arguments: list[Any]) -> Any:
        given = [v for k, v in enumerate(arguments) if k not in checks.tokens]
        arguments.clear()
        results = run(given)
        return [*[None] * checks.returned, *results[:len(results) - len(checks.each)]]

    boxed: Any = call
    boxed._boxed_call = True
    return call
