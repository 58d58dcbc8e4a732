"""Models of tabular data on the CPU, compared with onnxruntime.

    python benchmarks/cpu/tabular.py [--only TEXT] [--threads 1,2] [--rows 1,64,10000] [--fixed]
        [--seconds 0.5] [-o benchmarks/cpu/TABULAR.md]

Models are drawn from a seed (`tabular_models.py`). Both runtimes take turns in one process, and the
table has medians: of the process's CPU time on one thread, which a busy machine disturbs least, and
of wall time on several, which needs an idle machine. A cell is onnxruntime's time over ours, and
our time. Every call has another one of 16 inputs, so that no processor learns the ways through all
trees by heart; `1 again` repeats one row. Results are compared, too: a cell whose numbers differ
says so.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path

import numpy as np
import onnxruntime
from tabular_models import Case, cases

import compiler
from compiler.faults import versions

HERE = Path(__file__).parent
INPUTS = 16
TURN = 2e-4
"""The least seconds of a turn; short calls are repeated within it."""
EXPECTED = """\
A prototype in C came before the design. For one row and 1,000 trees of 63 leaves it took 11.7 us
where 8 trees descend together in scalar registers, with nodes of 8 bytes; 13.5 us with nodes of 12
bytes; and 19.5 to 25.4 us with gathers. onnxruntime took 15 us for the same row again, and 34 us a
row for 64 others. Expected from this: 1.3 times onnxruntime's speed for the same row again, and 2.5
times for others. Comparing all nodes for 16 rows at once took 4.7 us a row; that is not built."""
Run = Callable[[np.ndarray], list[np.ndarray]]


def ours(case: Case, threads: int, rows: int | None) -> tuple[Run, float]:
    """Our program, for one number of rows or for all; and the seconds that it took to compile."""
    began = time.perf_counter()
    sizes = {} if rows is None else {"n": rows}
    exe = compiler.compile(case.model, threads=threads, cache="off", dims=sizes)
    return lambda x: list(exe(x)), time.perf_counter() - began


def theirs(case: Case, threads: int) -> Run:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(
        case.model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, {"x": x})


def differ(case: Case, x: np.ndarray, a: Run, b: Run) -> bool:
    """Whether results differ by more than the order of sums explains. Labels may differ where the
    scores that decide are about equal."""
    found = [(np.asarray(p), np.asarray(q)) for p, q in zip(a(x), b(x), strict=True)]
    if any(p.shape != q.shape for p, q in found):
        return True
    floats = [np.allclose(p, q, 1e-3, case.tolerance) for p, q in found if q.dtype.kind == "f"]
    others = [np.mean(p != q) < 0.01 for p, q in found if q.dtype.kind != "f"]
    return not all([*floats, *others])


def timed(
    runs: list[Iterator[Callable[[], object]]], seconds: float, clock: Callable[[], float]
) -> list[float]:
    """The median time of a call of each, in turns."""
    times: list[list[float]] = [[] for _ in runs]
    end, count = time.perf_counter() + seconds, 0
    while count < 5 or time.perf_counter() < end:
        for own, run in zip(times, runs, strict=True):
            repeats = max(1, int(TURN / min(own, default=TURN)))
            calls = [next(run) for _ in range(repeats)]
            began = clock()
            for call in calls:
                call()
            own.append((clock() - began) / repeats)
        count += 1
    return [float(np.median(own[1:])) for own in times]


def cell(
    case: Case, pair: tuple[Run, Run], rows: int, again: bool, seconds: float,
    clock: Callable[[], float],
) -> str:
    rng = np.random.default_rng(rows)
    count = 1 if again else INPUTS if rows < 10_000 else 4
    inputs = [case.rows(rng, rows) for _ in range(count)]
    wrong = differ(case, inputs[0], *pair)
    mine, other = timed([cycle([lambda x=x, run=run: run(x) for x in inputs]) for run in pair],
                        seconds, clock)
    text = f"{other / mine:.2f} ({_shown(mine)})"
    return f"{text}, numbers differ" if wrong else text


def _shown(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def line(case: Case, threads: int, rows: list[int], options: argparse.Namespace) -> str:
    other, cells = theirs(case, threads), list[str]()
    run, seconds = ours(case, threads, None)
    for count in rows:
        if options.fixed:
            run, seconds = ours(case, threads, count)
        kinds = (False, True) if count == 1 else (False,)
        clock = time.process_time if threads == 1 else time.perf_counter
        cells += [cell(case, (run, other), count, again, options.seconds, clock)
                  for again in kinds]
    return " | ".join([f"| {case.name}", str(threads), *cells, f"{seconds:.1f} s |"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="TEXT", default="", help="models whose name has this")
    parser.add_argument("--threads", metavar="N,...", default="1,2")
    parser.add_argument("--rows", metavar="N,...", default="1,64,10000")
    parser.add_argument("--fixed", action="store_true", help="compile for each number of rows")
    parser.add_argument("--seconds", type=float, default=0.5, help="per cell")
    parser.add_argument("-o", metavar="FILE.md", dest="output", type=Path)
    options = parser.parse_args()
    rows = [int(text) for text in options.rows.split(",")]
    heads = [head for count in rows for head in (
        ("1 row", "1 again") if count == 1 else (f"{count:,} rows",))]
    command = " ".join(["python benchmarks/cpu/tabular.py", *sys.argv[1:]])
    lines = ["# Tabular models on the CPU", "", f"Made by `{command}`; do not edit.",
             "onnxruntime's time over ours, and our time.", "", EXPECTED, "",
             f"With {', '.join(versions())}.", "",
             f"| model | threads | {' | '.join(heads)} | compile |",
             "|---|---|" + "---|" * (len(heads) + 1)]
    for case in cases():
        if options.only in case.name:
            for threads in map(int, options.threads.split(",")):
                lines.append(line(case, threads, rows, options))
                print(lines[-1], flush=True)
    if options.output is not None:
        options.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
