"""Compile a model operator by operator, block by block and as a whole, and show what each costs.

For each strategy: kernels, launches, bytes that launches read and write, operations on numbers,
memory for intermediate values, the time of compilation, and the time of a call. Then an ablation:
each group of passes left out of whole-graph alone, and added to per-op alone. `list groups` says
what the groups are.

All programs, and the peers that --against names, get the same inputs and number of threads, and
are called in turns. On a machine that cannot run the target's code, everything is counted, and only
times are missing.

A strategy, group or peer that fails is named in its row and at the end, and the exit status is 1.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from compiler.cli import arguments as shared
from compiler.io.printing import show

SUMMARY = "compare strategies, passes and other runtimes on a model"
TOPIC = "Compile and run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_model(parser)
    shared.add_target(parser)
    shared.add_inputs(parser)
    group = parser.add_argument_group("the comparison")
    group.add_argument("--against", metavar="NAME[=MODEL],...", default="",
                       help="peers: onnxruntime, openvino, torch, inductor, tvm, xla; =MODEL gives "
                            "a peer its own file")
    group.add_argument("--groups", metavar="GROUP,...|all|none", default="all",
                       help="the groups of passes of the ablation (default all)")
    group.add_argument("--rounds", metavar="N", type=shared.positive,
                       help="number of timed rounds (default: as many as take a minute, 7 to 40)")
    shared.complete(group.add_argument("--json", metavar="FILE", type=Path,
                                       help="also write the results as JSON; - writes them to "
                                            "standard output instead of the tables"))
    shared.add_pipeline(parser, strategies=False)


def run(arguments: argparse.Namespace) -> int:
    import json
    import sys

    from compiler.cli.comparing import contrast_of, failure_of
    from compiler.cli.standard_streams import is_standard_output
    from compiler.faults import versions
    from compiler.io.output import check_writable, write_text
    from compiler.measuring.contrast import figures
    from compiler.measuring.contrast_table import lines_of
    from compiler.ranks import refuse_mesh

    refuse_mesh(arguments.mesh, "compare")
    check_writable(arguments.json)
    found = contrast_of(arguments)
    report = {"model": arguments.model, "target": arguments.target,
              "threads": arguments.threads, "versions": versions(), **figures(found)}
    show(*lines_of(report), file=sys.stderr if is_standard_output(arguments.json) else sys.stdout)
    if arguments.json is not None:
        write_text(json.dumps(report, indent=2) + "\n", arguments.json)
    if found.problems:
        raise failure_of(found.problems)
    return 0
