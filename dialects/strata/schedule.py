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
which loses fewer digits (pairwise summation, Higham 1993). `tails`: "mask" computes the last,
partial tile with masked lanes, "peel" with a smaller body. `keep`: a value that takes so many
operations or more, and that loops one after another need, is kept in memory of the program (see
`passes.analyses.loop.reuse`). `stream`: 1 where a kernel moves more than caches hold: results go
past them, or what is read for the last time does not stay there, as targets have it. `strip`:
programs are numbered along strips of so many tiles of the last grid axis but one, column by column,
so that those that run together share what they read. `online`: 1 where sums of exp(x - m) are
rescaled while the maximum m of x is being found, instead of waiting for it (see
`passes.analyses.loop.online`). `words`: walks of rows that begin between words of so many elements
have whole tiles from a whole word on (see `passes.loop_to_block.words`). `branch`: 1 where one loop
walks all that rows reach, and selections by indices, which decide few tiles, are in branches.
`promote`: after how many products of narrow floats their sum, which may have fewer bits until then,
is added to one of f32. `specialize`: 1 where a warp of each program does nothing but load the
factors of products; a tile is that of a group of four of its other warps, and groups have tiles
below each other. Other options are for targets (`warps` ...).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.ir import Data
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer

from dialects.symbolic.symbol import Symbol, quoted

LEVEL_KINDS = ("grid", "loop", "whole")
LEVEL_ROLES = ("lanes", "group", "matrix", "partial")


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
    options: tuple[tuple[str, int | str], ...] = field(default=())

    def option(self, name: str, default: int | str) -> int | str:
        return dict(self.options).get(name, default)

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


def parse_schedule(text: str) -> Schedule:
    """What `str` of a schedule gave. Raises ParseError."""
    return ScheduleAttr.parse_parameter(Parser(Context(), text))


def _parse_level(parser: AttrParser, kind: str) -> Level:
    axis = Symbol.axis(parser.parse_identifier_or_str_literal())
    parser.parse_keyword("tile")
    tile = parser.parse_integer()
    unroll = parser.parse_integer() if parser.parse_optional_keyword("unroll") else 1
    role = parser.parse_optional_keyword_in(LEVEL_ROLES)
    return Level(kind, axis, tile, unroll, **({role: True} if role else {}))


def _parse_options(parser: AttrParser) -> tuple[tuple[str, int | str], ...]:
    if not parser.parse_optional_punctuation("|"):
        return ()
    options: list[tuple[str, int | str]] = []
    while (name := parser.parse_optional_identifier()) is not None:
        parser.parse_punctuation("=")
        number = parser.parse_optional_integer(allow_boolean=False)
        options.append((name, parser.parse_identifier() if number is None else number))
        parser.parse_optional_punctuation(",")
    return tuple(options)
