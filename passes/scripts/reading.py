"""Read the file of `--schedule`: schedules and scripts, each for the kernels that its header names.

Enters: a path. Leaves: entries in the order of the file. The first entry that names a kernel
applies to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from itertools import takewhile
from pathlib import Path

from xdsl.utils.exceptions import ParseError

from dialects.loop import KernelOp, NestOp
from dialects.records import dataclass
from dialects.strata.schedule import Level, Schedule, level_starts, parse_schedule
from dialects.strata.schedule_options import KnownOptions
from passes.analyses.loop.kinds import is_contraction
from passes.scripts.fusion import Fusion
from passes.scripts.steps import EARLY, LOOPS, RULES, Step, parse_step

_HEADER = re.compile(r"(?:@(?P<name>[^\s<]+)|nests\((?P<nests>[^()]*)\))"
                     r"(?:\s*(?P<schedule><.*>))?(?:\s+(?P<early>before packing))?")
KINDS = ("contraction", "reduction", "recurrence", "scan", "scatter", "map")
"""The names of nests in a pattern."""
_REST = "..."


@dataclass(frozen=True)
class Entry:
    """A schedule or a script for some kernels.

    `line`: the header's. `schedule`: a whole schedule, without steps. `columns`: where its text
    begins, and each of its levels. `early`: whether it applies before operands are packed.
    """

    file: str
    line: int
    pattern: str
    matches: Callable[[KernelOp], bool]
    schedule: Schedule | None = None
    from_loops: bool = False
    early: bool = False
    steps: tuple[Step, ...] = ()
    columns: tuple[int, ...] = ()

    @property
    def place(self) -> str:
        return f"{self.file}, line {self.line}"

    @property
    def fusions(self) -> list[tuple[Step, Fusion]]:
        """The steps before all others that fuse axes of the kernel."""
        leading = takewhile(lambda step: step.fusion is not None, self.steps)
        return [(step, step.fusion) for step in leading if step.fusion is not None]

    def place_of(self, level: Level | None) -> str:
        """The place of a level of the whole schedule; of its beginning for None."""
        levels = self.schedule.levels if self.schedule else ()
        number = next((k for k, x in enumerate(levels, 1) if x is level), 0)
        return f"{self.place}, column {self.columns[number]}"


class Unreadable(Exception):
    """Lines of a file cannot be read: a message with its place for each."""

    def __init__(self, faults: Sequence[str]):
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)


def read_entries(path: Path, known: KnownOptions) -> list[Entry]:
    """The entries of a file. Raises Unreadable with all lines that cannot be read."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Unreadable([f"cannot read {path}: {error}"]) from None
    entries: list[Entry] = []
    found: list[str] = []
    for first, block in _blocks(lines):
        try:
            entries.append(_entry(str(path), first, block[0], block[1:], known))
        except ParseError as error:
            column = _column(block[0], error.span.start)
            found.append(f"{path}, line {first}, column {column}: {error.msg}")
        except _LineError as error:
            found.append(f"{path}, line {error.line}: {error}")
        except RecursionError:
            found.append(f"{path}, line {first}: it is nested too deeply")
    if found:
        raise Unreadable(found)
    return entries


def _column(header: str, at: int) -> int:
    """The column, counted from 1, of a position in a header's schedule."""
    return header.index("<") + at + 1


class _LineError(Exception):
    def __init__(self, line: int, text: str):
        super().__init__(text)
        self.line = line


def _blocks(lines: Sequence[str]) -> list[tuple[int, list[str]]]:
    """The headers with their line numbers, each with the indented or empty lines below it."""
    found: list[tuple[int, list[str]]] = []
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].rstrip()
        if text[:1].isspace() and found and not text.lstrip().startswith(("@", "nests(")):
            found[-1][1].append(text)
        elif not text and found:
            found[-1][1].append("")
        elif text:
            found.append((number, [text]))
    return found


def _entry(
    file: str, first: int, header: str, body: Sequence[str], known: KnownOptions
) -> Entry:
    """Raises _LineError, and ParseError with a position in the header's schedule."""
    match = _HEADER.fullmatch(header.strip())
    lines = [(k, text.strip()) for k, text in enumerate(body, first + 1) if text.strip()]
    if match is None or bool(match["schedule"]) == bool(lines):
        raise _LineError(first, "expected a kernel and its schedule, @name <grid i0 tile 1, ...>, "
                                "or @name or nests(kind, ...) with steps in indented lines below")
    matches = _by_name(match["name"]) if match["name"] else _by_nests(match["nests"], first)
    pattern = f"@{match['name']}" if match["name"] else f"nests({match['nests']})"
    if match["schedule"]:
        schedule = parse_schedule(match["schedule"], known)
        columns = tuple(_column(header, at) for at in (0, *level_starts(match["schedule"])))
        early = bool(match["early"] or schedule.fused)
        return Entry(file, first, pattern, matches, schedule, early=early, columns=columns)
    heads = [text for _, text in lines if text in (RULES, LOOPS, EARLY)]
    if RULES in heads and LOOPS in heads:
        raise _LineError(first, f"a script begins with '{RULES}' or '{LOOPS}', not both")
    steps = tuple(_step(k, text) for k, text in lines if text not in (RULES, LOOPS, EARLY))
    early = EARLY in heads or any(step.option == "pack" or step.fusion for step in steps)
    return Entry(file, first, pattern, matches, None, LOOPS in heads, early, steps)


def _step(line: int, text: str) -> Step:
    try:
        return parse_step(" ".join(text.split()) if '"' not in text else text, line)
    except ValueError as error:
        raise _LineError(line, str(error)) from None


# ---------------------------------------------------------------------- which kernels
def _by_name(pattern: str) -> Callable[[KernelOp], bool]:
    return lambda kernel: fnmatchcase(kernel.sym_name.data, pattern)


def _by_nests(text: str, line: int) -> Callable[[KernelOp], bool]:
    """Raises _LineError for an unknown kind of nest."""
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in (*KINDS, _REST):
            raise _LineError(line, f"there is no kind of nest '{word}'; there are "
                                   f"{', '.join(KINDS)}, and {_REST} for any further nests")
    return lambda kernel: _fits(words, [nest_kind(nest) for nest in kernel.nests])


def _fits(words: Sequence[str], kinds: Sequence[str]) -> bool:
    if not words:
        return not kinds
    if words[0] == _REST:
        return any(_fits(words[1:], kinds[k:]) for k in range(len(kinds) + 1))
    return kinds[:1] == [words[0]] and _fits(words[1:], kinds[1:])


def nest_kind(nest: NestOp) -> str:
    """The name of a nest in a pattern."""
    if nest.is_scatter:
        return "scatter"
    if nest.is_scan:
        return "scan"
    if nest.is_recurrence:
        return "recurrence"
    if not nest.reduce_axes:
        return "map"
    return "contraction" if is_contraction(nest) else "reduction"
