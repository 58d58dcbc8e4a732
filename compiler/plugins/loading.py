"""Finds everything that has a name: built in, in installed packages, or in plugin files.

A plugin is a Python module: a file that `--plugin` names, or a module that an entry point of the
group `strata.plugins` names. Its definitions are found automatically (`plugin_files.py`). A package
can also register single objects in the groups `strata.passes`, `strata.dialects`,
`strata.targets` and `strata.frontends`, which are only loaded when they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from compiler.diagnostics import Problem, StrataError, cut
from compiler.pipeline.levels import LEVELS, Level
from compiler.pipeline.steps import PIPELINE, Step
from compiler.plugins.plugin_faults import wrong_type
from compiler.plugins.watched import watch_operations, watch_target
from compiler.suggestions import described_by, hint_for
from dialects.records import dataclass
from passes.installed import entry_points

if TYPE_CHECKING:
    from xdsl.context import Context
    from xdsl.ir import Dialect
    from xdsl.passes import ModulePass

    from dialects.strata.schedule_options import KnownOptions
    from targets.base import Target
    from targets.cpu.architectures import Platform

DIALECTS = "strata.dialects"


@dataclass(frozen=True)
class Plugins:
    """The definitions of plugins, by name. `modules`: the plugins, searched by frontends and
    passes.
    """

    passes: dict[str, type[ModulePass]] = field(default_factory=dict[str, "type[ModulePass]"])
    dialects: dict[str, Dialect] = field(default_factory=dict[str, "Dialect"])
    targets: dict[str, Target] = field(default_factory=dict[str, "Target"])
    levels: tuple[Level, ...] = ()
    modules: tuple[ModuleType, ...] = ()
    places: Mapping[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """Where a definition is, by its kind and name: `mine.py, line 3`."""

    # ------------------------------------------------------------------ levels and their passes
    def all_levels(self) -> tuple[Level, ...]:
        """The built-in levels, with each plugin's level after the one that it names."""
        found = list(LEVELS)
        for level in self.levels:
            place = [known.name for known in found].index(level.after)
            found.insert(place + 1, level)
        return tuple(found)

    def find_level(self, name: str) -> Level:
        """The level of an existing name."""
        return next(level for level in self.all_levels() if level.name == name)

    def level_names(self) -> tuple[str, ...]:
        return tuple(level.name for level in self.all_levels())

    def pipeline(self) -> tuple[Step, ...]:
        """The default pipeline, with the passes into, on and out of the plugins' levels."""
        steps = list(PIPELINE)
        for level in self.levels:
            names = [step.level for step in steps]
            at = len(names) - names[::-1].index(level.after)
            following = names[at] if at < len(names) else level.after
            steps[at:at] = [*(Step(level.name, spec) for spec in level.steps),
                            *(Step(following, spec) for spec in level.exits)]
        return tuple(steps)

    def place_of(self, name: str) -> str:
        """The place that a plugin's pass declares: `after(PASS)`, `before(PASS)`, or empty."""
        return getattr(self.passes.get(name), "place", "")

    def operator_rows(self) -> list[dict[str, Any]]:
        """The operators of models that plugins import, as rows for `list ops`."""
        found: list[dict[str, Any]] = []
        for function in (f for module in self.modules for f in vars(module).values()):
            text = (getattr(function, "__doc__", "") or "a plugin's").partition("\n")[0]
            names = [("onnx", f"{domain}.{op}" if domain else op)
                     for domain, op, _ in getattr(function, "onnx_operators", ())]
            names += [("torch", op) for op in getattr(function, "aten_operators", ())]
            found += [{"name": n, "kind": kind, "summary": text} for kind, n in names]
        return found

    # ------------------------------------------------------------------ things with names

    def find_pass(self, name: str) -> type[ModulePass]:
        """The class of a pass. Raises StrataError naming similar passes."""
        if name in self.passes:
            return self.passes[name]
        if name in self._loaders:
            return _checked_pass(name, self._loaders[name]())
        raise _unknown("pass", name, [*self.passes, *self._loaders])

    @cached_property
    def _loaders(self) -> Mapping[str, Callable[[], Any]]:
        """The passes of ours and of installed packages."""
        from passes.registry import pass_loaders

        return pass_loaders()

    def find_target(self, name: str) -> Target:
        """The target of a name. Raises StrataError naming the known targets."""
        from targets.base import find_target, target_names

        if name in self.targets:
            return self.targets[name]
        if name in target_names():
            return _checked_target(name, find_target(name))
        known = self.target_names()
        described = {n: self.find_target(n).description for n in known}
        raise _machine(name) or _unknown("target", name, known, described_by(name, described))

    def target_names(self) -> list[str]:
        from targets.base import target_names

        return sorted({*self.targets, *target_names()})

    def schedule_options(self, target: Target | None = None) -> KnownOptions:
        """The options that schedules may have. Those of other targets than `target` are asked for
        only where a name is not among its own."""
        from dialects.strata.schedule_options import KnownOptions

        return KnownOptions(() if target is None else tuple(target.schedule_options), lambda: [
            option for name in self.target_names()
            for option in self.find_target(name).schedule_options])

    def pass_names(self) -> list[str]:
        from passes.registry import pass_names

        return sorted({*self.passes, *pass_names()})

    def dialect_loaders(self) -> dict[str, Callable[[], Dialect]]:
        """The dialects of installed packages and of plugin files, by name."""
        loaders: dict[str, Callable[[], Dialect]] = {
            entry.name: _checked_dialect(entry.name, entry.load)
            for entry in entry_points(DIALECTS)}
        loaders |= {name: _constant(dialect) for name, dialect in self.dialects.items()}
        return dict(sorted(loaders.items()))

    def register_dialects(self, context: Context) -> None:
        """Register these dialects in a context."""
        for name, loader in self.dialect_loaders().items():
            if name not in context.registered_dialect_names:
                context.register_dialect(name, loader)


