"""Operators of ATen that move elements, as functions of JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from compiler.peers.xla.operators import dtype_of, jax, jnp

_REDUCTIONS = {"sum": "add", "prod": "multiply", "amax": "max", "amin": "min"}


def _slice(x: Any, axis: int, first: int, last: int, step: int = 1) -> Any:
    return x[(*[slice(None)] * axis, slice(first, last, step))]


def _padded(x: Any, pads: Sequence[int], value: Any) -> Any:
    """Pads of the last dim come first; negative ones cut."""
    pairs = [(low, high, 0) for low, high in zip(pads[::2], pads[1::2], strict=True)][::-1]
    whole = [(0, 0, 0)] * (x.ndim - len(pairs))
    return jax.lax.pad(x, jnp.asarray(value, x.dtype), [*whole, *pairs])


def _unfolded(x: Any, axis: int, size: int, step: int) -> Any:
    starts = jnp.arange((x.shape[axis] - size) // step + 1) * step
    frames = jnp.take(x, starts[:, None] + jnp.arange(size), axis=axis, mode="clip")
    return jnp.moveaxis(frames, axis + 1, -1)


def _size(x: Any, dim: int) -> int:
    return x.shape[dim]


def _selected(x: Any, dim: int, place: int) -> Any:
    return jax.lax.index_in_dim(x, place, dim, keepdims=False)


def _taken(x: Any, axis: int, places: Any) -> Any:
    return jnp.take(x, places, axis=axis, mode="clip")


def _full(shape: Sequence[int], value: Any, dtype: Any) -> Any:
    return jnp.full(shape, value, dtype_of(dtype))


def _range(first: int, last: int | None = None) -> Any:
    return jnp.arange(first, dtype=jnp.int64) if last is None else (
        jnp.arange(first, last, dtype=jnp.int64))


def _picked(x: Any, picks: Sequence[Any]) -> Any:
    return x[tuple(slice(None) if pick is None else pick for pick in picks)]


def _places(axis: int, indices: Any) -> tuple[Any, ...]:
    """The places that indices along an axis mean: an array of each dim."""
    found = list(jnp.meshgrid(*map(jnp.arange, indices.shape), indexing="ij", sparse=True))
    found[axis] = indices
    return tuple(found)


def _like(values: Any, indices: Any) -> Any:
    """The values for which there are indices."""
    return values[tuple(map(slice, indices.shape))]


def _gathered(x: Any, axis: int, indices: Any) -> Any:
    return x[_places(axis, indices)]


def _scattered(x: Any, axis: int, indices: Any, values: Any, reduction: str = "") -> Any:
    target = x.at[_places(axis, indices)]
    return getattr(target, _REDUCTIONS.get(reduction, "set"))(_like(values, indices))


def _put(x: Any, picks: Sequence[Any], values: Any, adds: bool) -> Any:
    target = x.at[tuple(picks)]
    return target.add(values) if adds else target.set(values)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "sym_size.int": _size,
    "_local_scalar_dense.default": int,
    "reshape.default": jnp.reshape, "expand.default": jnp.broadcast_to,
    "permute.default": jnp.transpose, "flip.default": jnp.flip, "cat.default": jnp.concatenate,
    "slice.Tensor": _slice, "constant_pad_nd.default": _padded, "unfold.default": _unfolded,
    "select.int": _selected,
    "full.default": _full, "arange.default": _range, "arange.start": _range,
    "index_select.default": _taken,
    "index.Tensor": _picked, "gather.default": _gathered, "scatter.src": _scattered,
    "scatter_reduce.two": _scattered, "index_put.default": _put,
}
