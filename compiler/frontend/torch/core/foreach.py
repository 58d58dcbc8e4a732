"""Operators on lists of tensors, as optimizers use them, become one operator for each tensor.

    _foreach_add([a, b], [c, d], alpha=2)        [a + 2*c, b + 2*d]

Fusion then makes few kernels of all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

from compiler.frontend.torch.library import torch_module

PLAIN = (
    "abs", "acos", "add", "addcdiv", "addcmul", "asin", "atan", "ceil", "clamp_max", "clamp_min",
    "clone", "cos", "cosh", "div", "erf", "erfc", "exp", "expm1", "floor", "frac", "lerp",
    "lgamma", "log", "log10", "log1p", "log2", "max", "maximum", "minimum", "mm", "mul", "neg",
    "pow", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "sub", "tan",
    "tanh", "trunc")
"""Operators `_foreach_NAME` that are `torch.NAME` for each tensor."""


@cache
def foreach_decompositions() -> Mapping[Any, Callable[..., Any]]:
    """Operator -> function."""
    aten, found = torch_module().ops.aten, dict[Any, Callable[..., Any]]()
    for name in (*PLAIN, "copy", "norm", "powsum", "zero"):
        operators = getattr(aten, f"_foreach_{name}", None)
        for overload in () if operators is None else operators.overloads():
            if "out" not in overload:
                operator = getattr(operators, overload)
                found[operator] = partial(_each, operator._schema, _single(name, overload))
    return found


def _each(schema: Any, single: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
    """The operator for the k-th items of all lists, for every k.

    `scalars` are a list or a tensor, of which each item is for one tensor, too.
    """
    given = dict(zip((a.name for a in schema.arguments), args, strict=False)) | kwargs
    lists = {a.name for a in schema.arguments if a.name in given and (
        a.type.kind() == "ListType" or a.name == "scalars")}
    positional = [a.name for a in schema.arguments if not a.kwarg_only and a.name in given]
    named = [name for name in given if name not in positional]
    count = len(next(given[name] for name in positional if name in lists))

    def item(name: str, k: int) -> Any:
        return given[name][k] if name in lists else given[name]

    return [single(*(item(name, k) for name in positional), **{
        name: item(name, k) for name in named}) for k in range(count)]


def _single(name: str, overload: str) -> Callable[..., Any]:
    """The operator for one tensor."""
    torch = torch_module()
    if name in ("addcdiv", "addcmul"):
        return partial(_scaled, torch.div if name == "addcdiv" else torch.mul)
    if name in ("maximum", "minimum") and overload != "List":
        return torch.clamp_min if name == "maximum" else torch.clamp_max
    own = {"copy": torch.ops.aten.copy.default, "norm": torch.linalg.vector_norm,
           "powsum": _sum_of_powers, "zero": torch.zeros_like}
    return own.get(name) or getattr(torch, name)


def _scaled(combine: Callable[..., Any], x: Any, first: Any, second: Any, value: Any = 1) -> Any:
    """x + value * combine(first, second), in the order in which PyTorch multiplies."""
    scaled = first if isinstance(value, int) and value == 1 else first * value
    return x + combine(scaled, second)


def _sum_of_powers(x: Any, order: float = 2, dtype: Any = None) -> Any:
    return (x.abs() ** order).sum(dtype=dtype)
