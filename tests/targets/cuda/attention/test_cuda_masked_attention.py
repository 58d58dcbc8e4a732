"""Attention under every kind of mask and with heads of every size becomes one kernel of text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from compiler.api import model_of_argument
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler, lower_to_text

torch = pytest.importorskip("torch")
LENGTH, BACK = 1024, 256
"""As many rows as warp specialization wants, and how many keys a window holds."""


def _apart() -> Any:
    at = torch.arange(LENGTH)
    return at[:, None] - at[None, :]


MASKS: dict[str, Callable[..., Any]] = {
    "none": lambda _: None,
    "causal": lambda _: torch.arange(LENGTH)[None] <= torch.arange(LENGTH)[:, None],
    "window": lambda _: (_apart() >= 0) & (_apart() < BACK),
    "around": lambda _: _apart().abs() < BACK,
    "ahead": lambda _: _apart() < BACK,
    "back": lambda _: _apart() > -BACK,
    "keys": lambda m: m[:, None, None, :] > 0,
    "bias": lambda m: m[0, :, None] + m[0],
}


class Attention(torch.nn.Module):
    def __init__(self, mask: Callable[..., Any]):
        super().__init__()
        self.mask = mask

    def forward(self, q: Any, k: Any, v: Any, m: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, self.mask(m))


def triton_text(mask: str, size: int) -> str:
    shapes = [(1, 16, LENGTH, size)] * 3 + [(1, LENGTH)]
    given = tuple(torch.zeros(shape, dtype=torch.bfloat16) for shape in shapes)
    program = torch.export.export(Attention(MASKS[mask]), given, strict=False)
    options = CompileOptions(target="cuda", features="sm_90", cache="off", tuned="off")
    return lower_to_text(Compiler(model_of_argument(program), options, []), "triton")


@pytest.mark.parametrize("size", [64, 80, 128])
@pytest.mark.parametrize("mask", MASKS)
def test_kernels(mask: str, size: int) -> None:
    text = triton_text(mask, size)
    assert text.count("# kernel @online") == 1
    assert "# kernel @contract" not in text


@pytest.mark.parametrize("mask", ["causal", "window", "ahead", "back"])
def test_weights_of_hidden_scores_are_not_masked_again(mask: str) -> None:
    """exp(-inf - maximum) is 0, if each row has a score; lengths of keys may leave none."""
    again = re.compile(r"tl\.where\(.*, 0\.0\)")
    assert not again.search(triton_text(mask, 128))
    assert again.search(triton_text("keys", 128))


def test_tiles_below_the_diagonal_compare_nothing() -> None:
    lines = triton_text("causal", 128).splitlines()
    compared = [k for k, line in enumerate(lines) if "[None, :] <= " in line]
    assert compared and all(lines[k - 1].strip().startswith("if ") for k in compared)
