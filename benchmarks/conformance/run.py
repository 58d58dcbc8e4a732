"""ONNX's own test suites: how many tests pass, per suite and per operator, beside onnxruntime.

    python benchmarks/conformance/run.py -o benchmarks/conformance/RESULTS.md

Every test runs by the harness of tests/conformance, one after the other, on one thread, without a
cache. Exit status: 0 when all is as tests/conformance/expected_failures.txt says, 1 otherwise.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import onnxruntime

sys.path.insert(0, str(Path(__file__).parents[2]))  # the tests are no installed package

from compiler.faults import versions
from compiler.onnx_backend import StrataBackend
from tests.conformance.cases import NODE_LISTS, SUITES, Case, check, run_case, suite
from tests.conformance.expectations import expected_failures
from tests.conformance.report import Outcome, judge, outcomes, table

PEER = "onnxruntime"
Columns = Mapping[str, Sequence[Outcome]]
"""Target or peer -> all outcomes."""


def run_peer(case: Case) -> None:
    """The case on onnxruntime's CPU provider. Raises what onnxruntime raises."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    content = case.load()
    session = onnxruntime.InferenceSession(
        content.model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]

    def run(inputs: Sequence[Any]) -> Sequence[Any]:
        return session.run(None, dict(zip(names, inputs, strict=True)))

    check(content, run)


def measure(targets: Sequence[str]) -> Columns:
    """Run everything on every target, and on onnxruntime."""
    cases = [case for name in SUITES for case in suite(name)]
    with tempfile.TemporaryDirectory() as folder:
        runs: dict[str, Callable[[Case], None]] = {
            t: partial(run_case, target=t, cache=f"{folder}/{t}") for t in targets}
        return {name: list(outcomes(cases, run)) for name, run in (runs | {PEER: run_peer}).items()}


# ---------------------------------------------------------------------- what is written
def suite_table(columns: Columns) -> str:
    rows: dict[str, list[str]] = {}
    for name in SUITES:
        parts = {c: [o for o in found if o.case.suite == name] for c, found in columns.items()}
        rows[name] = [str(len(next(iter(parts.values())))), *map(_passed, parts.values())]
    rows["all"] = [str(len(next(iter(columns.values())))), *map(_passed, columns.values())]
    return table(rows, ["suite", "tests", *columns])


def _passed(found: Sequence[Outcome]) -> str:
    """`11 in 3 s`."""
    return f"{sum(not o.error for o in found)} in {sum(o.seconds for o in found):.0f} s"


def operator_table(columns: Columns) -> str:
    """Operators of node tests that do not all pass on our targets, then the names of the others."""
    found = [_per_operator(outcomes) for outcomes in columns.values()]
    totals = _per_operator([Outcome(o.case, "", 0) for o in next(iter(columns.values()))])
    ours = found[:-1]
    open_ = [op for op in sorted(totals) if any(c[op] < totals[op] for c in ours)]
    rows = {op: [str(totals[op]), *(str(c[op]) for c in found)] for op in open_}
    whole = ", ".join(f"{op} {totals[op]}" for op in sorted(totals) if op not in open_)
    heads = ["operator", "tests", *columns]
    return f"{table(rows, heads)}\n\nAll node tests pass of: {whole}."


def _per_operator(found: Sequence[Outcome]) -> Counter[str]:
    """How many of the node tests that have an operator pass."""
    passed: Counter[str] = Counter()
    for outcome in found:
        if outcome.case.suite in NODE_LISTS and not outcome.error:
            passed.update(_operators(outcome.case))
    return passed


def _operators(case: Case) -> set[str]:
    """The operator that a node test is about; those with _expanded hold a definition's parts."""
    nodes = case.load().model.graph.node
    if case.name.endswith("_expanded"):
        return set()
    return {f"{n.domain}.{n.op_type}" if n.domain else n.op_type for n in nodes}


def failure_table() -> str:
    """How many tests are expected to fail for each reason."""
    reasons = Counter(f.reason for f in expected_failures().values())
    return table({reason: [str(count)] for reason, count in reasons.items()}, ["why", "tests"])


def document(columns: Columns) -> str:
    return f"""\
# ONNX's own test suites

Made by `python benchmarks/conformance/run.py`;
{', '.join(versions())}.
How many tests pass within ONNX's own tolerances, and the time for all, the failing ones included.

{suite_table(columns)}

The node tests are in three lists: `core`, fixed shapes and plain tensors; `newest`, those of opsets
27 and 28; `other`, all the rest, with types, shapes and values that a tensor compiler has late or
never. `light` are image models with made-up weights. onnxruntime refuses models of opsets that are
not released (`newest`), and has no kernels for some operators of opset 6 (`pytorch-*`).

## Why tests fail

{failure_table()}

Their names: [expected_failures.txt](../../tests/conformance/expected_failures.txt). The test suite
holds that these fail and no others.

## Operators

Node tests by the operators in them, without the tests of ONNX's definitions (`_expanded`).

{operator_table(columns)}
"""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python benchmarks/conformance/run.py",
                                     description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, help="the file to write, instead of printing")
    options = parser.parse_args(arguments)
    columns = measure(StrataBackend.targets)
    text = document(columns)
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    else:
        print(text)
    failures = expected_failures()
    wrong = [w for t in StrataBackend.targets for w in judge(columns[t], t, failures)]
    print("\n".join(wrong) or "all as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
