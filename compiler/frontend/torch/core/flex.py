"""Expands `flex_attention` and its gradients to the operators that define them.

Their graphs of scores and masks are for single elements. PyTorch's definitions map them over all
rows and columns; here they are traced for the operands of each node. Passes on loops then fuse the
chain as any other, so that scores and masks are computed where they are used, and never stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from compiler.frontend.torch.captured_graph import output_nodes
from compiler.frontend.torch.core.decompose import decompositions
from compiler.frontend.torch.core.strided import in_order, order_of
from compiler.frontend.torch.library import torch_module

FORWARD, BACKWARD = "flex_attention", "flex_attention_backward"
JOINT = 8
"""The place among the operands of the graph of the scores' gradients, which returns the gradients
of a score, of its places, and of captured tensors."""
PLACES = ("batch", "head", "row", "column")


def expand_flex_attention(module: Any) -> None:
    """Replace the nodes of a graph module that are FlexAttention or its gradients."""
    nodes = [n for n in module.graph.nodes if n.op == "call_function"
             and getattr(n.target, "__name__", "") in (FORWARD, BACKWARD)]
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
    _take(module, node, results, values)


def _take(module: Any, node: Any, found: Any, values: Mapping[Any, Any]) -> None:
    """Replace a node with these values; each use of a tuple takes one of them."""
    if not isinstance(found, (list, tuple)):
        if node.users:
            node.replace_all_uses_with(values[found])
    else:
        for use in list(node.users):
            _take(module, use, cast("Any", found)[use.args[1]], values)
    module.graph.erase_node(node)


def _copied(module: Any, traced: Any, node: Any, values: dict[Any, Any]) -> Any:
    if node.op == "get_attr":
        name = f"{FORWARD}_{node.target}"
        while hasattr(module, name):
            name += "_"
        module.register_buffer(name, getattr(traced, node.target), persistent=False)
        made = module.graph.get_attr(name)
        made.meta.update(node.meta)
        return made
    aten = torch_module().ops.aten
    if node.target is aten.copy_.default:  # its result is what is used
        if _memory_of(node) == _memory_of(node.args[1]):
            return values[node.args[1]]
        node.target = aten.copy.default
    return module.graph.node_copy(node, values.__getitem__)


def _memory_of(node: Any) -> Any:
    tensor = node.meta["val"]
    return tensor.dtype, tensor.shape, tensor.stride()


def _traced(module: Any, node: Any) -> tuple[Any, list[Any]]:
    """The definition for a node's operands, and the operands that are its placeholders."""
    torch = torch_module()
    map_arg = torch_module("torch.fx.node").map_arg
    operands = [n for n in node.all_input_nodes if n.op != "get_attr"]
    define = _gradients if node.target.__name__ == BACKWARD else _attention

    def run(*values: Any) -> Any:
        known = dict(zip(operands, values, strict=True))

        def resolved(n: Any) -> Any:
            return known[n] if n in known else getattr(module, n.target)

        return define(node.meta["val"], map_arg(node.args, resolved), map_arg(
            node.kwargs, resolved))

    examples = [n.meta["val"] for n in operands]
    mode = torch_module("torch._guards").detect_fake_mode(examples)
    make_fx = torch_module("torch.fx.experimental.proxy_tensor").make_fx
    with mode, torch.no_grad():
        return make_fx(run, decomposition_table={
            **decompositions(), **_scattered()})(*examples), operands


def _attention(like: Any, args: Any, kwargs: Any) -> Any:
    """The result in the order in memory that its example has, and what else is computed of rows."""
    definition = torch_module("torch._higher_order_ops.flex_attention").math_attention
    result, *others = definition(*args, **kwargs)
    return (in_order(result, order_of(like[0])), *others)


def _gradients(like: Any, args: Any, kwargs: Any) -> Any:
    """The gradients of query, key, value, and of the captured tensors for which the graph of the
    scores' gradients has some. PyTorch's definition looks which tensors need them, and copies them
    to new memory (`_copied`)."""
    definition = torch_module("torch._higher_order_ops.flex_attention").sdpa_dense_backward
    *operands, captured, others = args
    of_elements = output_nodes(operands[JOINT])[1 + len(PLACES):]
    given = tuple(x if gradient is None else x.detach().requires_grad_()
                  for x, gradient in zip(captured, of_elements, strict=True))
    *found, of_captured = definition(*operands, given, others, **kwargs)
    ordered = [in_order(x, order_of(example)) for x, example in zip(found, like[:3], strict=True)]
    return (*ordered, tuple(of_captured))


def _scattered() -> dict[Any, Any]:
    """The decomposition of the operator that adds gradients of captured tensors at indices."""
    torch = torch_module()
    torch_module("torch._dynamo._trace_wrapped_higher_order_op")  # which defines it

    def scatter(shape: Any, indices: Any, values: Any) -> Any:
        return values.new_zeros(shape).index_put(indices, values, accumulate=True)

    return {torch.ops.flex_lib.zeros_and_scatter.default: scatter}
