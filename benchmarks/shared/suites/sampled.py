"""Kernels at sizes that are drawn from a seed: which rows there are, and their page.

A record has `class`, `name`, and where it was measured `ms` and `errors` by contestant; `notes` say
why one does not take part, and `problem` why the whole row failed.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from suites.contests import chosen

OURS, EAGER = "strata", "eager"
LOW = 0.9
"""Rows below this share of the best peer's speed are listed."""
Record = Mapping[str, Any]


def parser_of(about: str | None, name: str, budget: float, seconds: float,
              page: Path) -> argparse.ArgumentParser:
    """The options that both suites have. `name`: of the file of results; `page`: where it goes."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", default="0", help="what sizes are drawn from, any text")
    parser.add_argument("--classes", default="", help="those whose names hold one of these")
    parser.add_argument("--pick", default="", help="rows as class/number, instead of classes")
    parser.add_argument("--count", type=int, default=8, help="rows of each class")
    parser.add_argument("--budget", type=float, default=budget, help="seconds")
    parser.add_argument("--seconds", type=float, default=seconds, help="of calls, for each row")
    parser.add_argument("--results", type=Path, default=Path(f"build/{name}.json"))
    parser.add_argument("-o", dest="output", type=Path, default=page)
    parser.add_argument("--rows", help=argparse.SUPPRESS)
    return parser


def keys_of(options: argparse.Namespace) -> list[str]:
    """The rows that are asked for: a class and a number each."""
    if options.pick:
        return options.pick.split(",")
    from draws import classes

    names = chosen(classes(), options.classes)
    return [f"{name}/{k}" for k in range(options.count) for name in names]


def seeds_of(records: Mapping[str, Record]) -> str:
    """The seeds of all rows, for the page."""
    return ", ".join(dict.fromkeys(key.split("/")[0] for key in records))


def gain(found: Record) -> float | None:
    """How many times as fast as the best peer."""
    times = found.get("ms", {})
    peers = [t for name, t in times.items() if name != OURS]
    return min(peers) / times[OURS] if OURS in times and peers else None


def page(
    records: Mapping[str, Record], opening: str, measure: str, rounding: float,
    reasons: Mapping[str, str] | None = None,
) -> str:
    """The table of classes, and the rows that fall short.

    `opening`: what made it, and where; `measure`: what is compared; `rounding`: up to which error
    no result is wrong, whatever those of others are; `reasons`: by class, why its rows may fall
    short.
    """
    by_class: dict[str, list[float]] = defaultdict(list)
    for found in records.values():
        if (value := gain(found)) is not None:
            by_class[found["class"]].append(value)
    every = [v for values in by_class.values() for v in values]
    if not every:
        return "Nothing was measured.\n"
    lines = ["# Kernels at sizes that nobody tuned", "", opening, "", measure, "",
             f"{len(every)} kernels: geometric mean {geometric_mean(every):.2f}; of classes "
             f"{geometric_mean([geometric_mean(v) for v in by_class.values()]):.2f}; "
             f"{sum(v < LOW for v in every) / len(every):.0%} below {LOW}, "
             f"least {min(every):.2f}.", "",
             "| class | rows | geometric mean | least | below 0.9 |", "|---|---|---|---|---|"]
    lines += [f"| {name} | {len(values)} | {geometric_mean(values):.2f} | {min(values):.2f} | "
              f"{sum(v < LOW for v in values)} |" for name, values in sorted(by_class.items())]
    short, wrong = _short(records, reasons or {}), _wrong(records, rounding)
    return "\n".join([*lines, "", *short, "", *wrong, ""])


def _short(records: Mapping[str, Record], reasons: Mapping[str, str]) -> list[str]:
    """The rows below the bar, slowest first, in milliseconds, with the reasons that are known."""
    low = sorted((value, key) for key, found in records.items()
                 if (value := gain(found)) is not None and value < LOW)
    lines: list[str] = []
    for value, key in low:
        found = records[key]
        times = ", ".join(f"{who} {t:.3g}" for who, t in found["ms"].items())
        why = reasons.get(found["class"], "")
        lines.append(f"- {value:.2f} {found['class']}: {found['name']}: {times}"
                     + (f" ({why})" if why else ""))
    return lines


def _wrong(records: Mapping[str, Record], rounding: float) -> list[str]:
    """Rows without a figure of ours, and those that are further off than twice the peers'."""
    lines: list[str] = []
    for key, found in records.items():
        errors = found.get("errors", {})
        if "problem" in found or OURS in found.get("notes", {}):
            why = found.get("problem") or found["notes"][OURS]
            lines.append(f"- {found['class']}: {found.get('name', key)}: no result: {why}")
        elif OURS in errors and EAGER in errors and not errors[OURS] <= max(
                2 * max(v for n, v in errors.items() if n != OURS), rounding):
            lines.append(f"- {found['class']}: {found['name']}: off by {errors[OURS]:.1e}, eager "
                         f"by {errors[EAGER]:.1e}")
    return lines
