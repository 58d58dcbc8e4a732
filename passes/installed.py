"""What installed packages add to Strata: their entry points.

Python reads the metadata of all packages for each question, which takes longer than most passes.
Here it is read once, and again after Python's path, or a folder on it, has changed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib import metadata
from importlib.metadata import EntryPoint

_OURS = "strata."


def entry_points(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of one of our groups, such as `strata.passes`."""
    return _ours(_path()).get(group, ())


@lru_cache(maxsize=4)
def _ours(path: tuple[tuple[str, int], ...]) -> Mapping[str, tuple[EntryPoint, ...]]:
    """By group; `path` is what Python's path was when they were read."""
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
