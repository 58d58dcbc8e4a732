"""Checks and normalizes option values given through the Python interface."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, SupportsIndex, cast

from compiler.diagnostics import Problem, StrataError

if TYPE_CHECKING:
    from pathlib import Path

Sizes = tuple["int | str", ...]
"""The sizes of an input; a size may be a name."""


def sizes_of(shapes: object) -> dict[str, Sizes]:
    """Check `shapes`: input name -> sizes, integers or names. Raises StrataError."""
    found: dict[str, Sizes] = {}
    for name, sizes in _items("shapes", shapes):
        if isinstance(sizes, str) or not isinstance(sizes, Iterable):
            raise _refused("shapes", f"input '{name}' has {sizes!r} for its sizes",
                           "give a list: shapes={'x': [1, 3, 'height', 224]}")
        found[name] = tuple(_size(name, k, size)
                            for k, size in enumerate(cast("Iterable[Any]", sizes)))
    return found


def numbers_of(option: str, values: object) -> dict[str, int]:
    """Check `dims`: size name -> value. Raises StrataError."""
    found: dict[str, int] = {}
    for name, value in _items(option, values):
        number = integer_of(value)
        if number is None or number < 0:
            raise _refused(option, f"size '{name}' has the value {value!r}",
                           f"give a number: {option}={{{name!r}: 8}}")
        found[name] = number
    return found


def names_of(option: str, values: object) -> list[Any]:
    """Check a list of names or paths. Raises StrataError, also for a single text."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise _refused(option, f"{values!r} is not a list", f"give a list: {option}=[{values!r}]")
    return list(cast("Iterable[Any]", values))


def arrays_of(option: str, values: object) -> dict[str, Any]:
    """Check arrays by name, and convert them to NumPy. Raises StrataError."""
    from compiler.io.arrays import to_numpy

    found: dict[str, Any] = {}
    for name, value in _items(option, values):
        try:
            found[name] = to_numpy(value)
        except (TypeError, ValueError) as error:
            raise _refused(option, f"'{name}' cannot be read: {error}", "give an array") from None
    return found


def path_of(option: str, value: object) -> Path | None:
    """Check a path; None stays None. Raises StrataError."""
    from pathlib import Path

    return None if value is None else Path(file_of(option, value))


def file_of(option: str, value: object) -> str:
    """Check a path, and return it as text. Raises StrataError."""
    if not isinstance(value, str | os.PathLike):
        raise _refused(option, f"{value!r} is not a path", "give a string or a Path")
    text = os.fsdecode(cast("str | os.PathLike[str]", value))
    if not is_name(text):
        raise _refused(option, f"{value!r} has characters that no path has", "give a path")
    return text


def paths_of(option: str, values: object) -> tuple[Path, ...]:
    """Check a list of paths. Raises StrataError."""
    found = [path_of(option, value) for value in names_of(option, values)]
    return tuple(path for path in found if path is not None)


def is_name(text: str) -> bool:
    """Whether a text is a valid file name: without zero bytes and unpaired surrogates."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


# ---------------------------------------------------------------------- values
def _items(option: str, values: object) -> list[tuple[str, Any]]:
    if not isinstance(values, Mapping):
        raise _refused(option, f"{values!r} is not a mapping", f"give {option}={{NAME: ...}}")
    pairs = cast("Mapping[Any, Any]", values).items()
    unnamed = [name for name, _ in pairs if not isinstance(name, str)]
    if unnamed:
        raise _refused(option, f"{unnamed[0]!r} is not a name", "names are strings")
    return list(pairs)


def _size(name: str, dim: int, size: Any) -> int | str:
    if isinstance(size, str) and size:
        return size
    number = None if isinstance(size, str) else integer_of(size)
    if number is None or number < 0:
        hint = "give a number, or a name for a size that stays open: [1, 3, 'height', 224]"
        raise _refused("shapes", f"dim {dim} of input '{name}' is {size!r}", hint)
    return number


def integer_of(value: Any) -> int | None:
    """The value of a Python or NumPy integer; None for anything else, including truth values."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(cast(SupportsIndex, value))
    except TypeError:
        return None


def _refused(option: str, what: str, hint: str) -> StrataError:
    return StrataError("the options cannot be used", [Problem(f"{option}: {what}", hint=hint)])
