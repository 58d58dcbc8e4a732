"""Further such programs: with gradients, in modules, and of several graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tests.pytorch.dynamo.behaviours import PROGRAMS, drawn, made_by, program

BREAKING = ("breaks_in_a_loop", "numbers_in_a_loop", "leaves_and_returns", "sparse_inside",
            "copies_a_dictionary")
"""Programs that are no single graph."""


# ---------------------------------------------------------------------- gradients
class Straight(torch.autograd.Function):
    """Rounds, and passes gradients of two results on, scaled."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Any:
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x.round(), x * x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return grads[0] * ctx.scale + grads[1] * x * 3, None


def _gradients(x: Tensor, loss: Tensor) -> Any:
    return loss.detach(), torch.autograd.grad(loss, x)[0]


@made_by(lambda: (drawn(30).requires_grad_(),))
def functions_of_autograd(x: Tensor) -> Tensor:
    rounded, squared = Straight.apply(x, 0.5)
    return (rounded * squared).sum()


@made_by(lambda: (drawn(5).requires_grad_(),))
def hooks_of_gradients(x: Tensor) -> Tensor:
    made = x * 2
    made.register_hook(lambda grad: grad.clamp(-0.1, 0.1))
    return (made**2).sum()


@made_by(lambda: (drawn(3, 4).requires_grad_(), drawn(3)))
def gradients_through_writes(x: Tensor, y: Tensor) -> Tensor:
    made = x * 1
    made[:, 0] = y
    made[1].mul_(2)
    return made.sum() * 2 + (made**2).sum()


@program((3, 4))
def transforms(x: Tensor) -> Any:
    return torch.func.vmap(torch.func.grad(lambda row: (row.sin() * row).sum()))(x)


WITH_GRADIENTS = ("functions_of_autograd", "hooks_of_gradients", "gradients_through_writes")
"""Programs whose result is a loss."""


def seen(name: str, function: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    """What a caller sees of a call."""
    made = function(*given)
    return _gradients(given[0], made) if name in WITH_GRADIENTS else made


# ---------------------------------------------------------------------- modules and breaks
class Hooks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.ModuleDict({"b": nn.Linear(4, 4), "a": nn.ReLU()})
        self.register_buffer("total", torch.zeros(4))
        self.inner["b"].register_forward_hook(lambda m, given, made: made * 2)
        self.inner["a"].register_forward_pre_hook(lambda m, given: (given[0] - 0.1,))

    def forward(self, x: Tensor) -> Any:
        for name, module in self.inner.items():
            x = module(x) + len(name)
        self.total.add_(x.mean(0))
        return x, self.total.clone()


PROGRAMS["hooks_of_modules"] = Hooks(), lambda: (drawn(3, 4),)


@program((3,))
def breaks_in_a_loop(x: Tensor) -> Any:
    for k in range(3):
        x = x + k
        torch._dynamo.graph_break()
        x = x * 2
    return x


@program((3,))
def numbers_in_a_loop(x: Tensor) -> Any:
    made: list[Any] = []
    for _ in range(3):
        x = x.sin()
        made.append(round(x.sum().item(), 4))
        x = x + made[-1]
    return x, made


@torch._dynamo.disable
def _outside(x: Tensor) -> Tensor:
    return torch.from_numpy(np.cumsum(x.numpy())) + x


@program((3,))
def leaves_and_returns(x: Tensor) -> Any:
    return _outside(x * 2) + 1


@program((4, 4))
def sparse_inside(x: Tensor) -> Any:
    return (x.to_sparse() @ x).relu() + 1


@program((3,))
def copies_a_dictionary(x: Tensor) -> Any:
    given = {"a": x, "b": [x + 1]}
    other = given.copy()
    other["a"] = x * 3
    return given["a"], other["a"], other["b"]
