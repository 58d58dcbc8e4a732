"""Minimize a failing model: remove nodes and outputs and shrink sizes while it fails the same way.

A model fails if the compiler refuses it, crashes or reports a fault of its own; if its results
differ from the reference, or those of the reference from onnxruntime (if that is installed); or if
it takes longer than --timeout. With --check COMMAND, it fails as long as the command exits with 1.
The candidate's path replaces {} in the command, or is appended to it; {inputs} is replaced by the
.npz with its inputs. Every trial runs in a process of its own.

The result is written to -o SMALL.onnx, and the inputs on which it fails to SMALL.npz. The first
wrong pass is named. The exit status is 0 if a failing model was written, and 1 if the model does
not fail.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from compiler.io.printing import show, show_text

if TYPE_CHECKING:
    from compiler.reduction.candidate import Candidate
    from compiler.reduction.prober import Prober
    from compiler.reduction.verdict import Verdict

SUMMARY = "minimize a failing model, and name the first wrong pass"
TOPIC = "Look inside"
SUFFIX = ".onnx"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from compiler.cli import arguments as shared
    from compiler.reduction.options import add_options

    group = parser.add_argument_group("the model")
    shared.complete(group.add_argument("model", metavar="MODEL", help="an .onnx file"))
    shared.add_output(parser, "--output", "-o", metavar="SMALL.onnx",
                      text="where the small model goes (default: MODEL-small.onnx)")
    shared.complete(parser.add_argument(
        "--inputs", metavar="FILE.npz", type=Path,
        help="inputs on which it fails, by the model's names (default: random)"))
    parser.add_argument("--check", metavar="COMMAND", default="",
                        help="a command that exits with 1 as long as the model fails")
    parser.add_argument("--seconds", metavar="N", type=shared.positive, default=300,
                        help="time limit in seconds (default 300)")
    parser.add_argument("--timeout", metavar="N", type=shared.positive, default=60,
                        help="time limit of one trial in seconds (default 60)")
    add_options(parser)


def run(arguments: argparse.Namespace) -> int:
    import sys
    import time

    from compiler.instrument.progress import Progress
    from compiler.reduction.options import probe_words
    from compiler.reduction.prober import Prober
    from compiler.reduction.reducer import Reducer

    started, first = time.monotonic(), read(arguments)
    words = probe_words(arguments)
    with (Prober(words, arguments.timeout, arguments.check) as prober,
          Progress(arguments.progress or None) as progress):
        progress.report(f"trying {arguments.model}")
        verdict = require_failure(prober.judge(first), arguments.model)
        progress.print(f"{arguments.model} ({first.nodes} nodes): {brief(verdict)}")
        reducer = Reducer(first, lambda c: prober.judge(c).is_like(verdict), prober.record,
                          started + arguments.seconds, progress.report)
        small = reducer.run()
        path = arguments.output or Path(f"{Path(arguments.model).stem}-small{SUFFIX}")
        inputs_path = small.save(path)
        report(small, first, prober, time.monotonic() - started)
        report_cause(small, verdict, prober)
    show(f"written: {path}, and its inputs: {inputs_path}")
    sys.stdout.flush()
    return 0


def read(arguments: argparse.Namespace) -> Candidate:
    """The model and its inputs. Raises StrataError."""
    from compiler.diagnostics import Problem, StrataError
    from compiler.io.array_files import read_npz
    from compiler.reduction.candidate import Candidate
    from compiler.reduction.reading import read_onnx

    if not arguments.model.lower().endswith(SUFFIX):
        raise StrataError(f"cannot reduce {arguments.model}", [Problem(
            "only .onnx models become smaller: the edits are those of ONNX graphs",
            hint="`verify` names the first wrong pass of a .mlir text, and the reproducer that it "
                 "writes starts right before it")])
    inputs = {} if arguments.inputs is None else read_npz(arguments.inputs)
    return Candidate(read_onnx(Path(arguments.model)), inputs)


def require_failure(verdict: Verdict, model: str) -> Verdict:
    """The verdict, if it is a failure. Raises StrataError."""
    from compiler.diagnostics import Problem, StrataError

    if verdict.fails:
        return verdict
    raise StrataError(f"{model} does not fail", [Problem(
        verdict.text or "it compiles, and computes what it means",
        hint="--inputs FILE.npz gives inputs, --dim NAME=N sizes, --check COMMAND another test")])


def brief(verdict: Verdict) -> str:
    """`wrong: output 0 differs ...`, on one line."""
    return f"{verdict.kind}: {' '.join(verdict.text.split())[:300]}"


def report(small: Candidate, first: Candidate, prober: Prober, seconds: float) -> None:
    """Print the reduced model."""
    from onnx import printer

    show(f"reduced from {first.nodes} nodes to {small.nodes} in {seconds:.0f} s, "
          f"{prober.asked} trials")
    if small.elements < 200:
        show_text(printer.to_text(small.model))
    else:
        show("nodes: " + " ".join(node.op_type for node in small.model.graph.node))


def report_cause(small: Candidate, verdict: Verdict, prober: Prober) -> None:
    """Print how it fails now, and the first wrong pass if it can be determined."""
    if prober.check:
        return
    now = prober.judge(small)
    show(f"it fails still: {brief(now)}")
    if verdict.kind == "wrong":
        wrong = prober.blame(small)
        show(f"first wrong pass: {wrong}" if wrong else
              "first wrong pass: none alone; the executions of all levels agree here")
    elif verdict.kind in ("crash", "timeout"):
        show(f"it ended in: {prober.phase}")
    elif verdict.kind == "fault":
        show(f"pass at fault: {now.key.partition(':')[0]}")
    elif verdict.kind == "peer":
        show("first wrong pass: import, or onnxruntime: all that is made of the imported model "
              "agrees with it")
