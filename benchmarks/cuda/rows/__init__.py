"""The rows of the table of CUDA speed: a group per file, found by its name.

    TITLE: str                                   what the group's ratio is
    APART: bool                                  whether each row wants a process of its own
    def rows(setting: Setting) -> dict[str, Measure]

A group's rows are measured one after another in a process by `row.py`; `suite.py` starts these and
gathers what they print. A row may tell figures of several groups: a model's call, compile time and
memory are measured at once. Files that are no group hold what groups share: kernels.py (a single
kernel and its peers), timing.py (device and host time), programs.py (ours, and the peers'
programs), xla.py (kernels for jax), networks.py (whole models), and table.py, which writes the
page.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

sys.path.append(str(Path(__file__).parents[2] / "shared"))

from suites.figures import Figures, Goal, Missing, milliseconds

__all__ = ["GROUPS", "MEASURED", "Figures", "Goal", "Measure", "Missing", "Reached", "Setting",
           "group", "milliseconds"]

MEASURED = ("norms", "elementwise", "moves", "scans", "products", "attention", "convolutions",
            "models", "host")
"""The groups that have rows of their own."""
AUTOTUNED = ("products", "convolutions", "models")
"""Those that a slow mode of `torch.compile` makes faster."""
GROUPS = (*MEASURED, "compile", "memory")
"""All tables of the page."""


@dataclass(frozen=True)
class Setting:
    """How rows are measured. `seconds`: about how long a row's calls take in all. `smoke`: tiny
    sizes on the CPU, in Triton's interpreter with `interpret`. `modes`: those of `torch.compile`
    that take part; with `beside`, no other peers do but eager PyTorch, for the rest was measured
    before. `lock`: a file by which processes take turns on the device."""

    seconds: float = 2.0
    smoke: bool = False
    interpret: bool = False
    modes: tuple[str, ...] = ("default", "reduce-overhead")
    lock: Path | None = None
    beside: bool = False


@dataclass(frozen=True)
class Reached:
    """Figures, with the goal of their ratio."""

    figures: Figures
    goal: Goal


Measure = Callable[[Setting], Mapping[str, Reached]]
"""What a row's figures are, by group."""


def group(name: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{name}")
