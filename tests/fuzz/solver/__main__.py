"""Draws models, judges them in parallel processes, and prints a table of what is wrong.

    python -m tests.fuzz.solver --seed 1 --count 2000 --jobs 16 -o found
    python -m tests.fuzz.solver --seed 1 --show 17

Failures that look alike are one row of the table; the smallest model among them is made smaller,
and the first wrong pass is named. With -o each is written as NAME.onnx with its inputs NAME.npz,
and the small ones as NAME-small.onnx. The exit status is 1 when there are any. A crash of
onnxruntime is counted and listed, but is no failure.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import onnx

from compiler.reduction.candidate import Candidate
from tests.fuzz.solver.generate import THEMES, describe, generate, theme_of
from tests.fuzz.solver.pool import Outcome, outcomes, whose
from tests.fuzz.solver.shrinking import Shrinker
from tests.fuzz.solver.work import run_peer_alone, work

LIMIT = 90.0


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.fuzz.solver")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first model")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--show", type=int, metavar="NUMBER", help="one model, and what is wrong")
    parser.add_argument("--torch", action="store_true", help="modules of PyTorch, not ONNX models")
    parser.add_argument("--theme", choices=[t for t in THEMES if t],
                        help="models of one kind, with the same numbers as among all")
    parser.add_argument("-o", "--output", type=Path, help="a folder for what fails")
    arguments = parser.parse_args()
    if arguments.show is not None:
        return show(arguments.show, arguments)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    os.environ["STRATA_CACHE_SIZE"], os.environ["STRATA_TUNED"] = "0", "off"
    with tempfile.TemporaryDirectory() as folder:
        return campaign(arguments, folder)


def campaign(arguments: argparse.Namespace, folder: str) -> int:
    """Judge all, tell failures as they come, and tabulate."""
    started, counts, failures = time.monotonic(), Counter[str](), list[Outcome]()
    covered, runs, most = Counter[str](), 0, arguments.count
    for outcome in outcomes(numbers(arguments), partial(worker(arguments), seed=arguments.seed),
                            arguments.jobs, LIMIT, folder):
        if outcome.kind == "crash" and not arguments.torch:
            outcome = attributed(outcome, arguments.seed, folder)
        counts[outcome.kind or "right"] += 1
        covered.update(set(outcome.operators))
        runs += outcome.runs
        if outcome.fails:
            failures.append(outcome)
            print(f"{outcome.number}: {outcome.kind}: {first_line(outcome.text)}", flush=True)
        elif outcome.kind == "peer-crash":
            print(f"{outcome.number}: {outcome.kind}: {outcome.text}", flush=True)
        elif sys.stderr.isatty():
            print(f"\r{counts.total()} of {most}", end="", file=sys.stderr)
    seconds = time.monotonic() - started
    print(f"{counts.total()} models, {runs} runs in {seconds:.0f} s "
          f"({seconds / most:.2f} s per model, {arguments.jobs} jobs): {dict(counts)}; "
          f"{len(covered)} operators")
    if arguments.torch:
        for failure in failures:
            print(f"\n{failure.number}: {failure.kind}: {failure.text}")
        return 1 if failures else 0
    if arguments.output is not None:
        keep(failures, arguments.seed, arguments.output)
    tabulate(failures, arguments, folder)
    return 1 if failures else 0


def attributed(crash: Outcome, seed: int, folder: str) -> Outcome:
    """The crash of a worker, or that of onnxruntime."""
    return whose(crash, partial(run_peer_alone, seed=seed), partial(work, seed=seed, peer=False),
                 LIMIT, folder)


def numbers(arguments: argparse.Namespace) -> Iterator[int]:
    """Of the models that are wanted."""
    numbers = itertools.count(arguments.first)
    fitting = (k for k in numbers if theme_of(k, arguments.seed) == arguments.theme)
    return itertools.islice(fitting if arguments.theme else numbers, arguments.count)


def worker(arguments: argparse.Namespace) -> Callable[[int, int], Outcome]:
    """What judges a number."""
    if not arguments.torch:
        return work
    from tests.fuzz.solver import torch_models

    return torch_models.work


def first_line(text: str) -> str:
    lines = text.strip().splitlines() or [""]
    return (lines[-1] if lines[0].startswith("Traceback") else " ".join(lines))[:300]


def likeness(outcome: Outcome) -> tuple[str, str]:
    """What failures share: the kind, and the text without numbers and names."""
    text = re.sub(r"reproducer.*", "", first_line(outcome.text))
    if outcome.kind in ("wrong", "peer"):
        text = outcome.operators[-1] if outcome.operators else ""
    return outcome.kind, re.sub(r"[a-z]?\d[\w.e+-]*", "#", re.sub(r"'[^']*'", "'_'", text))


def grouped(failures: list[Outcome]) -> list[list[Outcome]]:
    """Failures that look alike, the smallest of them first; the largest group first."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for failure in sorted(failures, key=lambda o: len(o.operators)):
        groups.setdefault(likeness(failure), []).append(failure)
    return sorted(groups.values(), key=lambda alike: -len(alike))


def reduced(failure: Outcome, seed: int, folder: str) -> tuple[Candidate, str]:
    """The smallest model that fails like this one, and the first wrong pass, if it is known."""
    drawn = generate(failure.number, seed)
    match = re.match(r"run (\d+): ", failure.text)
    feed = drawn.feeds[int(match[1]) if match else 0]
    text = failure.text[match.end():] if match else failure.text
    shrinker = Shrinker(failure.kind, text, drawn.special, folder)
    return shrinker.run(drawn.proto, feed)


def tabulate(failures: list[Outcome], arguments: argparse.Namespace, folder: str) -> None:
    """One row per likeness: how many, the smallest made smaller, the first wrong pass."""
    for alike in grouped(failures):
        first = alike[0]
        print(f"\n{len(alike)} x {first.kind}, model {first.number}: {first_line(first.text)}")
        if first.kind in ("harness", "invalid"):
            continue
        small, wrong = reduced(first, arguments.seed, folder)
        print(f"  {small.nodes} nodes: {' '.join(n.op_type for n in small.model.graph.node)}"
              + (f"; first wrong pass: {wrong}" if wrong else ""), flush=True)
        if small.elements < 100:
            print(onnx.printer.to_text(small.model))
        if arguments.output is not None:
            name = f"{first.kind}-{arguments.seed}-{first.number}-small.onnx"
            small.save(arguments.output / name)


def keep(failures: list[Outcome], seed: int, folder: Path) -> None:
    """Write the models that failed, with their inputs."""
    folder.mkdir(parents=True, exist_ok=True)
    for failure in failures:
        drawn = generate(failure.number, seed)
        name = f"{failure.kind}-{seed}-{failure.number}"
        (folder / f"{name}.txt").write_text(failure.text, encoding="utf-8")
        match = re.match(r"run (\d+): ", failure.text)
        Candidate(drawn.proto, drawn.feeds[int(match[1]) if match else 0]).save(
            folder / f"{name}.onnx")


def show(number: int, arguments: argparse.Namespace) -> int:
    """Print one model and what is wrong with it."""
    if arguments.torch:
        from tests.fuzz.solver import torch_models

        print(torch_models.generate(number, arguments.seed).source)
    else:
        print(describe(generate(number, arguments.seed)))
    outcome = worker(arguments)(number, arguments.seed)
    print(f"{outcome.kind}: {outcome.text}" if outcome.kind else "nothing is wrong")
    return 1 if outcome.fails else 0


if __name__ == "__main__":
    sys.exit(main())
