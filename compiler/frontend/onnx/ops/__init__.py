"""Importers of ONNX operators: one small function each, found by its decorator.

    @onnx_op("Softsign")
    def softsign(n: Node, x: Value) -> Value:
        return x / (1 + abs(x))

The function receives its node and one argument per input, which is None for an input that is left
out. It returns one value or a list of values; the model must not use outputs that it does not
return. It raises Fault for a node that it does not support, and does not catch ShapeError.

A function that accepts sequences or optionals besides tensors is marked `structured=True`. `since`
is the first opset version that the function implements; it holds until the `since` of the next one.
Modules of this folder are found by scanning it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from functools import cache
from types import ModuleType
from typing import Any

from compiler.frontend.onnx.sequences import VALUES
from compiler.plugins.plugin_faults import all_of, checked

OpImporter = Callable[..., "Any | Sequence[Any]"]

_MARK, _STRUCTURED = "onnx_operators", "takes_sequences"
_OTHER_DOMAINS = ("contrib", "ml")
"""How the names of modules begin whose operators are of other domains than ONNX's own."""


def onnx_op(
    *op_types: str, since: int = 1, domain: str = "", structured: bool = False
) -> Callable[[Any], Any]:
    """Mark a function as the importer of operators."""
    def mark(function: Any) -> Any:
        setattr(function, _STRUCTURED, structured)
        marks = [(domain, op_type, since) for op_type in op_types]
        setattr(function, _MARK, [*getattr(function, _MARK, ()), *marks])
        return function
    return mark


@cache
def importers(
    plugins: tuple[ModuleType, ...] = (), *, other_domains: bool = True
) -> dict[tuple[str, str], list[tuple[int, OpImporter]]]:
    """(domain, operator) -> its importers with their first versions, newest first.

    `plugins`: modules with importers besides ours. `other_domains`: with those for operators of
    other domains than ONNX's own, in modules that most models do not need.
    """
    own = [importlib.import_module(f"{__name__}.{entry.name}")
           for entry in pkgutil.iter_modules(__path__)
           if other_domains or not entry.name.startswith(_OTHER_DOMAINS)]
    found: dict[tuple[str, str], list[tuple[int, OpImporter]]] = {}
    for module in (*own, *plugins):
        for function in vars(module).values():
            for domain, op_type, since in getattr(function, _MARK, ()):
                importer = _checked(function) if module in plugins else function
                found.setdefault((domain, op_type), []).append((since, importer))
    for versions in found.values():
        versions.sort(key=lambda v: -v[0])
    return found


def _checked(function: OpImporter) -> OpImporter:
    """A plugin's importer, which is checked to return a value or a list of values."""
    return checked(function, lambda result: all_of(result, VALUES), "a Value or a list of them")


def takes_sequences(importer: OpImporter) -> bool:
    """Whether the importer accepts sequences and optionals as inputs."""
    return getattr(importer, _STRUCTURED, False)


def find_importer(
    domain: str, op_type: str, version: int, plugins: tuple[ModuleType, ...] = ()
) -> OpImporter | None:
    """The importer of an operator in an opset version; None if there is none."""
    versions = [] if plugins else importers(other_domains=False).get((domain, op_type), [])
    versions = versions or importers(plugins).get((domain, op_type), [])
    return next((function for since, function in versions if since <= version), None)