def _checked_pass(name: str, found: Any) -> type[ModulePass]:
    """Raises StrataError for an entry point that names something else."""
    from xdsl.passes import ModulePass

    if isinstance(found, type) and issubclass(found, ModulePass):
        return found
    raise wrong_type(f"the entry point '{name}' of strata.passes", cast(Any, found), "a pass class")


def _checked_target(name: str, found: Any) -> Target:
    from targets.base import Target

    if not isinstance(found, Target):
        raise wrong_type(f"the entry point '{name}' of strata.targets", found, "a Target")
    watch_target(found)
    return found


def _checked_dialect(name: str, load: Callable[[], Any]) -> Callable[[], Dialect]:
    def dialect() -> Dialect:
        from xdsl.ir import Dialect

        found = load()
        if not isinstance(found, Dialect):
            raise wrong_type(f"the entry point '{name}' of strata.dialects", found, "a Dialect")
        watch_operations(found.operations)
        return found

    return dialect


def _constant(dialect: Dialect) -> Callable[[], Dialect]:
    return lambda: dialect


def is_machine(name: str) -> bool:
    """Whether a name is no target, but that of a machine for which the target cpu makes code."""
    from targets.base import target_names

    return _platform(name) is not None and name not in target_names()


def _platform(name: str) -> Platform | None:
    from targets.cpu.architectures import platform_of

    try:
        return platform_of(name)
    except ValueError:
        return None


def _machine(name: str) -> StrataError | None:
    """The error for a machine that is named as a target; None for other names."""
    platform = _platform(name)
    return platform and StrataError(f"there is no target '{cut(name)}'", [
        Problem(f"code for {platform.name} is made by the target cpu",
                hint=f"--target cpu --triple {name}")])


def _unknown(kind: str, name: str, known: Sequence[str], near: Sequence[str] = ()) -> StrataError:
    return StrataError(f"there is no {kind} '{cut(name)}'", [
        Problem(f"unknown {kind}", hint=hint_for(name, known, near))])
