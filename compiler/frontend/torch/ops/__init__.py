"""Importers of ATen operators: one small function each, found by its decorator.

    @aten_op("aten.rsub.Scalar")
    def rsub(n: Node, x: Value, other: Operand, alpha: float) -> Value:
        return arithmetic(n, SubOp, other, scaled(n, x, alpha))

The function gets its node, then every argument of the operator's schema in order, the defaults
filled in: tensors as `Value`, sizes as `Expr`, element types as types, other things as in Python.
It may take fewer; the rest is left out. It returns one value or a list of them. It raises Fault for
what it cannot take, and lets ShapeError pass. Its results are cast to the element types that
PyTorch gives them.

An operator with an importer is kept whole where PyTorch would decompose it. Modules of this folder
are found by scanning it; none of them imports torch.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Sequence
from functools import cache
from types import ModuleType
from typing import Any, TypeAlias

from compiler.frontend.values import Value
from compiler.plugins.plugin_faults import all_of, checked
from dialects.symbolic.expr import Expr

OpImporter: TypeAlias = "Callable[..., Value | Sequence[Value]]"
Operand: TypeAlias = "Value | Expr | float | bool"
"""A tensor, a size or a number."""

_MARK = "aten_operators"


def aten_op(*names: str) -> Callable[[Any], Any]:
    """Mark a function as the importer of operators, by their full names."""
    def mark(function: Any) -> Any:
        setattr(function, _MARK, (*getattr(function, _MARK, ()), *names))
        return function
    return mark


@cache
def importers(plugins: tuple[ModuleType, ...] = ()) -> dict[str, OpImporter]:
    """Operator -> its importer. `plugins`: modules with importers besides ours."""
    own = [importlib.import_module(f"{__name__}.{entry.name}")
           for entry in pkgutil.iter_modules(__path__)]
    found: dict[str, OpImporter] = {}
    for module in (*own, *plugins):
        for function in vars(module).values():
            for name in getattr(function, _MARK, ()):
                found[name] = _checked(function) if module in plugins else function
    return found


def _checked(function: OpImporter) -> OpImporter:
    """A plugin's importer, which must return a value or several."""
    return checked(function, lambda result: all_of(result, (Value,)), "a Value or a list of them")


@cache
def argument_count(function: OpImporter) -> int | None:
    """The number of arguments of an importer after its node; None for any number."""
    parameters = list(inspect.signature(function).parameters.values())
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return None
    return len(parameters) - 1
