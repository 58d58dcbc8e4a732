"""The steps of a script: how each is written, and how it changes a schedule.

    from rules                  begin with the target's own schedule; this is the default
    from loops                  begin with a loop over single elements for each axis, sums inside
    before packing              apply the script before operands are packed, as `tune` does
    fuse i0, i1                 two axes of the kernel become one, i0; before all other steps, and
                                before operands are packed
    tile i0 by 64, 8            divide the level into tiles of 64, and each of them into tiles of 8
    whole i1 by 128             one tile of 128 holds the whole axis, or a whole outer tile of it
    parallelize i0              one program per tile: the innermost level of the grid
    vectorize i1 [as group]     a tile lies in vector lanes; as `group`, several positions share a
                                lane; as `matrix`, a tile lies in matrix registers
    partial i2                  each tile starts a new partial sum, which is then added to the total
    unroll i2 by 4              each iteration of the loop executes four trips
    reorder i0, i2, i1          put these levels, in this order, into the positions that they hold
    fuse i0.0, i0.1             a level and the next level of the same axis become one
    pipeline 3                  overlap this many iterations of a loop
    pack                        copy operands into panels even if they are contiguous
    hand over to my_sine        launch a user's own kernel instead, which a plugin's pass
                                `hand-over-my-sine` knows
    set keep = 8, unset keep    set or remove any other option (`list options` shows them)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from dialects.records import dataclass
from dialects.strata.schedule import LEVEL_ROLES, Level, Schedule
from passes.scripts.fusion import Fusion
from passes.scripts.place import PLACE, Place, StepError, parse_place

RULES, LOOPS, EARLY = "from rules", "from loops", "before packing"
HANDED = "written"
"""The option of a schedule that names the user's kernel which is launched instead."""
Change = Callable[[Schedule], Schedule]
"""The schedule after a step. Raises StepError."""


@dataclass(frozen=True)
class Step:
    """A line of a script.

    `line`: its number. `option`, `value`: an option of the schedule that the step sets. `fusion`:
    two axes of the kernel that it fuses; such a step has no schedule to change.
    """

    text: str
    line: int
    change: Change
    option: str = ""
    value: int | str | None = None
    fusion: Fusion | None = None


@dataclass(frozen=True)
class Form:
    """How a step is written. `usage`: for messages. `pattern`: matches the text after the verb."""

    usage: str
    pattern: str
    make: Callable[[re.Match[str]], Change]


def parse_step(text: str, line: int) -> Step:
    """The step in a line. Raises ValueError if the line is not a step."""
    verb, _, rest = text.partition(" ")
    if verb not in FORMS:
        raise ValueError(
            f"there is no step '{verb}'{_near(verb)}; the steps are {', '.join(FORMS)}")
    form = FORMS[verb]
    match = re.fullmatch(form.pattern, rest.strip())
    if match is None:
        raise ValueError(f"cannot read the step '{text}'; write: {form.usage}")
    option, value = _option(verb, match)
    return Step(text, line, form.make(match), option, value, _fusion(verb, match))


def _near(verb: str) -> str:
    import difflib

    near = difflib.get_close_matches(verb, FORMS, n=1, cutoff=0.5)
    return f"; did you mean '{near[0]}'?" if near else ""


def _option(verb: str, match: re.Match[str]) -> tuple[str, int | str | None]:
    """The option that a step sets, and its value; an empty name if it sets none."""
    if verb == "pipeline":
        return "stages", int(match[1])
    if verb == "pack":
        return "pack", 1
    if verb == "hand":
        return HANDED, match[1].replace("-", "_")
    return (match[1], _value(match[2])) if verb == "set" else ("", None)


def _fusion(verb: str, match: re.Match[str]) -> Fusion | None:
    """The axes of the kernel that a step fuses."""
    if verb != "fuse":
        return None
    outer, inner = parse_place(match[1]), parse_place(match[2])
    whole = outer.number is None and inner.number is None
    return (outer.axis, inner.axis) if whole and outer.axis != inner.axis else None


def _value(text: str) -> int | str:
    return int(text) if re.fullmatch(r"-?\d+", text) else text


# ---------------------------------------------------------------------- what steps do
def _replaced(schedule: Schedule, at: int, *levels: Level) -> Schedule:
    """The schedule with one level replaced by others."""
    return replace(schedule, levels=(*schedule.levels[:at], *levels, *schedule.levels[at + 1:]))


def _tile(place: Place, tiles: Sequence[int]) -> Change:
    def change(schedule: Schedule) -> Schedule:
        at, level = place.index(schedule), place.level(schedule)
        if min(tiles) < 1:
            raise StepError("tiles are at least 1")
        if any(inner > outer for outer, inner in pairwise(tiles)):
            raise StepError("an inner tile cannot be larger than the outer one")
        if level.kind == "whole":
            raise StepError(f"one tile holds {place}, so it cannot be divided further")
        inner = [Level("loop", level.axis, tile) for tile in tiles[1:]]
        return _replaced(schedule, at, replace(level, tile=tiles[0]), *inner)

    return change


def _whole(place: Place, tile: int) -> Change:
    def change(schedule: Schedule) -> Schedule:
        level = replace(place.level(schedule), kind="whole", tile=tile)
        return _replaced(schedule, place.index(schedule), level)

    return change


