"""Checks and normalizes option values given through the Python interface."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, SupportsIndex, cast

from compiler.diagnostics import Problem, StrataError, cut

if TYPE_CHECKING:
    from pathlib import Path

Sizes = tuple["int | str", ...]
"""The sizes of an input; a size may be a name."""
MOST_THREADS = 1 << 16
MOST_ELEMENTS = 1 << 48
"""The upper limit of a size. Nothing larger fits into any memory."""
PATH_BYTES, NAME_BYTES = 4095, 255
"""The longest path of Linux, and the longest name in it."""


def sizes_of(shapes: object) -> dict[str, Sizes]:
    """Check `shapes`: input name -> sizes, integers or names. Raises StrataError."""
    found: dict[str, Sizes] = {}
    for name, sizes in _items("shapes", shapes):
        if isinstance(sizes, str) or not isinstance(sizes, Iterable):
            raise _refused("shapes", f"input '{name}' has {shown(sizes)} for its sizes",
                           "give a list: shapes={'x': [1, 3, 'height', 224]}")
        found[name] = tuple(_size(name, k, size)
                            for k, size in enumerate(cast("Iterable[Any]", sizes)))
    return found


def numbers_of(option: str, values: object) -> dict[str, int]:
    """Check `dims`: size name -> value. Raises StrataError."""
    found: dict[str, int] = {}
    for name, value in _items(option, values):
        number = integer_of(value)
        if number is None or not 0 <= number <= MOST_ELEMENTS:
            raise _refused(option, f"size '{name}' has the value {shown(value)}",
                           f"give a number: {option}={{{name!r}: 8}}")
        found[name] = number
    return found


def list_of(option: str, values: object) -> list[Any]:
    """Check a list. Raises StrataError, also for a single text."""
    told = shown(values)
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise _refused(option, f"{told} is not a list", f"give a list: {option}=[{told}]")
    return list(cast("Iterable[Any]", values))


def names_of(option: str, values: object) -> list[str]:
    """Check a list of names. Raises StrataError."""
    found = list_of(option, values)
    for value in found:
        if not isinstance(value, str) or not value:
            raise _refused(option, f"{shown(value)} is not a name", "names are strings")
    return found


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
    told = shown(value)
    if not isinstance(value, str | os.PathLike):
        raise _refused(option, f"{told} is not a path", "give a string or a Path")
    text = os.fsdecode(cast("str | os.PathLike[str]", value))
    if not is_name(text):
        raise _refused(option, f"{told} has characters that no path has", "give a path")
    if not text:
        raise _refused(option, "the path is empty", f"give a path, or leave {option} out")
    if not has_length_of_path(text):
        raise _refused(option, f"{told} is longer than a path can be", "give a path")
    return text


def setting_of(option: str, value: object) -> str:
    """Check a word or a path; None stands for "off". Raises StrataError."""
    return "off" if value is None else file_of(option, value)


def paths_of(option: str, values: object) -> tuple[Path, ...]:
    """Check a list of paths. Raises StrataError."""
    from pathlib import Path

    return tuple(Path(file_of(option, value)) for value in list_of(option, values))


def has_length_of_path(text: str) -> bool:
    """Whether a path, and each name in it, is as short as the system demands."""
    whole = os.fsencode(text)
    return len(whole) <= PATH_BYTES and all(
        len(name) <= NAME_BYTES for name in whole.split(os.fsencode(os.sep)))


def shown(value: object) -> str:
    """A value as messages show it, cut if it is long."""
    return cut(repr(value))


def is_name(text: str) -> bool:
    """Whether a text is a valid file name: without zero bytes and unpaired surrogates."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


# ---------------------------------------------------------------------- values
def _items(option: str, values: object) -> list[tuple[str, Any]]:
    if not isinstance(values, Mapping):
        raise _refused(option, f"{shown(values)} is not a mapping", f"give {option}={{NAME: ...}}")
    pairs = cast("Mapping[Any, Any]", values).items()
    unnamed = [name for name, _ in pairs if not isinstance(name, str)]
    if unnamed:
        raise _refused(option, f"{shown(unnamed[0])} is not a name", "names are strings")
    return list(pairs)


def _size(name: str, dim: int, size: Any) -> int | str:
    if isinstance(size, str) and size:
        return size
    number = None if isinstance(size, str) else integer_of(size)
    if number is None or not 0 <= number <= MOST_ELEMENTS:
        hint = "give a number, or a name for a size that stays open: [1, 3, 'height', 224]"
        raise _refused("shapes", f"dim {dim} of input '{name}' is {shown(size)}", hint)
    return number


def integer_of(value: Any) -> int | None:
    """The value of a Python or NumPy integer; None for anything else, also truth values, arrays."""
    if isinstance(value, bool) or type(value).__name__ == "ndarray":
        return None
    try:
        return operator.index(cast(SupportsIndex, value))
    except TypeError:
        return None


def threads_of(value: Any) -> int | None:
    """A number of threads as an integer; None for what is none."""
    number = integer_of(value)
    return number if number is not None and 1 <= number <= MOST_THREADS else None


def truth_of(value: Any) -> bool | None:
    """A truth value of Python or NumPy; None for anything else."""
    if isinstance(value, bool):
        return value
    return bool(value) if type(value).__name__ in ("bool_", "bool") else None


def _refused(option: str, what: str, hint: str) -> StrataError:
    return StrataError("the options cannot be used", [Problem(f"{option}: {what}", hint=hint)])
