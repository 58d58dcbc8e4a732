"""Libraries of NVIDIA's: the one that the process has, else PyTorch's package, else the system's.

PyTorch refuses to work beside another version than its own, which it might find loaded.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, files


def load(names: Sequence[str], packages: Sequence[str]) -> ctypes.CDLL | None:
    """The first that there is; None for a library that is nowhere."""
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
