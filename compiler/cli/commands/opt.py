"""Run passes on a .mlir text of any level, and print the result.

The passes are those of --passes, in that order. `default` stands for the rest of the pipeline from
the text's place in it. Passes that depend on the target use --target.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from compiler.cli import arguments as shared

SUMMARY = "run passes on a text: text in, text out"
TOPIC = "Look inside"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the text")
    shared.complete(group.add_argument("model", metavar="FILE.mlir",
                                       help="a text of any level; - for standard input"))
    shared.complete(group.add_argument(
        "--weights", metavar="FILE", type=Path,
        help="its weights, if they are not in weights.npz in the same folder"))
    shared.add_target(parser)
    result = parser.add_argument_group("the result")
    shared.add_output(result, "-o", text="write to a file instead of printing")
    result.add_argument("--print-locations", action="store_true",
                        help="print the model node of every operation")
    shared.add_dump(parser)
    shared.add_pipeline(parser)


def run(arguments: argparse.Namespace) -> int:
    from compiler.cli.session import session
    from compiler.cli.standard_streams import is_standard
    from compiler.diagnostics import StrataError
    from compiler.instrument.remarks import Remarks
    from compiler.io.output import check_writable, write_text
    from compiler.pipeline.source import is_text
    from compiler.pipeline.text import format_module

    if not (is_text(arguments.model) or is_standard(arguments.model)):
        raise StrataError(f"opt takes a .mlir text, not {arguments.model}; "
                          "`lower MODEL --to graph` makes one", exit_status=2)
    check_writable(arguments.output)
    remarks = Remarks()
    with session(arguments) as started:
        state = started.compiler(arguments.model, remarks).lower()
    write_text(format_module(state.module, arguments.print_locations), arguments.output)
    remarks.show(arguments.verbose)
    return 0
