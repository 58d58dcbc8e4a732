"""Runs plugin files and modules, and collects and checks their definitions in `Plugins`.

    a class with StrataPass          a pass; its `place`, "after(PASS)", is where it goes
    a `Dialect`, a `Target`          themselves
    a `Level`                        a level after another, with the passes that belong to it
    a function under `@onnx_op`      the importer of an ONNX operator
    a function under `@aten_op`      the importer of a PyTorch operator
    a function under `@lowers`       the nests of a graph operation
    `accepts`, `load_model` and DESCRIPTION      a frontend, called as the file

A mistake in a plugin is reported as a StrataError with file and line.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from compiler.diagnostics import Problem, StrataError
from compiler.pipeline.levels import LEVEL_NAMES, Level
from compiler.plugins.loading import Plugins
from compiler.plugins.plugin_faults import entry_error, frames_of
from compiler.plugins.watched import watch_operations, watch_target
from compiler.suggestions import hint_for
from passes.installed import entry_points

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from xdsl.passes import ModulePass

PLUGINS = "strata.plugins"
_MARKS = {"onnx_operators": "ONNX operator", "aten_operators": "PyTorch operator",
          "lowered_operations": "lowering"}
"""The attributes that `onnx_op`, `aten_op` and `lowers` set on functions."""
_PLACE = re.compile(r"(?:after|before)\(([\w-]+)\)")
_XDSL = ("builtin", "arith", "math")
"""Dialects of xDSL that plugins import."""


class Found(NamedTuple):
    """A definition of a plugin. `kind`: its name in messages."""

    kind: str
    name: Any
    value: Any
    plugin: ModuleType

    @property
    def where(self) -> str:
        """The file, with the line if it is known."""
        file = str(self.plugin.__file__)
        try:
            return f"{file}, line {inspect.getsourcelines(self.value)[1]}"
        except (OSError, TypeError):  # an object, not a class or a function
            line = self._assigned()
            return f"{file}, line {line}" if line else file

    def _assigned(self) -> int | None:
        """The line at which the plugin's file gives the object its name."""
        names = [name for name, value in vars(self.plugin).items() if value is self.value]
        for name in names:
            pattern = re.compile(rf"{re.escape(name)}\b[^=\n]*=")
            for number, text in enumerate(_lines(Path(str(self.plugin.__file__))), 1):
                if pattern.match(text):
                    return number
        return None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return []


def load_plugins(files: Sequence[Path]) -> Plugins:
    """Run plugins: those of installed packages, then the files. Raises StrataError."""
    modules = [_loaded(entry) for entry in entry_points(PLUGINS)]
    for module in modules:
        if not isinstance(module, ModuleType):
            raise StrataError(f"an entry point of {PLUGINS} must name a module, not {module!r}")
    if not modules and not files:
        return Plugins()
    loaded = {Path(str(m.__file__)).resolve() for m in modules}
    modules += [_run_file(f) for f in dict.fromkeys(files) if f.resolve() not in loaded]
    found = [item for module in modules for item in _defined(module)]
    _check(found)
    for item in found:
        if item.kind == "dialect":
            watch_operations(item.value.operations)
        elif item.kind == "target":
            watch_target(item.value)
    return _plugins(found, tuple(modules))


def _loaded(entry: EntryPoint) -> Any:
    """The module of an entry point. Raises StrataError for anything that it raises."""
    try:
        return entry.load()
    except (Exception, SystemExit) as error:  # any of the package's plugin is its own fault
        trace = error.__traceback__
        raise entry_error(entry, error, trace and trace.tb_next) from error


