"""Attributes exceptions to the compiler, a plugin file, or an installed package's plugin.

A plugin in the traceback has called the compiler or was called by it. Either way, its author
should look first, so the error names the plugin's file and line.
"""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from compiler.diagnostics import Problem, StrataError
from passes.installed import entry_points

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUPS = ("strata.plugins", "strata.passes", "strata.dialects", "strata.targets",
          "strata.frontends")
_ROOT = Path(__file__).parents[2]
MOST_FRAMES = 8
"""The number of lines of a traceback in a message."""


class Origin(NamedTuple):
    """A line of a plugin."""

    file: Path
    line: int

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}"


def origin_of(error: BaseException, files: Sequence[Path]) -> Origin | None:
    """The innermost line of a plugin in an exception's traceback, or None.

    `files`: the plugin files of this compilation.
    """
    places = [file.resolve() for file in files] + list(_installed())
    found, trace = None, error.__traceback__
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename).resolve()
        if any(file == place or place in file.parents for place in places):
            found = Origin(file, trace.tb_lineno)
        trace = trace.tb_next
    return found


def frames_of(error: BaseException, file: Path) -> str:
    """The traceback from the first line of a plugin's file on, as text."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [Path(frame.filename).resolve() == file.resolve() for frame in frames]
    if not any(inside):
        return ""
    return "".join(traceback.format_list(frames[inside.index(True):][:MOST_FRAMES])).rstrip()


def wrong_type(what: str, found: object, wanted: str, maker: Any = None) -> StrataError:
    """The error for a plugin's object or result of the wrong type.

    `maker`: the function that returned it.
    """
    code = getattr(maker, "__code__", None)
    place = f"{code.co_filename}, line {code.co_firstlineno}" if code is not None else ""
    return StrataError("a plugin cannot be used", [Problem(
        f"{what} must be {wanted}, and is {type(found).__name__}", file=place)])


def all_of(result: object, kinds: tuple[type, ...]) -> bool:
    """Whether a result has one of these types, or is a list of such results."""
    single = not isinstance(result, list | tuple)
    values = [result] if single else cast("Sequence[object]", result)
    return all(isinstance(value, kinds) for value in values)


def checked(
    function: Callable[..., Any], right: Callable[[Any], bool], wanted: str
) -> Callable[..., Any]:
    """Wrap a plugin's function so that a wrong result, or a wrong number of arguments, raises
    StrataError.
    """
    takes = inspect.signature(function)

    @wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            takes.bind(*arguments)
        except TypeError as error:
            code = function.__code__
            raise StrataError("a plugin cannot be used", [Problem(
                f"{function.__name__} does not take the inputs of the node: {error}",
                file=f"{code.co_filename}, line {code.co_firstlineno}")]) from error
        result = function(*arguments)
        if not right(result):
            raise wrong_type(f"what {function.__name__} returns", result, wanted, function)
        return result

    return call


def unloadable(error: BaseException) -> StrataError | None:
    """The error for an installed package's plugin that cannot be loaded; None for other errors."""
    from importlib.metadata import EntryPoint

    trace = error.__traceback__
    while trace is not None:
        entry = trace.tb_frame.f_locals.get("self")
        if isinstance(entry, EntryPoint) and entry.group in GROUPS:
            return entry_error(entry, error, trace)
        trace = trace.tb_next
    return None


def entry_error(
    entry: EntryPoint, error: BaseException, trace: TracebackType | None
) -> StrataError:
    """The error for an installed package's plugin that raised while it was loaded."""
    frames = [] if trace is None else _frames_after(trace)
    ours = [_ROOT / name for name in ("compiler", "dialects", "passes", "targets")]
    own = [f for f in frames if not f.filename.startswith("<")
           and not any(folder in Path(f.filename).parents for folder in ours)]
    place = f"{own[-1].filename}, line {own[-1].lineno}" if own else entry.value
    if isinstance(error, SyntaxError) and error.lineno:
        place = f"{error.filename}, line {error.lineno}"
    return StrataError(f"the plugin '{entry.name}' cannot be loaded", [Problem(
        f"{type(error).__name__}: {error}", file=place,
        excerpt="".join(traceback.format_list(frames[:MOST_FRAMES])).rstrip(),
        hint=f"it is {entry.value} of an installed package: mend that, or uninstall it")])


def _frames_after(trace: TracebackType) -> list[traceback.FrameSummary]:
    """The traceback from the first module on that Python's import machinery runs."""
    return [f for f in traceback.extract_tb(trace) if "importlib" not in f.filename]


def definition_of(class_: type, files: Sequence[Path]) -> Origin | None:
    """The first line of a plugin's class; None for Strata's classes."""
    try:
        file = Path(inspect.getfile(class_)).resolve()
        line = inspect.getsourcelines(class_)[1]
    except (OSError, TypeError):
        return None
    places = [path.resolve() for path in files] + list(_installed())
    inside = any(file == place or place in file.parents for place in places)
    return Origin(file, line) if inside else None


def _installed() -> Iterator[Path]:
    """The folders or files of loaded packages that register plugins."""
    names = {entry.module.partition(".")[0] for g in GROUPS for entry in entry_points(g)}
    for name in sorted(names):
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is not None:
            path = Path(file).resolve()
            yield path.parent if path.name == "__init__.py" else path
