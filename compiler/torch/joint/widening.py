"""Tensors of a graph with zeros behind their elements along a dim, without a copy where possible.

    %a = exp(%x)     %x: f32[8192, 50257], the first part of %p: f32[8192, 50264]
    --> %b = where(arange(50264) < 50257, exp(%p), 0)

What is computed element by element is computed on wider operands, so that padding costs nothing.

The module can be imported without torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from compiler.frontend.torch.library import torch_module

MOST = 64
"""So many operations are computed again at most."""


@dataclass
class Widening:
    """Tensors of a graph that have been widened: by tensor, dim from the end, and elements added.

    Contents behind the elements are zero only in what `padded` returns.
    """

    graph: Any
    zero: dict[tuple[Any, int, int], Any] = field(
        default_factory=dict[tuple[Any, int, int], Any])
    wide: dict[tuple[Any, int, int], Any] = field(
        default_factory=dict[tuple[Any, int, int], Any])
    parts: dict[Any, Any] = field(default_factory=dict[Any, Any])
    """Parts of wider tensors -> the values in whose place they are read."""

    def padded(self, x: Any, dim: int, more: int) -> Any:
        """A tensor with `more` zeros behind its elements along a dim, which is negative.

        What else reads the tensor reads it there, so that only one of both is stored.
        """
        key, whole = (x, dim, more), _first_part_of(x, dim, more)
        if whole in self.zero.values():
            return whole
        if key not in self.zero:
            self.zero[key] = made = self._padded(x, dim, more)
            if _keeps_zeros(x) or _is_pointwise(x):
                self._replace(x, made, dim)
        return self.zero[key]

    def _padded(self, x: Any, dim: int, more: int) -> Any:
        if _keeps_zeros(x):
            return self.call(x, x.target, self.padded(x.args[0], dim, more), *x.args[1:],
                             **x.kwargs)
        inner = _viewed(x, dim)
        if inner is not None:
            return self._view(x, self.padded(inner, dim, more), dim, more)
        if not _is_pointwise(x):
            return self._copied(x, dim, more)
        return self._masked(x, self._widened(x, dim, more, [MOST]), dim, more)

    def _masked(self, x: Any, wide: Any, dim: int, more: int) -> Any:
        aten, size = torch_module().ops.aten, x.meta["val"].shape[dim]
        device = x.meta["val"].device
        places = self.call(wide, aten.arange.default, size + more, device=device)
        if dim != -1:
            places = self.call(places, aten.view.default, places, [-1, *[1] * (-dim - 1)])
        inside = self.call(places, aten.lt.Scalar, places, size)
        none = self.call(inside, aten.full.default, [], 0, dtype=x.meta["val"].dtype,
                         device=device)
        return self.call(none, aten.where.self, inside, wide, none)

    def _replace(self, x: Any, made: Any, dim: int) -> None:
        """Let all later readers of x read the first part of what was made of it."""
        order = {node: k for k, node in enumerate(self.graph.nodes)}
        part = self.call(made, torch_module().ops.aten.slice.Tensor, made,
                         made.meta["val"].dim() + dim, 0, x.meta["val"].shape[dim])
        for user in list(x.users):
            if user not in (made, part) and order.get(user, 0) > order[made]:
                user.replace_input_with(x, part)
        self.parts[part] = x.meta["val"]

    # ------------------------------------------------------------------ any contents behind
    def _widened(self, x: Any, dim: int, more: int, left: list[int]) -> Any:
        """A tensor with more elements along a dim, of any value. `left`: how many operations may
        still be computed again."""
        if not hasattr(x, "meta") or _size(x, dim) == 1:
            return x
        key = (x, dim, more)
        if key not in self.wide:
            self.wide[key] = self._made(x, dim, more, left)
        return self.wide[key]

    def _made(self, x: Any, dim: int, more: int, left: list[int]) -> Any:
        whole = _first_part_of(x, dim, more)
        if whole is not None:
            return whole
        aten, inner = torch_module().ops.aten, _viewed(x, dim)
        if inner is not None:
            return self._view(x, self._widened(inner, dim, more, left), dim, more)
        left[0] -= 1
        if x.op == "call_function" and x.target == aten.arange.default and len(x.args) == 1:
            return self.call(x, x.target, x.args[0] + more, **x.kwargs)
        if left[0] < 0 or not (_is_pointwise(x) or _keeps_zeros(x)):
            return self._copied(x, dim, more)
        operands = [self._widened(v, dim, more, left) for v in x.args]
        return self.call(x, x.target, *operands, **x.kwargs)

    def _view(self, x: Any, wide: Any, dim: int, more: int) -> Any:
        shape = [*x.meta["val"].shape]
        shape[dim] += more
        return self.call(wide if wide.op == "call_function" else x,
                         torch_module().ops.aten.view.default, wide, shape, after=(x, wide))

    def _copied(self, x: Any, dim: int, more: int) -> Any:
        spread = [*[0, 0] * (-dim - 1), 0, more]
        return self.call(x, torch_module().ops.aten.constant_pad_nd.default, x, spread)

    def call(self, like: Any, target: Any, *operands: Any, after: Sequence[Any] = (),
             **named: Any) -> Any:
        """A new operation behind what it reads."""
        order = {node: k for k, node in enumerate(self.graph.nodes)}
        read = [v for v in (like, *after, *operands) if hasattr(v, "meta")]
        with self.graph.inserting_after(max(read, key=lambda v: order[v])):
            made = self.graph.call_function(target, operands, named)
        given = [v.meta["val"] if hasattr(v, "meta") else v for v in operands]
        fake = torch_module("torch._guards").detect_fake_mode([like.meta["val"]])
        with fake or torch_module().no_grad():
            made.meta = {**like.meta, "val": target(*given, **named)}
        made.meta.pop("tensor_meta", None)
        return made


def keep_strides(graph: Any, parts: Mapping[Any, Any]) -> None:
    """Copy what is returned, or viewed as its memory no longer is, where it has become a part of a
    wider tensor. `parts`: these, and the values in whose place they are."""
    before = {node: value for node, value in parts.items()
              if value.stride() != node.meta["val"].stride()}
    for node in list(graph.nodes):
        moved = [v for v in node.all_input_nodes if v in before]
        if not moved or node.op not in ("call_function", "output"):
            continue
        if node.op == "output" or not _fits(node):
            for v in moved:
                node.replace_input_with(v, _copy(graph, v, before[v], node))
        elif hasattr(node.meta["val"], "stride"):
            value = _value(node)
            if value.stride() != node.meta["val"].stride():
                before[node], node.meta["val"] = node.meta["val"], value


def _fits(view: Any) -> bool:
    try:
        _value(view)
    except (RuntimeError, ValueError):
        return False
    return True


def _value(node: Any) -> Any:
    def of(v: Any) -> Any:
        return v.meta["val"]

    torch = torch_module()
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), of)
    return node.target(*args, **kwargs)


def _copy(graph: Any, x: Any, like: Any, reader: Any) -> Any:
    """x in new memory, with the order of dims that another value has there."""
    torch = torch_module()
    aten, rank = torch.ops.aten, like.dim()
    order = sorted(range(rank), key=lambda d: (-like.stride(d), d))
    back = [order.index(d) for d in range(rank)]
    steps: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
        (aten.permute.default, (order,), {}),
        (aten.clone.default, (), {"memory_format": torch.contiguous_format}),
        (aten.permute.default, (back,), {})]
    for target, args, named in steps if order != back or order != sorted(order) else steps[1:2]:
        with graph.inserting_before(reader):
            made = graph.call_function(target, (x, *args), named)
        made.meta = {**x.meta, "val": target(x.meta["val"], *args, **named)}
        x = made
    return x


def _size(x: Any, dim: int) -> Any:
    shape = x.meta["val"].shape
    return shape[dim] if len(shape) >= -dim else 1


def _is_pointwise(x: Any) -> bool:
    """Whether an operation computes each element of its only result from those in its place."""
    tags = getattr(x.target, "tags", ())
    return x.op == "call_function" and torch_module().Tag.pointwise in tags and all(
        not isinstance(v, (list, tuple)) for v in x.args) and (
        torch_module().Tag.nondeterministic_seeded not in tags)


def _keeps_zeros(x: Any) -> bool:
    """Whether an operation only converts."""
    aten = torch_module().ops.aten
    return x.op == "call_function" and x.target == aten._to_copy.default


def _viewed(x: Any, dim: int) -> Any:
    """What an operation views with other dims before one that it keeps, the last; or None."""
    aten = torch_module().ops.aten
    if x.op != "call_function" or dim != -1 or x.target not in (
            aten.view.default, aten._unsafe_view.default, aten.reshape.default):
        return None
    inner = x.args[0]
    same = inner.meta["val"].dim() and inner.meta["val"].shape[-1] == x.meta["val"].shape[-1]
    return inner if same else None


def _first_part_of(x: Any, dim: int, more: int) -> Any:
    """The tensor of which an operation takes all but the last elements of a dim; or None."""
    if x.op != "call_function" or x.target != torch_module().ops.aten.slice.Tensor:
        return None
    given: tuple[Any, ...] = (*x.args, 0, 0, None)
    whole, axis, start, end = given[:4]
    shape, size = whole.meta["val"].shape, x.meta["val"].shape[dim]
    fits = axis == len(shape) + dim and start == 0 and end == size and len(x.args) == 4
    return whole if fits and shape[dim] == size + more else None
