"""Writes results, text and arrays, atomically."""

from __future__ import annotations

import io
import os
import sys
import tempfile
import zipfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from compiler.cli.standard_streams import is_standard_output, write_standard
from compiler.diagnostics import Problem, StrataError

if TYPE_CHECKING:
    from dialects.strata.types import Array


def write_text(text: str, path: Path | None) -> None:
    """Write to a file, or to standard output."""
    if path is None or is_standard_output(path):
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
    else:
        write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically. Raises StrataError."""
    if is_standard_output(path):
        write_standard(data)
        return
    with replacing(path) as file:
        file.write(data)


def check_writable(path: Path | None) -> None:
    """Raise StrataError if a file will not be writable, before there is anything to write."""
    if path is None or is_standard_output(path):
        return
    folder = path.parent
    reason = ("it is a folder" if path.is_dir() else "there is no such folder"
              if not folder.is_dir() else "" if os.access(folder, os.W_OK) or path.exists()
              else "the folder may not be written")
    if reason:
        raise StrataError(f"cannot write {path}: {reason}")


@contextmanager
def replacing(path: Path) -> Generator[BinaryIO]:
    """A file that replaces `path` once it is complete. Raises StrataError.

    The old file remains until then, and if writing fails. A link is kept and leads to the new
    contents. A pipe or a device is written directly.
    """
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as file:
                yield file
        else:
            with _aside(path.resolve()) as file:
                yield file
    except BrokenPipeError:  # the reader closed the pipe, which main() handles silently
        raise
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL in it
        what = error.strerror if isinstance(error, OSError) else str(error)
        raise StrataError(f"cannot write {path}: {what}") from None


@contextmanager
def _aside(path: Path) -> Generator[BinaryIO]:
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".strata-", suffix=".part")
    try:
        with open(descriptor, "wb") as file:
            yield file
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def check_output(path: Path | None, names: Sequence[str]) -> None:
    """Raises StrataError if a file cannot hold arrays of these names."""
    if path is not None and path.suffix == ".npy" and len(names) != 1:
        raise StrataError(f"{path} would hold one array, and the model has {len(names)} outputs: "
                          f"{', '.join(names)}", [Problem("an .npy file is one array",
                                                          hint=f"-o {path.stem}.npz takes all")])


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write an `.npy` with a single array, or an `.npz` with all of them. Raises StrataError."""
    check_output(path, list(arrays))
    if path.suffix != ".npy":
        return write_bytes(path, npz_bytes(arrays))
    [array] = arrays.values()
    return write_bytes(path, npy_bytes(array))


def npz_bytes(arrays: Mapping[str, Array]) -> bytes:
    """An `.npz` with these names as keys, whatever characters they contain.

    Types that NumPy's files do not support are widened: bfloat16 and narrow floats to f32, i4 to a
    byte.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as entry:
                entry.write(npy_bytes(array))
    return buffer.getvalue()


def npy_bytes(array: Array) -> bytes:
    """An `.npy`; see `npz_bytes`."""
    import numpy as np

    from compiler.io.arrays import is_foreign
    from dialects.semantics.numerics import widen

    plain = widen(array) if is_foreign(array.dtype) else array
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asarray(plain), allow_pickle=False)
    return buffer.getvalue()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
