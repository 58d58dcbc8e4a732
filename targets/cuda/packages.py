"""Libraries of NVIDIA's, loaded from where the system has them, or PyTorch's packages."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, files


def load(names: Sequence[str], packages: Sequence[str]) -> ctypes.CDLL | None:
    """The first library that neither the loader nor a package lacks; None where all do."""
    for path in _paths(names, packages):
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    return None


def _paths(names: Sequence[str], packages: Sequence[str]) -> Iterator[str]:
    yield from names
    for package in packages:
        try:
            found = files(package) or ()
        except PackageNotFoundError:
            continue
        yield from (str(file.locate()) for file in found if file.name in names)
