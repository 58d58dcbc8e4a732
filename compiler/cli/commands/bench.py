"""Time a model, optionally against other runtimes in the same run.

All runtimes get the same inputs and number of threads. They take turns round by round, so that
other load on the machine affects all of them alike. The report gives medians of the wall time and
of the CPU time of the whole process, which is more reliable on a busy machine with one thread. It
also gives the difference between the peers' outputs and ours.

onnxruntime and openvino run .onnx files and PyTorch models; the other peers run PyTorch models. A
peer may run another file with the same model, whose inputs are in the same order: `--against
onnxruntime,inductor=model.py:make`.

`--sizes FILE` times one program with open sizes at a list or a distribution of sizes, a JSON object
per line: `{"batch": 8, "length": 128}`, or `{"batch": 8, "length": [16, 512], "calls": 5}` for five
lengths that are drawn. For each it shows the share of the speed of a program for these sizes alone,
and of the machine's bandwidth; `--plot` draws both. Sizes that the model refuses are named at the
end, and the exit status is 1.

With --mesh, the model is divided among processes, as many as torchrun starts. All make the same
calls, and the times are those of the slowest rank; --json has the medians of all.

Each peer is first tried in a process of its own. One that cannot run the model, or crashes, is left
out: the others are measured, it is named at the end and in the JSON, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler.cli import arguments as shared
from compiler.io.printing import show

if TYPE_CHECKING:
    from compiler.diagnostics import StrataError

SUMMARY = "time a model, optionally against other runtimes"
TOPIC = "Compile and run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_model(parser)
    shared.add_target(parser)
    shared.add_inputs(parser)
    group = parser.add_argument_group("the measurement")
    group.add_argument("--against", metavar="NAME[=MODEL],...", default="",
                       help="peers: onnxruntime, openvino, torch, inductor, tvm, xla; =MODEL gives "
                            "a peer its own file")
    group.add_argument("--rounds", metavar="N", type=shared.positive, default=20,
                       help="number of timed rounds (default 20)")
    group.add_argument("--specialize", action="store_true",
                       help="time the model with open sizes, and also compiled for the sizes of "
                            "these inputs, which --dim then determines")
    shared.complete(group.add_argument("--sizes", metavar="FILE", type=Path,
                                       help="time the model with open sizes at each set of sizes "
                                            "of a file of JSON lines"))
    shared.complete(group.add_argument("--plot", metavar="FILE.svg", type=Path,
                                       help="with --sizes: draw the shares of static speed and of "
                                            "bandwidth"))
    shared.complete(group.add_argument("--json", metavar="FILE", type=Path,
                                       help="also write the results as JSON; - writes them to "
                                            "standard output instead of the table"))
    shared.add_pipeline(parser)


def run(arguments: argparse.Namespace) -> int:
    from compiler.cli.standard_streams import is_standard_output
    from compiler.io.output import check_writable
    from compiler.measuring.measure import measure
    from compiler.ranks import among_ranks

    check_writable(arguments.json)
    if arguments.sizes is not None:
        return _run_sizes(arguments)
    with among_ranks(arguments.mesh, arguments.target) as is_first:
        results, problems = measure(arguments)
    if not is_first:
        return 0
    for row in results:
        show(_line(row, results[0]),
             file=sys.stderr if is_standard_output(arguments.json) else sys.stdout)
    return _report(arguments, results, problems)


def _run_sizes(arguments: argparse.Namespace) -> int:
    from compiler.cli.standard_streams import is_standard_output
    from compiler.io.output import check_writable, write_text
    from compiler.measuring.sizes import measure_sizes, plot, table
    from compiler.ranks import refuse_mesh

    check_writable(arguments.plot)
    refuse_mesh(arguments.mesh, "--sizes")
    rows, problems = measure_sizes(arguments)
    for line in table(rows):
        show(line, file=sys.stderr if is_standard_output(arguments.json) else sys.stdout)
    if arguments.plot is not None and rows:
        write_text(plot(rows), arguments.plot)
    return _report(arguments, rows, problems)


def _report(
    arguments: argparse.Namespace, results: Any, problems: Mapping[str, StrataError]
) -> int:
    """Write the results as JSON where that is asked for. Raises StrataError for the problems."""
    import json

    from compiler.faults import versions
    from compiler.io.output import write_text
    from compiler.measuring.measure import check_problems

    if arguments.json is not None:
        report = {"model": arguments.model, "target": arguments.target,
                  "threads": arguments.threads, "rounds": arguments.rounds,
                  "versions": versions(), "results": results,
                  "problems": {name: str(error) for name, error in problems.items()}}
        write_text(json.dumps(report, indent=2) + "\n", arguments.json)
    check_problems(list(problems.values()))
    return 0


def _line(row: dict[str, Any], ours: dict[str, Any]) -> str:
    text = (f"{row['name']:19} {row['median_ms']:10.3f} ms  (best {row['best_ms']:.3f}, "
            f"CPU {row['cpu_ms']:.3f})  first result after {row['load_s']:.2f} s")
    if "ranks" in row:
        fastest, slowest = min(row["ranks"]), max(row["ranks"])
        text += f", slowest of {len(row['ranks'])} ranks, the fastest takes {fastest / slowest:.0%}"
    if row is ours:
        return text
    return (f"{text}  {row['median_ms'] / ours['median_ms']:.2f}x our time, "
            f"differs by {row['difference']:.1e}")
