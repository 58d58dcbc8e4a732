"""Importers of StableHLO's operations: one small function each, found by its decorator.

    @hlo_op("stablehlo.reverse")
    def reverse(n: Node, x: Value) -> Value: ...

The function receives its node and the operands, and returns a value or a list of them. Attributes
have the names of the specification, or those of the pretty form. `complex_op` marks importers for
operations of which an operand or the result is complex.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeAlias

from compiler.frontend.values import Value

Importer: TypeAlias = "Callable[..., Value | Sequence[Value]]"
_MARK, _COMPLEX = "hlo_operations", "complex_hlo_operations"


def hlo_op(*names: str) -> Callable[[Any], Any]:
    """Mark a function as the importer of operations, by full names."""
    def mark(function: Any) -> Any:
        setattr(function, _MARK, (*getattr(function, _MARK, ()), *names))
        return function
    return mark


def complex_op(*names: str) -> Callable[[Any], Any]:
    """Mark a function as the importer of operations where an operand or the result is complex."""
    def mark(function: Any) -> Any:
        setattr(function, _COMPLEX, (*getattr(function, _COMPLEX, ()), *names))
        return function
    return mark


@cache
def importers() -> dict[str, Importer]:
    """Operation -> its importer."""
    return _marked(_MARK)


@cache
def complex_importers() -> dict[str, Callable[..., Any]]:
    """Operation -> its importer for complex numbers."""
    return _marked(_COMPLEX)


def _marked(mark: str) -> dict[str, Any]:
    modules = [importlib.import_module(f"{__name__}.{entry.name}")
               for entry in pkgutil.iter_modules(__path__)]
    return {name: function for module in modules for function in vars(module).values()
            for name in getattr(function, mark, ())}
