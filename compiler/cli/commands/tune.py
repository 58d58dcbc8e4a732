"""Find faster schedules for a model's kernels by timing candidates on this machine.

The candidates come from the space from which the target's rules choose, beginning with the rules'
own choice. The results of every candidate are compared with those of the rules' choice, and the
two are timed alternately. The fastest schedules are stored in a file (-o; by default in the
cache), keyed by machine and kernel, not by model. Later compilations use them where they apply
(--tuned auto|off|FILE). A repeated run continues with kernels that have not been tuned yet.

Tune with the same sizes and options as you compile. With --open, sizes named by --dim stay open,
and --dim only gives the sizes at which to measure.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from compiler.cli import arguments as shared
from compiler.io.printing import show

SUMMARY = "find faster schedules by measuring, and store them"
TOPIC = "Make it faster"
MODES = ("default", "max-autotune")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_model(parser)
    shared.add_target(parser)
    group = parser.add_argument_group("tuning")
    shared.add_output(group, "-o", text="store the best schedules here instead of in the cache")
    group.add_argument("--script", metavar="FILE", type=Path,
                       help="also write the best schedules as a script for --schedule")
    group.add_argument("--seconds", metavar="N", type=shared.positive, default=120,
                       help="approximate time limit in seconds (default 120)")
    group.add_argument("--jobs", metavar="N", type=shared.positive,
                       help="number of compiling processes (default: all available cores)")
    group.add_argument("--workers", metavar="local:N",
                       help="where candidates are compiled: in N processes of this machine, which "
                            "are replaced if they end (the same as --jobs N)")
    group.add_argument("--kernels", metavar="NAME,...", default="",
                       help="tune only these kernels, by their names in dumps; * is a wildcard")
    group.add_argument("--mode", choices=MODES, default="default",
                       help="max-autotune tries more, for all kernels; give it more seconds")
    group.add_argument("--open", action="store_true",
                       help="keep sizes open; --dim only gives the sizes at which to measure")
    group.add_argument("--again", action="store_true",
                       help="also tune kernels that have been tuned before")
    shared.add_pipeline(parser, tuned=False)


def run(arguments: argparse.Namespace) -> int:
    from compiler.cli.session import session
    from compiler.io.output import write_text
    from compiler.tuning.options import TuneOptions, processes_of
    from compiler.tuning.tuner import Tuner

    with session(arguments) as started:
        wanted = TuneOptions.of(
            processes_of(arguments.workers, arguments.jobs),
            seconds=arguments.seconds, mode=arguments.mode,
            kernels=names_of(arguments.kernels), output=arguments.output,
            sizes=dict(arguments.dim), again=arguments.again, whole=True)
        tuner = Tuner([arguments.model], started.options, wanted, started.instruments)
        arguments.interrupt.kept = tuner.kept
        report = tuner.run()
        if arguments.script is not None:
            write_text(report.script, arguments.script)
        show(*report.lines())
    return 0


def names_of(text: str) -> tuple[str, ...]:
    """`a, b` -> ("a", "b")."""
    return tuple(name.strip() for name in text.split(",") if name.strip())
