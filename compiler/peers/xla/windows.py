"""Convolutions, pools and resampling of ATen, as functions of JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from compiler.peers.xla.operators import jax, jnp


def _convolution(
    x: Any, w: Any, bias: Any, strides: Sequence[int], pads: Sequence[int],
    dilations: Sequence[int], transposed: bool, extra: Sequence[int], groups: int,
) -> Any:
    rank = len(strides)
    if transposed:
        assert not any(pads) and not any(extra)
        w = w.reshape(groups, w.shape[0] // groups, *w.shape[1:]).swapaxes(1, 2)
        w = jnp.flip(w.reshape(-1, *w.shape[2:]), range(2, 2 + rank))
        pads = [d * (n - 1) for d, n in zip(dilations, w.shape[2:], strict=True)]
    found = jax.lax.conv_general_dilated(
        x, w, [1] * rank if transposed else strides, [(p, p) for p in pads],
        lhs_dilation=strides if transposed else None, rhs_dilation=dilations,
        feature_group_count=groups, preferred_element_type=x.dtype)
    return found if bias is None else found + bias.reshape(-1, *[1] * rank)


def _windowed(
    x: Any, start: Any, combine: Any, kernel: Sequence[int], strides: Sequence[int],
    pads: Sequence[int], dilations: Sequence[int] | None = None,
) -> Any:
    lead = x.ndim - len(kernel)
    ones = [1] * lead
    return jax.lax.reduce_window(
        x, np.asarray(start, x.dtype)[()], combine, [*ones, *kernel], [*ones, *strides],
        [*[(0, 0)] * lead, *((p, p) for p in pads)],
        window_dilation=[*ones, *(dilations or [1] * len(kernel))])


def _max_pool(
    x: Any, kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int],
    dilations: Sequence[int],
) -> Any:
    return _windowed(x, -np.inf, jax.lax.max, kernel, strides, pads, dilations)


def _avg_pool(
    x: Any, kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int], ceil: bool,
    counts_pads: bool,
) -> Any:
    assert not ceil
    total = _windowed(x, 0, jax.lax.add, kernel, strides, pads)
    if counts_pads:
        return total / prod(kernel)
    return total / _windowed(jnp.ones_like(x), 0, jax.lax.add, kernel, strides, pads)


# ---------------------------------------------------------------------- resampling
def _nearest(
    x: Any, sizes: Sequence[int], *scales: float, center: float, rank: int
) -> Any:
    for dim, size in enumerate(sizes):
        axis = x.ndim - rank + dim
        many = x.shape[axis]
        step = 1 / scales[dim] if scales else many / size
        places: Any = np.floor((np.arange(size) + center) * step).astype(np.int64)
        places = np.minimum(places, many - 1)
        if size % many == 0 and np.array_equal(places, np.arange(size) // (size // many)):
            x = jnp.repeat(x, size // many, axis)
        else:
            x = jnp.take(x, places, axis)
    return x


def _linear(x: Any, sizes: Sequence[int], aligned: bool, *scales: float, rank: int) -> Any:
    """One axis after another, of two neighbours each."""
    for dim, size in enumerate(sizes):
        axis = x.ndim - rank + dim
        many = x.shape[axis]
        if aligned:
            at = np.arange(size) * ((many - 1) / max(size - 1, 1))
        else:
            step = 1 / scales[dim] if scales else many / size
            at = np.maximum((np.arange(size) + 0.5) * step - 0.5, 0)
        low = np.minimum(np.floor(at).astype(np.int64), many - 1)
        high = np.minimum(low + 1, many - 1)
        share = np.asarray(at - low, x.dtype).reshape(-1, *[1] * (x.ndim - axis - 1))
        first, second = jnp.take(x, low, axis), jnp.take(x, high, axis)
        x = first + (second - first) * share
    return x


def _each_rank(pattern: str, function: Callable[..., Any], **more: Any) -> dict[str, Any]:
    return {pattern.format(rank): partial(function, **more, rank=rank) for rank in (1, 2, 3)}


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "convolution.default": _convolution,
    **{f"max_pool{rank}d.default": _max_pool for rank in (1, 2, 3)},
    **{f"avg_pool{rank}d.default": _avg_pool for rank in (1, 2, 3)},
    **_each_rank("upsample_nearest{}d.default", _nearest, center=0.0),
    **_each_rank("_upsample_nearest_exact{}d.default", _nearest, center=0.5),
    "upsample_linear1d.default": partial(_linear, rank=1),
    "upsample_bilinear2d.default": partial(_linear, rank=2),
    "upsample_trilinear3d.default": partial(_linear, rank=3),
}
