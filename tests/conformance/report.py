"""Run the suites, and say how many tests pass.

    python -m tests.conformance.report cpu reference             a table, and what is unexpected
    python -m tests.conformance.report cpu --suites core,light   some suites only
    python -m tests.conformance.report cpu --all                 and the error of all that fails
    python -m tests.conformance.report --prune                   run what is expected to fail, and
                                                                 take what passes off the list

Exit status: 0 when all is as expected_failures.txt says, 1 otherwise.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from compiler.onnx_backend import StrataBackend
from tests.conformance.cases import SUITES, Case, run_case, suite
from tests.conformance.expectations import (
    FILE,
    Failure,
    expected_failure,
    expected_failures,
    without,
)


@dataclass(frozen=True)
class Outcome:
    """What became of a case; `error` is empty when it passed."""

    case: Case
    error: str
    seconds: float


def outcomes(cases: Iterable[Case], run: Callable[[Case], None]) -> Iterator[Outcome]:
    """Run cases one after the other."""
    for case in cases:
        error, start = "", time.perf_counter()
        try:
            run(case)
        except Exception as fault:  # whatever it is, the others follow
            error = f"{type(fault).__name__}: {' '.join(str(fault).split())}"
        yield Outcome(case, error, time.perf_counter() - start)


def on_target(target: str) -> Callable[[Case], None]:
    """The function that runs a case on that target, with the user's cache of compiled code."""
    return lambda case: run_case(case, target, "default")


def table(rows: Mapping[str, Sequence[str]], heads: Sequence[str]) -> str:
    """Rows by their first cell, as Markdown."""
    lines = [heads, ["---"] * len(heads), *([name, *cells] for name, cells in rows.items())]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def counts(found: Sequence[Outcome]) -> str:
    """`11 of 12, 3.4 s`."""
    passed = sum(not o.error for o in found)
    return f"{passed} of {len(found)}, {sum(o.seconds for o in found):.1f} s"


def judge(found: Sequence[Outcome], target: str, failures: Mapping[str, Failure]) -> list[str]:
    """What is not as expected, a line each."""
    wrong: list[str] = []
    for outcome in found:
        expected = expected_failure(failures, outcome.case, target)
        if outcome.error and expected is None:
            wrong.append(f"{target}: {outcome.case.key} fails: {outcome.error[:300]}")
        elif not outcome.error and expected is not None:
            wrong.append(f"{target}: {outcome.case.key} passes, but is listed: {expected.reason}")
    return wrong


def report(targets: Sequence[str], suites: Sequence[str], everything: bool) -> int:
    """Run and print. The exit status."""
    failures = expected_failures()
    rows: dict[str, list[str]] = {name: [] for name in suites}
    wrong: list[str] = []
    for target in targets:
        for name in suites:
            found = list(outcomes(suite(name), on_target(target)))
            rows[name].append(counts(found))
            wrong += judge(found, target, failures)
            for outcome in found if everything else []:
                if outcome.error:
                    print(f"{target}: {outcome.case.key}: {outcome.error[:300]}")
    print(table(rows, ["suite", *targets]))
    print("\n".join(wrong) or "all as expected")
    return 1 if wrong else 0


def prune() -> int:
    """Shorten the list by those that pass on every target where they should fail."""
    failures = expected_failures()
    passing: set[str] = set()
    for case in (c for name in SUITES for c in suite(name) if c.key in failures):
        targets = [t for t in StrataBackend.targets if failures[case.key].holds(t)]
        found = [next(outcomes([case], on_target(t))) for t in targets]
        if not any(o.error for o in found):
            passing.add(case.key)
            print(f"{case.key} passes")
    FILE.write_text(without(FILE.read_text(encoding="utf-8"), passing), encoding="utf-8")
    print(f"{len(failures) - len(passing)} of {len(failures)} are left")
    return 0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.report",
                                     description=(__doc__ or "").splitlines()[0])
    parser.add_argument("targets", nargs="*", default=["cpu"],
                        help=f"of {', '.join(StrataBackend.targets)}; cpu without any")
    parser.add_argument("--suites", default=",".join(SUITES), help="comma-separated")
    parser.add_argument("--all", action="store_true", help="print every failing test's error")
    parser.add_argument("--prune", action="store_true", help="shorten expected_failures.txt")
    options = parser.parse_args(arguments)
    suites = options.suites.split(",")
    for name, known in ((suites, SUITES), (options.targets, StrataBackend.targets)):
        if unknown := [n for n in name if n not in known]:
            parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(known)}")
    return prune() if options.prune else report(options.targets, suites, options.all)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
