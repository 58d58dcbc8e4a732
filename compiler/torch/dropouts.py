"""Dropout as PyTorch draws it on a GPU: a mask that its own kernel draws, and products with it.

    %y, %kept = aten.native_dropout(%x, p, True)     %kept = kept_by_dropout(%x, p)
                                                     %y = (%x * %kept) * (1 / (1 - p))

Where these numbers lie in the generator's sequence follows from how that kernel is launched, so
only it draws the same ones. It needs nothing of x but its type and shape (`draws.py`).

The module can be imported without torch.
"""

from __future__ import annotations

from operator import getitem
from typing import Any

from compiler.frontend.torch.library import torch_module


def kept_by_dropout(x: Any, p: float) -> Any:
    """The mask of elements that dropout of x keeps, each with a probability of 1 - p."""
    return torch_module().ops.aten.native_dropout(x, p, True)[1]


def expand_dropouts(graph: Any) -> None:
    """Replace dropout in a graph by masks and products. Checkpoints draw the same masks again."""
    for node in list(graph.graph.nodes):
        if node.op != "call_function":
            continue
        name, dropout = getattr(node.target, "__name__", ""), _dropout()
        if node.target == dropout:
            x, p = node.args[:2]
            _replace(graph, node, x, p, _call(graph, node, kept_by_dropout, x, p))
        elif name == "run_with_rng_state" and node.args[1] == dropout:
            state, _, x, p = node.args[:4]
            _replace(graph, node, x, p, _call(graph, node, node.target, state, kept_by_dropout,
                                              x, p))
        elif name == "run_and_save_rng_state" and node.args[0] == dropout:
            _replace_saved(graph, node)


def _dropout() -> Any:
    return torch_module().ops.aten.native_dropout.default


def _replace_saved(graph: Any, node: Any) -> None:
    """As below, for a call whose results are the generator's state, and what dropout returns."""
    _, x, p = node.args[:3]
    made = _call(graph, node, node.target, kept_by_dropout, x, p)
    for item in list(node.users):
        if item.args[1] == 0:
            item.args = (made, 0)
            continue
        with graph.graph.inserting_before(item):
            kept = graph.graph.call_function(getitem, (made, 1))
        kept.meta["val"] = made.meta["val"]
        _replace(graph, item, x, p, kept)
    graph.graph.erase_node(node)


def _replace(graph: Any, node: Any, x: Any, p: float, kept: Any) -> None:
    """Replace the pair of results of dropout."""
    mul = torch_module().ops.aten.mul
    with graph.graph.inserting_before(node):
        products = [graph.graph.call_function(mul.Tensor, (x, kept))]
        products.append(graph.graph.call_function(mul.Tensor, (products[0], 1 / (1 - p))))
    for product in products:
        product.meta["val"] = x.meta["val"].clone()
    for item in list(node.users):
        item.replace_all_uses_with(kept if item.args[1] else products[1])
        graph.graph.erase_node(item)
    graph.graph.erase_node(node)


def _call(graph: Any, before: Any, target: Any, *operands: Any) -> Any:
    with graph.graph.inserting_before(before):
        made = graph.graph.call_function(target, operands)
    torch = torch_module()
    made.meta["val"] = torch.empty_like(operands[-2].meta["val"], dtype=torch.bool)
    return made
