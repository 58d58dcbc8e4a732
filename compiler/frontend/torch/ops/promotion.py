"""The element type in which an operator computes, by PyTorch's rules for mixed operands.

Operands are tensors with dims, tensors without dims, or plain numbers. A later kind matters only if
its category is higher (bool, integer, float): i32[n] + i64[] is i32[n], i32[n] + 1.5 is f32[n].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.ir import Attribute

from compiler.frontend.torch.ops import Operand
from compiler.frontend.torch.reals import Real, Whole
from compiler.frontend.values import Value
from dialects.strata import types as t
from dialects.strata.types import element_of, is_float


def common_element(operands: Sequence[Operand]) -> Attribute:
    """The element type to which all operands are cast."""
    values = [v for v in operands if isinstance(v, Value) and not isinstance(v, Real | Whole)]
    tensors = [v.element for v in values if v.rank]
    scalars = [v.element for v in values if not v.rank]
    numbers = [_of_number(v) for v in operands
               if isinstance(v, Real | Whole) or not isinstance(v, Value)]
    best: Attribute | None = None
    for group in (tensors, scalars, numbers):
        found = _widest(group)
        if found is not None and (best is None or _category(found) > _category(best)):
            best = found
    assert best is not None
    return best


def _of_number(number: Operand) -> Attribute:
    if isinstance(number, bool):
        return t.i1
    return t.f32 if isinstance(number, float | Real) else t.i64


def _category(element: Attribute) -> int:
    return 2 if is_float(element) else 0 if element == t.i1 else 1


def _widest(elements: Sequence[Attribute]) -> Attribute | None:
    best: Attribute | None = None
    for element in elements:
        best = element if best is None else _wider(best, element)
    return best


def _wider(a: Attribute, b: Attribute) -> Attribute:
    if a == b:
        return a
    if _category(a) != _category(b):
        return max(a, b, key=_category)
    if {a, b} == {t.f16, t.bf16}:
        return t.f32
    if is_float(a):
        return max(a, b, key=t.byte_width)
    return element_of(np.promote_types(t.dtype_of(a), t.dtype_of(b)))
