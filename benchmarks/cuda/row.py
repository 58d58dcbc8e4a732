"""Rows of one group of the table of CUDA speed, measured one after another in this process.

    python benchmarks/cuda/row.py GROUP NAME ... --seconds 2

prints a line of JSON per record: figures, what is missing, or the fault. `suite.py` starts it, and
again behind a row that has ended the process.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, astuple
from pathlib import Path
from typing import Any

import torch
from rows import Measure, Missing, Setting, group


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure rows of a group.")
    parser.add_argument("group")
    parser.add_argument("names", nargs="+")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--modes", default="default,reduce-overhead")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--interpret", action="store_true")
    parser.add_argument("--lock", type=Path)
    parser.add_argument("--beside", action="store_true")
    options = parser.parse_args()
    os.environ.pop("STRATA_DEBUG", None)
    setting = Setting(options.seconds, options.smoke, options.interpret,
                      tuple(filter(None, options.modes.split(","))), options.lock, options.beside)
    measures = group(options.group).rows(setting)
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what others print is no record
    for name in options.names:
        for record in measured(options.group, name, measures[name], setting):
            print(json.dumps(record), file=replies, flush=True)
    return 0


def measured(name: str, row: str, measure: Measure, setting: Setting) -> Iterator[dict[str, Any]]:
    """The records of a row; the first one tells how long all of it took."""
    started = time.monotonic()
    try:
        with torch.no_grad():
            found = measure(setting)
        seconds = time.monotonic() - started
        for part, reached in found.items():
            yield {"group": part, "row": row, **asdict(reached.figures),
                   "goal": astuple(reached.goal), "seconds": seconds}
            seconds = 0.0
    except Missing as error:
        yield {"group": name, "row": row, "missing": str(error)}
    except Exception as error:
        traceback.print_exc()
        yield {"group": name, "row": row, "fault": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    sys.exit(main())
