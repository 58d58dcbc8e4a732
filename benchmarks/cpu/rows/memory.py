"""The most memory that a process holds which loads a model, ours from the cache, and runs it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from rows import Figures, Goal, Measure, Setting
from rows.processes import saved_model, start

TITLE = "peak memory of a process that loads a model (ours from the cache) and runs it: ours / " \
        "onnxruntime's"
GOAL = Goal(1.0, 0.7, at_most=True)
MEAN = False
MODELS = ("resnet50", "bert_base", "gpt2_decode", "ppocr_v4_det", "silero_v6_no_if")
CALLS = 5


def rows(setting: Setting) -> dict[str, Measure]:
    found = setting.zoo()
    return {name: partial(measure, name, found.get(name)) for name in MODELS}


def measure(name: str, entry: Mapping[str, Any] | None, setting: Setting) -> Figures:
    model, inputs = saved_model(name, entry, setting)
    ours = (model, inputs, "--cache", setting.folder / "cache")
    start(setting, "strata", *ours)
    more = ("--more", CALLS)
    mine = start(setting, "strata", *ours, *more).peak
    other = start(setting, "onnxruntime", model, inputs, *more).peak
    return Figures(_megabytes(mine), {"onnxruntime": _megabytes(other)}, mine / other)


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.0f} MB"
