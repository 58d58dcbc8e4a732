"""Helpers: programs from functions, and comparisons with eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import compiler

TOLERANCES = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float32: 2e-5, torch.float64: 1e-10}


class Function(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def export(module: Any, inputs: Sequence[torch.Tensor], dynamic: Any = None) -> Any:
    """The program of a module, or of a function."""
    if not isinstance(module, torch.nn.Module):
        module, dynamic = Function(module), None if dynamic is None else {"inputs": dynamic}
    with torch.no_grad():
        return torch.export.export(module.eval(), tuple(inputs), dynamic_shapes=dynamic)


def flat(values: Any) -> list[torch.Tensor]:
    return [v for v in torch.utils._pytree.tree_leaves(values) if isinstance(v, torch.Tensor)]


def check_outputs(got: Sequence[torch.Tensor], want: Any) -> None:
    """Types and shapes agree, and numbers within the tolerance of their type."""
    wanted = flat(want)
    assert len(got) == len(wanted)
    for g, w in zip(got, wanted, strict=True):
        assert g.dtype == w.dtype and g.shape == w.shape, f"{g.dtype}{g.shape} {w.dtype}{w.shape}"
        limit = TOLERANCES.get(w.dtype, 0.0)
        torch.testing.assert_close(g, w, rtol=limit, atol=limit, equal_nan=True)


def run(program: Any, inputs: Sequence[torch.Tensor], target: str = "reference") -> Any:
    """A program's outputs as tensors."""
    executable = compiler.compile(program, target=target, cache="off", threads=1)
    made = executable(*inputs)
    return [v if isinstance(v, torch.Tensor) else torch.from_numpy(v) for v in made]
