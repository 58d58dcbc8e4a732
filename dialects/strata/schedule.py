"""Schedules: how a kernel's axes become grid, loops and tiles. Attributes, visible in every dump.

    schedule<grid i0 tile 1, grid i1 tile 64 lanes, loop i2 tile 1 unroll 4 | warps = 4>

Levels are nested in the order written. `grid`: one program per tile, all in parallel. `loop`: the
program walks the tiles. `whole`: one tile holds the whole axis (its tile size may exceed the
extent, then the rest is masked). `unroll`: so many trips of a loop in one; of a grid level, whose
tile it is, the program computes the positions one by one (`passes.loop_to_block.copies`). `lanes`
lie in the lanes of vector registers. A `group` is a tile of a summed axis whose positions lie side
by side inside each lane: an instruction multiplies and sums them at once. `matrix` tiles, of rows
and of a summed axis, lie in matrix registers while products are summed up; further levels of such
rows walk what is made of the sums. Within each tile of a `partial` level of a summed axis, sums
start from zero; then they are added to the sums so far. So a long sum is one of a few short sums,
which loses fewer digits (pairwise summation, Higham 1993).

Options follow the levels. What each is called, may be and means stands in `schedule_options.py`,
and, for those that only a target reads, beside that target's rules; `list options` prints them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeVar

from xdsl.ir import Data
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer

from dialects.strata.schedule_options import (
    KnownOptions,
    OptionContext,
    ScheduleOption,
    Value,
)
from dialects.symbolic.symbol import Symbol, quoted

LEVEL_KINDS = ("grid", "loop", "whole")
LEVEL_ROLES = ("lanes", "group", "matrix", "partial")
T = TypeVar("T")


@dataclass(frozen=True)
class Level:
    """One level of the nest: `kind axis tile n [unroll n] [lanes | group | matrix | partial]`."""

    kind: str
    axis: Symbol
    tile: int = 1
    unroll: int = 1
    lanes: bool = False
    group: bool = False
    matrix: bool = False
    partial: bool = False

    def __str__(self) -> str:
        unroll = f" unroll {self.unroll}" if self.unroll != 1 else ""
        role = "".join(f" {name}" for name in LEVEL_ROLES if getattr(self, name))
        return f"{self.kind} {_axis_text(self.axis)} tile {self.tile}{unroll}{role}"


def _axis_text(axis: Symbol) -> str:
    """Only an axis can stand there, so that any word is its name."""
    plain = axis.name.isascii() and axis.name.isidentifier()
    return axis.name if plain else quoted(axis.name)


@dataclass(frozen=True)
class Schedule:
    """The levels, outermost first, and options for the target (warps, stages, tails ...)."""

    levels: tuple[Level, ...]
    options: tuple[tuple[str, Value], ...] = field(default=())

    def option(self, option: ScheduleOption[T], default: T | None = None) -> T:
        """The value of an option; where it is left out `default`, or else the declared default."""
        value = self.given(option.name)
        if value is not None:
            return option.read(value)
        return option.default if default is None else default

    def given(self, name: str) -> Value | None:
        """What the schedule says of an option; None where it says nothing."""
        return dict(self.options).get(name)

    def with_option(self, name: str, value: Value) -> Schedule:
        """The schedule with an option set, in its place if it has it, else as the last one."""
        return replace(self, options=tuple((dict(self.options) | {name: value}).items()))

    def level(self, axis: Symbol) -> Level | None:
        return next((x for x in self.levels if x.axis == axis), None)

    @property
    def lanes(self) -> Symbol | None:
        """The axis that lies in vector lanes."""
        return next((x.axis for x in self.levels if x.lanes), None)

    @property
    def group(self) -> Symbol | None:
        """The summed axis of which a few positions share a lane."""
        return next((x.axis for x in self.levels if x.group), None)

    @property
    def matrix(self) -> frozenset[Symbol]:
        """The axes of which tiles lie in matrix registers."""
        return frozenset(x.axis for x in self.levels if x.matrix)

    def __str__(self) -> str:
        levels = ", ".join(map(str, self.levels))
        options = ", ".join(f"{k} = {v}" for k, v in self.options)
        return f"<{levels}{' | ' + options if options else ''}>"


@irdl_attr_definition
class ScheduleAttr(Data[Schedule]):
    """A schedule on a kernel."""

    name = "strata.schedule"

    @property
    def text(self) -> str:
        return str(self.data)

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Schedule:
        with parser.in_angle_brackets():
            levels: list[Level] = []
            while (kind := parser.parse_optional_keyword_in(LEVEL_KINDS)) is not None:
                levels.append(_parse_level(parser, kind))
                parser.parse_optional_punctuation(",")
            options = _parse_options(parser)
        return Schedule(tuple(levels), options)

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(str(self.data))


def parse_schedule(text: str, known: KnownOptions | None = None) -> Schedule:
    """What `str` of a schedule gave. Raises ParseError. `known`: the options that there are."""
    context = OptionContext(schedule_options=known or KnownOptions())
    return ScheduleAttr.parse_parameter(Parser(context, text))


def _parse_level(parser: AttrParser, kind: str) -> Level:
    axis = Symbol.axis(parser.parse_identifier_or_str_literal())
    parser.parse_keyword("tile")
    tile = parser.parse_integer()
    unroll = parser.parse_integer() if parser.parse_optional_keyword("unroll") else 1
    role = parser.parse_optional_keyword_in(LEVEL_ROLES)
    return Level(kind, axis, tile, unroll, **({role: True} if role else {}))


def _parse_options(parser: AttrParser) -> tuple[tuple[str, Value], ...]:
    """Raises ParseError at an option that is not declared, has a wrong value, or stands twice."""
    if not parser.parse_optional_punctuation("|"):
        return ()
    known = (parser.ctx.schedule_options if isinstance(parser.ctx, OptionContext)
             else KnownOptions())
    options: dict[str, Value] = {}
    while True:
        start = parser.pos
        if (name := parser.parse_optional_identifier()) is None:
            return tuple(options.items())
        parser.parse_punctuation("=")
        number = parser.parse_optional_integer(allow_boolean=False)
        value = parser.parse_identifier() if number is None else number
        fault = next(iter(known.faults([*options.items(), (name, value)])), None)
        if fault is not None:
            parser.raise_error(fault, start, start + len(name))
        options[name] = value
        parser.parse_optional_punctuation(",")
