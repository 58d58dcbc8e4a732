"""Lower a model to a level and print it; without --to, print the target's code.

With --dump-dir, the IR after every level and after every pass that changed it is also written, in
numbered files with an index. Lowering of a .mlir text resumes where it was written: a dump after
its pass, any other text at the beginning of its level. --from LEVEL starts a dump at the beginning
of that level, too.

With --print-changes, what each pass changed is printed in place of the text, which goes to -o if
that is given.
"""

from __future__ import annotations

import argparse
import sys

from compiler.cli import arguments as shared

SUMMARY = "lower a model to a level, or to target code"
TOPIC = "Look inside"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_model(parser)
    shared.add_target(parser)
    group = parser.add_argument_group("the result")
    group.add_argument("--to", metavar="LEVEL",
                       help="graph, loop, host, block, or one of the target's: llvm, asm; "
                            "triton, ptx, sass, amdgcn")
    group.add_argument("--from", metavar="LEVEL", dest="start", choices=shared.TEXT_LEVELS,
                       help="start at the first pass of this level")
    shared.add_output(group, "-o", text="write to a file instead of printing")
    group.add_argument("--print-locations", action="store_true",
                       help="print the model node of every operation")
    group.add_argument("--print-changes", action="store_true",
                       help="print what each pass removed, added, changed and moved; no text, "
                            "unless -o says where it goes")
    shared.add_dump(parser)
    shared.add_pipeline(parser)


def run(arguments: argparse.Namespace) -> int:
    from compiler.cli.session import session
    from compiler.cli.standard_streams import is_standard_output
    from compiler.diagnostics import StrataError
    from compiler.instrument.changes import PrintChanges
    from compiler.instrument.remarks import Remarks
    from compiler.io.output import check_writable, write_text
    from compiler.pipeline.driver import lower_to_text
    from compiler.pipeline.levels import LEVEL_NAMES
    from compiler.pipeline.source import is_text

    if is_text(arguments.model) and (arguments.shape or arguments.dim):
        raise StrataError(f"--shape and --dim fix sizes when a model is imported, and "
                          f"{arguments.model} is imported already", exit_status=2)
    check_writable(arguments.output)
    remarks = Remarks()
    with session(arguments) as started:
        output, changes_only = arguments.output, arguments.print_changes and not arguments.output
        text_on_stdout = output is not None and is_standard_output(output)
        stream = sys.stderr if text_on_stdout else sys.stdout
        watching = [PrintChanges(stream)] if arguments.print_changes else []
        compilation = started.compiler(arguments.model, remarks, *watching)
        levels = compilation.target.levels
        level = arguments.to or (levels[0] if levels else LEVEL_NAMES[-1])
        if changes_only:
            compilation.lower(None if compilation.is_code(level) else level)
        else:
            text = lower_to_text(compilation, level, arguments.print_locations)
            write_text(text, output)
    remarks.show(arguments.verbose)
    return 0
