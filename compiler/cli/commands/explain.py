"""Explain what became of a model: its kernels, what was fused and what was not, and why.

Each kernel is listed with the nodes that it computes, the bytes and FLOPs of its launches, and its
schedule with its origin. Kernels of which one reads the other's result are listed with the reason
why they are two, nodes without a kernel with what became of them. --node and --kernel show one of
them in full. Nothing is run.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from compiler.cli import arguments as shared

SUMMARY = "show the kernels of a model, and why they are what they are"
TOPIC = "Look inside"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_model(parser)
    shared.add_target(parser)
    group = parser.add_argument_group("the result")
    one = group.add_mutually_exclusive_group()
    one.add_argument("--node", metavar="NAME", help="only this node of the model")
    one.add_argument("--kernel", metavar="NAME", help="only this kernel")
    shared.complete(group.add_argument("--json", metavar="FILE", type=Path,
                                       help="also write all of it as JSON; - for standard output"))
    shared.add_pipeline(parser)


def run(arguments: argparse.Namespace) -> int:
    import json

    from compiler.cli.session import session
    from compiler.cli.standard_streams import is_standard_output
    from compiler.explaining import report
    from compiler.explaining.collect import Explanation
    from compiler.io.output import check_writable, write_text

    check_writable(arguments.json)
    found = Explanation(target=arguments.target, scheduled=arguments.schedule is not None)
    with session(arguments) as started:
        started.compiler(arguments.model, found).lower()
    if arguments.node is not None:
        lines = report.node(found, arguments.node)
    elif arguments.kernel is not None:
        lines = report.kernel(found, arguments.kernel)
    else:
        lines = report.whole(found)
    if arguments.json is not None:
        write_text(json.dumps(found.json, indent=1), arguments.json)
    if arguments.json is None or not is_standard_output(arguments.json):
        print("\n".join(lines))
    return 0
