"""Finds the dialects: every folder with a file `dialect.py`, which is imported on first use.

The file defines an xDSL `Dialect` with the folder's name.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

from xdsl.context import Context
from xdsl.ir import Dialect, Operation

SCALAR_DIALECTS = ("builtin", "arith", "math")
"""The xDSL dialects that Strata's levels use."""


def dialect_loaders() -> dict[str, Callable[[], Dialect]]:
    """Strata's dialects by name, each with the function that imports it."""
    folders = sorted(path.parent.name for path in Path(__file__).parent.glob("*/dialect.py"))
    return {name: partial(_load, name) for name in folders}


def operations_of(package: ModuleType) -> list[type[Operation]]:
    """The operations that the modules of a dialect's package define."""
    prefix = package.__name__.rpartition(".")[2] + "."
    modules = [importlib.import_module(f"{package.__name__}.{entry.name}")
               for entry in pkgutil.iter_modules(package.__path__) if entry.name != "dialect"]
    return [v for module in modules for v in vars(module).values()
            if isinstance(v, type) and issubclass(v, Operation) and v.__module__ == module.__name__
            and getattr(v, "name", "").startswith(prefix)]


def register_dialects(context: Context) -> None:
    """Register Strata's dialects, and the xDSL dialects that they build on, in a context."""
    from xdsl.dialects import get_all_dialects

    theirs = get_all_dialects()
    known = set(context.registered_dialect_names)
    loaders = {name: theirs[name] for name in SCALAR_DIALECTS} | {"arith": _load_arith}
    loaders |= dialect_loaders()
    for name, loader in loaders.items():
        if name not in known:
            context.register_dialect(name, loader)


def _load(name: str) -> Dialect:
    module = importlib.import_module(f"dialects.{name}.dialect")
    found = [v for v in vars(module).values() if isinstance(v, Dialect) and v.name == name]
    if not found:
        raise ImportError(f"dialects/{name}/dialect.py has no Dialect named {name!r}")
    return found[0]


def _load_arith() -> Dialect:
    from dialects.semantics.remainder import arith_with_remainder

    return arith_with_remainder()
