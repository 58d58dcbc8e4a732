"""Decompositions of operators with a factor that is a float of the call, such as a learning rate.

    %p = aten.add(%x, %y, alpha = -lr)   -->   %p = aten.add(%x, aten.mul(%y, -lr))

Dynamo leaves a float open once it has changed. PyTorch turns floats that multiply or are added into
tensors, but fixes those that operators take as attributes, so that every other value would compile
the graph again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compiler.frontend.torch.library import torch_module


def open_number_decompositions() -> dict[Any, Any]:
    """Operator -> function, also where an operator has an importer; numbers that are known stay
    attributes."""
    aten = torch_module().ops.aten
    return {aten.add.Tensor: add, aten.sub.Tensor: subtract, aten.addcmul.default: add_product,
            aten.addcdiv.default: add_quotient, aten.lerp.Scalar: interpolate}


def add(x: Any, y: Any, *, alpha: Any = 1) -> Any:
    return _computed(lambda x, y: x + y * alpha, alpha, x, y)


def subtract(x: Any, y: Any, *, alpha: Any = 1) -> Any:
    return _computed(lambda x, y: x - y * alpha, alpha, x, y)


def add_product(x: Any, a: Any, b: Any, *, value: Any = 1) -> Any:
    return _computed(lambda x, a, b: x + a * value * b, value, x, a, b)


def add_quotient(x: Any, a: Any, b: Any, *, value: Any = 1) -> Any:
    return _computed(lambda x, a, b: x + a * value / b, value, x, a, b)


def interpolate(start: Any, end: Any, weight: Any) -> Any:
    return _computed(lambda start, end: start + (end - start) * weight, weight, start, end)


def _computed(formula: Callable[..., Any], number: Any, *tensors: Any) -> Any:
    """A formula of an open number, of halves in f32 and rounded once, as one operator is."""
    torch, common = torch_module(), torch_module("torch._prims_common")
    if not isinstance(number, torch.SymFloat):
        return NotImplemented
    inner, kind = common.elementwise_dtypes(
        *tensors, type_promotion_kind=common.ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT)
    if not kind.is_floating_point:
        return NotImplemented
    return formula(*(v.to(inner) for v in tensors)).to(kind)
