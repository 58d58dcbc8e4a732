"""Results of a graph that share memory with its arguments or with each other.

Compiled code returns new memory. What a graph takes from it as views, PyTorch takes again:

    %y = aten.add(%x, 1)                 inner: %y = aten.add(%x, 1)
    %v = aten.select(%y, 0, 1)                  return %y
    %w = aten.slice(%x, 0, 2)            outer: %v = aten.select(%y, 0, 1)
    return %v, %w                               %w = aten.slice(%x, 0, 2)
                                                return %v, %w

So views have eager's memory, strides and offsets, also at open sizes and for arguments that lie
anywhere in their memory. An argument that is returned is itself the result, and a tensor that is
returned twice is one tensor.

The module can be imported without torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from compiler.frontend.torch.captured_graph import output_nodes
from compiler.frontend.torch.library import torch_module

SAME_ORDER = frozenset(f"aten.{name}" for name in (
    "_unsafe_view.default", "alias.default", "detach.default", "reshape.default",
    "squeeze.default", "squeeze.dim", "squeeze.dims", "unsqueeze.default", "view.default"))
"""Views that hold all elements of their base in its order, if the base is contiguous."""


@dataclass(frozen=True)
class Views:
    """A graph without views among its results, and the views.

    `inner`: a graph of the same arguments, which returns new memory and sizes, and then the
    contents to be written. `outer`: takes the arguments and these results, and returns the results
    of the whole graph.
    """

    inner: Any
    outer: Any


def split_views(
    graph: Any, written: Sequence[int] = (), aliases: Mapping[int, int] | None = None
) -> Views | None:
    """Separate the views among a graph's results; None if all are different new memory.

    `written`: the arguments to which the last results will be written. `aliases`: the numbers of
    results -> the argument whose memory they share once it is written.
    """
    splitter = _Splitter(graph, written, aliases or {})
    outputs = splitter.outputs[:len(splitter.outputs) - len(written)]
    roles = [splitter.role(k, node) for k, node in enumerate(outputs)]
    tensors = [node for node in outputs if _is_node(node) and _is_tensor(node.meta.get("val"))]
    if not any(is_view for is_view, _ in roles) and len(set(tensors)) == len(tensors):
        return None
    for is_view, node in roles:
        splitter.need(node, is_view)
    return Views(splitter.inner(), splitter.outer([node for _, node in roles]))


def with_arguments(compiled: Callable[..., Any], captured: Any) -> Callable[..., Any]:
    """Compiled code that returns arguments themselves where a captured graph does.

    If arguments share memory, AOTAutograd returns a view of it in place of an argument, and up to
    PyTorch 2.11 the whole memory, in its own shape.
    """
    returned = _returned_arguments(captured)

    def call(*arguments: Any) -> list[Any]:
        results = list(compiled(*arguments))
        for number, argument in returned.items():
            results[number] = arguments[argument]
        return results

    return call if returned else compiled


def _returned_arguments(captured: Any) -> dict[int, int]:
    """The numbers of results that are arguments, also written in place -> these arguments."""
    values = [n.meta.get("example_value") for n in captured.graph.nodes if n.op == "placeholder"]
    numbers = {id(value): k for k, value in enumerate(values) if value is not None}
    results = [getattr(n, "meta", {}).get("example_value") for n in output_nodes(captured)]
    return {k: numbers[id(value)] for k, value in enumerate(results) if id(value) in numbers}


def base_of(node: Any) -> Any:
    """The node whose new memory, or the placeholder whose memory, a tensor is a view of."""
    return [*views_of(node)][-1]


def views_of(node: Any) -> Iterator[Any]:
    """A tensor, what it is a view of, and so on down to new memory or a placeholder."""
    while node is not None:
        yield node
        node = _source(node)


def is_reinterpreted(node: Any) -> bool:
    """Whether a tensor is a view of memory as elements of another type."""
    return any(str(n.target) == "aten.view.dtype" for n in views_of(node))


def _source(node: Any) -> Any:
    """The operand that a node is a view of; None if it is new memory or a placeholder."""
    if getattr(node, "op", None) != "call_function":
        return None
    memory = _memory(node)
    operands = node.args[0].all_input_nodes if _is_item(node) else node.all_input_nodes
    return next((n for n in operands if memory is not None and _memory(n) == memory), None)


def _is_item(node: Any) -> bool:
    return getattr(node.target, "__name__", "") == "getitem"


def _memory(node: Any) -> Any:
    """The identity of the memory of a node's fake tensor; None for other values."""
    value = node.meta.get("val")
    return value.untyped_storage()._cdata if _is_tensor(value) else None


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch_module().Tensor) and str(value.layout) == "torch.strided"


