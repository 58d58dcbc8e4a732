"""The file of `--schedule`: schedules and scripts, each for the kernels that its line names.

Enters: a path. Leaves: entries in their order; the first one that names a kernel holds for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from xdsl.utils.exceptions import ParseError

from dialects.loop import KernelOp, NestOp
from dialects.strata.schedule import Schedule, parse_schedule
from dialects.strata.schedule_options import KnownOptions
from passes.analyses.loop.kinds import is_contraction
from passes.scripts.steps import EARLY, LOOPS, RULES, Step, parse_step

_HEADER = re.compile(r"(?:@(?P<name>[^\s<]+)|nests\((?P<nests>[^()]*)\))"
                     r"(?:\s*(?P<schedule><.*>))?(?:\s+(?P<early>before packing))?")
KINDS = ("contraction", "reduction", "scan", "scatter", "map")
"""What a nest is called in a pattern."""
_REST = "..."


@dataclass(frozen=True)
class Entry:
    """What is said of some kernels. `line`: where. `schedule`: a whole one, without steps; `early`:
    whether it holds before operands are packed."""

    file: str
    line: int
    pattern: str
    matches: Callable[[KernelOp], bool]
    schedule: Schedule | None = None
    from_loops: bool = False
    early: bool = False
    steps: tuple[Step, ...] = ()

    @property
    def place(self) -> str:
        return f"{self.file}, line {self.line}"


class Unreadable(Exception):
    """The lines of a file that cannot be read, each with its place."""

    def __init__(self, faults: Sequence[str]):
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)


def read_entries(path: Path, known: KnownOptions) -> list[Entry]:
    """Raises Unreadable with every line that cannot be read."""
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
            column = block[0].index("<") + error.span.start + 1
            found.append(f"{path}, line {first}, column {column}: {error.msg}")
        except _LineError as error:
            found.append(f"{path}, line {error.line}: {error}")
        except RecursionError:
            found.append(f"{path}, line {first}: it is nested too deeply")
    if found:
        raise Unreadable(found)
    return entries


class _LineError(Exception):
    def __init__(self, line: int, text: str):
        super().__init__(text)
        self.line = line


def _blocks(lines: Sequence[str]) -> list[tuple[int, list[str]]]:
    """The number of a header's line; it, and the lines that follow it, indented, or empty."""
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
    """Raises _LineError, and ParseError at a place in the header's schedule."""
    match = _HEADER.fullmatch(header.strip())
    lines = [(k, text.strip()) for k, text in enumerate(body, first + 1) if text.strip()]
    if match is None or bool(match["schedule"]) == bool(lines):
        raise _LineError(first, "expected a kernel and its schedule, @name <grid i0 tile 1, ...>, "
                                "or @name, nests(kind, ...) and steps, indented, in the next lines")
    matches = _by_name(match["name"]) if match["name"] else _by_nests(match["nests"], first)
    pattern = f"@{match['name']}" if match["name"] else f"nests({match['nests']})"
    if match["schedule"]:
        schedule = parse_schedule(match["schedule"], known)
        return Entry(file, first, pattern, matches, schedule, early=bool(match["early"]))
    heads = [text for _, text in lines if text in (RULES, LOOPS, EARLY)]
    if RULES in heads and LOOPS in heads:
        raise _LineError(first, f"a script begins '{RULES}' or '{LOOPS}', not both")
    steps = tuple(_step(k, text) for k, text in lines if text not in (RULES, LOOPS, EARLY))
    early = EARLY in heads or any(step.option == "pack" for step in steps)
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
    """Raises _LineError for a kind that there is not."""
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in (*KINDS, _REST):
            raise _LineError(line, f"a nest is no '{word}'; it is one of {', '.join(KINDS)}, or "
                                   f"{_REST} for any more nests")
    return lambda kernel: _fits(words, [nest_kind(nest) for nest in kernel.nests])


def _fits(words: Sequence[str], kinds: Sequence[str]) -> bool:
    if not words:
        return not kinds
    if words[0] == _REST:
        return any(_fits(words[1:], kinds[k:]) for k in range(len(kinds) + 1))
    return kinds[:1] == [words[0]] and _fits(words[1:], kinds[1:])


def nest_kind(nest: NestOp) -> str:
    """The word for a nest in a pattern."""
    if nest.is_scatter:
        return "scatter"
    if nest.is_scan:
        return "scan"
    if not nest.reduce_axes:
        return "map"
    return "contraction" if is_contraction(nest) else "reduction"
