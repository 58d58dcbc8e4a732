"""Attention as one operator with gradients, for graphs that AOTAutograd derives gradients of.

    %y, %l, %m = strata.attention(%q, %k, %v, %mask, %kept, p, causal, scale)
    %dq, %dk, %dv, %dmask = strata.attention_backward(%dy, %q, %k, %v, %y, %l, %m, ...)

%l has the logarithm of each row's sum of exponentials. With it the backward pass computes scores
again, so that none are saved. PyTorch's own fused operators differ with the device, and have
gradients for some masks only.

A mask of floats may push all scores of a row far below zero, as the lowest number does that some
models mask with. The logarithm of a sum would vanish beside them. With such a mask, %m has the
largest score of each row, and %l is the logarithm of the sum of exp(s - m); else %m is empty, and
the backward pass takes None.

    s = scale q k^T + mask     w = exp(s - m - l)     y = (w * kept / (1 - p)) v
    dv = (w * kept / (1 - p))^T dy                dw = kept / (1 - p) * (dy v^T)
    ds = w * (dw - sum(dy * y))                   dq = scale ds k      dk = scale ds^T q

`kept` is what dropout keeps, or None. Source: T. Dao et al., FlashAttention, 2022.

Where graphs run eagerly, the functions here compute them. The module can be imported without torch.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

from compiler.frontend.torch.library import torch_module

FORM = "Tensor? mask, Tensor? kept, float dropout, bool causal, float? scale"


@contextmanager
def attention_whole() -> Generator[None]:
    """While AOTAutograd traces inside, attention is this operator."""
    torch = torch_module()
    op, key = torch.ops.aten.scaled_dot_product_attention.default, (
        torch._C.DispatchKey.CompositeImplicitAutograd)
    before, (make, _) = op.py_kernels.copy(), operators()

    def attention(
        query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
        is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
    ) -> Any:
        if dropout_p >= 1 or not _fits(query, key, value, attn_mask, enable_gqa):
            return torch.ops.aten._scaled_dot_product_attention_math(
                query, key, value, _added(attn_mask, query), dropout_p, is_causal, scale=scale,
                enable_gqa=enable_gqa)[0]
        kept = _kept(query, key, dropout_p) if dropout_p else None
        return make(query, key, value, attn_mask, kept, dropout_p, is_causal, scale)[0]

    op.py_kernels.pop(key, None)
    op.py_impl(key)(attention)
    try:
        with torch_module("torch._dispatch.python").enable_python_dispatcher():
            yield
    finally:
        op.py_kernels.clear()
        op.py_kernels.update(before)
        op._dispatch_cache.clear()


def _added(mask: Any, query: Any) -> Any:
    """A mask of truth values as one that is added, as the parts of attention expect it."""
    torch = torch_module()
    if mask is None or mask.dtype != torch.bool:
        return mask
    zeros = torch.zeros(mask.shape, dtype=query.dtype, device=query.device)
    return zeros.masked_fill(~mask, -math.inf)


def attention_in_parts() -> AbstractContextManager[Any]:
    """While AOTAutograd traces inside, attention is products and a softmax."""
    attention = torch_module("torch.nn.attention")
    return attention.sdpa_kernel(attention.SDPBackend.MATH)


def _fits(query: Any, key: Any, value: Any, mask: Any, grouped: bool) -> bool:
    """Whether the operator computes these: floats of one kind, the same batch for all. One head of
    keys serves all of the query's, whether or not heads are grouped."""
    rank = query.dim()
    grouped = grouped or (rank == key.dim() >= 3 and key.shape[-3] == 1)
    heads = slice(None, -3 if grouped else -2)
    return (rank >= (3 if grouped else 2) and key.dim() == value.dim() == rank
            and query.is_floating_point() and query.dtype == key.dtype == value.dtype
            and query.shape[heads] == key.shape[heads] == value.shape[heads]
            and key.shape[:-1] == value.shape[:-1] and (mask is None or mask.dim() <= rank))


def _kept(query: Any, key: Any, p: float) -> Any:
    """What dropout keeps of the weights, drawn as eager mode draws it on the CPU."""
    torch = torch_module()
    shape = (*query.shape[:-1], key.shape[-2])
    return torch.ops.aten.bernoulli.p(torch.empty(
        shape, dtype=torch.bool, device=query.device), 1 - p)


@cache
def operators() -> tuple[Any, Any]:
    """Both operators, known to PyTorch from now on."""
    torch = torch_module()
    library = torch_module("torch.library")
    home = library.Library("strata", "FRAGMENT")
    home.define(f"attention(Tensor query, Tensor key, Tensor value, {FORM}) -> "
                "(Tensor, Tensor, Tensor)")
    home.define("attention_backward(Tensor given, Tensor query, Tensor key, Tensor value, "
                f"Tensor made, Tensor sums, Tensor? largest, {FORM}, bool of_mask) -> "
                "(Tensor, Tensor, Tensor, Tensor)")
    for name, compute, shape in (("attention", forward, _forward_shapes),
                                 ("attention_backward", backward, _backward_shapes)):
        home.impl(name, compute, "CompositeExplicitAutograd")
        library.register_fake(f"strata::{name}", shape, lib=home)
    library.register_autograd("strata::attention", _gradients, setup_context=_save, lib=home)
    operators.home = home  # type: ignore[attr-defined]
    return torch.ops.strata.attention.default, torch.ops.strata.attention_backward.default


# ---------------------------------------------------------------------- gradients
def _save(ctx: Any, inputs: Any, output: Any) -> None:
    query, key, value, mask, kept, *ctx.form = inputs
    made, sums, largest = output
    ctx.save_for_backward(query, key, value, made, sums, largest if _is_added(mask) else None,
                          mask, kept)
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*output[1:])