@dataclass
class _Splitter:
    """Builds both graphs.

    `computed`: the nodes that the inner graph returns. `sources`: nodes of new memory, or
    views of it -> the argument whose memory holds the same once it is written.
    """

    graph: Any
    written: Sequence[int]
    aliases: Mapping[int, int]
    computed: dict[Any, None] = field(default_factory=dict[Any, None])
    sources: dict[Any, Any] = field(default_factory=dict[Any, Any])
    seen: set[Any] = field(default_factory=set[Any])
    numbers: dict[Any, bool] = field(default_factory=dict[Any, bool])

    def __post_init__(self) -> None:
        self.placeholders = [n for n in self.graph.graph.nodes if n.op == "placeholder"]
        self.outputs = output_nodes(self.graph)
        self.bases: list[Any] = [base_of(n) if _is_node(n) else None for n in self.outputs]

    def role(self, number: int, node: Any) -> tuple[bool, Any]:
        """Whether a result is a view, and its node."""
        if not _is_node(node) or not _is_tensor(node.meta.get("val")):
            return False, node
        base = self.bases[number]
        if base.op == "placeholder":
            return True, node
        for source in views_of(node):
            given = self._written(number, source)
            if given is not None:
                self.sources[source] = given
                return True, node
        shared = {n for n, b in zip(self.outputs, self.bases, strict=True)
                  if b is base and n is not node}
        return node is not base and (bool(shared) or not _is_whole(node, base)), node

    def _written(self, number: int, source: Any) -> Any:
        """The argument to whose new contents `source` a result is a view, in eager mode, too."""
        if number not in self.aliases:
            return None
        last = zip(self.written, self.outputs[len(self.outputs) - len(self.written):], strict=True)
        found = [self.placeholders[k] for k, node in last
                 if node is source and _shape(self.placeholders[k]) == _shape(source)]
        wanted = self.placeholders[self.aliases[number]]
        return wanted if wanted in found else next(iter(found), None)

    def need(self, node: Any, is_view: bool = True) -> None:
        """Note what the inner graph must compute for a result."""
        if not _is_node(node) or node in self.seen or node in self.sources:
            return
        self.seen.add(node)
        if (is_view and _source(node)) or _is_list(node) or self._is_size(node):
            for operand in node.all_input_nodes:
                self.need(operand)
        elif node.op != "placeholder":
            self.computed[node] = None

    def _is_size(self, node: Any) -> bool:
        """Whether a number follows from arguments alone."""
        if node.op != "call_function" or node in self.numbers:
            return node.op == "placeholder" or self.numbers.get(node, False)
        is_number = not hasattr(node.meta.get("val"), "dtype") and not _is_list(node)
        self.numbers[node] = is_number and all(map(self._is_size, node.all_input_nodes))
        return self.numbers[node]

    # ------------------------------------------------------------------ both graphs
    def inner(self) -> Any:
        """The graph that computes the new memory, and the contents to be written."""
        graph, nodes = _new_graph(), dict[Any, Any]()
        for node in self.graph.graph.nodes:
            if node.op != "output":
                nodes[node] = graph.node_copy(node, nodes.__getitem__)
        last = self.outputs[len(self.outputs) - len(self.written):]
        graph.output(tuple(nodes.get(n, n) for n in (*self.computed, *last)))
        graph.eliminate_dead_code()
        return torch_module("torch.fx").GraphModule(self.graph, graph)

    def outer(self, outputs: Sequence[Any]) -> Any:
        """The function that takes the views."""
        graph, nodes = _new_graph(), dict[Any, Any]()
        for node in (*self.placeholders, *self.computed):
            nodes[node] = graph.placeholder(node.name)
        last = [graph.placeholder(f"written_{k}") for k, _ in enumerate(self.written)]
        for base, given in self.sources.items():
            nodes[base] = nodes[given]
        found = [self._copy(n, graph, nodes) for n in outputs]
        graph.output((*found, *last))
        return torch_module("torch.fx").GraphModule(self.graph, graph).forward

    def _copy(self, node: Any, graph: Any, nodes: dict[Any, Any]) -> Any:
        """A node in the outer graph, after everything that it needs."""
        if not _is_node(node):
            return node
        if node not in nodes:
            for operand in node.all_input_nodes:
                self._copy(operand, graph, nodes)
            nodes[node] = graph.node_copy(node, nodes.__getitem__)
        return nodes[node]


def _is_node(value: Any) -> bool:
    return hasattr(value, "all_input_nodes")


def _is_list(node: Any) -> bool:
    return isinstance(node.meta.get("val"), (list, tuple))


def _shape(node: Any) -> list[str]:
    return [str(s) for s in node.meta["val"].shape]


def _is_whole(node: Any, base: Any) -> bool:
    """Whether a view of a contiguous base holds all its elements in their order."""
    while node is not base:
        if str(node.target) not in SAME_ORDER:
            return False
        node = _source(node)
    return True


def _new_graph() -> Any:
    return torch_module("torch.fx").Graph()
