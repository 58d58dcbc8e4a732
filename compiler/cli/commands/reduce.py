"""Make a failing model small: leave out nodes, outputs and sizes while it fails in the same way.

A model fails when compiling it is refused, is a fault of the compiler or ends the process; when it
computes something else than the reference, or the reference something else than onnxruntime (where
that is installed); or when it takes longer than --timeout. With --check COMMAND, it fails as long
as the command exits with 1: the candidate's path stands for {} in it, or is its last word, and
{inputs} is the .npz with its inputs. Every trial is made in a process of its own.

What is left is written to -o SMALL.onnx, with the inputs on which it fails in SMALL.npz, and the
first pass that is wrong is named. The exit status is 0 when a failing model was written, 1 when
the model does not fail.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compiler.reduction.candidate import Candidate
    from compiler.reduction.prober import Prober
    from compiler.reduction.verdict import Verdict

SUMMARY = "make a failing model small, and name the first wrong pass"
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
                        help="how long it may take (default 300)")
    parser.add_argument("--timeout", metavar="N", type=shared.positive, default=60,
                        help="how many seconds one trial may take (default 60)")
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
        progress.tell(f"trying {arguments.model}")
        verdict = require_failure(prober.judge(first), arguments.model)
        progress.print(f"{arguments.model} ({first.nodes} nodes): {brief(verdict)}")
        reducer = Reducer(first, lambda c: prober.judge(c).is_like(verdict), prober.record,
                          started + arguments.seconds, progress.tell)
        small = reducer.run()
        path = arguments.output or Path(f"{Path(arguments.model).stem}-small{SUFFIX}")
        beside = small.save(path)
        tell(small, first, prober, time.monotonic() - started)
        tell_cause(small, verdict, prober)
    print(f"written: {path}, and its inputs: {beside}")
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


def tell(small: Candidate, first: Candidate, prober: Prober, seconds: float) -> None:
    """What became of the model."""
    from onnx import printer

    print(f"reduced from {first.nodes} nodes to {small.nodes} in {seconds:.0f} s, "
          f"{prober.asked} trials")
    if small.elements < 200:
        print(printer.to_text(small.model))
    else:
        print("nodes: " + " ".join(node.op_type for node in small.model.graph.node))


def tell_cause(small: Candidate, verdict: Verdict, prober: Prober) -> None:
    """How it fails now, and the first wrong pass, as far as it can be known."""
    if prober.check:
        return
    now = prober.judge(small)
    print(f"it fails still: {brief(now)}")
    if verdict.kind == "wrong":
        wrong = prober.blame(small)
        print(f"first wrong pass: {wrong}" if wrong else
              "first wrong pass: none alone; the executions of all levels agree here")
    elif verdict.kind in ("crash", "timeout"):
        print(f"it ended in: {prober.phase}")
    elif verdict.kind == "fault":
        print(f"pass at fault: {now.key.partition(':')[0]}")
    elif verdict.kind == "peer":
        print("first wrong pass: import, or onnxruntime: all that is made of the imported model "
              "agrees with it")