def _gradients(ctx: Any, given: Any, *_: Any) -> Any:
    if given is None:
        return (None,) * 8
    needed = ctx.needs_input_grad
    *taken, mask, kept = ctx.saved_tensors
    found = operators()[1](given, *taken, mask, kept, *ctx.form, needed[3])
    return (*(v if n else None for v, n in zip(found, needed, strict=False)), *(None,) * 4)


# ---------------------------------------------------------------------- shapes and memory
def _forward_shapes(
    query: Any, key: Any, value: Any, mask: Any, kept: Any, dropout: float, causal: bool,
    scale: float | None,
) -> Any:
    rows = query.new_empty(query.shape[:-1], dtype=_wide(query))
    largest = torch_module().empty_like(rows) if _is_added(mask) else _nothing(query)
    return _in_rows(query, value.shape[-1]), rows, largest


def _is_added(mask: Any) -> bool:
    return mask is not None and mask.dtype != torch_module().bool


def _nothing(query: Any) -> Any:
    return query.new_empty(0, dtype=torch_module().float32)


def _backward_shapes(
    given: Any, query: Any, key: Any, value: Any, made: Any, sums: Any, largest: Any, mask: Any,
    kept: Any, dropout: float, causal: bool, scale: float | None, of_mask: bool,
) -> Any:
    torch = torch_module()
    grads = [_in_rows(x, x.shape[-1]) for x in (query, key, value)]
    return *grads, torch.empty_like(mask) if of_mask else query.new_empty(0)


def _in_rows(x: Any, width: int) -> Any:
    """New memory of x's shape but for this width, in which the heads of a token lie side by side,
    as in PyTorch's fused kernels."""
    if x.dim() < 3:
        return x.new_empty(*x.shape[:-1], width)
    *batch, heads, length, _ = x.shape
    return x.new_empty(*batch, length, heads, width).transpose(-2, -3)


def _wide(x: Any) -> Any:
    torch = torch_module()
    return torch.float32 if x.dtype.itemsize == 2 else x.dtype


# ---------------------------------------------------------------------- eager computation
def forward(
    query: Any, key: Any, value: Any, mask: Any, kept: Any, dropout: float, causal: bool,
    scale: float | None,
) -> Any:
    """The result, the logarithms of sums, and the largest scores, computed in f32 for halves."""
    torch = torch_module()
    wide = _wide(query)
    scores, seen = _scores(query.to(wide), _repeated(key, query).to(wide), mask, causal, scale)
    largest = scores.amax(-1) if _is_added(mask) else _nothing(query)
    scores = _lowered(scores, largest if _is_added(mask) else None)
    sums = scores.logsumexp(-1)
    weights = _dropped(torch.where(seen, (scores - sums[..., None]).exp(), 0), kept, dropout)
    made = _in_rows(query, value.shape[-1])
    return made.copy_(weights @ _repeated(value, query).to(wide)), sums, largest


def backward(
    given: Any, query: Any, key: Any, value: Any, made: Any, sums: Any, largest: Any, mask: Any,
    kept: Any, dropout: float, causal: bool, scale: float | None, of_mask: bool,
) -> Any:
    """The gradients of query, key, value and an additive mask; of the last only if asked for."""
    torch = torch_module()
    wide, groups = _wide(query), key
    given, query_, key, value = (x.to(wide) for x in (
        given, query, _repeated(key, query), _repeated(value, query)))
    scores, seen = _scores(query_, key, mask, causal, scale)
    scores = _lowered(scores, largest)
    weights = torch.where(seen, (scores - sums[..., None]).exp(), 0)
    inner = _dropped(given @ value.transpose(-1, -2), kept, dropout)
    outer = weights * (inner - (given * made.to(wide)).sum(-1, keepdim=True))
    factor = _factor(query, scale)
    of_value = _dropped(weights, kept, dropout).transpose(-1, -2) @ given
    found = [outer @ key * factor, *(_grouped(x, groups) for x in (
        outer.transpose(-1, -2) @ query_ * factor, of_value))]
    grads = [_in_rows(x, x.shape[-1]).copy_(x).to(query.dtype) for x in found]
    return *grads, outer.sum_to_size(mask.shape).to(mask.dtype) if of_mask else query.new_empty(0)


def _scores(query: Any, key: Any, mask: Any, causal: bool, scale: float | None) -> Any:
    """The scores, the lowest number where a mask excludes them, and where none does."""
    torch = torch_module()
    scores = query @ key.transpose(-1, -2) * _factor(query, scale)
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device)
    seen = seen.tril() if causal else seen
    if mask is not None and mask.dtype == torch.bool:
        seen = seen & mask
    elif mask is not None:
        scores, seen = scores + mask, seen & (mask != -math.inf)
    return torch.where(seen, scores, torch.finfo(scores.dtype).min), seen


def _lowered(scores: Any, largest: Any) -> Any:
    """The scores of each row less the largest one, if that is given."""
    return scores if largest is None else scores - largest[..., None]


def _factor(query: Any, scale: float | None) -> float:
    return 1 / math.sqrt(query.shape[-1]) if scale is None else scale


def _dropped(x: Any, kept: Any, dropout: float) -> Any:
    return x if kept is None else torch_module().where(kept, x / (1 - dropout), 0)


def _repeated(x: Any, query: Any) -> Any:
    """x with each head as often as it has heads of the query."""
    times = 1 if x.dim() < 3 else query.shape[-3] // x.shape[-3]
    return x if times == 1 else x.repeat_interleave(times, -3)


def _grouped(x: Any, like: Any) -> Any:
    """Sums over the heads that share one of these."""
    if x.dim() < 3 or x.shape[-3] == like.shape[-3]:
        return x
    return x.unflatten(-3, (like.shape[-3], -1)).sum(-3)
