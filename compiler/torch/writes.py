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
from compiler.torch.elements import is_dense, is_separate
from compiler.torch.views import base_of, is_reinterpreted, views_of

_ASSIGNMENTS = frozenset((
    "setitem", "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior",
    "ixor", "ilshift", "irshift"))
"""Python's operators that write into their first operand."""


class RunsEagerly(Exception):
    """Says why a graph runs as it was captured."""


def check_writes(
    graph: Any, written: Sequence[int], aliases: Mapping[int, int], examples: Sequence[Any],
    replays: bool, first: int,
) -> None:
    """Raise RunsEagerly for a graph whose writes or views AOTAutograd does not describe.

    `written`: the arguments to which the last results will be written. `aliases`: the numbers of
    results -> the argument whose memory they share. `examples`: the results as Dynamo traced them.
    `replays`: whether AOTAutograd takes views of arguments by the operators of fixed sizes.
    `first`: the number of the first result that Dynamo traced.
    """
    placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
    tensors = [placeholders[k].meta["val"] for k in written]
    if not all(map(is_separate, tensors)):
        raise RunsEagerly("it writes into an argument whose elements share memory")
    strided = [n for n in graph.graph.nodes if "aten.as_strided" in str(n.target)]
    if strided and not all(map(is_dense, tensors)):
        raise RunsEagerly("it writes into an argument with gaps and uses as_strided")
    outputs = output_nodes(graph)
    last = outputs[len(outputs) - len(written):]
    is_wrapper = torch_module("torch.utils._python_dispatch").is_traceable_wrapper_subclass
    if any(map(is_wrapper, examples)):  # whose parts are the results
        examples, first = [getattr(n, "meta", {}).get("val") for n in outputs], 0
    for k, argument in aliases.items():
        base, made, wanted = base_of(outputs[k]), outputs[k].meta["val"], examples[k - first]
        if made.dtype != placeholders[argument].meta["val"].dtype and is_reinterpreted(
                outputs[k]) and not (replays and all(map(_is_fixed, _tensors(placeholders)))):
            raise RunsEagerly("it returns a view of an argument as another type, at open sizes or "
                              "of arguments that share memory")
        if replays and _is_fixed(made) and _is_fixed(wanted):
            continue
        if base.op != "placeholder" and not any(n in last for n in views_of(outputs[k])) and (
                _place(made) != _place(wanted)):
            raise RunsEagerly("it returns a view of what it has written into an argument")
        if not replays and (wanted.is_conj() or wanted.is_neg()):
            raise RunsEagerly("it returns a lazy conjugate, and its arguments share memory")

DEVICES = ("cpu", "cuda")
"""Where compiled code runs; AMD's GPUs have PyTorch's name of NVIDIA's."""


def check_captured(graph: Any) -> None:
    """Raise RunsEagerly if a captured graph writes into elements that share memory, or has tensors
    without memory or on a device that no target is for.

    PyTorch refuses most of these writes, and defines what the others do.
    """
    for node in graph.graph.nodes:
        device = getattr(node.meta.get("example_value"), "device", None)
        if device is not None and device.type not in DEVICES:
            raise RunsEagerly(f"{node.name} is on the device '{device.type}'")
        written = _written(node)
        value = getattr(written, "meta", {}).get("example_value")
        if isinstance(value, torch_module().Tensor) and not is_separate(value):
            raise RunsEagerly(f"{node.name} writes into elements that share memory")


def _written(node: Any) -> Any:
    """The operand that a node of a captured graph writes into; None if it writes into none."""
    if node.kwargs.get("out") is not None:
        return node.kwargs["out"]
    if node.op not in ("call_method", "call_function") or not node.args:
        return None
    name = node.target if node.op == "call_method" else getattr(node.target, "__name__", "")
    in_place = name.endswith("_") and not name.endswith("__")
    return node.args[0] if in_place or name.strip("_") in _ASSIGNMENTS or node.kwargs.get(
        "inplace") else None


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


def share_memory(values: Sequence[Any]) -> bool:
    """Whether any of these fake tensors share memory.

    AOTAutograd then may pass the memory instead of the arguments, and takes their views of it by
    strides and offsets.
    """
    found = [v.untyped_storage()._cdata for v in values
             if isinstance(v, torch_module().Tensor) and str(v.layout) == "torch.strided"]
    return len(set(found)) < len(found)


def _is_fixed(tensor: Any) -> bool:
    return all(isinstance(s, int) for s in (*tensor.shape, *tensor.stride()))


def _tensors(nodes: Sequence[Any]) -> list[Any]:
    return [n.meta["val"] for n in nodes if hasattr(n.meta.get("val"), "stride")]


def _place(tensor: Any) -> list[str]:
    """Where the elements of a fake tensor lie."""
    return [str(s) for s in (*tensor.stride(), tensor.storage_offset())]


# ---------------------------------------------------------------------- writes at the end
def take_writes(graph: Any) -> list[int]:
    """Make a graph return the new contents of mutated arguments, such as caches, after its
    results.

    Returns the numbers of these arguments. They are not treated as weights, even if Dynamo does.
    """
    nodes = list(graph.graph.nodes)
    numbers = {n: k for k, n in enumerate(n for n in nodes if n.op == "placeholder")}
    writes = [n for n in nodes if n.op == "call_function" and n.target == _copy()
              and n.args[0] in numbers]
    written, output = [numbers[n.args[0]] for n in writes], nodes[-1]
    for node in writes:
        _separate(graph, node)
        node.replace_all_uses_with(node.args[1])
    output.args = ((*output.args[0], *(n.args[1] for n in writes)),)
    for node in writes:
        graph.graph.erase_node(node)
    graph.recompile()
    return written


def _separate(graph: Any, write: Any) -> None:
    """Copy contents to be written that are a view of an argument, which others may write before."""
    if base_of(write.args[1]).op != "placeholder":
        return
    with graph.graph.inserting_before(write):
        made = graph.graph.call_function(torch_module().ops.aten.clone.default, (write.args[1],))
    made.meta["val"] = write.args[1].meta["val"].clone()
    write.args = (write.args[0], made)


def _copy() -> Any:
    return torch_module().ops.aten.copy_.default
