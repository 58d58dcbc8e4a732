"""Decompositions of `as_strided`, which names places in memory, into operators on tensors.

    as_strided(x, [n, c, 1, 1], [c, 1, c, c])    a view that only says how x lies
    as_strided(x, [2, 3], [1, 2], 4)             elements 4 to 9 of x's memory, transposed
    as_strided(x, [5, 3], [1, 1])                elements of x's memory by index (windows)

x must fill its memory without gaps. Where sizes are open, all elements are read and written by
index.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from compiler.frontend.torch.library import torch_module
from compiler.io.structures import inverse


def strided_decompositions() -> dict[Any, Any]:
    """Operator -> function."""
    ops = torch_module().ops
    copy = ops.aten.as_strided_copy.default
    return {copy: in_order_of(copy, as_strided), ops.aten.as_strided.default: view,
            ops.aten.as_strided_scatter.default: scatter,
            ops.prims.as_strided_scatter.default: scatter}


def view(x: Any, size: Sequence[Any], stride: Sequence[Any], offset: Any = None) -> Any:
    """The same as a view, which may be a result: only where its own strides come out. Places beyond
    x, which may be part of a larger tensor, stay with PyTorch."""
    if not _are_known([*size, *stride, *x.shape]) or not all(size):
        return NotImplemented
    begin, order = _begin(x, offset), _order(size, stride)
    if begin is None or order is None or begin + prod(size) > x.numel():
        return NotImplemented
    made = as_strided(x, size, stride, offset)
    return made if made is not NotImplemented and made.stride() == tuple(stride) else NotImplemented


def as_strided(x: Any, size: Sequence[Any], stride: Sequence[Any], offset: Any = None) -> Any:
    """The elements at these places of x's memory."""
    if not _are_known([*size, *stride, *x.shape]):
        memory = _memory(x, size, stride, offset)
        return NotImplemented if memory is None else memory[0][memory[1]]
    begin = _begin(x, offset)
    if begin is None:
        return NotImplemented
    if begin == 0 and tuple(size) == tuple(x.shape) and _lies_alike(x, stride):
        return x.view(x.shape)
    if _order(x.shape, x.stride()) is None:
        return NotImplemented
    order, flat = _order(size, stride), _flat(x)
    if order is not None:
        part = flat[begin:begin + prod(size)]
        return _unflattened(part, size, order)
    return flat[_places(x, size, stride, begin)]


def scatter(
    x: Any, part: Any, size: Sequence[Any], stride: Sequence[Any], offset: Any = None
) -> Any:
    """x with other elements at these places, which must be apart."""
    if not _are_known([*size, *stride, *x.shape]):
        return _open_scatter(x, part, size, stride, offset)
    begin, outer = _begin(x, offset), _order(x.shape, x.stride())
    if begin is None or outer is None:
        return NotImplemented
    order, flat = _order(size, stride), _flat(x)
    if order is None:
        places = _places(x, size, stride, begin).reshape(-1)
        if not _are_apart(size, stride):
            return NotImplemented
        made = flat.index_put([places], part.reshape(-1))
    else:
        count = prod(size)
        pieces = [flat[:begin], part.permute(order).reshape(-1), flat[begin + count:]]
        made = torch_module().cat(pieces) if count < flat.shape[0] else pieces[1]
    return _unflattened(made, x.shape, outer)


def _open_scatter(x: Any, part: Any, size: Any, stride: Any, offset: Any) -> Any:
    found = _memory(x, size, stride, offset)
    if found is None:
        return NotImplemented
    order = sorted(range(x.dim()), key=lambda k: -x.stride(k))
    memory = found[0].index_put([found[1]], part.expand(list(size)).to(x.dtype))
    back = [order.index(k) for k in range(x.dim())]
    return memory.reshape([x.shape[k] for k in order]).permute(back)


def _memory(x: Any, size: Any, stride: Any, offset: Any) -> tuple[Any, Any] | None:
    """The elements of x as they lie in memory, and places [size] in it; None if x has gaps."""
    ordered = x.permute(sorted(range(x.dim()), key=lambda k: -x.stride(k)))
    if not ordered.is_contiguous():
        return None
    start = (x.storage_offset() if offset is None else offset) - x.storage_offset()
    return ordered.reshape(-1), _places(x, size, stride, start)


