"""Native functions put into a module: those that are used, under the settings of the module."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from targets.cpu.llvm.native import Callee, Native, Setting, Settings
from targets.cpu.llvm.translate import translate


class ModuleText(NamedTuple):
    """LLVM IR in parts, of which several fit into one module.

    `functions` are definitions, of constants as well. `declarations` are by name, so that each
    occurs in a module once.
    """

    functions: tuple[str, ...]
    declarations: Mapping[str, str]

    @property
    def text(self) -> str:
        return "\n".join([*self.functions, *self.declarations.values(), ""])


def joined(texts: Sequence[ModuleText], defined: Iterable[str] = ()) -> ModuleText:
    """One module of several parts, without declarations of what they define by themselves."""
    declarations = {name: text for part in texts for name, text in part.declarations.items()}
    for name in defined:
        declarations.pop(name, None)
    return ModuleText(tuple(f for part in texts for f in part.functions), declarations)


def definitions(roots: Iterable[Native[..., Any]], settings: Settings) -> ModuleText:
    """Functions and all that they call, each once."""
    waiting: list[Callee[..., Any]] = list(roots)
    chosen = frozenset(settings.items())
    found: dict[str, str] = {}
    declared: dict[str, str] = {}
    for function in waiting:  # grows on the way
        if not isinstance(function, Native):
            declared[function.name] = function.declaration
        elif function.name not in found:
            found[function.name], calls = _text(function, chosen)
            waiting += calls
    return ModuleText(tuple(found.values()), declared)


@cache
def _text(
    function: Native[..., Any], settings: frozenset[tuple[Setting, bool]]
) -> tuple[str, Sequence[Callee[..., Any]]]:
    """The definition of a function, and the functions that it calls."""
    lines, calls = translate(function, dict(settings))
    return "\n".join(lines), calls
