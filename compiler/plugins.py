"""What can be named: our passes, dialects and targets, those of installed packages, and of files.

A plugin file is Python. Every pass class, `Dialect` and `Target` that it defines is found there by
itself; nothing is registered. Installed packages name theirs in the entry point groups
`strata.passes`, `strata.dialects` and `strata.targets`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from compiler.diagnostics import Problem, StrataError
from compiler.suggestions import described_by, hint_for

if TYPE_CHECKING:
    from xdsl.context import Context
    from xdsl.ir import Dialect
    from xdsl.passes import ModulePass

    from targets.base import Target

DIALECTS = "strata.dialects"


@dataclass(frozen=True)
class Plugins:
    """What plugin files define, by name."""

    passes: dict[str, type[ModulePass]] = field(default_factory=dict[str, "type[ModulePass]"])
    dialects: dict[str, Dialect] = field(default_factory=dict[str, "Dialect"])
    targets: dict[str, Target] = field(default_factory=dict[str, "Target"])

    def find_pass(self, name: str) -> type[ModulePass]:
        """The class of a pass. Raises StrataError that names similar passes."""
        from passes.registry import pass_loaders

        loaders = pass_loaders()
        if name in self.passes:
            return self.passes[name]
        if name in loaders:
            return loaders[name]()
        raise _unknown("pass", name, [*self.passes, *loaders])

    def find_target(self, name: str) -> Target:
        """Raises StrataError that names the targets there are."""
        from targets.base import find_target, target_names

        if name in self.targets:
            return self.targets[name]
        if name in target_names():
            return find_target(name)
        known = self.target_names()
        described = {n: self.find_target(n).description for n in known}
        raise _unknown("target", name, known, described_by(name, described))

    def target_names(self) -> list[str]:
        from targets.base import target_names

        return sorted({*self.targets, *target_names()})

    def pass_names(self) -> list[str]:
        from passes.registry import pass_names

        return sorted({*self.passes, *pass_names()})

    def dialect_loaders(self) -> dict[str, Callable[[], Dialect]]:
        """The dialects of installed packages and of plugin files, by name."""
        loaders: dict[str, Callable[[], Dialect]] = {
            entry.name: entry.load for entry in entry_points(group=DIALECTS)}
        loaders |= {name: _constant(dialect) for name, dialect in self.dialects.items()}
        return dict(sorted(loaders.items()))

    def register_dialects(self, context: Context) -> None:
        """Make these dialects known to a context."""
        for name, loader in self.dialect_loaders().items():
            if name not in context.registered_dialect_names:
                context.register_dialect(name, loader)


def load_plugins(files: Sequence[Path]) -> Plugins:
    """Run plugin files. Raises StrataError with the file and line of an error in one."""
    plugins = Plugins()
    for file in files:
        before = len(plugins.passes), len(plugins.dialects), len(plugins.targets)
        _collect(_run_file(file), plugins)
        if (len(plugins.passes), len(plugins.dialects), len(plugins.targets)) == before:
            raise StrataError(f"plugin {file} defines no pass, dialect or target", [Problem(
                "nothing in it derives from StrataPass, or is a Dialect or a Target",
                file=str(file), hint="see tests/plugin/my_pass.py for an example")])
    return plugins


def _run_file(file: Path) -> ModuleType:
    if not file.is_file():
        raise StrataError(f"there is no plugin file {file}")
    digest = hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:12]
    name = f"strata_plugin_{file.stem}_{digest}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise StrataError(f"plugin {file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the user's file raises, it is that file's fault
        raise _failed(file, error) from error
    return module


def _failed(file: Path, error: Exception) -> StrataError:
    frame, line = error.__traceback__, getattr(error, "lineno", None)
    while frame is not None:
        if Path(frame.tb_frame.f_code.co_filename).resolve() == file.resolve():
            line = frame.tb_lineno
        frame = frame.tb_next
    return StrataError(f"plugin {file} cannot be loaded", [Problem(
        f"{type(error).__name__}: {error}", file=f"{file}, line {line}" if line else str(file))])


def _collect(module: ModuleType, plugins: Plugins) -> None:
    from xdsl.ir import Dialect

    from targets.base import Target

    for value in vars(module).values():
        if _is_own_pass(value, module):
            plugins.passes[value.name] = value
        elif isinstance(value, Dialect) and value.name not in ("builtin", "arith", "math"):
            plugins.dialects[value.name] = value
        elif isinstance(value, Target):
            plugins.targets[value.name] = value


def _is_own_pass(value: Any, module: ModuleType) -> bool:
    from xdsl.passes import ModulePass

    return (isinstance(value, type) and issubclass(value, ModulePass)
            and value.__module__ == module.__name__ and hasattr(value, "name"))


def _constant(dialect: Dialect) -> Callable[[], Dialect]:
    return lambda: dialect


def _unknown(kind: str, name: str, known: Sequence[str], near: Sequence[str] = ()) -> StrataError:
    return StrataError(f"there is no {kind} '{name}'", [
        Problem(f"unknown {kind}", hint=hint_for(name, known, near))])
