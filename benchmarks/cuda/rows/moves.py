"""Transposes and sums of rows."""

from __future__ import annotations

import torch

from rows import Goal, Measure, Setting
from rows.kernels import Kernel, Spec, against_copy

TITLE = "moves and sums: share of a copy's bandwidth"
APART = False
GOAL = Goal(0.88, 0.92)


def rows(setting: Setting) -> dict[str, Measure]:
    kernels = {
        "transpose 8192x8192 bf16": Kernel(lambda x: x.t().contiguous(), (Spec((8192, 8192)),)),
        "row sum 8192x4096 f32": Kernel(lambda x: x.sum(-1), (Spec((8192, 4096), torch.float32),)),
    }
    return {name: against_copy(kernel, GOAL, "moves") for name, kernel in kernels.items()}
