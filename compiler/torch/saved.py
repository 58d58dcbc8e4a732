"""What a forward graph saves of images lies in memory as compiled code computes it: channels last.

    %c = convolution(%x, %w)                 %c = convolution(%x, %w)
    return %y, %c             ->             %s = clone(%c, memory_format=channels_last)
                                             return %y, %s

Convolutions are computed with channels last on every target (`loop-assign-layouts`). Saved in the
order of PyTorch's dims, their results would be transposed by the forward graph, and back by the
backward graph. AOTAutograd lets a compiler choose the strides of what is saved, and gives the
backward graph arguments with these strides. What the captured graph itself returns keeps its own.

The module can be imported without torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler.frontend.torch.captured_graph import output_nodes
from compiler.frontend.torch.library import torch_module

FORMATS = {4: "channels_last", 5: "channels_last_3d"}
"""Rank of images -> PyTorch's name of the format."""


def save_channels_last(graph: Any, first: int, end: int) -> None:
    """Let the results from `first` to before `end`, which are saved, have channels last if they are
    images. Tells AOTAutograd the strides of all results that it gets."""
    context = torch_module("torch._guards").TracingContext.try_get()
    if context is None or context.output_strides is None:
        return
    outputs, images = output_nodes(graph), _images(graph)
    kept = {n for k, n in enumerate(outputs) if not first <= k < end and hasattr(n, "meta")}
    made = dict[Any, Any]()
    for number in range(first, end):
        node = outputs[number]
        if node in images and node not in kept:
            outputs[number] = made.get(node) or made.setdefault(node, _channels_last(graph, node))
    graph.graph.output_node().args = (tuple(outputs),)
    graph.recompile()
    context.output_strides.extend(_strides(n) for n in outputs[:end])


def take_strides(graph: Any, inputs: Sequence[Any]) -> None:
    """Give the arguments of a backward graph the strides with which they are saved."""
    placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
    for node, value in zip(placeholders, inputs, strict=True):
        if hasattr(value, "dtype") and _strides(node) != tuple(value.stride()):
            node.meta = {**node.meta, "val": value}


def _strides(node: Any) -> Any:
    value: Any = getattr(node, "meta", {}).get("val")
    return tuple(value.stride()) if hasattr(value, "dtype") else None


def _images(graph: Any) -> set[Any]:
    """Convolutions, and what is computed from their results in the same rank, by channel."""
    aten = torch_module().ops.aten
    found, tuples = set[Any](), set[Any]()
    for node in graph.graph.nodes:
        if node.op != "call_function":
            continue
        value = node.meta.get("val")
        reached = node.target is aten.convolution.default or any(
            a in found or a in tuples for a in node.all_input_nodes)
        if reached and isinstance(value, (tuple, list)):
            tuples.add(node)
        elif reached and _is_image(value):
            found.add(node)
    return found


def _is_image(value: Any) -> bool:
    """Whether a tensor has several channels and positions, in the order of its dims."""
    if not hasattr(value, "dtype") or value.dim() not in FORMATS or value.device.type != "cpu":
        return False
    sizes = list(value.shape)
    return (all(isinstance(s, int) for s in sizes) and sizes[1] > 1
            and value[0, 0].numel() > 1 and value.is_contiguous())


def _channels_last(graph: Any, node: Any) -> Any:
    value = node.meta["val"]
    order = getattr(torch_module(), FORMATS[value.dim()])
    with graph.graph.inserting_before(graph.graph.output_node()):
        made = graph.graph.call_function(
            torch_module().ops.aten.clone.default, (node,), {"memory_format": order})
    made.meta["val"] = value.clone(memory_format=order)
    return made
