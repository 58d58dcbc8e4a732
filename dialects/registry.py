"""Finds the dialects: every folder here is one, and is imported when it is first needed.

A dialect's package has one attribute that is an xDSL `Dialect` of the folder's name.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import partial

from xdsl.context import Context
from xdsl.ir import Dialect

SCALAR_DIALECTS = ("builtin", "arith", "math")
"""xDSL's dialects that our levels are written in."""


def dialect_loaders() -> dict[str, Callable[[], Dialect]]:
    """Our dialects by name, each with the function that imports it."""
    import dialects

    folders = sorted(m.name for m in pkgutil.iter_modules(dialects.__path__) if m.ispkg)
    return {"strata": _load_strata} | {name: partial(_load_folder, name) for name in folders}


def register_dialects(context: Context) -> None:
    """Make our dialects, and those of xDSL that they build on, known to a context."""
    from xdsl.dialects import get_all_dialects

    theirs = get_all_dialects()
    known = set(context.registered_dialect_names)
    loaders = {name: theirs[name] for name in SCALAR_DIALECTS} | {"arith": _load_arith}
    loaders |= dialect_loaders()
    for name, loader in loaders.items():
        if name not in known:
            context.register_dialect(name, loader)


def _load_folder(name: str) -> Dialect:
    package = importlib.import_module(f"dialects.{name}")
    found = [v for v in vars(package).values() if isinstance(v, Dialect) and v.name == name]
    if not found:
        raise ImportError(f"dialects/{name}/__init__.py has no Dialect named {name!r}")
    return found[0]


def _load_arith() -> Dialect:
    from dialects.remainder import arith_with_remainder

    return arith_with_remainder()


def _load_strata() -> Dialect:
    """The shared types and attributes, the function over tensors, sizes, and control."""
    from dialects.control import CONTROL_OPS
    from dialects.func import FuncOp, ReturnOp
    from dialects.requirements import REQUIREMENT_OPS
    from dialects.sizes import SIZE_OPS
    from dialects.types import Strata

    ops = [FuncOp, ReturnOp, *SIZE_OPS, *REQUIREMENT_OPS, *CONTROL_OPS]
    return Dialect("strata", ops, list(Strata.attributes))
