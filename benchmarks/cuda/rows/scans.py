"""Rows that are long, odd or short, several sums of one tensor, and running sums."""

from __future__ import annotations

import torch

from rows import Goal, Measure, Setting
from rows.kernels import Kernel, Spec, Tensor, against_copy

TITLE = "long and odd rows, running sums: share of a copy's bandwidth"
APART = False
GOAL = Goal(0.6, 0.8)


def rows(setting: Setting) -> dict[str, Measure]:
    shapes = {"4096x50257": (4096, 50257), "64x1048576": (64, 1 << 20), "18912x197": (18912, 197)}
    x, single = Spec((8192, 4096)), Spec((8192, 4096), torch.float32)
    kernels = {
        **{f"softmax {name}": Kernel(softmax, (Spec(shape),)) for name, shape in shapes.items()},
        "log softmax 4096x50257": Kernel(log_softmax, (Spec((4096, 50257)),)),
        "running sum 8192x4096": Kernel(lambda x: torch.cumsum(x, -1), (x,)),
        "running sum 8192x4096 f32": Kernel(lambda x: torch.cumsum(x, -1), (single,)),
        "running sum of columns 8192x4096 f32": Kernel(lambda x: torch.cumsum(x, 0), (single,)),
        "column sum 8192x4096": Kernel(lambda x: x.sum(0), (x,)),
        "sum and maximum 8192x4096": Kernel(lambda x: x.sum(-1) + x.amax(-1), (x,)),
    }
    return {name: against_copy(kernel, GOAL, "scans") for name, kernel in kernels.items()}


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def log_softmax(x: Tensor) -> Tensor:
    return torch.log_softmax(x, -1)
