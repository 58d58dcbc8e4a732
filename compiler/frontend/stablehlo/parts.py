"""Complex numbers, which are two values of reals: their types, and lists of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, cast

from xdsl.dialects.builtin import ComplexType

from compiler.frontend.torch.complex.values import Complex
from compiler.frontend.values import Value
from dialects.strata import types as t
from dialects.strata.types import TensorType
from dialects.symbolic.expr import Expr

Either: TypeAlias = Value | Complex


def is_complex(type_: TensorType) -> bool:
    return isinstance(type_.element, ComplexType)


def part_type(type_: TensorType) -> TensorType:
    """The type of each part of complex numbers; a real type itself."""
    element = cast("Any", type_.element)
    return t.tensor(element.element_type, type_.shape) if is_complex(type_) else type_


def view_type(type_: TensorType) -> TensorType:
    """The type in which a program takes values: complex numbers are reals [..., 2]."""
    part = part_type(type_)
    return t.tensor(part.element, [*part.shape, Expr.of(2)]) if is_complex(type_) else type_


def parts_of(values: Sequence[Either]) -> list[Value]:
    """Values of reals: two for each complex one."""
    return [part for v in values
            for part in ((v.re, v.im) if isinstance(v, Complex) else (v,))]


def joined(values: Sequence[Either], types: Sequence[TensorType]) -> list[Either]:
    """The reverse, by the types that values have; further ones stay as they are."""
    rest, found = iter(values), list[Either]()
    for type_ in types:
        value = next(rest)
        if isinstance(value, Value) and is_complex(type_):
            value = Complex(value, cast("Value", next(rest)))
        found.append(value)
    return [*found, *rest]
