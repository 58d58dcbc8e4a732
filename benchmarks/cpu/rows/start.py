"""From the start of a process to the first result, compiled code being in the cache."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from functools import partial
from typing import Any

from rows import Figures, Goal, Measure, Setting
from rows.processes import saved_model, start

TITLE = "process start to first result, from the cache: our time / onnxruntime's"
GOAL = Goal(1.0, 0.5, at_most=True)
MEAN = False
MODELS = ("resnet50", "bert_base", "ppocr_v4_det", "silero_v6_no_if")
ROUNDS = 5


def rows(setting: Setting) -> dict[str, Measure]:
    found = setting.zoo()
    return {name: partial(measure, name, found.get(name)) for name in MODELS}


def measure(name: str, entry: Mapping[str, Any] | None, setting: Setting) -> Figures:
    """Medians of processes that take turns, after one that fills the cache."""
    model, inputs = saved_model(name, entry, setting)
    words = {"strata": (model, inputs, "--cache", setting.folder / "cache"),
             "onnxruntime": (model, inputs)}
    taken: dict[str, list[float]] = {who: [] for who in words}
    for turn in range(ROUNDS + 1):
        for who, given in words.items():
            seconds = start(setting, who, *given).seconds
            taken[who] += [seconds] if turn else []
    ours, theirs = (statistics.median(times) for times in taken.values())
    return Figures(f"{ours:.2f} s", {"onnxruntime": f"{theirs:.2f} s"}, ours / theirs)
