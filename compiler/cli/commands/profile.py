"""Time each kernel of a running model, and compare it with the limit of this machine.

The model runs with a clock between launches, in turns with the plain program; the first line tells
what the clock costs. On a GPU kernels then run one after another, and the second line tells what
the plain program gains by letting them overlap, or loses between them. Then come the kernels, the
slowest first: milliseconds of a call, share of the call, share of the limit and what sets it,
bytes, FLOPs, launches, on a GPU a thread's registers and spilled bytes, and nodes.

With --mesh, all ranks that torchrun started are profiled together. The table is that of the slowest
rank, exchanges have rows of their own, which contain the wait for slower ranks, and --trace shows
all ranks below each other.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from compiler.cli import arguments as shared
from compiler.io.printing import show

SUMMARY = "time each kernel of a running model"
TOPIC = "Look inside"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_model(parser)
    shared.add_target(parser)
    shared.add_inputs(parser)
    group = parser.add_argument_group("the result")
    shared.complete(group.add_argument("--json", metavar="FILE", type=Path,
                                       help="also write all figures; - for standard output"))
    shared.complete(group.add_argument("--trace", metavar="FILE", type=Path,
                                       help="write a trace for Perfetto or Chrome"))
    group.add_argument("--seconds", metavar="S", type=float, default=1.0,
                       help="about how long to time (default 1)")
    shared.add_pipeline(parser)


def run(arguments: argparse.Namespace) -> int:
    import json

    from compiler.cli.execution import WantedInputs
    from compiler.cli.session import read_at_once, session
    from compiler.cli.standard_streams import is_standard_output
    from compiler.io.output import check_writable, write_text
    from compiler.profiling.measure import profile_model
    from compiler.profiling.of_ranks import of_ranks
    from compiler.ranks import among_ranks

    for path in (arguments.json, arguments.trace):
        check_writable(path)
    wanted = WantedInputs(arguments)
    with among_ranks(arguments.mesh, arguments.target) as is_first, session(arguments) as started:
        found = profile_model(
            read_at_once(arguments.model), started.options, wanted.arrays,
            [*started.instruments, wanted], started.command, arguments.seconds)
        merged = of_ranks(found)
    if not is_first:
        return 0
    for path, content in ((arguments.json, merged.json), (arguments.trace, merged.trace)):
        if path is not None:
            write_text(json.dumps(content, indent=1), path)
    if not any(is_standard_output(p) for p in (arguments.json, arguments.trace) if p is not None):
        show(*merged.lines)
    return 0
