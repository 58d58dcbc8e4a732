"""The option that names the folder of models."""

from __future__ import annotations

import argparse
import os
from pathlib import Path


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The options of the command line, with the absolute path `zoo` among them."""
    parser.add_argument("--zoo", type=Path, default=os.environ.get("STRATA_ZOO"),
                        help="the folder of models; default: $STRATA_ZOO")
    options = parser.parse_args()
    if options.zoo is None:
        parser.error("name the folder of models with --zoo or STRATA_ZOO")
    options.zoo = Path(options.zoo).resolve()
    return options
