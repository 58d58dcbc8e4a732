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

Options that the lowering understands:

- `tails`: "mask" computes the last, partial tile with masked lanes, "peel" with a smaller body.
- `keep`: a value that takes at least this many operations and that consecutive loops need is kept
  in memory of the program instead of being recomputed (`passes.analyses.loop.reuse`).
- `stream`: 1 if a kernel moves more data than the caches hold. Depending on the target, stores
  bypass the cache, or loads that are the last use are marked for early eviction.
- `strip`: the number of tiles of the last grid axis but one that form a strip. Programs are
  numbered column by column within a strip, so that programs that run together share what they
  read.
- `online`: 1 if sums of exp(x - m) are rescaled while the maximum m is being computed, as in
  online softmax (`passes.analyses.loop.online`).
- `words`: rows may start between aligned vectors of this many elements. Loops over such rows use
  whole tiles from the first aligned element on (`passes.loop_to_block.words`).
- `branch`: 1 if one loop covers everything that the rows reach, with selections by index, which
  affect few tiles, in branches.
- `promote`: the number of products of narrow floats after which their sum, which may have a lower
  precision until then, is added to an f32 accumulator.
- `specialize`: 1 for warp specialization: each program has a producer warp that loads the factors
  of products. A tile belongs to a group of four consumer warps, and the groups' tiles lie below
  each other.

Further options belong to targets (`warps` ...).
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
    """An axis as text. Only an axis may occur here, so its bare name needs no prefix."""
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
    """Parse the text that `str` of a schedule produces. Raises ParseError."""
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
