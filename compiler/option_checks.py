"""What a user may choose, checked before work starts: the same for the command line and Python.

Enters: options as somebody gave them. Every problem is told at once, as one StrataError.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, cast

from compiler.diagnostics import Problem, StrataError
from compiler.suggestions import hint_for

if TYPE_CHECKING:
    from pathlib import Path

    from compiler.options import CompileOptions, Sizes


def check_options(options: CompileOptions) -> None:
    """Raise StrataError naming every option that has a value which it cannot have."""
    problems = list(_problems(options))
    if problems:
        raise StrataError("the options cannot be used", problems)


def sizes_of(shapes: object) -> dict[str, Sizes]:
    """`shapes` as callers give it: input name -> sizes, integers or names. Raises StrataError."""
    found: dict[str, Sizes] = {}
    for name, sizes in _items("shapes", shapes):
        if isinstance(sizes, str) or not isinstance(sizes, Iterable):
            raise _refused("shapes", f"input '{name}' has {sizes!r} for its sizes",
                           "give a list: shapes={'x': [1, 3, 'height', 224]}")
        found[name] = tuple(_size(name, k, size)
                            for k, size in enumerate(cast("Iterable[Any]", sizes)))
    return found


def numbers_of(option: str, values: object) -> dict[str, int]:
    """`dims` as callers give it: size name -> value. Raises StrataError."""
    found: dict[str, int] = {}
    for name, value in _items(option, values):
        number = _integer(value)
        if number is None or number < 0:
            raise _refused(option, f"size '{name}' has the value {value!r}",
                           f"give a number: {option}={{{name!r}: 8}}")
        found[name] = number
    return found


def names_of(option: str, values: object) -> list[Any]:
    """A list of names or paths; a single one in place of a list is told. Raises StrataError."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise _refused(option, f"{values!r} is no list", f"give a list: {option}=[{values!r}]")
    return list(cast("Iterable[Any]", values))


def arrays_of(option: str, values: object) -> dict[str, Any]:
    """Arrays by name, as callers give them. Raises StrataError."""
    from compiler.arrays import to_numpy

    found: dict[str, Any] = {}
    for name, value in _items(option, values):
        try:
            found[name] = to_numpy(value)
        except (TypeError, ValueError) as error:
            raise _refused(option, f"'{name}' cannot be read: {error}", "give an array") from None
    return found


def path_of(option: str, value: object) -> Path | None:
    """A path as callers give it; None stays None. Raises StrataError."""
    from pathlib import Path

    if value is None:
        return None
    if not isinstance(value, str | os.PathLike):
        raise _refused(option, f"{value!r} is no path", "give a text or a Path")
    text = os.fsdecode(cast("str | os.PathLike[str]", value))
    if not _is_name(text):
        raise _refused(option, f"{value!r} has characters that no path has", "give a path")
    return Path(text)


def paths_of(option: str, values: object) -> tuple[Path, ...]:
    """A list of paths as callers give it. Raises StrataError."""
    found = [path_of(option, value) for value in names_of(option, values)]
    return tuple(path for path in found if path is not None)


def _is_name(text: str) -> bool:
    """Whether the system can take a text for a name: no zero byte, no half of a surrogate pair."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


# ---------------------------------------------------------------------- one option each
def _problems(options: CompileOptions) -> Iterator[Problem]:
    from compiler.options import DENORMALS, LIBRARIES, PRECISIONS, Specialize
    from compiler.tuning.files import AUTO, OFF

    yield from _one_of("precision", options.precision, PRECISIONS)
    yield from _one_of("denormals", options.denormals, DENORMALS)
    yield from _one_of("library", options.library, LIBRARIES)
    yield from _flags(options)
    yield from _texts(options)
    threads = options.threads
    if threads is not None and ((_integer(threads) or 0) < 1):
        yield Problem(f"threads is {threads!r}; it must be a number from 1 on, or None for all")
    tuned = None if options.tuned in (AUTO, OFF) else options.tuned
    for name, path in (("schedule", options.schedule), ("tuned", tuned)):
        if path is not None and (os.path.isdir(path) or not os.path.exists(path)):
            yield Problem(f"{name} is {os.fspath(path)!r}, and there is no such file")
    chosen = cast(object, options.specialize)
    if chosen is not None and not isinstance(chosen, Specialize):
        yield Problem(f"specialize is {chosen!r}; it must be a compiler.Specialize, or None")


def _one_of(option: str, value: object, known: Sequence[str]) -> Iterator[Problem]:
    if value not in known:
        yield Problem(f"{option} is {value!r}, which there is not",
                      hint=hint_for(str(value), known))


def _flags(options: CompileOptions) -> Iterator[Problem]:
    for name in ("exact", "interpret", "dump_weights"):
        value = getattr(options, name)
        if not isinstance(value, bool):
            yield Problem(f"{name} is {value!r}; it must be True or False")


def _texts(options: CompileOptions) -> Iterator[Problem]:
    for name in ("target", "passes", "cache", "tuned"):
        value = getattr(options, name)
        if not isinstance(value, str) or not value:
            yield Problem(f"{name} is {value!r}; it must be a text")
        elif not _is_name(value):
            yield Problem(f"{name} is {value!r}, which has characters that no name has")
    features = options.features
    if features is not None and not isinstance(cast(object, features), str):
        yield Problem(f"features is {features!r}; it must be a text, or None")


# ---------------------------------------------------------------------- values
def _items(option: str, values: object) -> list[tuple[str, Any]]:
    if not isinstance(values, Mapping):
        raise _refused(option, f"{values!r} is no mapping", f"give {option}={{NAME: ...}}")
    pairs = cast("Mapping[Any, Any]", values).items()
    strange = [name for name, _ in pairs if not isinstance(name, str)]
    if strange:
        raise _refused(option, f"{strange[0]!r} is no name", "names are texts")
    return list(pairs)


def _size(name: str, dim: int, size: Any) -> int | str:
    if isinstance(size, str) and size:
        return size
    number = None if isinstance(size, str) else _integer(size)
    if number is None or number < 0:
        hint = "give a number, or a name for a size that stays open: [1, 3, 'height', 224]"
        raise _refused("shapes", f"dim {dim} of input '{name}' is {size!r}", hint)
    return number


def _integer(value: Any) -> int | None:
    """The value of an int, also NumPy's; None for all else, truth values included."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(cast(SupportsIndex, value))
    except TypeError:
        return None


def _refused(option: str, what: str, hint: str) -> StrataError:
    return StrataError("the options cannot be used", [Problem(f"{option}: {what}", hint=hint)])
