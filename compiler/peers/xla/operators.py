"""Elementwise operators, reductions, products and orders of ATen, as functions of JAX."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

jax: Any = importlib.import_module("jax")
jnp: Any = importlib.import_module("jax.numpy")
special: Any = importlib.import_module("jax.scipy.special")


def dtype_of(dtype: Any) -> Any:
    """A type of PyTorch's elements."""
    return jnp.dtype(str(dtype).removeprefix("torch."))


def _truncated(x: Any, y: Any, rounding_mode: str) -> Any:
    assert rounding_mode == "trunc"
    return jax.lax.div(*jnp.broadcast_arrays(x, y))


def _converted(x: Any, dtype: Any) -> Any:
    return x.astype(dtype_of(dtype))


def _same(x: Any) -> Any:
    return x


def _taken_from(x: Any, number: Any) -> Any:
    return number - x


def _soft(name: str) -> Callable[..., Any]:
    def compute(x: Any, axis: int, _: bool) -> Any:
        return getattr(jax.nn, name)(x, axis)

    return compute


def _viewed(x: Any, dtype: Any) -> Any:
    return x.view(dtype_of(dtype))


# ---------------------------------------------------------------------- reductions
def _extremum(name: str) -> Callable[..., Any]:
    def reduce(x: Any, axes: Sequence[int], keep: bool) -> Any:
        return getattr(jnp, name)(x, axis=tuple(axes), keepdims=keep)

    return reduce


def _total(name: str) -> Callable[..., Any]:
    def reduce(x: Any, axes: Sequence[int] | int, keep: bool, dtype: Any) -> Any:
        axis = axes if isinstance(axes, int) else tuple(axes)
        return getattr(jnp, name)(x, axis=axis, keepdims=keep, dtype=dtype_of(dtype))

    return reduce


def _running(name: str) -> Callable[..., Any]:
    def scan(x: Any, axis: int, dtype: Any) -> Any:
        return getattr(jnp, name)(x, axis=axis, dtype=dtype_of(dtype))

    return scan


# ---------------------------------------------------------------------- orders
def _sorted(x: Any, stable: bool, dim: int, descending: bool) -> tuple[Any, Any]:
    places = jnp.argsort(x, axis=dim, stable=stable, descending=descending)
    return jnp.take_along_axis(x, places, axis=dim), places


def _position(name: str) -> Callable[..., Any]:
    def find(x: Any, axis: int, keep: bool) -> Any:
        return getattr(jnp, name)(x, axis=axis, keepdims=keep).astype(jnp.int64)

    return find


def _searched(ordered: Any, values: Any, right: bool) -> Any:
    """In one row, or in a row each."""
    side = "right" if right else "left"

    def search(row: Any, wanted: Any) -> Any:
        return jnp.searchsorted(row, wanted, side=side).astype(jnp.int64)

    for _ in range(ordered.ndim - 1):
        search = jax.vmap(search)
    return search(ordered, values)


_NAMES: Mapping[str, str] = {
    "add.Tensor": "add", "sub.Tensor": "subtract", "mul.Tensor": "multiply",
    "div.Tensor": "true_divide", "remainder.Tensor": "remainder", "fmod.Tensor": "fmod",
    "pow.Tensor_Tensor": "power", "maximum.default": "maximum", "minimum.default": "minimum",
    "bitwise_and.Tensor": "bitwise_and", "bitwise_or.Tensor": "bitwise_or",
    "bitwise_xor.Tensor": "bitwise_xor", "bitwise_not.default": "bitwise_not",
    "bitwise_left_shift.Tensor": "left_shift", "bitwise_right_shift.Tensor": "right_shift",
    "eq.Tensor": "equal", "lt.Tensor": "less", "le.Tensor": "less_equal", "gt.Tensor": "greater",
    "ge.Tensor": "greater_equal", "ne.Scalar": "not_equal", "lt.Scalar": "less",
    "where.self": "where", "neg.default": "negative", "abs.default": "abs", "exp.default": "exp",
    "log.default": "log", "sqrt.default": "sqrt", "reciprocal.default": "reciprocal",
    "tanh.default": "tanh", "sin.default": "sin", "cos.default": "cos", "floor.default": "floor",
    "ceil.default": "ceil", "round.default": "round", "sign.default": "sign",
    "isnan.default": "isnan", "isinf.default": "isinf", "log1p.default": "log1p",
    "expm1.default": "expm1", "exp2.default": "exp2", "log2.default": "log2",
    "log10.default": "log10", "tan.default": "tan", "asin.default": "arcsin",
    "acos.default": "arccos", "atan.default": "arctan", "sinh.default": "sinh",
    "cosh.default": "cosh", "asinh.default": "arcsinh", "acosh.default": "arccosh",
    "atanh.default": "arctanh", "add.Scalar": "add", "mul.Scalar": "multiply",
    "remainder.Scalar": "remainder", "clamp.default": "clip", "matmul.default": "matmul",
}
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(jnp, same) for name, same in _NAMES.items()},
    "alias.default": _same, "rsub.Scalar": _taken_from,
    "div.Tensor_mode": _truncated, "_to_copy.default": _converted, "view.dtype": _viewed,
    "erf.default": special.erf, "sigmoid.default": jax.nn.sigmoid,
    "amax.default": _extremum("max"), "amin.default": _extremum("min"),
    "sum.dim_IntList": _total("sum"), "mean.dim": _total("mean"), "prod.dim_int": _total("prod"),
    "cumsum.default": _running("cumsum"), "cumprod.default": _running("cumprod"),
    "_softmax.default": _soft("softmax"),
    "_log_softmax.default": _soft("log_softmax"),
    "sort.stable": _sorted, "searchsorted.Tensor": _searched,
    "argmax.default": _position("argmax"), "argmin.default": _position("argmin"),
}
