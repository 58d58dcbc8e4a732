"""Importers of ATen operators: one small function each, found by its decorator.

    @aten_op("aten.rsub.Scalar")
    def rsub(n: Node, x: Value, other: Operand, alpha: float) -> Value:
        return arithmetic(n, SubOp, other, scaled(n, x, alpha))

The function receives its node, then every argument of the operator's schema in order, with defaults
for missing ones: tensors as `Value`, sizes as `Expr`, dtypes as element types, and other arguments
as in Python. It may have fewer parameters; the last arguments are then left out. A node that gives
one of these another value than its default is refused, unless the decorator lists it as `ignored`,
or it only says how the result is stored (`OF_STORAGE`). The function returns one value or a list of
values, which are cast to the element types that PyTorch gives the results. It raises Fault for a
node that it does not support, and does not catch ShapeError.

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

from compiler.frontend.faults import Fault
from compiler.frontend.values import Value
from compiler.plugins.plugin_faults import all_of, checked
from dialects.symbolic.expr import Expr

OpImporter: TypeAlias = "Callable[..., Value | Sequence[Value]]"
Operand: TypeAlias = "Value | Expr | float | bool"
"""A tensor, a size or a number."""

_MARK, _IGNORED = "aten_operators", "ignored_arguments"
OF_STORAGE = frozenset((
    "dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking", "copy"))
"""Arguments that only say how a result is stored. Results get the dtype that PyTorch gives them."""


def aten_op(*names: str, ignored: Sequence[str] = ()) -> Callable[[Any], Any]:
    """Mark a function as the importer of operators, given by full names such as `aten.add.Tensor`.

    `ignored`: arguments that it leaves out because they do not change results, or because the
    result's shape says the same.
    """
    def mark(function: Any) -> Any:
        setattr(function, _MARK, (*getattr(function, _MARK, ()), *names))
        setattr(function, _IGNORED, frozenset(ignored))
        return function
    return mark


@cache
def importers(plugins: tuple[ModuleType, ...] = ()) -> dict[str, OpImporter]:
    """Operator name -> its importer. `plugins`: modules with further importers."""
    own = [importlib.import_module(f"{__name__}.{entry.name}")
           for entry in pkgutil.iter_modules(__path__)]
    found: dict[str, OpImporter] = {}
    for module in own:
        found |= marked(module)
    for module in plugins:
        found |= {name: _checked(function) for name, function in marked(module).items()}
    return found


def marked(module: ModuleType) -> dict[str, OpImporter]:
    """Operator name -> its importer, for the importers in a module."""
    return {name: function for function in vars(module).values()
            for name in getattr(function, _MARK, ())}


def _checked(function: OpImporter) -> OpImporter:
    """A plugin's importer, which is checked to return a value or a list of values."""
    return checked(function, lambda result: all_of(result, (Value,)), "a Value or a list of them")


@cache
def argument_count(function: OpImporter) -> int | None:
    """The number of arguments of an importer after its node; None for any number."""
    parameters = list(inspect.signature(function).parameters.values())
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return None
    return len(parameters) - 1


def check_left_out(function: OpImporter, schema: Any, given: Sequence[Any]) -> None:
    """Raise Fault for an argument that an importer leaves out, but that is not at its default.

    `given`: all arguments, in the order of the operator's `schema`.
    """
    count = argument_count(function)
    may_differ = OF_STORAGE | getattr(function, _IGNORED, frozenset[str]())
    if count is None:
        return
    for argument, value in zip(schema.arguments[count:], given[count:], strict=True):
        known = not argument.has_default_value() or argument.name in may_differ
        if not known and value != argument.default_value:
            raise Fault(f"its argument {argument.name}={value} is not supported")
