"""Arrays in NumPy's files."""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from compiler.cli.standard_streams import is_standard, read_standard
from compiler.diagnostics import Problem, StrataError

if TYPE_CHECKING:
    from dialects.strata.types import Array

FILE_ERRORS = (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error)
"""The exceptions that NumPy raises for a damaged or foreign file."""


def read_npz(path: Path) -> dict[str, Array]:
    """All arrays of an `.npz`, or of standard input. Never unpickles. Raises StrataError."""
    try:
        found: Any = np.load(_source(path), allow_pickle=False)
        if not isinstance(found, np.lib.npyio.NpzFile):
            raise ValueError("it holds one array without a name: give it with --input NAME=FILE")
        with found:
            return {name: cast("Array", found[name]) for name in found.files}
    except FILE_ERRORS as error:
        raise _unreadable(path, error) from None


def read_npy(path: Path) -> Array:
    """The array of an `.npy`, or of standard input. Never unpickles. Raises StrataError."""
    try:
        found: Any = np.load(_source(path), allow_pickle=False)
    except FILE_ERRORS as error:
        raise _unreadable(path, error) from None
    if not isinstance(found, np.ndarray):
        raise _unreadable(path, ValueError("it holds several arrays: give it with --inputs"))
    return cast("Array", found)


def _source(path: Path) -> Path | io.BytesIO:
    return io.BytesIO(read_standard("an array")) if is_standard(path) else path


def _unreadable(path: Path, error: Exception) -> StrataError:
    if isinstance(error, FileNotFoundError):
        return StrataError(f"there is no file {path}")
    return StrataError(f"cannot read {path}", [Problem(str(error))])
