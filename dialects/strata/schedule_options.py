"""What the options of a schedule are: each is declared once, with its values, meaning and owner.

    WARPS = IntegerOption("warps", 4, "warps of 32 threads that share a program", "cuda", least=1)

    schedule.option(WARPS)      8 in schedule<... | warps = 8>, 4 where the schedule leaves it out

Here are the options that passes read. A target declares its own next to its rules and names them in
`Target.schedule_options`; so does the target of a plugin. `list options` prints them all. A text
with an option that is not declared, or with a value that the option cannot have, is refused.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from functools import cached_property
from typing import Generic, TypeVar

from xdsl.context import Context

from dialects.records import dataclass

Value = int | str
"""The text after the equals sign."""
T = TypeVar("T", covariant=True)


@dataclass(frozen=True)
class ScheduleOption(ABC, Generic[T]):
    """An option. `owner`: the pass, level or target that reads it."""

    name: str
    default: T
    meaning: str
    owner: str

    @property
    @abstractmethod
    def values(self) -> str:
        """The values that it can have, as `list options` prints them."""

    @abstractmethod
    def has(self, value: Value) -> bool:
        """Whether it can have this value."""

    @abstractmethod
    def read(self, value: Value) -> T:
        """The value as its readers want it."""


@dataclass(frozen=True)
class IntegerOption(ScheduleOption[int]):
    """A number between bounds; `most`: None for no upper one."""

    least: int = 0
    most: int | None = None

    @property
    def values(self) -> str:
        return f"an integer from {self.least} {'on' if self.most is None else f'to {self.most}'}"

    def has(self, value: Value) -> bool:
        return isinstance(value, int) and self.least <= value and (
            self.most is None or value <= self.most)

    def read(self, value: Value) -> int:
        return int(value)


@dataclass(frozen=True)
class FlagOption(ScheduleOption[bool]):
    """Yes or no, written as 1 or 0."""

    @property
    def values(self) -> str:
        return "0 or 1"

    def has(self, value: Value) -> bool:
        return value in (0, 1)

    def read(self, value: Value) -> bool:
        return bool(value)


@dataclass(frozen=True)
class ChoiceOption(ScheduleOption[str]):
    """One of a few words."""

    choices: tuple[str, ...] = ()

    @property
    def values(self) -> str:
        return f"one of {', '.join(self.choices)}"

    def has(self, value: Value) -> bool:
        return value in self.choices

    def read(self, value: Value) -> str:
        return str(value)


@dataclass(frozen=True)
class WordOption(ScheduleOption[str]):
    """A word of a form: `pattern` matches it, `form` describes it."""

    pattern: str = r"\S+"
    form: str = "a word"

    @property
    def values(self) -> str:
        return self.form

    def has(self, value: Value) -> bool:
        return isinstance(value, str) and re.fullmatch(self.pattern, value) is not None

    def read(self, value: Value) -> str:
        return str(value)


AnyOption = ScheduleOption[int] | ScheduleOption[bool] | ScheduleOption[str]

LOWERING = "loop-to-block"
TAILS = ChoiceOption(
    "tails", "", "computes the last, partial tile with masked lanes, or with smaller bodies: a "
    "few, or one for each number of rows that an open size leaves; by default peel where an axis "
    "lies in lanes, else mask", LOWERING, ("mask", "peel", "each"))
KEEP = IntegerOption(
    "keep", 0, "stores a value that takes at least this many operations, and that several loops "
    "need one after another, in memory of the program; 0: none", LOWERING)
ONLINE = FlagOption(
    "online", False, "rescales sums of exp(x - m) while the maximum m of x is being found, instead "
    "of waiting for it", LOWERING)
NEIGHBOURS = IntegerOption(
    "neighbours", 1, "with online = 1, finds a maximum for each group of so many neighbours of a "
    "step, which meet after the loop; 1: one maximum in each step", LOWERING, least=1)
WORDS = IntegerOption(
    "words", 0, "begins the whole tiles of a row that is not aligned at the first word of this "
    "many elements; 0: at its first element", LOWERING)
BRANCH = FlagOption(
    "branch", False, "walks all that rows reach in one loop, in which branches hold selections by "
    "indices that decide few tiles", LOWERING)
SEARCH = IntegerOption(
    "search", 0, "walks only from the first to the last column of scores that a row of the program "
    "sees, by masks of the inputs, and looks for them in this many columns at a time; 0: walks "
    "all; the CPU always looks where that saves trips", LOWERING)
DOT = FlagOption(
    "dot", False, "multiplies whole tiles as matrices", LOWERING)
PRECISION = ChoiceOption(
    "precision", "f32", "to what matrix instructions round f32 factors; tf32x3 adds three products "
    "of rounded parts", LOWERING, ("f32", "tf32", "tf32x3", "bf16", "fp16", "fp8", "fast"))
ATOMIC = FlagOption(
    "atomic", False, "adds the updates of an unordered scatter indivisibly, by many programs",
    LOWERING)
STREAM = FlagOption(
    "stream", False, "lets results, or what is read for the last time, bypass the caches, in "
    "kernels that move more than caches hold", "cpu, cuda, hip")

SHARED = (TAILS, KEEP, ONLINE, NEIGHBOURS, WORDS, BRANCH, SEARCH, DOT, PRECISION, ATOMIC, STREAM)


@dataclass(frozen=True)
class KnownOptions:
    """The options that a schedule may have: the shared ones and `own`, those of a target.

    `others`: asked for the options of further targets, and only where a name is none of these.
    Without it names of other targets are let through, because no target is known there.
    """

    own: tuple[AnyOption, ...] = ()
    others: Callable[[], Iterable[AnyOption]] | None = field(default=None, compare=False)

    def fault(self, name: str, value: Value) -> str | None:
        """Why a schedule cannot have this option with this value; None if it can."""
        found = self._near.get(name)
        if found is None and self.others is None:
            return None
        found = found or self._all.get(name)
        if found is None:
            return f"a schedule has no option '{name}'; {_hint(name, self._all)}"
        if not found.has(value):
            return f"the option {name} of a schedule is {found.values}, not {value}"
        return None

    def reads(self, name: str) -> bool:
        """Whether this target reads an option; where the target is not known, it may."""
        return self.others is None or name in self._near

    def faults(self, options: Iterable[tuple[str, Value]]) -> list[str]:
        """All faults of a schedule's options, those given twice among them."""
        pairs = list(options)
        names = [name for name, _ in pairs]
        twice = [f"the option {name} of a schedule is given twice"
                 for name in dict.fromkeys(names) if names.count(name) > 1]
        return twice + [fault for pair in pairs if (fault := self.fault(*pair))]

    def declared(self) -> list[AnyOption]:
        """All options: the shared ones, the target's, then those of other targets."""
        return [*SHARED, *self.own, *(() if self.others is None else self.others())]

    @cached_property
    def _near(self) -> Mapping[str, AnyOption]:
        return {option.name: option for option in (*SHARED, *self.own)}

    @cached_property
    def _all(self) -> Mapping[str, AnyOption]:
        return {option.name: option for option in reversed(self.declared())}


def _hint(name: str, known: Iterable[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"did you mean '{near[0]}'?" if near else f"there are: {', '.join(sorted(known))}"


@dataclass
class OptionContext(Context):
    """A context that knows which options schedules may have."""

    schedule_options: KnownOptions = field(default_factory=KnownOptions)