def _run_file(file: Path) -> ModuleType:
    if not file.is_file():
        raise StrataError(f"there is no plugin file {file}")
    digest = hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:12]
    name = f"strata_plugin_{file.stem}_{digest}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise StrataError(f"plugin {file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # any of the user's file is its own fault
        raise _failed(file, error) from error
    return module


def _failed(file: Path, error: BaseException) -> StrataError:
    frame, line = error.__traceback__, getattr(error, "lineno", None)
    while frame is not None:
        if Path(frame.tb_frame.f_code.co_filename).resolve() == file.resolve():
            line = frame.tb_lineno
        frame = frame.tb_next
    return StrataError(f"plugin {file} cannot be loaded", [Problem(
        f"{type(error).__name__}: {error}", file=f"{file}, line {line}" if line else str(file),
        excerpt=frames_of(error, file))])


# ---------------------------------------------------------------------- what a module defines
def _defined(module: ModuleType) -> list[Found]:
    """All definitions of a plugin. Raises StrataError if there are none."""
    found = [item for value in vars(module).values() for item in _kinds(value, module)]
    if all(hasattr(module, part) for part in ("DESCRIPTION", "accepts", "load_model")):
        found.append(Found("frontend", frontend_name(module), module, module))
    if found:
        return found
    raise StrataError(f"plugin {module.__file__} defines no pass, dialect or target", [Problem(
        "there is no level, frontend, importer or lowering in it either",
        file=str(module.__file__), hint="see the files in tests/plugin for examples")])


def frontend_name(module: ModuleType) -> str:
    """The name of a plugin file that is a frontend."""
    return Path(str(module.__file__)).stem


def _kinds(value: Any, module: ModuleType) -> Iterator[Found]:
    from xdsl.ir import Dialect
    from xdsl.passes import ModulePass

    from targets.base import Target

    own = getattr(value, "__module__", None) == module.__name__
    if own and isinstance(value, type) and issubclass(value, ModulePass):
        yield Found("pass", getattr(value, "name", ""), value, module)
    elif isinstance(value, Dialect) and value.name not in _XDSL and not _is_ours(value):
        yield Found("dialect", value.name, value, module)
    elif isinstance(value, Target) and not _is_our_target(value):
        yield Found("target", value.name, value, module)
    elif isinstance(value, Level) and value.name not in LEVEL_NAMES:
        yield Found("level", value.name, value, module)
    elif own and isinstance(value, FunctionType):
        for mark in _MARKS:
            for name in getattr(value, mark, ()):
                yield Found(_MARKS[mark], _marked_name(name), value, module)


def _marked_name(mark: Any) -> str:
    """The name that a decorator registers: `com.example.Own`, `aten.add.Tensor`, `own.op`."""
    if isinstance(mark, tuple):  # domain, operator and first version of an ONNX operator
        domain, name, since = cast("tuple[str, str, int]", mark)
        return ".".join(filter(None, (domain, name))) + (f" since {since}" if since > 1 else "")
    return str(getattr(mark, "name", mark))


def _is_ours(dialect: Any) -> bool:
    """Whether a plugin only imports one of Strata's dialects."""
    from dialects.registry import dialect_loaders

    load = dialect_loaders().get(dialect.name)
    return load is not None and load() is dialect


def _is_our_target(target: Any) -> bool:
    from targets.base import find_target, target_names

    return target.name in target_names() and find_target(target.name) is target


# ---------------------------------------------------------------------- checks
def _check(found: Sequence[Found]) -> None:
    """Raise StrataError with all problems of the plugins' definitions."""
    from dialects.registry import dialect_loaders
    from passes.registry import pass_names
    from targets.base import target_names

    ours = {"pass": pass_names(), "dialect": dialect_loaders(), "target": target_names(),
            **_our_operators({item.kind for item in found})}
    problems: list[Problem] = []
    seen: dict[tuple[str, str], Found] = {}
    for item in found:
        earlier = seen.setdefault((item.kind, item.name), item)
        if earlier.value is not item.value:
            problems.append(Problem(f"the {item.kind} '{item.name}' is defined twice",
                                    file=item.where, hint=f"it is defined in {earlier.where} too"))
        if item.name in ours.get(item.kind, ()):
            problems.append(Problem(f"the {item.kind} '{item.name}' is one of Strata's own",
                                    file=item.where, hint="give it another name"))
        problems += _malformed(item)
    problems = problems or _misplaced(found)
    if problems:
        raise StrataError("a plugin cannot be used", problems)


def _our_operators(kinds: Collection[str]) -> dict[str, Collection[str]]:
    """The operators that Strata imports, of the given kinds."""
    found = dict[str, Collection[str]]()
    if "ONNX operator" in kinds:
        from compiler.frontend import onnx

        found["ONNX operator"] = onnx.operators()
    if "PyTorch operator" in kinds:
        from compiler.frontend import torch

        found["PyTorch operator"] = torch.operators()
    return found


def _malformed(item: Found) -> Iterator[Problem]:
    """The problems of a plugin's definition: wrong types and missing parts."""
    if not isinstance(item.name, str) or not item.name:
        yield Problem(f"the {item.kind} {item.name!r} must have a string as its name",
                      file=item.where)
    missing = getattr(item.value, "__abstractmethods__", ()) if item.kind == "pass" else ()
    if missing:
        yield Problem(f"the pass '{item.name}' lacks {', '.join(sorted(missing))}",
                      file=item.where)
    yield from (Problem(f"the {item.kind} '{item.name}': {what}", file=item.where)
                for what in _mistyped(item))


def _mistyped(item: Found) -> Iterator[str]:
    """What has the wrong type in a definition."""
    value: Any = item.value
    if item.kind == "pass" and not isinstance(getattr(value, "place", ""), str):
        yield f"`place` must be a text, and is {value.place!r}"
    if item.kind == "target" and not _are_texts(value.levels):
        yield f"`levels` must be a tuple of names, and is {value.levels!r}"
    if item.kind == "frontend" and not isinstance(value.DESCRIPTION, str):
        yield f"DESCRIPTION must be a text, and is {value.DESCRIPTION!r}"
    if item.kind == "level":
        for name in ("operations", "steps", "exits"):
            if not _are_texts(getattr(value, name)):
                yield f"`{name}` must be a tuple of texts, and is {getattr(value, name)!r}"


def _are_texts(value: object) -> bool:
    return isinstance(value, tuple) and all(
        isinstance(part, str) for part in cast("tuple[object, ...]", value))


def _misplaced(found: Sequence[Found]) -> list[Problem]:
    """Levels and passes whose place does not exist."""
    levels = [i for i in found if i.kind == "level"]
    names = [*LEVEL_NAMES, *(i.name for i in levels)]
    problems = [Problem(f"the level '{i.name}' is placed after '{i.value.after}', which is not a "
                        "level", file=i.where, hint=hint_for(i.value.after, names))
                for i in levels if i.value.after not in names]
    if problems:
        return problems
    plugins = _plugins(found, ())
    steps = [step.name for step in plugins.pipeline()]
    known = set(plugins.pass_names())
    problems = [Problem(f"the level '{i.name}' has a pass '{spec}', which does not exist",
                        file=i.where, hint=hint_for(spec, sorted(known)))
                for i in levels for spec in (*i.value.steps, *i.value.exits)
                if spec.partition("{")[0] not in known]
    problems = problems or [problem for i in levels for spec in (*i.value.steps, *i.value.exits)
                            for problem in _wrong_options(i, spec, plugins)]
    for item in found:
        place = getattr(item.value, "place", "") if item.kind == "pass" else ""
        match = _PLACE.fullmatch(place)
        if place and (match is None or match[1] not in steps):
            problems.append(Problem(
                f"the pass '{item.name}' has the place '{place}', which the pipeline lacks",
                file=item.where, hint=hint_for(match[1] if match else place, steps)))
    return problems


def _wrong_options(item: Found, spec: str, plugins: Plugins) -> list[Problem]:
    """The problems of a pass that a level lists with options."""
    from compiler.pipeline.plan import make_pass

    try:
        make_pass(spec, plugins)
    except StrataError as error:
        return [Problem(f"the level '{item.name}' has a pass that cannot be read: {error}",
                        file=item.where)]
    return []


def _plugins(found: Sequence[Found], modules: tuple[ModuleType, ...]) -> Plugins:
    passes: dict[str, type[ModulePass]] = {i.name: i.value for i in found if i.kind == "pass"}
    return Plugins(passes, {i.name: i.value for i in found if i.kind == "dialect"},
                   {i.name: i.value for i in found if i.kind == "target"},
                   tuple(i.value for i in found if i.kind == "level"), modules,
                   {(i.kind, i.name): i.where for i in found})
