"""Find faster schedules for a model's kernels by timing candidates on this machine.

The candidates are of the space that the target's rules choose from, and begin with their choice.
Every candidate is checked against what the rules' choice computes, and timed in turns with it. The
fastest are kept in a file (-o; by default in the cache), by machine and by kernel, not by model.
All later compilations use them where they fit (--tuned auto|off|FILE). A run that is started again
goes on with what has not been tuned yet.

Tune with the sizes and options that you compile with. With --open, sizes that --dim names stay open
and only say at which sizes to measure.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from compiler.cli import arguments as shared

SUMMARY = "find faster schedules by measuring, and keep them"
TOPIC = "Make it faster"
MODES = ("default", "max-autotune")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_model(parser)
    shared.add_target(parser)
    group = parser.add_argument_group("tuning")
    shared.add_output(group, "-o", text="where winners are kept, instead of the cache")
    group.add_argument("--script", metavar="FILE", type=Path,
                       help="write the winners as a script for --schedule, too")
    group.add_argument("--seconds", metavar="N", type=shared.positive, default=120,
                       help="about how long it may take (default 120)")
    group.add_argument("--jobs", metavar="N", type=shared.positive,
                       help="processes that compile (default: all that may be used)")
    group.add_argument("--kernels", metavar="NAME,...", default="",
                       help="only these, by their names in dumps; * is any part of a name")
    group.add_argument("--mode", choices=MODES, default="default",
                       help="max-autotune tries more, on all kernels; give it more seconds")
    group.add_argument("--open", action="store_true",
                       help="sizes stay open; --dim says at which ones to measure")
    group.add_argument("--again", action="store_true",
                       help="tune also what has been tuned before")
    shared.add_pipeline(parser, tuned=False)


def run(arguments: argparse.Namespace) -> int:
    from compiler.cli.session import session
    from compiler.io.output import write_text
    from compiler.tuning.options import TuneOptions
    from compiler.tuning.tuner import Tuner

    with session(arguments) as started:
        wanted = TuneOptions.of(
            seconds=arguments.seconds, jobs=arguments.jobs, mode=arguments.mode,
            kernels=names_of(arguments.kernels), output=arguments.output,
            sizes=dict(arguments.dim), again=arguments.again, whole=True)
        tuner = Tuner([arguments.model], started.options, wanted, started.instruments)
        arguments.interrupt.kept = tuner.kept
        report = tuner.run()
        if arguments.script is not None:
            write_text(report.script, arguments.script)
        print("\n".join(report.lines()))
    return 0


def names_of(text: str) -> tuple[str, ...]:
    """`a, b` -> ("a", "b")."""
    return tuple(name.strip() for name in text.split(",") if name.strip())
