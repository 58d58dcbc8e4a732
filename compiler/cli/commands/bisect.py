"""Find what makes a model fail: the pass, the rewrite in it, the operation, and the model's node.

A model fails if a pass crashes, hangs or leaves invalid IR; if the numbers of a level, of the
target's code or of its import (compared with onnxruntime, if that is installed) are wrong, as
`verify` judges; or if its code crashes. The first wrong pass is found by bisection, then the first
rewrite from which on its numbers are wrong: a pass may be limited to its first rewrites. If only
compiled code is wrong, the kernel is found by running each one alone.

Several seeds of random inputs are tried. The exit status is 0 if something was found. If nothing
differs, it is 1, and --json writes null for what was looked for. `reduce` makes the model smaller.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from compiler.bisection.arguments import add_arguments
from compiler.io.printing import show

if TYPE_CHECKING:
    from compiler.bisection.outcome import Finding

__all__ = ["SUMMARY", "TOPIC", "add_arguments", "run"]

SUMMARY = "find the pass, the rewrite and the node that make a model fail"
TOPIC = "Look inside"


def run(arguments: argparse.Namespace) -> int:
    import json
    import tempfile
    import time
    from pathlib import Path

    from compiler.bisection.imports import is_onnx
    from compiler.bisection.outcome import IMPORT, NOTHING, OPTIONS
    from compiler.bisection.search import Search
    from compiler.cli.arguments import options_from
    from compiler.cli.execution import WantedInputs
    from compiler.cli.standard_streams import is_standard_output
    from compiler.diagnostics import Problem, StrataError
    from compiler.instrument.progress import Progress
    from compiler.io.output import check_writable, write_text
    from compiler.reduction.process import Process

    check_writable(arguments.json)
    started, model = time.monotonic(), _readable(arguments)
    seeds = range(arguments.seed, arguments.seed + arguments.seeds)
    options_from(arguments)
    WantedInputs(arguments)
    with (tempfile.TemporaryDirectory(prefix="strata-bisect-") as folder,
          Progress(arguments.progress or None) as progress):
        process = Process("compiler.bisection.probe", _words(arguments), Path(folder, "phase"),
                          arguments.timeout, by_phase=True)
        search = Search(process, progress.report, is_onnx(model))
        try:
            found = search.run(seeds)
        finally:
            process.end()
    if found is not None and found.kind == "refused" and not found.nodes and (
            found.pass_ in (IMPORT, OPTIONS)):
        raise StrataError(found.text)
    if arguments.json is not None:
        facts = NOTHING if found is None else found.json
        write_text(json.dumps(facts, indent=1) + "\n", arguments.json)
    if found is None:
        raise StrataError(f"{model}: nothing differs with {_named(seeds)}", [Problem(
            "all passes run, and all levels and the code compute what the model means",
            hint="--seeds N tries more inputs, --inputs FILE.npz gives them, --dim NAME=N sizes")])
    if arguments.json is None or not is_standard_output(arguments.json):
        _print(model, found, search.asked, time.monotonic() - started)
    return 0


def _readable(arguments: argparse.Namespace) -> str:
    """The model's name. Raises StrataError for what cannot be read many times."""
    from compiler.cli.standard_streams import is_standard
    from compiler.diagnostics import StrataError

    if is_standard(arguments.model) or is_standard(arguments.inputs) or any(
            is_standard(value) for _, value in arguments.input):
        raise StrataError("bisect reads the model and its inputs many times; give files")
    return arguments.model


def _words(arguments: argparse.Namespace) -> list[str]:
    """The words of the command after its name."""
    words = list(arguments.command_words)
    return words[words.index("bisect") + 1:]


def _named(seeds: range) -> str:
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"


def _print(model: str, found: Finding, asked: int, seconds: float) -> None:
    from compiler.bisection.outcome import EFFECTS

    text = " ".join(found.text.split())[:300]
    show(f"{model}: {EFFECTS[found.kind]} with seed {found.seed}: {text}")
    show(*found.lines())
    show(f"found in {seconds:.0f} s, {asked} trials")
