"""Writing results: text and arrays, whole or not at all."""

from __future__ import annotations

import os
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from compiler.diagnostics import StrataError
from compiler.standard_streams import is_standard_output, write_standard

if TYPE_CHECKING:
    from dialects.types import Array


def write_text(text: str, path: Path | None) -> None:
    """Write to a file, or to standard output."""
    if path is None or is_standard_output(path):
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
    else:
        write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file by renaming, so that there is never half of one. Raises StrataError."""
    if is_standard_output(path):
        write_standard(data)
        return
    try:
        if path.exists() and not path.is_file():  # a pipe or a device cannot be renamed to
            path.write_bytes(data)
        else:
            _replace(path, data)
    except BrokenPipeError:  # it is a pipe, whose reader has had enough
        raise
    except OSError as error:
        raise StrataError(f"cannot write {path}: {error.strerror}") from None


def check_writable(path: Path | None) -> None:
    """Raise StrataError where a file cannot be written, before there is anything to write."""
    if path is None or is_standard_output(path):
        return
    folder = path.parent
    reason = ("it is a folder" if path.is_dir() else "there is no such folder"
              if not folder.is_dir() else "" if os.access(folder, os.W_OK) or path.exists()
              else "the folder may not be written")
    if reason:
        raise StrataError(f"cannot write {path}: {reason}")


def _replace(path: Path, data: bytes) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def npz_bytes(arrays: Mapping[str, Array]) -> bytes:
    """An `.npz` with these names as keys, whatever characters they have. What NumPy's files
    cannot hold becomes what it is computed in: bfloat16 and narrow floats f32, i4 a byte.
    """
    import io

    import numpy as np

    from compiler.arrays import is_foreign
    from dialects.graph.numerics import widen

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            plain = widen(array) if is_foreign(array.dtype) else array
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asarray(plain), allow_pickle=False)
    return buffer.getvalue()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
