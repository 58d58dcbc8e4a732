"""Programs that PyTorch captures in several graphs, each beside what is usually written instead.

A line of the user's at which a graph ends has the comment `# ends`.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Breaking:
    """`program` breaks; `rewritten` does what the advice, in which `said` occurs, tells to do.
    `config`: what `torch._dynamo.config` needs for it."""

    program: Callable[..., Any]
    said: str
    rewritten: Callable[..., Any] | None = None
    config: tuple[str, ...] = ()


def branches(x: Tensor) -> Tensor:
    y = x.sin()
    if y.sum() > 0:  # ends
        return y + 1
    return y.cos()


def branches_inside(x: Tensor) -> Tensor:
    y = x.sin()
    return torch.cond(y.sum() > 0, lambda y: y + 1, lambda y: y.cos(), (y,))


def reads(x: Tensor) -> Tensor:
    y = x.exp()
    return y * y.sum().item()  # ends


def prints(x: Tensor) -> Tensor:
    y = x.abs() + 1
    print("half of it")  # ends
    return y.log()


def logs(x: Tensor) -> Tensor:
    y = x.abs() + 1
    log.debug("half of it")  # ends
    return y.log()


def warns(x: Tensor) -> Tensor:
    y = x.tanh()
    torch._dynamo.graph_break()  # ends
    return y * 2


def plain(x: Tensor) -> Tensor:
    return x.tanh() * 2


@torch._dynamo.disable
def outside(x: Tensor) -> Tensor:
    return x.round()


def leaves(x: Tensor) -> Tensor:
    y = x * 3
    return outside(y) + 1  # ends


def stays(x: Tensor) -> Tensor:
    return (x * 3).round() + 1


def chooses_rows(x: Tensor) -> Tensor:
    y = x + 1
    return y[y > 1].sum() * 2  # ends


def compares(x: Tensor) -> Tensor:
    y = x * 2
    same = torch.equal(y, x + x)  # ends
    return y + same


class Deep(torch.nn.Module):
    """A break in a module of a module, and one after it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()
        self.out = torch.nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(x)  # ends
        z = self.out(y)
        torch._dynamo.graph_break()  # ends
        return z.softmax(-1)


class Inner(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x).relu()
        warnings.warn("half of it", stacklevel=2)  # ends
        return y + 1


PROGRAMS = {
    "branch": Breaking(branches, "torch.cond", branches_inside),
    "number": Breaking(reads, "capture_scalar_outputs", reads, ("capture_scalar_outputs",)),
    "print": Breaking(prints, "reorderable_logging_functions"),
    "logger": Breaking(logs, "reorderable_logging_functions"),
    "explicit": Breaking(warns, "Remove the call", plain),
    "disabled": Breaking(leaves, "torch.compiler.disable", stays),
    "rows": Breaking(chooses_rows, "capture_dynamic_output_shape_ops", chooses_rows,
                     ("capture_dynamic_output_shape_ops",)),
    "comparison": Breaking(compares, "decide outside"),
}
