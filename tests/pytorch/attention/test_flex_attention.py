"""FlexAttention with any function of scores and masks, compiled as a whole."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import compiler

ROWS = 20
SLOPES, PARTS = torch.linspace(0.1, 0.4, 4), torch.tensor([0] * 7 + [1] * 13)
BIAS = torch.randn(ROWS, ROWS, generator=torch.Generator().manual_seed(0))


LENGTHS, WIDTHS = torch.tensor([20, 7]), torch.tensor([1, 3, 9, 20])
TABLE = torch.randn(4, 2 * ROWS - 1, generator=torch.Generator().manual_seed(1))


def masked(
    visible: Callable[..., Any], batch: int | None = None, heads: int | None = None,
    block: int | tuple[int, int] = 8,
) -> Any:
    return create_block_mask(visible, batch, heads, ROWS, ROWS, device="cpu", BLOCK_SIZE=block)


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "scale": {"scale": 0.3},
    "causal": {"block_mask": masked(lambda b, h, i, j: i >= j)},
    "window": {"block_mask": masked(lambda b, h, i, j: (i >= j) & (i - j < 4))},
    "nothing seen": {"block_mask": masked(lambda b, h, i, j: (i > 5) & (i >= j))},
    "documents": {"block_mask": masked(lambda b, h, i, j: (PARTS[i] == PARTS[j]) & (i >= j))},
    "prefix": {"block_mask": masked(lambda b, h, i, j: (j < 5) | (i >= j))},
    "ALiBi": {"score_mod": lambda s, b, h, i, j: s + SLOPES[h] * (j - i),
              "block_mask": masked(lambda b, h, i, j: i >= j)},
    "bias": {"score_mod": lambda s, b, h, i, j: s + BIAS[i, j]},
    "relative": {"score_mod": lambda s, b, h, i, j: s + (i - j)},
    "soft cap": {"score_mod": lambda s, b, h, i, j: 20 * torch.tanh(s / 20)},
    "odd blocks": {"block_mask": masked(lambda b, h, i, j: i >= j, block=(3, 7))},
    "lengths": {"block_mask": masked(lambda b, h, i, j: j < LENGTHS[b], batch=2)},
    "by head": {"block_mask": masked(lambda b, h, i, j: (i - j).abs() < WIDTHS[h], heads=4)},
    "neighbours": {"block_mask": masked(
        lambda b, h, i, j: ((i // 5 - j // 5).abs() < 2) & ((i % 5 - j % 5).abs() < 2))},
    "a table": {"score_mod": lambda s, b, h, i, j: s + TABLE[h, i - j + ROWS - 1]},
    "soft cap of ALiBi": {
        "score_mod": lambda s, b, h, i, j: 9 * torch.tanh((s + SLOPES[h] * (j - i)) / 9),
        "block_mask": masked(lambda b, h, i, j: (j < LENGTHS[b]) | (i >= j), batch=2)},
    "by batch": {"score_mod": lambda s, b, h, i, j: torch.where(b > 0, s * 2, s)},
}


def check(name: str, q: Tensor, k: Tensor, **options: Any) -> None:
    def function(q: Tensor, k: Tensor) -> Tensor:
        return flex_attention(q, k, k, enable_gqa=True, **OPTIONS[name])  # type: ignore[return-value]

    with torch.no_grad():
        want, got = function(q, k), torch.compile(function, backend="strata", **options)(q, k)
    tolerance = 2e-2 if q.dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)
    assert got.stride() == want.stride()


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, "strata")
    torch._dynamo.reset()
    torch.manual_seed(0)
    return lambda: [m for m in caplog.messages if "eagerly" in m]


@pytest.mark.parametrize("name", OPTIONS)
def test_scores_and_masks(name: str, warnings: Callable[[], list[str]]) -> None:
    check(name, torch.randn(2, 4, ROWS, 8), torch.randn(2, 2, ROWS, 8))
    assert not warnings()


@pytest.mark.parametrize("name", ["causal", "ALiBi"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_element_types(
    name: str, dtype: torch.dtype, warnings: Callable[[], list[str]]
) -> None:
    check(name, torch.randn(2, 4, ROWS, 8, dtype=dtype), torch.randn(2, 2, ROWS, 8, dtype=dtype))
    assert not warnings()


def test_heads_that_lie_beside_each_other(warnings: Callable[[], list[str]]) -> None:
    check("causal", torch.randn(2, ROWS, 4, 8).transpose(1, 2), torch.randn(2, 2, ROWS, 8))
    assert not warnings()


def test_an_open_batch(warnings: Callable[[], list[str]]) -> None:
    for batch in (2, 3, 5):
        check("soft cap", torch.randn(batch, 4, ROWS, 8), torch.randn(batch, 2, ROWS, 8))
    assert not warnings()


def test_logarithms_of_sums(warnings: Callable[[], list[str]]) -> None:
    def function(q: Tensor) -> tuple[Tensor, Tensor]:
        return flex_attention(q, q, q, return_lse=True, **OPTIONS["causal"])  # type: ignore[return-value]

    q = torch.randn(1, 2, ROWS, 8)
    with torch.no_grad():
        for got, want in zip(torch.compile(function, backend="strata")(q), function(q),
                             strict=True):
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    assert not warnings()


def test_attention_that_is_exported() -> None:
    class Module(nn.Module):
        def forward(self, q: Tensor) -> Tensor:
            return flex_attention(q, q, q, **OPTIONS["ALiBi"])  # type: ignore[return-value]

    q = torch.randn(2, 4, ROWS, 8)
    with torch.no_grad():
        exe = compiler.compile(torch.export.export(Module(), (q,)), cache="off", tuned="off",
                               threads=1)
        torch.testing.assert_close(exe(q)[0], Module()(q), rtol=1e-5, atol=1e-5)
