"""Native functions put into a module: those that are used, under the settings of the module."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from targets.cpu.llvm.native import Callee, Native, Setting, Settings
from targets.cpu.llvm.translate import translate


def definitions(
    roots: Iterable[Native[..., Any]], settings: Settings, provided: Iterable[str] = ()
) -> list[str]:
    """The texts of functions and of all that they call, each once, with declarations at the end.

    `provided`: the names of functions that the module defines or declares by itself.
    """
    waiting: list[Callee[..., Any]] = list(roots)
    chosen = frozenset(settings.items())
    found: dict[str, str] = {}
    declared: dict[str, str] = {}
    for function in waiting:  # grows on the way
        if not isinstance(function, Native):
            if function.name not in provided:
                declared[function.name] = function.declaration
        elif function.name not in found:
            found[function.name], calls = _text(function, chosen)
            waiting += calls
    return [*found.values(), *declared.values()]


@cache
def _text(
    function: Native[..., Any], settings: frozenset[tuple[Setting, bool]]
) -> tuple[str, Sequence[Callee[..., Any]]]:
    """The definition of a function, and the functions that it calls."""
    lines, calls = translate(function, dict(settings))
    return "\n".join(lines), calls
