"""Loads NVIDIA libraries: the one already loaded, else PyTorch's package, else the system's.

PyTorch would find our version already loaded, and refuses to work with any version but its own.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, files


def load(names: Sequence[str], packages: Sequence[str]) -> ctypes.CDLL | None:
    """The first of these libraries that can be loaded; None without any."""
    tries = [*((name, os.RTLD_NOLOAD | os.RTLD_NOW) for name in names),
             *((path, os.RTLD_NOW) for path in _paths(names, packages)),
             *((name, os.RTLD_NOW) for name in names)]
    for path, mode in tries:
        try:
            return ctypes.CDLL(path, mode)
        except OSError:
            continue
    return None


def _paths(names: Sequence[str], packages: Sequence[str]) -> Iterator[str]:
    for package in packages:
        try:
            found = files(package) or ()
        except PackageNotFoundError:
            continue
        yield from (str(file.locate()) for file in found if file.name in names)
