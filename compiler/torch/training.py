"""Graphs with gradients: a forward and a backward graph, which AOTAutograd derives.

    %y, %saved = forward(%w, %x)         returns what the backward needs, after the results
    %dw, %dx = backward(%saved, %dy)

Its partitioner decides what is saved and what is computed again. Both graphs are compiled by the
levels that compile inference. Parameters are arguments, read where they lie, since each step
changes them. Random numbers are arguments, too (`draws.py`).

The module can be imported without torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from compiler.frontend.torch.captured_graph import output_nodes
from compiler.frontend.torch.library import torch_module
from compiler.torch.draws import split_draws
from compiler.torch.joint.padded_products import pad_products
from compiler.torch.joint.saved_bases import save_bases
from compiler.torch.joint.sums_of_one import fold_sums_of_one
from compiler.torch.views import base_of

Run = Callable[..., Any]


def metadata() -> Any:
    """What AOTAutograd knows of the forward graph that it is compiling; None outside of that."""
    context = torch_module("torch._guards").TracingContext.try_get()
    return getattr(context, "fw_metadata", None)


def donated_arguments(graph: Any) -> list[int]:
    """The arguments of a backward graph that the forward graph has saved for it alone: intermediate
    values, each in memory of its own.

    PyTorch finds none if the graph may run again (`retain_graph=True`), and later refuses that.
    """
    found = getattr(metadata(), "bw_donated_idxs", None) or ()
    values = [n.meta.get("val") for n in graph.graph.nodes if n.op == "placeholder"]
    memories = [v.untyped_storage()._cdata for v in values
                if hasattr(v, "dtype") and str(v.layout) == "torch.strided"]
    shared = {memory for memory, count in Counter(memories).items() if count > 1}
    return [k for k in found if hasattr(values[k], "dtype")
            and values[k].device.type in ("cpu", "cuda")
            and values[k].untyped_storage()._cdata not in shared]


def with_own(run: Run, donated: Sequence[int], overwritten: Callable[[], Sequence[int]]) -> Run:
    """A backward graph that takes copies of what it overwrites if others refer to that, too.

    `overwritten`: those of the donated arguments, as far as it is known.

    Whoever has hooks on saved tensors, or asks a node of autograd for them, may keep them. Hooks
    may also return what they have kept, and the same memory twice.
    """
    if not donated:
        return run
    owners = torch_module("torch._C")._storage_Use_Count

    def call(arguments: list[Any]) -> Any:
        for k in overwritten():
            # the argument ends here, unless others refer to it
            arguments[k] = own = arguments[k].detach()
            if owners(own.untyped_storage()._cdata) > _OWNERS:
                arguments[k] = own.clone()
        return run(arguments)

    boxed: Any = call
    boxed._boxed_call = True
    return boxed


_OWNERS = 2
"""Owners of the memory of one tensor while it is asked for their number: the tensor, and what
stands for its memory in Python."""


def first_result() -> int:
    """The number of a forward graph's first result that the captured graph returns."""
    return metadata().num_mutated_inp_runtime_indices


def aliases_of_arguments() -> dict[int, int]:
    """The numbers of results -> the argument whose memory AOTAutograd lets them share.

    It drops these results and takes the views of the arguments again, to which it only needs their
    sizes, strides and offsets.
    """
    known = metadata()
    if known is None:
        return {}
    first = first_result()
    return {first + k: info.base_idx for k, info in enumerate(known.output_info)
            if info.output_type.name == "alias_of_input"}


def is_recorded(captured: Any, example_inputs: Sequence[Any]) -> bool:
    """Whether gradients are recorded while a captured graph runs."""
    tensors = (*example_inputs, *captured.parameters())
    return torch_module().is_grad_enabled() and any(
        getattr(value, "requires_grad", False) for value in tensors)


def partition(joint: Any, inputs: Any, **more: Any) -> tuple[Any, Any]:
    """The forward and the backward graph of a joint graph, by PyTorch's partitioner."""
    skip_detached(joint)
    fold_sums_of_one(joint)
    pad_products(joint)
    partitioner = torch_module("functorch.compile").min_cut_rematerialization_partition
    with torch_module("torch._functorch.config").patch(recompute_views=True):  # they cost nothing
        forward, backward = partitioner(joint, inputs, **more)
    save_bases(forward, backward, more["num_fwd_outputs"])
    return forward, backward


def skip_detached(joint: Any) -> None:
    """Let readers inside a graph read what is detached instead.

        %d = detach(%x), %y = mul(%d, %g)   -->   %y = mul(%x, %g)

    What autograd saves is detached, which the partitioner does not know as an operator that it may
    compute again: it would save the results of all elementwise operators that are detached.
    """
    detach = torch_module().ops.aten.detach.default
    for node in joint.graph.find_nodes(op="call_function", target=detach):
        node.replace_all_uses_with(node.args[0], _is_inside)
    joint.graph.eliminate_dead_code()
    joint.recompile()


def _is_inside(reader: Any) -> bool:
    return reader.op != "output"


def has_transforms(captured: Any) -> bool:
    """Whether a captured graph computes gradients or maps itself, as `torch.func` does.

    Such transforms need rules for every operator that is traced, which composite operators lack.
    """
    nodes = [n for module in captured.modules() for n in getattr(
        getattr(module, "graph", None), "nodes", ()) if n.op == "call_function"]
    modules = {str(getattr(n.target, "__module__", "")) for n in nodes}
    return any(name.startswith(("torch._functorch", "torch._C._functorch")) for name in modules)


def compiled_step(graph: Any, compile_inner: Callable[[Any], Run]) -> Run:
    """A forward or backward graph whose random numbers are drawn before it runs."""
    draws = split_draws(graph)
    if draws is None:
        return compile_inner(graph)
    inner, draw = compile_inner(draws.inner), draws.draw

    def call(arguments: list[Any]) -> Any:
        return inner([*arguments, *draw(arguments)])

    boxed: Any = call
    boxed._boxed_call = True
    return call


def keep_saved(graph: Any, written: Sequence[int], first: int) -> None:
    """Copy what a forward graph saves of arguments that it writes.

    `written`: the arguments to which the last results are written. `first`: the number of the
    first result that may be saved for the backward graph.
    """
    placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
    targets, outputs = {placeholders[k] for k in written}, output_nodes(graph)
    for number in range(first, len(outputs) - len(written)):
        node = outputs[number]
        if hasattr(node, "meta") and base_of(node) in targets:
            outputs[number] = _copied(graph, node)
    graph.graph.output_node().args = (tuple(outputs),)
    graph.recompile()


def _copied(graph: Any, node: Any) -> Any:
    with graph.graph.inserting_after(node):
        made = graph.graph.call_function(torch_module().ops.aten.clone.default, (node,))
    made.meta["val"] = node.meta["val"].clone()
    return made
