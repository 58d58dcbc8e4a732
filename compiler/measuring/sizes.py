"""`bench --sizes`: one program for all sizes, timed at a list of sizes beside a program for each.

A line of the file is a JSON object: a size by name is an integer, or a range that is drawn from.

    {"batch": 1, "length": 128}
    {"batch": 8, "length": [16, 512], "calls": 5}

`calls` (1 if it is missing) weighs a line of plain sizes in the summary; of ranges, it is how many
sets of sizes are drawn. Draws follow `--seed`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from compiler.cli.execution import WantedInputs, run_loaded
from compiler.cli.session import session
from compiler.diagnostics import Problem, StrataError, some_of
from compiler.frontend import MemoryModel
from compiler.measuring.contest import Contest
from compiler.measuring.measure import captured_model, request_of
from compiler.measuring.work import Watch
from compiler.options import Specialize
from compiler.peers import load_peer, parse_peers
from compiler.specialization import specialize
from compiler.suggestions import guess
from dialects.symbolic.symbol import Symbol

if TYPE_CHECKING:
    from compiler.executable import Executable
    from compiler.frontend.torch.capture import Captured

CALLS = "calls"
OPEN, FIXED = "strata", "strata, sizes fixed"
NEVER = Specialize(after=1 << 40)
"""The model is specialized on demand only."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Line:
    """Sizes by name, and how many calls have them."""

    sizes: Mapping[str, int]
    calls: int = 1

    def __str__(self) -> str:
        return ", ".join(f"{name}={size}" for name, size in self.sizes.items())


# ---------------------------------------------------------------------- the file
def read_sizes(path: Path, seed: int) -> list[Line]:
    """The sets of sizes of a file. Raises StrataError naming every wrong line."""
    try:
        texts = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise StrataError(f"--sizes {path} cannot be read", [Problem(str(error))]) from error
    numbers, problems, found = random.Random(seed), list[Problem](), list[Line]()
    for number, text in [(k, t) for k, t in enumerate(texts, 1) if t.strip()]:
        try:
            found += _lines(json.loads(text), numbers)
        except ValueError as error:
            problems.append(Problem(f"line {number}: {error}"))
    if not found and not problems:
        problems.append(Problem("it has no lines"))
    if problems:
        raise StrataError(f"--sizes {path} cannot be used", [*problems, Problem(
            'a line is a JSON object such as {"batch": 8, "length": [16, 512], "calls": 5}')])
    return found


def _lines(given: Any, numbers: random.Random) -> Iterator[Line]:
    """The sets of sizes of a line. Raises ValueError."""
    if not isinstance(given, dict):
        raise ValueError("it is no JSON object")
    values = {str(k): v for k, v in cast("dict[Any, Any]", given).items()}
    calls = values.pop(CALLS, 1)
    if not _is_size(calls) or calls < 1:
        raise ValueError(f"'{CALLS}' is {calls!r}; it must be a number from 1 on")
    ends = {name: _ends(name, value) for name, value in values.items()}
    if all(low == high for low, high in ends.values()):
        yield Line({name: low for name, (low, _) in ends.items()}, calls)
        return
    for _ in range(calls):
        yield Line({name: numbers.randint(*both) for name, both in ends.items()})


def _ends(name: str, value: Any) -> tuple[int, int]:
    """The smallest and the largest size. Raises ValueError."""
    ends = cast("list[Any]", value) if isinstance(value, list) else [value, value]
    if len(ends) != 2 or not all(map(_is_size, ends)) or ends[0] > ends[1]:
        raise ValueError(f"'{name}' is {value!r}; it must be a size, or a list of the smallest and "
                         "the largest")
    return int(ends[0]), int(ends[1])


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def check_names(lines: Sequence[Line], names: Sequence[str]) -> None:
    """Raise StrataError for names that are not the model's open sizes, and for those that are
    missing."""
    used = list(dict.fromkeys(name for line in lines for name in line.sizes))
    known = f"its open sizes are {some_of(names, 20) or 'none'}"
    problems = [Problem(f"'{n}' is not an open size of the model", hint=f"{guess(n, names)}{known}")
                for n in used if n not in names]
    problems += [Problem(f"{line or 'an empty line'}: it lacks the size '{n}'")
                 for line in lines for n in names if n not in line.sizes]
    if problems:
        raise StrataError("--sizes does not fit the model", problems)


# ---------------------------------------------------------------------- the measurement
def measure_sizes(
    arguments: argparse.Namespace,
) -> tuple[list[Row], dict[str, StrataError]]:
    """A row for each set of sizes, and the problems: of peers by name, of sizes by their text.

    Raises StrataError for a wrong file, and if Strata cannot compile the model.
    """
    lines = read_sizes(arguments.sizes, arguments.seed)
    threads = arguments.threads or len(os.sched_getaffinity(0))
    problems: dict[str, StrataError] = {}
    with session(_open(arguments, lines[0]), threads) as current:
        current.options = replace(current.options, specialize=NEVER)
        captured, watch = captured_model(arguments.model), Watch()
        model = arguments.model if captured is None else MemoryModel(
            arguments.model, captured.program)
        started = time.perf_counter()
        exe = current.compile(model, watch)
        seconds = time.perf_counter() - started
        check_names(lines, [s.name for s in exe.signature.symbols()])
        bandwidth = _bandwidth(exe)
        rows: list[Row] = []
        for line in lines:
            current.progress.report(f"timing {line}")
            try:
                rows.append(_row(exe, line, arguments, threads, captured, problems, seconds))
            except StrataError as error:
                problems[str(line)] = error
                continue
            work = watch.work({Symbol.size(k): v for k, v in line.sizes.items()})
            rate = work.bytes / rows[-1][OPEN]["median_ms"] * 1e3
            rows[-1] |= {"bytes": work.bytes, "of bandwidth": rate / bandwidth}
    return rows, problems


