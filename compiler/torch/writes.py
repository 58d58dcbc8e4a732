"""Graphs that PyTorch must run as they were captured, since AOTAutograd's form of them differs.

AOTAutograd replaces writes by new tensors, which it copies into the arguments at the end. That
assumes that each element of an argument has memory of its own, and that new tensors lie in memory
as the arguments do.

The module can be imported without torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from compiler.frontend.torch.captured_graph import output_nodes
from compiler.frontend.torch.library import torch_module
from compiler.torch.views import base_of


class RunsEagerly(Exception):
    """Says why a graph runs as it was captured."""


def check_writes(
    graph: Any, written: Sequence[int], aliases: Mapping[int, int], examples: Sequence[Any]
) -> None:
    """Raise RunsEagerly for a graph whose writes AOTAutograd does not describe.

    `written`: the arguments to which the last results will be written. `aliases`: the numbers of
    results -> the argument whose memory they share. `examples`: the results as Dynamo traced them.
    """
    placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
    tensors = [placeholders[k].meta["val"] for k in written]
    if not all(map(_is_separate, tensors)):
        raise RunsEagerly("it writes into an argument whose elements share memory")
    strided = [n for n in graph.graph.nodes if "aten.as_strided" in str(n.target)]
    if strided and not all(map(_is_dense, tensors)):
        raise RunsEagerly("it writes into an argument with gaps and uses as_strided")
    outputs = output_nodes(graph)
    last = outputs[len(outputs) - len(written):]
    first = len(outputs) - len(written) - len(examples)
    for k in aliases:
        base = base_of(outputs[k])
        if base.op != "placeholder" and base not in last and not _lies_alike(
                outputs[k].meta["val"], examples[k - first]):
            raise RunsEagerly("it returns a view of what it has written into an argument")


def without_dropout(graph: Any) -> Any:
    """Replace dropout that drops nothing by its operand, as it returns that in eager mode."""
    torch = torch_module()
    for node in list(graph.graph.nodes):
        if node.target in (torch.nn.functional.dropout, torch.dropout) and _drops_nothing(node):
            node.replace_all_uses_with(node.args[0])
            graph.graph.erase_node(node)
    graph.recompile()
    return graph


def _drops_nothing(node: Any) -> bool:
    given = dict(zip(("input", "p", "training"), node.args, strict=False)) | node.kwargs
    drops = given.get("training", given.get("train", True)) and given.get("p", 0.5) != 0
    return bool(node.args) and not drops


def _is_separate(tensor: Any) -> bool:
    """Whether each element of a fake tensor surely has memory of its own."""
    reach = 0
    for size, stride in _dims(tensor):
        if stride <= reach:
            return False
        reach += (size - 1) * stride
    return True


def _is_dense(tensor: Any) -> bool:
    """Whether the elements of a fake tensor lie side by side."""
    count = 1
    for size, stride in _dims(tensor):
        if stride != count:
            return False
        count *= size
    return True


def _dims(tensor: Any) -> list[tuple[int, int]]:
    """The sizes and strides of a fake tensor when it was traced, by strides, without ones."""
    pairs = zip(map(_example, tensor.shape), map(_example, tensor.stride()), strict=True)
    return sorted([p for p in pairs if p[0] != 1], key=lambda p: p[1])


def _example(size: Any) -> int:
    return size if isinstance(size, int) else size.node.hint


def _lies_alike(tensor: Any, example: Any) -> bool:
    """Whether two fake tensors have the same strides and offset, or AOTAutograd needs none."""
    mine, wanted = ([str(s) for s in (*v.stride(), v.storage_offset())] for v in (tensor, example))
    return mine == wanted or all(
        isinstance(s, int) for v in (tensor, example) for s in (*v.shape, *v.stride()))