def _parallelize(place: Place) -> Change:
    def change(schedule: Schedule) -> Schedule:
        at, level = place.index(schedule), place.level(schedule)
        if level.kind == "grid":
            raise StepError(f"{place} is already a level of the grid")
        if level.kind == "whole":
            raise StepError(f"one tile holds {place}, so there is only one program")
        if any(x.axis == level.axis for x in schedule.levels[:at]):
            raise StepError(f"{place} lies inside another level of its axis; only the outermost "
                            "one becomes a level of the grid")
        others = [x for k, x in enumerate(schedule.levels) if k != at]
        count = sum(x.kind == "grid" for x in others)
        levels = (*others[:count], replace(level, kind="grid"), *others[count:])
        return replace(schedule, levels=levels)

    return change


def _mark(place: Place, role: str) -> Change:
    def change(schedule: Schedule) -> Schedule:
        level = place.level(schedule)
        taken = next((r for r in LEVEL_ROLES if r != role and getattr(level, r)), None)
        if taken is not None:
            raise StepError(f"{place} already has the role {taken}")
        marked = replace(level, lanes=role == "lanes", group=role == "group",
                         matrix=role == "matrix", partial=role == "partial")
        return _replaced(schedule, place.index(schedule), marked)

    return change


def _unroll(place: Place, trips: int) -> Change:
    def change(schedule: Schedule) -> Schedule:
        level = place.level(schedule)
        if trips < 1:
            raise StepError("unroll factors are at least 1")
        if level.kind == "whole" and trips > 1:
            raise StepError(f"one tile holds {place}, so there is no loop to unroll")
        return _replaced(schedule, place.index(schedule), replace(level, unroll=trips))

    return change


def _reorder(places: Sequence[Place]) -> Change:
    def change(schedule: Schedule) -> Schedule:
        found = [place.index(schedule) for place in places]
        if len(set(found)) < len(found):
            raise StepError("it names a level twice")
        levels = list(schedule.levels)
        for at, source in zip(sorted(found), found, strict=True):
            levels[at] = schedule.levels[source]
        for axis in {x.axis for x in levels}:
            before, after = ([x for x in order if x.axis == axis]
                             for order in (schedule.levels, levels))
            if before != after:
                raise StepError(f"levels of axis {axis} would change their order, and an inner "
                                "tile cannot lie around its outer one")
        return replace(schedule, levels=tuple(levels))

    return change


def _fuse(outer: Place, inner: Place) -> Change:
    def change(schedule: Schedule) -> Schedule:
        if outer.axis != inner.axis:
            raise StepError(f"{outer} and {inner} are levels of different axes; only whole axes, "
                            "without numbers, can be fused, and only before all other steps")
        first, second = outer.index(schedule), inner.index(schedule)
        between = [x for x in schedule.levels[first + 1:second] if x.axis == outer.axis]
        if second <= first or between:
            raise StepError(f"{inner} is not the next level inside {outer}")
        if schedule.levels[second].kind == "whole":
            raise StepError(f"one tile holds {inner}, so its size is that of {outer}")
        level = replace(schedule.levels[second], kind=schedule.levels[first].kind)
        return _replaced(_replaced(schedule, second), first, level)

    return change


def _set(name: str, value: int | str) -> Change:
    return lambda schedule: schedule.with_option(name, value)


def _unset(name: str) -> Change:
    def change(schedule: Schedule) -> Schedule:
        if schedule.given(name) is None:
            raise StepError(f"the schedule does not set {name}")
        return replace(schedule, options=tuple(o for o in schedule.options if o[0] != name))

    return change


def _places(text: str) -> list[Place]:
    return [parse_place(found) for found in re.findall(PLACE, text)]


_ONE, _LIST = f"({PLACE})", rf"({PLACE}(?:\s*,\s*{PLACE})*)"
FORMS = {
    "tile": Form("tile AXIS by N, M, ...", rf"{_ONE} by (-?\d+(?:\s*,\s*-?\d+)*)", lambda m: _tile(
        parse_place(m[1]), [int(n) for n in m[2].split(",")])),
    "whole": Form("whole AXIS by N", rf"{_ONE} by (\d+)",
                  lambda m: _whole(parse_place(m[1]), int(m[2]))),
    "parallelize": Form("parallelize AXIS", _ONE, lambda m: _parallelize(parse_place(m[1]))),
    "vectorize": Form("vectorize AXIS [as lanes|group|matrix]",
                      rf"{_ONE}(?: as (lanes|group|matrix))?",
                      lambda m: _mark(parse_place(m[1]), m[2] or "lanes")),
    "partial": Form("partial AXIS", _ONE, lambda m: _mark(parse_place(m[1]), "partial")),
    "unroll": Form("unroll AXIS by N", rf"{_ONE} by (-?\d+)",
                   lambda m: _unroll(parse_place(m[1]), int(m[2]))),
    "reorder": Form("reorder AXIS, AXIS, ...", _LIST, lambda m: _reorder(_places(m[1]))),
    "fuse": Form("fuse AXIS, AXIS", rf"{_ONE}\s*,\s*({PLACE})",
                 lambda m: _fuse(parse_place(m[1]), parse_place(m[2]))),
    "pipeline": Form("pipeline N", r"(\d+)", lambda m: _set("stages", int(m[1]))),
    "pack": Form("pack", "", lambda m: _set("pack", 1)),
    "hand": Form("hand over to NAME", r"over to (\w[\w-]*)", lambda m: _set(
        HANDED, m[1].replace("-", "_"))),
    "set": Form("set OPTION = VALUE", r"(\w+)\s*=\s*([\w.-]+)",
                lambda m: _set(m[1], _value(m[2]))),
    "unset": Form("unset OPTION", r"(\w+)", lambda m: _unset(m[1])),
}
"""The steps by their verbs."""
