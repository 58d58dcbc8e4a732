"""The rows of the table of CPU speed: a group per file, found by its name; see `groups`.

    TITLE: str            what the group's ratio is
    GOAL: Goal            what its ratio is measured by
    MEAN: bool            whether the goal is for the geometric mean of the rows, not for each
    def rows(setting: Setting) -> dict[str, Measure]

A row is measured in a process of its own by `row.py`; `suite.py` starts these and gathers what they
print. Files that are no group hold what groups share: contests.py, graphs.py, quantized_graphs.py,
models.py, processes.py, and table.py, which writes the page.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.append(str(Path(__file__).parents[2] / "shared"))

from suites.figures import Figures, Goal, Missing, milliseconds

__all__ = ["GROUPS", "VARIABLE", "Figures", "Goal", "Measure", "Missing", "Setting", "group",
           "milliseconds"]

GROUPS = ("gemm", "kernels", "chains", "zoo", "written", "transformers", "int8", "small", "bf16",
          "bf16_gemm", "threads", "compile", "start", "memory")
VARIABLE = "STRATA_ZOO"


@dataclass(frozen=True)
class Setting:
    """How a row is measured. `seconds`: about how long its contest takes; `folder`: for files of
    the row; `models_json`: describes the models in the zoo, None where there is none."""

    threads: int
    seconds: float
    folder: Path
    models_json: Path | None = None

    def zoo(self) -> dict[str, Any]:
        """The zoo's models that are there: name -> entry with `path`."""
        root = os.environ.get(VARIABLE)
        if root is None or self.models_json is None or not self.models_json.is_file():
            return {}
        entries = json.loads(self.models_json.read_text())["models"]
        paths = {e["name"]: Path(root) / f"{e['name']}.onnx" for e in entries}
        return {e["name"]: {**e, "path": str(paths[e["name"]])} for e in entries
                if paths[e["name"]].is_file()}


Measure = Callable[[Setting], Figures]


def group(name: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{name}")
