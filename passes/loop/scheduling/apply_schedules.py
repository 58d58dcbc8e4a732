"""`loop-apply-schedules{file="..."}`: put schedules from a file on kernels (`--schedule FILE`).

    # name of a kernel, `*` for any part of it; then its schedule, as dumps show it
    @contract_0 <grid i0 tile 6, whole i1 tile 64 lanes, loop i2 tile 1 unroll 4>
    @map_*      <grid i0 tile 4096 lanes>

The first line that names a kernel holds for it, whatever schedule it had. Enters: kernels whose
axes are final. Axes keep the names that a dump of `loop-schedule` shows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import ParseError

from dialects.loop import KernelOp
from dialects.strata.schedule import Schedule, ScheduleAttr, parse_schedule
from dialects.strata.schedule_options import KnownOptions
from dialects.strata.types import format_symbols
from passes.base import PassError, StrataContext, StrataPass

NAME = "loop-apply-schedules"
_LINE = re.compile(r"@(?P<name>[^\s<]+)\s*(?P<schedule><.*>)")


@dataclass(frozen=True)
class Entry:
    """A line of the file."""

    place: str
    pattern: str
    schedule: Schedule


@dataclass(frozen=True)
class LoopApplySchedules(StrataPass):
    """Put a user's schedules on kernels."""

    name = NAME
    file: str

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        kernels = [op for op in module.body.block.ops if isinstance(op, KernelOp)]
        entries = read_schedules(Path(self.file), context.schedule_options)
        unused = {entry.place: entry.pattern for entry in entries}
        faults: list[tuple[str, str]] = []
        for kernel in kernels:
            entry = next((e for e in entries if _names(e, kernel)), None)
            if entry is not None:
                unused.pop(entry.place, None)
                faults += [("", f"{entry.place}: {text}") for text in misfits(entry, kernel)]
                kernel.properties["schedule"] = ScheduleAttr(entry.schedule)
        there = ", ".join(f"@{k.sym_name.data}" for k in kernels)
        faults += [("", f"{place}: no kernel is left for @{pattern}; there are: {there}")
                   for place, pattern in unused.items()]
        if faults:
            raise PassError(NAME, faults)


def read_schedules(path: Path, known: KnownOptions) -> list[Entry]:
    """The lines of a file. Raises PassError with every line that cannot be read."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PassError(NAME, [("", f"cannot read {path}: {error}")]) from None
    entries: list[Entry] = []
    faults: list[tuple[str, str]] = []
    for number, line in enumerate(lines, 1):
        text, place = line.partition("#")[0].rstrip(), f"{path}, line {number}"
        try:
            entries += [_read_line(place, text, known)] if text.strip() else []
        except ParseError as error:
            column = text.index("<") + error.span.start + 1
            faults.append(("", f"{place}, column {column}: {error.msg}"))
        except (ValueError, RecursionError) as error:
            faults.append(("", f"{place}: {error}"))
    if faults:
        raise PassError(NAME, faults)
    return entries


def _read_line(place: str, text: str, known: KnownOptions) -> Entry:
    match = _LINE.fullmatch(text.strip())
    if match is None:
        raise ValueError("expected a kernel and its schedule: @name <grid i0 tile 1, ...>")
    return Entry(place, match["name"], parse_schedule(match["schedule"], known))


def _names(entry: Entry, kernel: KernelOp) -> bool:
    return fnmatchcase(kernel.sym_name.data, entry.pattern)


def misfits(entry: Entry, kernel: KernelOp) -> list[str]:
    """Axes that the schedule lacks, or names in vain."""
    scheduled = {level.axis for level in entry.schedule.levels}
    name, axes = kernel.sym_name.data, set(kernel.axes)
    missing, strange = sorted(axes - scheduled), sorted(scheduled - axes)
    found = [f"it says nothing of axis {format_symbols(missing)} of @{name}"] if missing else []
    if strange:
        found.append(f"@{name} has no axis {format_symbols(strange)}; "
                     f"it has {format_symbols(kernel.axes)}")
    return found
