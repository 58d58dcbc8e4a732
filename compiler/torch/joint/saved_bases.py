"""What a forward graph saves is whole tensors, of which the backward graph takes the views.

    forward: %y = addmm(...)                        forward: %y = addmm(...)
             %q, %k = views of %y                            %q, %k = views of %y
             return ..., %q, %k             -->              return ..., %y
    backward(%q, %k, ...)                           backward(%y, ...): %q, %k = views of %y

The partitioner often saves views, which hold as much as their base. They are arguments with gaps in
memory, which would be copied before compiled code runs. As they share memory, none of them could be
donated either.

The module can be imported without torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler.frontend.torch.captured_graph import output_nodes
from compiler.torch.views import base_of, views_of


def save_bases(forward: Any, backward: Any, first: int) -> None:
    """Let a forward graph save the bases of views where these hold no less. `first`: the number of
    its first result that is saved."""
    given = {n.name: n for n in backward.graph.nodes if n.op == "placeholder"}
    outputs = output_nodes(forward)
    groups: dict[Any, list[Any]] = {}
    for node in outputs[first:]:
        if _is_saved_tensor(node, given):
            groups.setdefault(base_of(node), []).append(node)
    kept = set(outputs[:first])
    for base, saved in groups.items():
        if _pays(base, saved) and kept.isdisjoint(saved):
            place = base if base in saved else saved[0]
            _replace(backward, base, saved, given, given[place.name])
            outputs[first:] = [base if n is place else n for n in outputs[first:]
                               if n is place or n not in saved]
    forward.graph.output_node().args = (tuple(outputs),)
    for graph in (forward, backward):
        graph.graph.eliminate_dead_code()
        graph.recompile()


def _is_saved_tensor(node: Any, given: dict[str, Any]) -> bool:
    return getattr(node, "op", "") == "call_function" and node.name in given and hasattr(
        node.meta.get("val"), "dtype") and str(node.meta["val"].layout) == "torch.strided" and (
        not node.meta.get("saved_tensor_with_no_vc_check"))


def _pays(base: Any, saved: Sequence[Any]) -> bool:
    """Whether views with gaps, or several of them, are saved, and their base takes no more memory.
    """
    value, views = base.meta.get("val"), [n.meta["val"] for n in saved]
    if base.op == "placeholder" or not hasattr(value, "dtype") or saved == [base]:
        return False
    chains = [n for view in saved for n in views_of(view) if n is not base]
    if not all(_is_fixed(n.meta["val"]) for n in (base, *chains)) or not all(map(_is_view, chains)):
        return False
    with_gaps = not all(v.is_contiguous() for v in views)
    return value.is_contiguous() and (with_gaps or len(saved) > 1) and (
        _bytes(value) <= sum(map(_bytes, views)))


def _is_view(node: Any) -> bool:
    """Whether a view follows from one tensor and numbers."""
    operands = node.all_input_nodes
    return len(operands) == 1 and (
        not isinstance(operands[0].meta.get("val"), (list, tuple))
        or len(operands[0].all_input_nodes) == 1)


def _is_fixed(value: Any) -> bool:
    return all(isinstance(s, int) for s in (*value.shape, *value.stride()))


def _bytes(value: Any) -> int:
    return value.numel() * value.itemsize


def _replace(
    backward: Any, base: Any, saved: Sequence[Any], given: dict[str, Any], place: Any
) -> None:
    """Let the backward graph take the base as an argument, where one of the saved is, and take the
    views of it."""
    graph, made = backward.graph, dict[Any, Any]()
    body = next(n for n in graph.nodes if n.op != "placeholder")
    old = [given[n.name] for n in saved]
    with graph.inserting_before(place):
        made[base] = place if base in saved else graph.placeholder(base.name)
    made[base].meta = dict(base.meta)
    with graph.inserting_before(body):
        for view, argument in zip(saved, old, strict=True):
            if view is not base:
                argument.replace_all_uses_with(_copied(graph, view, made))
    for argument in old:
        if argument is not made[base]:
            graph.erase_node(argument)


def _copied(graph: Any, node: Any, made: dict[Any, Any]) -> Any:
    """A view in the backward graph, after what it is a view of."""
    if node not in made:
        for operand in node.all_input_nodes:
            _copied(graph, operand, made)
        made[node] = graph.node_copy(node, made.__getitem__)
    return made[node]
