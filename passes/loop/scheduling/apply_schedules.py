"""`loop-apply-schedules{file="..."}`: apply schedules from a file to kernels (`--schedule FILE`).

    # kernel name, where `*` matches any text, then the schedule as dumps show it
    @contract_0 <grid i0 tile 6, whole i1 tile 64 lanes, loop i2 tile 1 unroll 4>
    @map_*      <grid i0 tile 4096 lanes>

The first line that matches a kernel applies to it and replaces any schedule the kernel had. Enters:
kernels whose axes are final. Axes have the names that a dump of `loop-schedule` shows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser
from xdsl.utils.exceptions import ParseError

from dialects.loop import KernelOp
from dialects.strata.schedule import Schedule, ScheduleAttr
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
    """Apply a user's schedules to kernels."""

    name = NAME
    file: str

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        kernels = [op for op in module.body.block.ops if isinstance(op, KernelOp)]
        entries = read_schedules(Path(self.file))
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


def read_schedules(path: Path) -> list[Entry]:
    """The entries of a file. Raises PassError with every line that cannot be parsed."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PassError(NAME, [("", f"cannot read {path}: {error}")]) from None
    entries: list[Entry] = []
    faults: list[tuple[str, str]] = []
    for number, line in enumerate(lines, 1):
        text, place = line.partition("#")[0].strip(), f"{path}, line {number}"
        try:
            entries += [_read_line(place, text)] if text else []
        except (ParseError, ValueError, RecursionError) as error:
            what = error.msg if isinstance(error, ParseError) else str(error)
            faults.append(("", f"{place}: {what}"))
    if faults:
        raise PassError(NAME, faults)
    return entries


def _read_line(place: str, text: str) -> Entry:
    match = _LINE.fullmatch(text)
    if match is None:
        raise ValueError("expected a kernel and its schedule: @name <grid i0 tile 1, ...>")
    schedule = ScheduleAttr.parse_parameter(Parser(Context(), match["schedule"]))
    return Entry(place, match["name"], schedule)


def _names(entry: Entry, kernel: KernelOp) -> bool:
    return fnmatchcase(kernel.sym_name.data, entry.pattern)


def misfits(entry: Entry, kernel: KernelOp) -> list[str]:
    """Axes that the schedule leaves out, and axes it names that do not exist."""
    scheduled = {level.axis for level in entry.schedule.levels}
    name, axes = kernel.sym_name.data, set(kernel.axes)
    missing, strange = sorted(axes - scheduled), sorted(scheduled - axes)
    found = [f"it says nothing of axis {format_symbols(missing)} of @{name}"] if missing else []
    if strange:
        found.append(f"@{name} has no axis {format_symbols(strange)}; "
                     f"it has {format_symbols(kernel.axes)}")
    return found
