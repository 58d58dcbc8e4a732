"""The options of `bisect`, for the command and for the process of its trials."""

from __future__ import annotations

import argparse
from pathlib import Path

from compiler.cli import arguments as shared

SEEDS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_model(parser)
    shared.add_target(parser)
    shared.add_inputs(parser)
    group = parser.add_argument_group("the search")
    group.add_argument("--seeds", metavar="N", type=shared.positive, default=SEEDS,
                       help=f"how many seeds of random inputs to try, from --seed on, until one "
                            f"shows a difference (default {SEEDS})")
    group.add_argument("--tolerance", metavar="X", type=shared.tolerance,
                       help="the largest error allowed for float outputs (default: by type)")
    group.add_argument("--timeout", metavar="N", type=shared.positive, default=120,
                       help="time limit of one pass or execution in seconds (default 120)")
    shared.complete(group.add_argument(
        "--json", metavar="FILE", type=Path,
        help="also write what was found as JSON; - for standard output"))
    shared.add_pipeline(parser)