def _are_known(sizes: Sequence[Any]) -> bool:
    return all(type(n) is int for n in sizes)


def _begin(x: Any, offset: Any) -> int | None:
    """The first place, counted from x's first element; None if that is before it or not known."""
    own = x.storage_offset()
    begin = own if offset is None else offset
    return begin - own if type(begin) is int and type(own) is int and begin >= own else None


def _lies_alike(x: Any, stride: Sequence[int]) -> bool:
    return all(a == b or n <= 1 for n, a, b in zip(x.shape, x.stride(), stride, strict=True))


def _order(size: Sequence[int], stride: Sequence[int]) -> list[int] | None:
    """The dims from the slowest to the fastest in memory without gaps; None if there are any."""
    order = sorted(range(len(size)), key=lambda d: (-stride[d], size[d] != 1, d))
    long, step = [d for d in order if size[d] != 1], 1
    for dim in reversed(long):
        if stride[dim] != step:
            return None
        step *= size[dim]
    return order


def _flat(x: Any) -> Any:
    """The elements of x in the order of its memory."""
    order = _order(x.shape, x.stride())
    assert order is not None
    return x.permute(order).reshape(-1)


def _unflattened(flat: Any, size: Sequence[int], order: Sequence[int]) -> Any:
    """Elements in the order of memory as a tensor whose dims lie in this order."""
    back = sorted(range(len(order)), key=lambda k: order[k])
    return flat.view([size[d] for d in order]).permute(back)


def _places(x: Any, size: Sequence[Any], stride: Sequence[Any], begin: Any) -> Any:
    """The index of each element in x's memory, i64 of this size."""
    torch = torch_module()
    found = torch.full(list(size), begin, dtype=torch.int64, device=x.device)
    for dim, (n, step) in enumerate(zip(size, stride, strict=True)):
        along = torch.arange(n, device=x.device) * step
        found = found + along.view([-1, *[1] * (len(size) - 1 - dim)])
    return found


def _are_apart(size: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether no two elements have one place."""
    last = 0
    for step, n in sorted((s, n) for n, s in zip(size, stride, strict=True) if n > 1):
        if step <= last:
            return False
        last += step * (n - 1)
    return True


# ---------------------------------------------------------------------- the order of results
def order_of(tensor: Any) -> list[int]:
    """The dims of a tensor in the order of memory."""
    strides = [s if isinstance(s, int) else s.node.hint or 0 for s in tensor.stride()]
    return sorted(range(len(strides)), key=lambda dim: -strides[dim])


def in_order(tensor: Any, order: list[int]) -> Any:
    """A tensor, or a copy of it, whose dims lie in memory in this order."""
    return tensor.permute(order).contiguous().permute(inverse(order))


def in_order_of(op: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """A decomposition whose results lie in memory as those of its operator: programs may ask for
    strides, and `as_strided` reads memory as it lies."""
    def decomposed(*args: Any, **kwargs: Any) -> Any:
        made = function(*args, **kwargs)
        if made is NotImplemented:
            return made
        tree = torch_module("torch.utils._pytree")
        proxies = torch_module("torch.fx.experimental.proxy_tensor")
        with proxies.disable_proxy_modes_tracing():
            wanted = tree.tree_leaves(op(*args, **kwargs))
            flat, form = tree.tree_flatten(made)
            orders = [_other_order(*pair) for pair in zip(flat, wanted, strict=True)]
        return tree.tree_unflatten(
            [x if order is None else in_order(x, order)
             for x, order in zip(flat, orders, strict=True)], form)

    return decomposed


def _other_order(made: Any, like: Any) -> list[int] | None:
    """The order of a tensor's dims in memory, if another one has other strides. Strides may be open
    sizes, whose comparisons are no part of a traced graph."""
    if not hasattr(like, "stride") or made.stride() == like.stride():
        return None
    return order_of(like)
