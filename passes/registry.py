"""Finds passes by the files in the folders of levels, and by entry points of installed packages.

Every file in a level's folder or its subfolders is one pass, named after the level and the file:
`passes/graph/fold_sizes.py` holds the pass `graph-fold-sizes`, and
`passes/loop/scheduling/schedule.py` holds `loop-schedule`. A conversion between levels is a folder:
`passes/graph_to_loop` is the pass `graph-to-loop`. An entry point of the group `strata.passes` maps
a pass's name to its class. Nothing is imported before it is needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from xdsl.passes import ModulePass
from xdsl.utils.arg_spec import parse_pipeline
from xdsl.utils.exceptions import ArgSpecParseError

from passes.base import StrataPass
from passes.installed import entry_points

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

LEVELS = ("graph", "loop", "host", "block")
"""Folders in which every file is a pass."""
CONVERSIONS = ("graph_to_loop", "loop_to_block")
"""Folders that are one pass each."""
PassLoader = Callable[[], type[ModulePass]]


def pass_loaders() -> Mapping[str, PassLoader]:
    """All passes by name, each with the function that imports it."""
    return _loaders(entry_points("strata.passes"))


@cache
def _loaders(entries: tuple[EntryPoint, ...]) -> Mapping[str, PassLoader]:
    own: dict[str, PassLoader] = {n: partial(_load_own, n, m) for n, m in _own_modules().items()}
    installed: dict[str, PassLoader] = {e.name: partial(_load_installed, e) for e in entries}
    return MappingProxyType(dict(sorted((installed | own).items())))


def pass_names() -> list[str]:
    return list(pass_loaders())


def find_pass(name: str) -> type[ModulePass]:
    """The class of a pass. Raises KeyError, which suggests similar passes, if there is none."""
    loaders = pass_loaders()
    if name not in loaders:
        import difflib

        near = difflib.get_close_matches(name, loaders, n=3, cutoff=0.5) or list(loaders)
        raise KeyError(f"no pass {name!r}; there are: {', '.join(near)}")
    return loaders[name]()


def parse_passes(text: str) -> list[ModulePass]:
    """The passes of a pipeline text: `graph-dce,graph-fold-constants{limit=1024}`.

    Raises ValueError on malformed text, unknown passes and unknown or ill-typed options.
    """
    try:
        specs = list(parse_pipeline(text))
        return [find_pass(spec.name).from_spec(spec) for spec in specs]
    except KeyError as error:
        raise ValueError(error.args[0]) from error
    except (ArgSpecParseError, ValueError) as error:
        raise ValueError(f"cannot read the passes {text!r}: {error}") from error


@cache
def _own_modules() -> dict[str, str]:
    """Pass name -> module."""
    root = Path(__file__).parent
    found = {name.replace("_", "-"): f"passes.{name}" for name in CONVERSIONS}
    for level in LEVELS:
        for path in sorted((root / level).glob("**/*.py")):
            if path.stem != "__init__":
                name = f"{level}-{path.stem}".replace("_", "-")
                found[name] = ".".join(("passes", *path.relative_to(root).with_suffix("").parts))
    return found


@cache
def _load_own(name: str, module_name: str) -> type[ModulePass]:
    module = importlib.import_module(module_name)
    for found in vars(module).values():
        if getattr(found, "name", None) == name and isinstance(found, type) and (
                issubclass(found, StrataPass)):
            return found
    raise ImportError(f"{module_name} holds no StrataPass with the name {name!r}")


def _load_installed(entry: EntryPoint) -> type[ModulePass]:
    return entry.load()
