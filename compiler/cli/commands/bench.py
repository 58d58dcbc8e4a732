"""Time a model, and peers beside it in the same run.

All get the same inputs and number of threads, and take turns round by round, so that what else the
machine does hits all alike; medians are reported: wall time, and CPU time of the whole process,
which says more on a busy machine when there is one thread. How far the peers' outputs are from ours
is told too: a wrong result is no result.

onnxruntime and openvino take .onnx files and models of PyTorch, torch and inductor the latter. A
peer may be given a file of its own for the same model, whose inputs are in the same order:
`--against onnxruntime,inductor=model.py:make`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from compiler.cli import arguments as shared

SUMMARY = "time a model, beside other runtimes"
TOPIC = "Compile and run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_model(parser)
    shared.add_target(parser)
    shared.add_inputs(parser)
    group = parser.add_argument_group("the measurement")
    group.add_argument("--against", metavar="NAME[=MODEL],...", default="",
                       help="peers: onnxruntime, openvino, torch, inductor; MODEL is what a peer "
                            "runs in place of MODEL")
    group.add_argument("--rounds", metavar="N", type=shared.positive, default=20,
                       help="timed rounds (default 20)")
    group.add_argument("--specialize", action="store_true",
                       help="time the model with its sizes open, and beside it compiled for the "
                            "sizes of these inputs; --dim tells only these sizes then")
    shared.complete(group.add_argument("--json", metavar="FILE", type=Path,
                                       help="write the figures too; - for standard output, "
                                            "instead of the table"))
    shared.add_pipeline(parser)


def run(arguments: argparse.Namespace) -> int:
    import json

    from compiler.cli.standard_streams import is_standard_output
    from compiler.faults import versions
    from compiler.io.output import check_writable, write_text
    from compiler.measuring.measure import measure

    check_writable(arguments.json)
    results = measure(arguments)
    for row in results:
        print(_line(row, results[0]),
              file=sys.stderr if is_standard_output(arguments.json) else sys.stdout)
    if arguments.json is not None:
        report = {"model": arguments.model, "target": arguments.target,
                  "threads": arguments.threads, "rounds": arguments.rounds,
                  "versions": versions(), "results": results}
        write_text(json.dumps(report, indent=2) + "\n", arguments.json)
    return 0


def _line(row: dict[str, Any], ours: dict[str, Any]) -> str:
    text = (f"{row['name']:19} {row['median_ms']:10.3f} ms  (best {row['best_ms']:.3f}, "
            f"CPU {row['cpu_ms']:.3f})  first result after {row['load_s']:.2f} s")
    if row is ours:
        return text
    return (f"{text}  {row['median_ms'] / ours['median_ms']:.2f}x our time, "
            f"differs by {row['difference']:.1e}")