def _open(arguments: argparse.Namespace, line: Line) -> argparse.Namespace:
    """The arguments with these sizes for inputs, while the model's stay open."""
    return argparse.Namespace(**{**vars(arguments), "open": True, "dim": [*line.sizes.items()]})


def _bandwidth(exe: Executable) -> float:
    """The bytes per second that this machine reaches."""
    from compiler.profiling.roofline import measured

    return measured(exe.options).bytes


def _row(
    exe: Executable, line: Line, arguments: argparse.Namespace, threads: int,
    captured: Captured | None, problems: dict[str, StrataError], seconds: float,
) -> Row:
    """All runtimes in turns at some sizes. Raises StrataError for sizes that Strata refuses."""
    inputs = WantedInputs(_open(arguments, line)).arrays(exe.signature)
    contest = Contest(threads)
    run_loaded(exe, inputs)  # which tells why sizes are refused
    contest.add(OPEN, lambda: exe.loaded.run(inputs), seconds)
    started = time.perf_counter()
    fixed = specialize(exe.loaded, inputs)
    contest.add(FIXED, lambda: fixed.run(inputs), time.perf_counter() - started)
    for name, twin in parse_peers(arguments.against).items():
        wanted = request_of(exe, inputs, twin or arguments.model,
                            captured_model(twin) if twin else captured)
        contest.add_peer(name, lambda name=name, wanted=wanted: load_peer(name, wanted))
    problems.update(contest.problems)
    found = {row["name"]: row for row in contest.rows(arguments.rounds)}
    return {"sizes": dict(line.sizes), "calls": line.calls, **found,
            "of static": found[FIXED]["cpu_ms" if threads == 1 else "median_ms"] / found[OPEN][
                "cpu_ms" if threads == 1 else "median_ms"]}


# ---------------------------------------------------------------------- text and plot
def table(rows: Sequence[Row]) -> Iterator[str]:
    """The figures of each set of sizes, then their summary."""
    for row in rows:
        names = ", ".join(f"{k}={v}" for k, v in row["sizes"].items())
        others = "".join(f"  {n} {row[n]['median_ms']:.3f}" for n in row if n not in (
            "sizes", "calls", OPEN, FIXED, "of static", "bytes", "of bandwidth"))
        yield (f"{names:30} {row[OPEN]['median_ms']:10.3f} ms  sizes fixed "
               f"{row[FIXED]['median_ms']:.3f}  {row['of static']:.2f} of static speed, "
               f"{row['of bandwidth']:.2f} of bandwidth{others}")
    if rows:
        calls = sum(r["calls"] for r in rows)
        mean = sum(r["calls"] * r[OPEN]["median_ms"] for r in rows) / calls
        worst = min(rows, key=lambda r: r["of static"])
        yield (f"{'mean of all calls':30} {mean:10.3f} ms  at worst {worst['of static']:.2f} of "
               f"static speed, at {Line(worst['sizes'])}")


WIDTH, HEIGHT, EDGE = 640, 320, 48


def plot(rows: Sequence[Row]) -> str:
    """The shares of static speed and of bandwidth over the sizes of calls, as SVG."""
    most = max([1.0, *(r[k] for r in rows for k in ("of static", "of bandwidth"))])
    step = (WIDTH - 2 * EDGE) / max(len(rows) - 1, 1)

    def place(number: int, share: float) -> str:
        height = share / most * (HEIGHT - 2 * EDGE)
        return f"{EDGE + number * step:.1f},{HEIGHT - EDGE - height:.1f}"

    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
             'font-family="sans-serif" font-size="11">',
             f'<polyline fill="none" stroke="#999" points="{place(0, 1)} '
             f'{place(max(len(rows) - 1, 1), 1)}"/>']
    for key, colour, y in (("of static", "#0b62a4", 16), ("of bandwidth", "#c0504d", 32)):
        points = " ".join(place(k, r[key]) for k, r in enumerate(rows))
        lines += [f'<polyline fill="none" stroke="{colour}" points="{points}"/>',
                  f'<text x="{EDGE}" y="{y}" fill="{colour}">share {key}</text>']
    for k, row in enumerate(rows):
        x, y = place(k, 0).split(",")
        lines.append(f'<text x="{x}" y="{float(y) + 14:.1f}" transform="rotate(40 {x} {y})">'
                     f"{Line(row['sizes'])}</text>")
    return "\n".join([*lines, "</svg>", ""])
