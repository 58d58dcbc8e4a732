"""Expands `flex_attention` to the operators that define it.

Its graphs of scores and masks are for single elements. PyTorch's definition maps them over all rows
and columns; here it is traced for the operands of each node. Passes on loops then fuse the chain as
any other, so that scores and masks are computed where they are used, and never stored.
"""

from __future__ import annotations

from typing import Any

from compiler.frontend.torch.core.decompose import decompositions
from compiler.frontend.torch.core.strided import in_order, order_of
from compiler.frontend.torch.library import torch_module

NAME = "flex_attention"


def expand_flex_attention(module: Any) -> None:
    """Replace the `flex_attention` nodes of a graph module."""
    nodes = [n for n in module.graph.nodes if n.op == "call_function"
             and getattr(n.target, "__name__", "") == NAME]
    for node in nodes:
        _expand(module, node)
    if nodes:
        module.graph.eliminate_dead_code()
        module.recompile()


def _expand(module: Any, node: Any) -> None:
    traced, operands = _traced(module, node)
    with module.graph.inserting_before(node):
        values = dict(zip((n for n in traced.graph.nodes if n.op == "placeholder"), operands,
                          strict=True))
        results: Any = ()
        for inner in traced.graph.nodes:
            if inner.op == "output":
                results = inner.args[0]
            elif inner.op != "placeholder":
                values[inner] = _copied(module, traced, inner, values)
    for use in list(node.users):  # each takes one of the results
        use.replace_all_uses_with(values[results[use.args[1]]])
        module.graph.erase_node(use)
    module.graph.erase_node(node)


def _copied(module: Any, traced: Any, node: Any, values: dict[Any, Any]) -> Any:
    if node.op == "get_attr":
        name = f"{NAME}_{node.target}"
        while hasattr(module, name):
            name += "_"
        module.register_buffer(name, getattr(traced, node.target), persistent=False)
        made = module.graph.get_attr(name)
        made.meta.update(node.meta)
        return made
    return module.graph.node_copy(node, values.__getitem__)


def _traced(module: Any, node: Any) -> tuple[Any, list[Any]]:
    """The definition for a node's operands, and the operands that are its placeholders."""
    definition = torch_module("torch._higher_order_ops.flex_attention").math_attention
    map_arg = torch_module("torch.fx.node").map_arg
    operands = [n for n in node.all_input_nodes if n.op != "get_attr"]

    def run(*values: Any) -> Any:
        known = dict(zip(operands, values, strict=True))

        def resolved(n: Any) -> Any:
            return known[n] if n in known else getattr(module, n.target)

        result, *others = definition(
            *map_arg(node.args, resolved), **map_arg(node.kwargs, resolved))
        return (in_order(result, order_of(node.meta["val"][0])), *others)

    examples = [n.meta["val"] for n in operands]
    mode = torch_module("torch._guards").detect_fake_mode(examples)
    make_fx = torch_module("torch.fx.experimental.proxy_tensor").make_fx
    with mode, torch_module().no_grad():
        return make_fx(run, decomposition_table=decompositions())(*examples), operands
