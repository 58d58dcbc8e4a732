"""The most memory that a process holds while a model is compiled, and while it runs.

    python benchmarks/zoo/memory.py MODEL.onnx < entry.json

prints, in bytes, what onnxruntime takes to load the model and to run all its cases; in a process of
its own, so that nothing of ours counts. Linux only: the kernel keeps the peak, and can be told to
begin anew.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inputs import make_inputs
from peer import onnxruntime_call

Entry = Mapping[str, Any]
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def forget_peak() -> None:
    """Let the peak of this process begin at what it holds now."""
    RESET.write_text("5")


def peak() -> int:
    """The most bytes that this process has held since, or in all."""
    line = next(x for x in STATUS.read_text().splitlines() if x.startswith("VmHWM:"))
    return 1024 * int(line.split()[1])


def onnxruntime_peak(model: Path, entry: Entry) -> int:
    """The peak of a process in which onnxruntime runs all cases."""
    done = subprocess.run([sys.executable, __file__, str(model)], input=json.dumps(entry),
                          text=True, capture_output=True, check=True)
    return int(done.stdout)


def main() -> None:
    entry: Entry = json.load(sys.stdin)
    call = onnxruntime_call(Path(sys.argv[1]))
    for case in entry["cases"]:
        call(make_inputs(case))
    print(peak())


if __name__ == "__main__":
    main()
