"""One row of the table of CPU speed, measured in this process.

    python benchmarks/cpu/row.py GROUP NAME --threads 1 --seconds 5 [--models-json FILE]

prints its figures as JSON. `suite.py` starts a process per row, so that nothing is warm and no
threads or memory of others are left over.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from rows import Missing, Setting, group


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure one row.")
    parser.add_argument("group")
    parser.add_argument("name")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--models-json", type=Path)
    options = parser.parse_args()
    os.environ.pop("STRATA_DEBUG", None)
    with tempfile.TemporaryDirectory() as folder:
        setting = Setting(options.threads, options.seconds, Path(folder), options.models_json)
        measure = group(options.group).rows(setting)[options.name]
        try:
            figures = asdict(measure(setting))
        except Missing as error:
            figures = {"missing": str(error)}
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
