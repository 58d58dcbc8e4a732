"""Compiling without a cache, in a process that starts for that: seconds of wall time."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from functools import partial
from typing import Any

from rows import Figures, Goal, Measure, Setting
from rows.models import model_and_inputs
from rows.processes import start

TITLE = "cold compile, process start included: seconds"
GOAL = Goal(5.0, 2.0, at_most=True)
MEAN = False
MODELS = ("resnet50", "bert_base", "ppocr_v4_det")
MOST = 5


def rows(setting: Setting) -> dict[str, Measure]:
    found = setting.zoo()
    return {name: partial(measure, name, found.get(name)) for name in MODELS}


def measure(name: str, entry: Mapping[str, Any] | None, setting: Setting) -> Figures:
    """The median of as many compilations as there is time for."""
    model, _ = model_and_inputs(name, entry)
    taken: list[float] = []
    while not taken or (sum(taken) < setting.seconds and len(taken) < MOST):
        taken.append(start(setting, "compile", model).seconds)
    seconds = statistics.median(taken)
    return Figures(f"{seconds:.1f} s", {}, seconds)
