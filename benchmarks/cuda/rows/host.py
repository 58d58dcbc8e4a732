"""What a call costs the host: small models, whose work on the device is next to nothing."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch.nn import functional

from rows import Figures, Goal, Measure, Reached, Setting
from rows.kernels import Contest, Kernel, Spec
from rows.programs import OURS
from rows.timing import host_times

TITLE = "the host's microseconds per call of a small model"
APART = False
GOAL = Goal(15.0, 10.0, at_most=True)
SIZE = (16, 64)


def rows(setting: Setting) -> dict[str, Measure]:
    x = Spec(SIZE, torch.float32)
    weight = Spec((64, 64), torch.float32, 0.1)
    kernels = {"one kernel": Kernel(torch.relu, (x,)),
               "four inputs": Kernel(lambda a, b, c, d: a * b + c * d, (x,) * 4),
               "ten linear layers": Kernel(_layers, (x,), (weight,) * 10)}
    return {name: partial(measure, kernel) for name, kernel in kernels.items()}


def _layers(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    for weight in weights:
        x = functional.relu(functional.linear(x, weight))
    return x


def measure(kernel: Kernel, setting: Setting) -> Mapping[str, Reached]:
    contest = Contest(kernel, setting)
    contest.check()
    times = host_times(contest.calls, setting)
    texts = {name: f"{t:.1f} µs" for name, t in times.items()}
    figures = Figures(texts.pop(OURS), texts, times[OURS], contest.remarks())
    return {"host": Reached(figures, GOAL)}
