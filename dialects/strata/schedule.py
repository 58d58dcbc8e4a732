"""Schedules: attributes that map a kernel's axes to grid, loops and tiles, shown in dumps.

    schedule<grid i0 tile 1, grid i1 tile 64 lanes, loop i2 tile 1 unroll 4 | warps = 4>

Levels are nested in the order in which they are written, outermost first. Their kinds are:

- `grid`: one program per tile; all programs run in parallel.
- `loop`: the program iterates over the tiles.
- `whole`: a single tile covers the whole axis. Its size may exceed the extent; the rest is masked.

`unroll n` on a loop executes n trips per iteration. On a grid level it is the tile size, and the
program computes the tile's positions one by one (`passes.loop_to_block.copies`). A level may have
a role:

- `lanes`: the tile lies in the lanes of vector registers.
- `group`: a tile of a reduction axis whose positions are adjacent inside each lane, so that one
  instruction multiplies and sums them (a dot-product instruction).
- `matrix`: tiles of rows and of a reduction axis that lie in matrix registers while products are
  accumulated. Further levels of the same rows process the accumulated values.
- `partial`: on a reduction axis, each tile starts a new partial sum from zero, which is then added
  to the total. A long sum becomes a sum of short ones and loses less precision (pairwise
  summation, Higham 1993).

`fused i0 i1` before the levels records that a script fused axis i1 of the kernel into i0 (see
`passes/scripts/fusion.py`). The kernel has no axis i1 any more; a script needs the record to do the
same to the model's own kernel.

Options follow the levels. `schedule_options.py` declares their names, types and meanings. A target
declares those that only it reads next to its own rules. `list options` prints all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from typing import TypeVar

from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer

from dialects.classes import StrataData
from dialects.records import dataclass
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
    """An axis as text. Only an axis may occur here, so its bare name needs no prefix."""
    plain = axis.name.isascii() and axis.name.isidentifier()
    return axis.name if plain else quoted(axis.name)


@dataclass(frozen=True)
class Schedule:
    """The levels, outermost first, and options for the target (warps, stages, tails ...).

    `fused`: pairs of an axis and another one that a script fused into it, in this order.
    """

    levels: tuple[Level, ...]
    options: tuple[tuple[str, Value], ...] = field(default=())
    fused: tuple[tuple[Symbol, Symbol], ...] = field(default=())

    def option(self, option: ScheduleOption[T], default: T | None = None) -> T:
        """The value of an option; where it is left out `default`, or else the declared default."""
        value = self.given(option.name)
        if value is not None:
            return option.read(value)
        return option.default if default is None else default

    def given(self, name: str) -> Value | None:
        """The value of an option; None where the schedule does not set it."""
        return dict(self.options).get(name)

    def with_option(self, name: str, value: Value) -> Schedule:
        """The schedule with an option set, in its place if it has it, else as the last one."""
        return replace(self, options=tuple((dict(self.options) | {name: value}).items()))

    def level(self, axis: Symbol) -> Level | None:
        return next((x for x in self.levels if x.axis == axis), None)

    @property
    def lanes(self) -> Symbol | None:
        """The axis in vector lanes."""
        return next((x.axis for x in self.levels if x.lanes), None)

    @property
    def group(self) -> Symbol | None:
        """The reduction axis of which a few positions share a lane."""
        return next((x.axis for x in self.levels if x.group), None)

    @property
    def matrix(self) -> frozenset[Symbol]:
        """The axes whose tiles lie in matrix registers."""
        return frozenset(x.axis for x in self.levels if x.matrix)

    def __str__(self) -> str:
        fused = [f"fused {_axis_text(a)} {_axis_text(b)}" for a, b in self.fused]
        levels = ", ".join([*fused, *map(str, self.levels)])
        options = ", ".join(f"{k} = {v}" for k, v in self.options)
        return f"<{levels}{' | ' + options if options else ''}>"


@irdl_attr_definition
class ScheduleAttr(StrataData[Schedule]):
    """A schedule on a kernel."""

    name = "strata.schedule"

    @property
    def text(self) -> str:
        return str(self.data)

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Schedule:
        with parser.in_angle_brackets():
            fused = _parse_fused(parser)
            levels = tuple(level for _, level in _parse_levels(parser))
            options = _parse_options(parser)
        return Schedule(levels, options, fused)

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(str(self.data))


def print_kernel_schedule(printer: Printer, schedule: ScheduleAttr | None) -> None:
    """` schedule<...>`, or nothing for a kernel that has none yet."""
    if schedule is not None:
        printer.print_string(f" schedule{schedule.text}")


def parse_kernel_schedule(parser: Parser) -> dict[str, ScheduleAttr]:
    """The property `schedule` of a kernel, if its text has one."""
    if not parser.parse_optional_keyword("schedule"):
        return {}
    return {"schedule": ScheduleAttr(ScheduleAttr.parse_parameter(parser))}


def parse_schedule(text: str, known: KnownOptions | None = None) -> Schedule:
    """Parse the text that `str` of a schedule produces. Raises ParseError.

    `known`: the options that exist.
    """
    context = OptionContext(schedule_options=known or KnownOptions())
    return ScheduleAttr.parse_parameter(Parser(context, text))


def level_starts(text: str) -> tuple[int, ...]:
    """Where each level begins in a text that `parse_schedule` accepts. Raises ParseError."""
    parser = Parser(OptionContext(), text)
    parser.parse_punctuation("<")
    _parse_fused(parser)
    return tuple(start for start, _ in _parse_levels(parser))


def _parse_fused(parser: AttrParser) -> tuple[tuple[Symbol, Symbol], ...]:
    fused: list[tuple[Symbol, Symbol]] = []
    while parser.parse_optional_keyword("fused"):
        fused.append((_parse_axis(parser), _parse_axis(parser)))
        parser.parse_optional_punctuation(",")
    return tuple(fused)


def _parse_levels(parser: AttrParser) -> Iterator[tuple[int, Level]]:
    """The levels, each with the position at which it begins."""
    start = parser.pos
    while (kind := parser.parse_optional_keyword_in(LEVEL_KINDS)) is not None:
        yield start, _parse_level(parser, kind)
        parser.parse_optional_punctuation(",")
        start = parser.pos


def _parse_axis(parser: AttrParser) -> Symbol:
    return Symbol.axis(parser.parse_identifier_or_str_literal())


def _parse_level(parser: AttrParser, kind: str) -> Level:
    axis = _parse_axis(parser)
    parser.parse_keyword("tile")
    tile = parser.parse_integer()
    unroll = parser.parse_integer() if parser.parse_optional_keyword("unroll") else 1
    role = parser.parse_optional_keyword_in(LEVEL_ROLES)
    return Level(kind, axis, tile, unroll, **({role: True} if role else {}))


def _parse_options(parser: AttrParser) -> tuple[tuple[str, Value], ...]:
    """Raises ParseError for an option that is not declared, has a wrong value, or occurs twice."""
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
