"""Decompositions of operators that read or write at places in memory, and of pairs of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler.frontend.torch.core.strided import in_order_of
from compiler.frontend.torch.library import torch_module


def place_decompositions() -> dict[Any, Any]:
    """Operator -> function."""
    aten = torch_module().ops.aten
    return {aten.diagonal_scatter.default: diagonal_scatter,
            aten.index_reduce.default: index_reduce, aten.take.default: take,
            aten.put.default: in_order_of(aten.put.default, put),
            aten.segment_reduce.default: segment_reduce,
            aten.embedding_renorm.default: embedding_renorm,
            aten._pdist_forward.default: pdist, aten.angle.default: angle,
            aten.addbmm.default: in_order_of(aten.addbmm.default, addbmm),
            aten._trilinear.default: trilinear}


def diagonal_scatter(x: Any, source: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """x with the elements of a diagonal replaced."""
    torch = torch_module()
    moved = x.movedim((dim1, dim2), (0, 1))
    rows = torch.arange(source.shape[-1], device=x.device)
    places = [rows + max(-offset, 0), rows + max(offset, 0)]
    return moved.index_put(places, source.movedim(-1, 0)).movedim((0, 1), (dim1, dim2))


def index_reduce(
    x: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True
) -> Any:
    """Slices of a source combined into those of x at indices."""
    if x.dim() == 0:
        return index_reduce(x.reshape(1), 0, index.reshape(1), source.reshape(1), reduce,
                            include_self=include_self).reshape(())
    shape = [-1 if k == dim % x.dim() else 1 for k in range(x.dim())]
    places = index.to(torch_module().int64).reshape(shape).expand(source.shape)
    return x.scatter_reduce(dim, places, source, reduce, include_self=include_self)


def put(x: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    """x with elements at places of its flat form replaced, or added to."""
    flat = x.reshape(-1).index_put([index.reshape(-1)], source.reshape(-1), accumulate)
    return flat.reshape(x.shape)


def take(x: Any, index: Any) -> Any:
    """The elements at places of x's flat form. PyTorch's decomposition reads an index without dims
    as a number of Python."""
    aten = torch_module().ops.aten
    return aten.index.Tensor(x.reshape(-1), [index.reshape(-1)]).reshape(index.shape)


IDENTITIES = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": float("-inf"), "min": float("inf")}
SCATTERS = {"max": "amax", "min": "amin", "mean": "sum"}


def segment_reduce(
    x: Any, reduce: str, *, lengths: Any = None, indices: Any = None, offsets: Any = None,
    axis: int = 0, unsafe: bool = False, initial: float | None = None,
) -> Any:
    """Neighbours along an axis combined, in segments of given lengths or first places; an empty
    one gives the number with which all begin, but the mean of none is NaN. Elements behind the last
    segment count nowhere if that is allowed."""
    if indices is not None or (lengths is None) == (offsets is None):
        return NotImplemented
    torch = torch_module()
    ends = lengths.cumsum(-1) if offsets is None else offsets[..., 1:].contiguous()
    counts = lengths if offsets is None else offsets.diff()
    places = torch.arange(x.shape[axis], device=x.device, dtype=ends.dtype)
    places = places.expand((*ends.shape[:-1], x.shape[axis])).contiguous()
    segment, inner = torch.searchsorted(ends, places, right=True), [1] * (x.dim() - 1 - axis)
    shape = [*x.shape[:axis], ends.shape[-1] + unsafe, *x.shape[axis + 1:]]
    begin = x.new_full(shape, IDENTITIES[reduce] if initial is None else initial)
    made = begin.scatter_reduce(axis, segment.reshape([*segment.shape, *inner]).expand(x.shape), x,
                                SCATTERS.get(reduce, reduce))
    made = made.narrow(axis, 0, ends.shape[-1])
    if reduce != "mean":
        return made
    counts = counts.reshape([*counts.shape, *inner])
    empty = float("nan") if initial is None else initial
    return torch.where(counts == 0, empty, made / counts.clamp(min=1)).to(x.dtype)


def embedding_renorm(x: Any, indices: Any, max_norm: float, norm_type: float = 2.0) -> Any:
    """The rows at indices, scaled where their norm is larger than a bound."""
    torch = torch_module()
    norms = torch.linalg.vector_norm(x, norm_type, dim=1, keepdim=True)
    read = torch.zeros(x.shape[0], dtype=torch.bool, device=x.device).index_fill(
        0, indices.reshape(-1), True)
    return torch.where(read[:, None] & (norms > max_norm), x * (max_norm / (norms + 1e-7)), x)


def pdist(x: Any, p: float = 2.0) -> Any:
    """The distances of each pair of rows, the first before the second."""
    torch = torch_module()
    first, second = torch.triu_indices(x.shape[0], x.shape[0], 1, device=x.device).unbind()
    apart = x[first] - x[second]
    return torch.linalg.vector_norm(apart, p, dim=1)


def angle(x: Any) -> Any:
    """The angle of a real number: pi below 0, else 0."""
    if x.is_complex():
        return NotImplemented
    torch = torch_module()
    wide = x if x.is_floating_point() else x.to(torch.get_default_dtype())
    found = torch.where(wide < 0, torch.pi, 0.0).to(wide.dtype)
    return torch.where(wide.isnan(), wide, found)


def addbmm(x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """beta * x + alpha * (the sum of all products of matrices), of halves in f32. Factors of
    integers are whole."""
    torch = torch_module()
    if x.dtype in (torch.float16, torch.bfloat16):
        return addbmm(x.float(), a.float(), b.float(), beta=beta, alpha=alpha).to(x.dtype)
    if not (x.is_floating_point() or x.is_complex()):
        alpha, beta = int(alpha), int(beta)
    total = alpha * (a @ b).sum(0, dtype=x.dtype)
    return total if beta == 0 else beta * x + total


def trilinear(
    a: Any, b: Any, c: Any, expand_a: Sequence[int], expand_b: Sequence[int],
    expand_c: Sequence[int], sum_dims: Sequence[int], unroll_dim: int = 1,
) -> Any:
    """The sum of the products of three tensors with new dims over some of the dims."""
    for places, which in ((expand_a, 0), (expand_b, 1), (expand_c, 2)):
        for dim in sorted(places):
            a, b, c = (v.unsqueeze(dim) if k == which else v for k, v in enumerate((a, b, c)))
    product = a * b * c
    return product.sum(list(sum_dims)) if sum_dims else product
