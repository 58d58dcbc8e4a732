"""What installed packages add to Strata: their entry points.

Python reads the metadata of all packages for each question, which takes longer than most passes.
Here it is read once, and again after Python's path, or a folder on it, has changed. If no package
mentions Strata, as is usual, the standard library's reader of metadata is not even imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_OURS = "strata."
_METADATA = (".dist-info", ".egg-info")
_EGG, _IN_EGG = ".egg", "egg-info"
"""A package in a folder of its own on the path, and where its metadata is there."""


def entry_points(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of one of our groups, such as `strata.passes`."""
    return _ours(_path()).get(group, ())


@lru_cache(maxsize=4)
def _ours(path: tuple[tuple[str, int], ...]) -> Mapping[str, tuple[EntryPoint, ...]]:
    """By group; `path` is what Python's path was when they were read."""
    if not any(_mentions_us(folder) for folder, _ in path) and not _are_found_elsewhere():
        return {}
    from importlib import metadata

    found = metadata.entry_points()
    return {group: tuple(found.select(group=group)) for group in found.groups
            if group.startswith(_OURS)}


def _path() -> tuple[tuple[str, int], ...]:
    """The folders and archives on Python's path, and when they were changed."""
    return tuple((folder, _changed(folder)) for folder in sys.path)


def _changed(path: str) -> int:
    try:
        return os.stat(path or ".").st_mtime_ns
    except OSError:
        return 0


def _mentions_us(path: str) -> bool:
    """Whether the metadata of a package in a folder may name a group of ours. An archive, of which
    that is not known, may."""
    is_egg = path.lower().endswith(_EGG)
    try:
        with os.scandir(path or ".") as entries:
            packages = [entry.path for entry in entries
                        if (name := entry.name.lower()).endswith(_METADATA)
                        or (is_egg and name == _IN_EGG)]
    except NotADirectoryError:
        return path.endswith((".egg", ".whl", ".zip")) and os.path.exists(path)
    except OSError:
        return False
    return any(_OURS.encode() in _contents(os.path.join(package, "entry_points.txt"))
               for package in packages)


def _contents(file: str) -> bytes:
    try:
        with open(file, "rb") as opened:
            return opened.read()
    except OSError:
        return b""


def _are_found_elsewhere() -> bool:
    """Whether packages may be found by other means than folders on Python's path."""
    return any(hasattr(finder, "find_distributions") for finder in sys.meta_path
               if finder is not PathFinder)
