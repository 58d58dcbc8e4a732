"""Importers of ATen operators on complex numbers: two values of reals for each complex one.

    @complex_op("aten.reciprocal.default")
    def reciprocal(n: Node, x: Complex) -> Complex:
        ...

As those of `ops/`, but operands may be `Complex` or Python's complex numbers, and results that
PyTorch makes complex are. Their types in `n` are those of the parts. At the border of a compiled
program, complex64[n] is f32[n, 2], as `torch.view_as_real` shows it.

Modules of this folder are found by scanning it; none of them imports torch.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache
from typing import Any

_MARK = "complex_operators"


def complex_op(*names: str) -> Callable[[Any], Any]:
    """Mark a function as the importer of operators, where an operand or the result is complex."""
    def mark(function: Any) -> Any:
        setattr(function, _MARK, (*getattr(function, _MARK, ()), *names))
        return function
    return mark


@cache
def complex_importers() -> dict[str, Callable[..., Any]]:
    """Operator name -> its importer for complex numbers."""
    modules = [importlib.import_module(f"{__name__}.{entry.name}")
               for entry in pkgutil.iter_modules(__path__)]
    return {name: function for module in modules for function in vars(module).values()
            for name in getattr(function, _MARK, ())}
