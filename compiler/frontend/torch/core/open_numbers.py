"""Decompositions of operators with a factor that is a float of the call, such as a learning rate.

    %p = aten.add(%x, %y, alpha = -lr)   -->   %p = aten.add(%x, aten.mul(%y, -lr))

Dynamo leaves a float open once it has changed. PyTorch turns floats that multiply or are added into
tensors, but fixes those that operators take as attributes, so that every other value would compile
the graph again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from compiler.frontend.torch.library import torch_module


def open_number_decompositions(others: Mapping[Any, Any]) -> dict[Any, Any]:
    """Operator -> function, also where an operator has an importer. Where numbers are known, what
    `others` have for it is used."""
    aten = torch_module().ops.aten
    found = {aten.add.Tensor: add, aten.sub.Tensor: subtract, aten.addcmul.default: add_product,
             aten.addcdiv.default: add_quotient, aten.lerp.Scalar: interpolate}
    return {op: partial(_computed_by, function, others.get(op)) for op, function in found.items()}


def _computed_by(function: Any, other: Any, *args: Any, **kwargs: Any) -> Any:
    made = function(*args, **kwargs)
    return other(*args, **kwargs) if made is NotImplemented and other is not None else made


def add(x: Any, y: Any, *, alpha: Any = 1) -> Any:
    (x, y), kind = _widened(alpha, x, y)
    return (x + y * alpha).to(kind) if kind else NotImplemented


def subtract(x: Any, y: Any, *, alpha: Any = 1) -> Any:
    (x, y), kind = _widened(alpha, x, y)
    return (x - y * alpha).to(kind) if kind else NotImplemented


def add_product(x: Any, a: Any, b: Any, *, value: Any = 1) -> Any:
    (x, a, b), kind = _widened(value, x, a, b)
    return (x + a * value * b).to(kind) if kind else NotImplemented


def add_quotient(x: Any, a: Any, b: Any, *, value: Any = 1) -> Any:
    (x, a, b), kind = _widened(value, x, a, b)
    return (x + a * value / b).to(kind) if kind else NotImplemented


def interpolate(start: Any, end: Any, weight: Any) -> Any:
    (start, end), kind = _widened(weight, start, end)
    return (start + (end - start) * weight).to(kind) if kind else NotImplemented


def _widened(number: Any, *tensors: Any) -> tuple[Sequence[Any], Any]:
    """The operands of an open number, halves in f32 so that results are rounded once, and the type
    of the result; None for it if the number is known, or not of floats."""
    torch, common = torch_module(), torch_module("torch._prims_common")
    if not isinstance(number, torch.SymFloat):
        return tensors, None
    inner, kind = common.elementwise_dtypes(
        *tensors, type_promotion_kind=common.ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT)
    if not kind.is_floating_point:
        return tensors, None
    return [v.to(inner) for v in tensors], kind
