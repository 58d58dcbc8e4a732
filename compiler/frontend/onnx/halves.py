"""Operators that are composed of several: halves are computed in f32, and rounded once at the end.

A square may exceed the range of f16 although its root does not: the norm of [300, 400] is 500.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from compiler.frontend.onnx.node import Node
from compiler.frontend.values import Value
from dialects.strata import types as t

Importer = Callable[..., Value]


def rounded_once(function: Importer) -> Importer:
    """The importer of an operator with one result of its first operand's type."""
    @wraps(function)
    def widened(n: Node, x: Value, *others: Value | None) -> Value:
        if not t.is_half(x.element):
            return function(n, x, *others)
        wide = [v if v is None or not t.is_half(v.element) else v.cast(t.f32) for v in (x, *others)]
        return function(n, *wide).cast(x.element)

    return widened
