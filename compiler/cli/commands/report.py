"""Write one page about a model: what became of it at every level, and what its kernels cost.

The page needs no server and no network. It shows the model folded by module, each node at every
level and in target code, kernels beside the measured limit of the machine, memory over time, what
was fused and why not more, what each pass changed, and the environment. --compare adds strategies
and groups of passes: from what `compare --json` wrote, or measured now, which takes minutes.

The model runs briefly, so that kernels can be timed; --seconds 0 only compiles it, and --profile
takes the times from another machine. If the model fails to compile, the page shows how far it came
and why, and the exit status is the one of the failure. --terminal prints the same as text.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from compiler.cli import arguments as shared
from compiler.io.printing import show

SUMMARY = "write a page that shows a model at every level, with its costs"
TOPIC = "Look inside"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_model(parser)
    shared.add_target(parser)
    shared.add_inputs(parser)
    group = parser.add_argument_group("the page")
    shared.add_output(group, "-o", text="the page to write (default report.html); - for standard "
                                        "output")
    group.add_argument("--terminal", action="store_true",
                       help="print the same facts as text, and write no page without -o")
    shared.complete(group.add_argument("--profile", metavar="FILE", type=Path,
                                       help="take times from what `profile --json` wrote"))
    shared.complete(group.add_argument("--compare", metavar="FILE|now", type=Path,
                                       help="show what `compare --json` wrote, or compare now"))
    group.add_argument("--against", metavar="NAME,...", default="",
                       help="peers of --compare now, as `compare` names them")
    group.add_argument("--seconds", metavar="S", type=float, default=1.0,
                       help="about how long to time (default 1; 0: run nothing)")
    group.add_argument("--changes", action=argparse.BooleanOptionalAction, default=True,
                       help="show what each pass changed, which takes as long as compiling")
    shared.add_pipeline(parser)


def run(arguments: argparse.Namespace) -> int:
    from compiler.cli.reporting import collected_of
    from compiler.io.output import check_writable, write_text
    from compiler.reporting.facts import facts_of
    from compiler.reporting.page import check_template_engine, page
    from compiler.reporting.terminal import lines_of

    output = arguments.output or (None if arguments.terminal else Path("report.html"))
    if output is not None:
        check_template_engine()
        check_writable(output)
    collected, failure = collected_of(arguments)
    facts = facts_of(collected)
    if output is not None:
        write_text(page(facts), output)
    if arguments.terminal:
        show(*lines_of(facts))
    if failure is not None:
        raise failure
    return 0
