"""What a target is, and how targets are found.

A target is either a folder `targets/<name>/` whose `__init__` defines `TARGET`, an instance of
`Target`, or an entry point in the group `strata.targets`. There is no list of targets to edit.

    class OwnTarget(Target):
        scheduling, emission, running = OwnScheduling, OwnEmission, OwnRunning

    TARGET = OwnTarget("own", ("c",), "what it is")
    parts = TARGET.bind(TargetOptions(...))
    parts.facts.row_memory, parts.scheduling.schedule(kernel), parts.emission.emit(module, "c")
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import ClassVar

from dialects.strata.schedule_options import AnyOption
from dialects.strata.weights import WeightStore
from passes.base import StrataContext
from passes.contract import Facts
from passes.installed import entry_points
from targets.interface import Executable, TargetError
from targets.options import TargetOptions
from targets.parts import Building, Emission, Part, Running, Scheduling, Tuning

__all__ = ["Executable", "Parts", "Target", "TargetError", "TargetOptions", "find_target",
           "target_names"]

KINDS: dict[str, type[Part]] = {"scheduling": Scheduling, "emission": Emission,
                                "building": Building, "running": Running, "tuning": Tuning}
"""The parts of a target, by their names."""


@dataclass(frozen=True)
class Target:
    """A back end. `levels` names its forms of target code, from readable to final.

    Raises TypeError for a part that is missing or does not define what it must, and for a method of
    a part that is defined here.
    """

    name: str
    levels: tuple[str, ...]
    description: str = field(default="")
    lowers: bool = field(default=True)
    """Whether `load` accepts modules at block level only; if not, it accepts every level."""

    scheduling: ClassVar[type[Scheduling]]
    emission: ClassVar[type[Emission]]
    running: ClassVar[type[Running]]
    building: ClassVar[type[Building]] = Building
    tuning: ClassVar[type[Tuning]] = Tuning
    schedule_options: ClassVar[Sequence[AnyOption]] = ()
    """The options that its schedules may have besides the shared ones."""

    def __post_init__(self) -> None:
        own = type(self)
        for name, kind in KINDS.items():
            part = getattr(own, name, kind)
            place = f"{own.__name__}.{name}"
            if not (isinstance(part, type) and issubclass(part, kind)):
                raise TypeError(f"{place} must be a class derived from targets.parts."
                                f"{kind.__name__}, and is {part!r}")
            missing: frozenset[str] = getattr(part, "__abstractmethods__", frozenset[str]())
            if missing:
                names = ", ".join(sorted(missing))
                raise TypeError(f"{place} must be a class that defines {names}")
            if lost := sorted(questions(kind) & vars(own).keys()):
                raise TypeError(f"{own.__name__} defines {', '.join(lost)}, which is asked of "
                                f"{place}: define it in that class")

    def settled(self, options: TargetOptions) -> TargetOptions:
        """The options, with this target's defaults where the user left something open."""
        return options

    def check(self, options: TargetOptions) -> None:
        """Raises TargetError for settled options that the target does not support."""
        if options.features is not None:
            raise TargetError(f"target {self.name} has no feature sets to choose from: leave out "
                              f"'{options.features}'")

    def facts(self, options: TargetOptions) -> Facts:
        """What passes ask about the machine, under settled options that passed the check."""
        return Facts(self.name, checks_indices=options.check is not False,
                     checks_accesses=options.check is True)

    def report(self) -> list[str]:
        """Lines for `doctor`: what this machine offers the target, or what is missing."""
        return []

    def bind(self, options: TargetOptions) -> Parts:
        """The parts for these options. Raises TargetError for options that it does not support."""
        options = self.settled(options)
        self.check(options)
        return Parts(self, options)


class Parts:
    """A target bound to options, which are settled and checked."""

    def __init__(self, target: Target, options: TargetOptions):
        self.target, self.options = target, options
        bound = target.name, target.levels, options
        self.scheduling = target.scheduling(*bound)
        self.emission = target.emission(*bound)
        self.building = target.building(*bound)
        self.running = target.running(*bound)
        self.tuning = target.tuning(*bound)

    @cached_property
    def facts(self) -> Facts:
        """Computed when first asked for, since a device may have to answer."""
        return self.target.facts(self.options)

    def context(self, weights: WeightStore | None = None) -> StrataContext:
        """The context of passes that lower for this target."""
        return StrataContext.with_dialects(weights, self.facts, self.scheduling)


def questions(kind: type[Part]) -> set[str]:
    """What a part is asked: its public methods and attributes besides those of every part."""
    return {name for name in dir(kind) if not name.startswith("_")} - Part.__annotations__.keys()


def target_names() -> list[str]:
    """All targets: our own folders and those of installed packages."""
    return sorted({*_own_targets(), *(e.name for e in entry_points("strata.targets"))})


@cache
def _own_targets() -> tuple[str, ...]:
    import targets

    return tuple(m.name for m in pkgutil.iter_modules(targets.__path__) if m.ispkg)


def find_target(name: str) -> Target:
    """The target of a name. Raises KeyError, which lists the available targets."""
    for entry in entry_points("strata.targets"):
        if entry.name == name:
            return entry.load()
    if name not in target_names():
        raise KeyError(f"no target {name!r}; there are: {', '.join(target_names())}")
    return importlib.import_module(f"targets.{name}").TARGET
