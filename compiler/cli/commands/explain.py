"""Explain what became of a model: its kernels, what was fused and what was not, and why.

Each kernel is listed with the nodes that it computes, the bytes and FLOPs of its launches, and its
schedule with its origin. Kernels of which one reads the other's result are listed with the reason
why they are two, nodes without a kernel with what became of them. --node and --kernel show one of
them in full, or a module with all its nodes, and with --lines also the lines that stand for it at a
level or in target code. Nothing is run.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from compiler.cli import arguments as shared
from compiler.io.printing import show

if TYPE_CHECKING:
    from compiler.cli.session import Session
    from compiler.explaining.collect import Explanation
    from compiler.pipeline.driver import Compiler
    from compiler.pipeline.state import State
    from compiler.reporting.listings import Part

SUMMARY = "show the kernels of a model, and why they are what they are"
TOPIC = "Look inside"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_model(parser)
    shared.add_target(parser)
    group = parser.add_argument_group("the result")
    one = group.add_mutually_exclusive_group()
    one.add_argument("--node", metavar="NAME",
                     help="only this node of the model, or the nodes of a module, such as "
                          "encoder.layer.3")
    one.add_argument("--kernel", metavar="NAME", help="only this kernel")
    group.add_argument("--lines", metavar="LEVEL",
                       help="with --node or --kernel: its lines in graph, loop, host, block, or in "
                            "the target's code: llvm, asm; triton, ptx, sass")
    shared.complete(group.add_argument("--json", metavar="FILE", type=Path,
                                       help="also write all of it as JSON; - for standard output"))
    shared.add_pipeline(parser)


def run(arguments: argparse.Namespace) -> int:
    import json

    from compiler.cli.session import session
    from compiler.cli.standard_streams import is_standard_output
    from compiler.diagnostics import StrataError
    from compiler.explaining import report
    from compiler.explaining.collect import Explanation
    from compiler.io.output import check_writable, write_text
    from compiler.reporting.listings import Part, lines_of_nodes

    if arguments.lines and arguments.node is None and arguments.kernel is None:
        raise StrataError("--lines needs --node or --kernel, whose lines it prints", exit_status=2)
    check_writable(arguments.json)
    found = Explanation(target=arguments.target, scheduled=arguments.schedule is not None)
    with session(arguments) as started:
        compilation = started.compiler(arguments.model, found)
        state = compilation.lower()
        parts = list[Part]()
        if arguments.lines is not None:
            parts = _parts(started, compilation, state, found, arguments)
    if arguments.node is not None:
        lines = report.node(found, arguments.node)
        wanted = {n.name for n in report.nodes_named(found, arguments.node)}
        lines += lines_of_nodes(parts, {k for k, n in enumerate(found.nodes) if n.name in wanted})
    elif arguments.kernel is not None:
        lines = report.kernel(found, arguments.kernel)
        lines += [f"    {line}" for part in parts if part.symbol == arguments.kernel
                  for line in part.lines]
    else:
        lines = report.whole(found)
    if arguments.json is not None:
        write_text(json.dumps(found.json, indent=1), arguments.json)
    if arguments.json is None or not is_standard_output(arguments.json):
        show(*lines)
    return 0


def _parts(
    started: Session, compilation: Compiler, state: State, found: Explanation,
    arguments: argparse.Namespace,
) -> list[Part]:
    """The lines of a level or of target code, with their nodes. Raises StrataError."""
    from compiler.pipeline.driver import lower_to_text
    from compiler.reporting.listings import code_listing, listing

    index = {n.name: k for k, n in enumerate(found.nodes)}
    if compilation.is_code(arguments.lines):
        return code_listing(compilation.emit(state, arguments.lines), [*found.found], index)
    return listing(lower_to_text(started.compiler(arguments.model), arguments.lines), index)
