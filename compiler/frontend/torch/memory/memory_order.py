"""Arguments and results whose memory holds their dims in another order, such as channels last.

Compiled code reads and writes C-contiguous memory. For a tensor whose memory is contiguous after a
permutation of its dims, it takes and returns the permuted view, so that nothing is copied:

    %x : f16[32, 64, 56, 56]                 %x : f16[32, 56, 56, 64]
                                             %v = aten.permute(%x, [0, 3, 1, 2])
    %y = aten.convolution(%x, ...)    ->     %y = aten.convolution(%v, ...)
                                             %w = aten.permute(%y, [0, 2, 3, 1])
    return %y                                return %w

The layouts of the compiler's own tensors follow from these permutations, like all others.

The module can be imported without torch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from compiler.frontend.faults import Fault
from compiler.frontend.torch.captured_graph import output_nodes
from compiler.frontend.torch.library import torch_module
from compiler.frontend.torch.sizes import Sizes
from compiler.io.structures import inverse
from dialects.symbolic.expr import Expr

Order = tuple[int, ...]
"""The dims of a tensor from the outermost to the innermost of its memory."""


@dataclass(frozen=True)
class Ordered:
    """A graph on contiguous memory, and the orders in which others hold its dims.

    `arguments`, `results`: number -> order. `labels`: permutation of a result -> the result's name.
    """

    graph: Any
    arguments: dict[int, Order]
    results: dict[int, Order]
    labels: dict[str, str]

    def by_name(self) -> dict[str, Order]:
        """The orders of arguments and results, by their names in the graph that was given."""
        given = [n.name for n in self.graph.graph.nodes if n.op == "placeholder"]
        made = [getattr(n, "name", "") for n in output_nodes(self.graph)]
        return {given[k]: order for k, order in self.arguments.items()} | {
            self.labels[made[k]]: order for k, order in self.results.items()}


def order_of(tensor: Any) -> Order | None:
    """The order of dims in which a tensor's memory is contiguous, whatever its open sizes are; None
    if it is C-contiguous, or if there is no such order.

    Dims of size 1 stay behind the dim that precedes them.
    """
    hints = [_hint(s) for s in tensor.stride()]
    try:
        shape, strides = Sizes().shape(tensor.shape), Sizes().shape(tensor.stride())
    except Fault:
        return None
    single = [d for d, size in enumerate(shape) if size.constant == 1]
    order = sorted((d for d in range(len(shape)) if d not in single), key=lambda d: -hints[d])
    if order == sorted(order) or not _is_dense(shape, strides, order):
        return None
    for d in single:
        order.insert(order.index(d - 1) + 1 if d else 0, d)
    return tuple(order)


def _hint(size: Any) -> int:
    """A size, or the value that it had when the graph was traced."""
    return size if isinstance(size, int) else int(size.node.hint or 0)


def _is_dense(shape: Sequence[Expr], strides: Sequence[Expr], order: Sequence[int]) -> bool:
    """Whether memory in this order has elements, and no gaps between them."""
    expected = Expr.of(1)
    for d in reversed(order):
        if strides[d] != expected or shape[d].constant == 0:
            return False
        expected = expected * shape[d]
    return True


def in_memory_order(graph: Any, weights: Collection[str]) -> Ordered | None:
    """The graph on arguments and results in the order of their memory; None if all are contiguous.

    Arguments in `weights` are constants, and stay as they are.
    """
    given = [n for n in graph.graph.nodes if n.op == "placeholder"]
    outputs = output_nodes(graph)
    arguments = _orders((k, n) for k, n in enumerate(given) if n.name not in weights)
    results = _orders(enumerate(outputs))
    if not arguments and not results:
        return None
    rewriter = _Rewriter(graph, arguments, results)
    return Ordered(rewriter.run(), arguments, results, rewriter.labels)


def _orders(numbered: Any) -> dict[int, Order]:
    tensors = ((k, n.meta.get("val")) for k, n in numbered if hasattr(n, "meta"))
    found = ((k, order_of(v)) for k, v in tensors if hasattr(v, "dtype"))
    return {k: order for k, order in found if order is not None}


@dataclass
class _Rewriter:
    """Copies a graph, with permutations behind its arguments and before its results."""

    graph: Any
    arguments: dict[int, Order]
    results: dict[int, Order]

    def run(self) -> Any:
        fx = torch_module("torch.fx")
        self.made, self.nodes, self.labels = fx.Graph(), dict[Any, Any](), dict[str, str]()
        given = [n for n in self.graph.graph.nodes if n.op == "placeholder"]
        orders = {given[k]: order for k, order in self.arguments.items()}
        for node in self.graph.graph.nodes:
            if node.op == "output":
                break
            new = self.made.node_copy(node, self.nodes.__getitem__)
            order = orders.get(node)
            self.nodes[node] = new if order is None else self._argument(new, order)
        found = next(n for n in self.graph.graph.nodes if n.op == "output").args[0]
        values = [self._result(k, n) for k, n in enumerate(output_nodes(self.graph))]
        self.made.output(tuple(values) if isinstance(found, (list, tuple)) else values[0])
        return fx.GraphModule(self.graph, self.made)

    def _argument(self, node: Any, order: Order) -> Any:
        """The argument as the graph knows it, from its contiguous memory."""
        value = node.meta["val"]
        node.meta = {**node.meta, "val": value.permute(order)}
        return self._permute(node, inverse(order), value)

    def _result(self, number: int, node: Any) -> Any:
        order = self.results.get(number)
        if order is None:
            return self.nodes.get(node, node) if hasattr(node, "meta") else node
        made = self._permute(self.nodes[node], order, node.meta["val"].permute(order))
        self.labels[made.name] = node.name
        return made

    def _permute(self, node: Any, order: Order, value: Any) -> Any:
        made = self.made.call_function(torch_module().ops.aten.permute.default,
                                       (node, list(order)))
        made.meta = {**node.meta, "val": value}
        return made
