"""Sums over a dim in which at most one element is not zero, such as the gradient of a loss.

    %s = sum(where(arange(n) == %t, %v, 0), [-1], True)   -->   %s = where(0 <= %t < n, %v, 0)

%t and %v have one element along the dim. A further condition may be joined by `and`. The sum would
be computed from nothing in memory, but in a loop over all classes.

The module can be imported without torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler.frontend.torch.library import torch_module


def fold_sums_of_one(joint: Any) -> None:
    """Replace such sums in a joint graph."""
    aten = torch_module().ops.aten
    for node in joint.graph.find_nodes(op="call_function", target=aten.sum.dim_IntList):
        _fold(joint.graph, node)
    joint.graph.eliminate_dead_code()
    joint.recompile()


def _fold(graph: Any, node: Any) -> None:
    given: tuple[Any, ...] = (*node.args, False)
    x, dims, keeps = given[:3]
    if list(dims) not in ([-1], [x.meta["val"].dim() - 1]) or not keeps or node.kwargs:
        return
    where, conversions = _unconverted(x)
    chosen = _chosen(where)
    if chosen is None:
        return
    with graph.inserting_before(node):
        made = _one(graph, node, where, *chosen)
        for step in conversions:
            made = _call(graph, node, step.target, made, **step.kwargs)
        if made.meta["val"].shape != node.meta["val"].shape:
            shape = [*node.meta["val"].shape]
            made = _call(graph, node, torch_module().ops.aten.expand.default, made, shape)
    node.replace_all_uses_with(made)


def _unconverted(x: Any) -> tuple[Any, list[Any]]:
    """What is converted, and the operations that do it, in order."""
    conversions: list[Any] = []
    while _calls(x, torch_module().ops.aten._to_copy.default):
        conversions.insert(0, x)
        x = x.args[0]
    return x, conversions


def _chosen(where: Any) -> tuple[Any, list[Any]] | None:
    """The place of the only element of each row that is not zero, and other conditions for it."""
    if not _calls(where, torch_module().ops.aten.where.self) or not _is_zero(where.args[2]):
        return None
    conditions = _joined(where.args[0])
    places = [c for c in conditions if _place(c) is not None]
    rest = [c for c in conditions if c not in places]
    fits = len(places) == 1 and all(_is_one(v) for v in (where.args[1], *rest))
    return (_place(places[0]), rest) if fits else None


def _one(graph: Any, node: Any, where: Any, place: Any, rest: Sequence[Any]) -> Any:
    """The element of each row that is not zero, or zero."""
    aten, size = torch_module().ops.aten, where.meta["val"].shape[-1]
    made = _call(graph, node, aten.ge.Scalar, place, 0)
    for other in (_call(graph, node, aten.lt.Scalar, place, size), *rest):
        made = _call(graph, node, aten.bitwise_and.Tensor, made, other)
    return _call(graph, node, aten.where.self, made, *where.args[1:])


def _calls(x: Any, target: Any) -> bool:
    return getattr(x, "op", "") == "call_function" and x.target == target


def _joined(condition: Any) -> Sequence[Any]:
    """The conditions that all hold where this one does."""
    if _calls(condition, torch_module().ops.aten.bitwise_and.Tensor):
        return [c for v in condition.args for c in _joined(v)]
    return [condition]


def _place(condition: Any) -> Any:
    """Where along the last dim a comparison with all places holds; None for other conditions."""
    aten = torch_module().ops.aten
    if not _calls(condition, aten.eq.Tensor):
        return None
    for places, place in (condition.args, condition.args[::-1]):
        if _calls(places, aten.arange.default) and len(places.args) == 1 and _is_one(place):
            return place
    return None


def _is_one(x: Any) -> bool:
    """Whether something has one element along the last dim."""
    shape: Sequence[Any] = x.meta["val"].shape if hasattr(x, "meta") else []
    return not len(shape) or shape[-1] == 1


def _is_zero(x: Any) -> bool:
    aten = torch_module().ops.aten
    if _calls(x, aten.full.default):
        return x.args[1] == 0
    return _calls(x, aten.scalar_tensor.default) and x.args[0] == 0


def _call(graph: Any, like: Any, target: Any, *operands: Any, **named: Any) -> Any:
    made = graph.call_function(target, operands, named)
    given = [v.meta["val"] if hasattr(v, "meta") else v for v in operands]
    made.meta = {**like.meta, "val": target(*given, **named)}
    return made
