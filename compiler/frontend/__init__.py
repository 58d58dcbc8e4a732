"""Frontends: from a model, as people keep it, to a module at graph level.

A frontend is a folder here, or a package outside that the entry point group `strata.frontends`
names. Nothing lists them. It provides

    DESCRIPTION: str                                   one line for `list frontends`
    def accepts(model: str) -> bool                    by the look of the name alone; reads nothing
    def load_model(model: str, options: ImportOptions) -> ImportedModel

and imports what it needs inside `load_model`, so that asking costs nothing.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, cast

from xdsl.dialects.builtin import ModuleOp

from compiler.diagnostics import Problem, StrataError
from dialects.weights import WeightStore

ENTRY_POINTS = "strata.frontends"


def _nothing() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True)
class ImportOptions:
    """What the user says about the sizes of a model's inputs.

    `shapes`: input name -> its sizes, an integer or a size name each (`--shape x=1x3x224x224`).
    `dims`: size name -> value (`--dim batch=8`).
    """

    shapes: Mapping[str, tuple[int | str, ...]] = field(default_factory=_nothing)
    dims: Mapping[str, int] = field(default_factory=_nothing)


@dataclass(frozen=True)
class ImportedModel:
    """A module with `strata.func @main` over graph operations, the weights it names, its name."""

    module: ModuleOp
    weights: WeightStore
    name: str


class Frontend(Protocol):
    """The parts of a frontend module."""

    DESCRIPTION: str

    def accepts(self, model: str) -> bool: ...

    def load_model(self, model: str, options: ImportOptions) -> ImportedModel: ...


def frontends() -> dict[str, Frontend]:
    """All frontends by name: the folders here, then those of installed packages."""
    found = {m.name: cast(Frontend, importlib.import_module(f"{__name__}.{m.name}"))
             for m in pkgutil.iter_modules(__path__) if m.ispkg}
    for entry in entry_points(group=ENTRY_POINTS):
        found.setdefault(entry.name, cast(Frontend, entry.load()))
    return found


def load_model(path: str | Path, options: ImportOptions | None = None) -> ImportedModel:
    """Import a model through the frontend that accepts its name.

    Raises StrataError when none does, and for every fault of the model or the options.
    """
    known = frontends()
    for frontend in known.values():
        if frontend.accepts(str(path)):
            return frontend.load_model(str(path), options or ImportOptions())
    hint = "; ".join(f"{name}: {f.DESCRIPTION}" for name, f in known.items())
    raise StrataError(f"cannot tell what kind of model '{path}' is",
                      [Problem("no frontend accepts this name", hint=f"frontends: {hint}")])
