"""Gradients of FlexAttention, compiled as a whole, against attention written out in f64.

PyTorch's own gradients on the CPU are a definition that it does not offer; a GPU's are kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import flex_attention as flex

ROWS, KEYS, BATCH, HEADS, GROUPS = 37, 29, 2, 6, 2
PARTS = torch.sort(torch.randint(0, 4, (BATCH, ROWS)), 1)[0]
SLOPES = torch.exp2(-torch.arange(HEADS))

Score = Callable[..., Tensor]
MASKS: dict[str, Score | None] = {
    "all": None, "causal": lambda b, h, i, j: i >= j,
    "window": lambda b, h, i, j: (i - j).abs() < 7,
    "documents": lambda b, h, i, j: (PARTS[b, i] == PARTS[b, j]) & (i >= j),
    "no keys for some": lambda b, h, i, j: (i != 5) & (j < 20)}


def slopes(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return s + SLOPES[h] * (j - i)


def capped(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return 3 * torch.tanh(s / 3)


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch: pytest.MonkeyPatch, whole: None) -> None:
    """PyTorch refuses to record gradients there."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    monkeypatch.setattr(flex, "_validate_device", lambda *tensors: None)


def written_out(
    q: Tensor, k: Tensor, v: Tensor, score: Score | None, mask: Score | None
) -> tuple[Tensor, Tensor]:
    """The results and the logarithms of sums."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    places = torch.meshgrid(*map(torch.arange, (*q.shape[:3], k.shape[2])), indexing="ij")
    scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5
    scores = scores if score is None else score(scores, *places)
    if mask is not None:
        scores = scores.masked_fill(~mask(*places), -torch.inf)
    seen = (scores > -torch.inf).any(-1, keepdim=True)
    weights = torch.where(seen, scores, 0.0).softmax(-1)
    return torch.where(seen, weights, 0.0) @ v, scores.logsumexp(-1)


def gradients(
    function: Callable[..., Tensor], inputs: list[Tensor], dtype: torch.dtype
) -> list[Tensor]:
    given = [x.detach().to(dtype, copy=True).requires_grad_() for x in inputs]
    function(*given).backward()
    return [torch.zeros_like(x) if x.grad is None else x.grad for x in given]


def check(
    compiled: Callable[..., Tensor], wanted: Callable[..., Tensor], *inputs: Tensor,
    dtype: torch.dtype = torch.float32, limit: float = 2e-4,
) -> None:
    fast = torch.compile(compiled, backend="strata", options={"cache": "off", "tuned": "off"})
    found = gradients(fast, list(inputs), dtype)
    for mine, exact in zip(found, gradients(wanted, list(inputs), torch.float64), strict=True):
        assert mine.dtype == dtype
        torch.testing.assert_close(mine.double(), exact, rtol=limit, atol=limit)


def operands(heads: int = HEADS, rows: int = ROWS, keys: int = ROWS) -> list[Tensor]:
    return [torch.randn(BATCH, HEADS, rows, 8), torch.randn(BATCH, heads, keys, 8),
            torch.randn(BATCH, heads, keys, 8)]


@pytest.mark.parametrize("score", [None, slopes, capped], ids=["plain", "slopes", "capped"])
@pytest.mark.parametrize("name", MASKS)
def test_scores_and_masks(name: str, score: Score | None) -> None:
    mask = MASKS[name]
    blocks = mask and flex.create_block_mask(mask, BATCH, None, ROWS, ROWS, "cpu", BLOCK_SIZE=16)

    def compiled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        found: Any = flex.flex_attention(q, k, v, score, blocks, enable_gqa=True)
        return found.sin().sum()

    check(compiled, lambda q, k, v: written_out(q, k, v, score, mask)[0].sin().sum(),
          *operands(GROUPS))


def test_a_captured_tensor_has_a_gradient() -> None:
    """Elements that several scores read get the sum of their gradients."""
    table, bias = torch.randn(HEADS, ROWS + KEYS), torch.randn(ROWS, KEYS)

    def scores(table: Tensor, bias: Tensor) -> Score:
        return lambda s, b, h, i, j: s + table[h, i - j + KEYS] * 0.5 + bias[i, j]

    def compiled(q: Tensor, k: Tensor, v: Tensor, table: Tensor, bias: Tensor) -> Tensor:
        found: Any = flex.flex_attention(q, k, v, scores(table, bias))
        return found.square().sum()

    check(compiled, lambda q, k, v, *more: written_out(
        q, k, v, scores(*more), None)[0].square().sum(), *operands(keys=KEYS), table, bias)


def test_logarithms_of_sums_have_gradients() -> None:
    def compiled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        made, sums = flex.flex_attention(q, k, v, slopes, return_lse=True)
        return made.cos().sum() + sums.square().sum()

    def wanted(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        made, sums = written_out(q, k, v, slopes, None)
        return made.cos().sum() + sums.square().sum()

    check(compiled, wanted, *operands(keys=KEYS))


def test_halves_and_heads_beside_each_other() -> None:
    def compiled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        found: Any = flex.flex_attention(*(x.transpose(1, 2) for x in (q, k, v)), capped)
        return found.float().square().sum()

    def wanted(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return written_out(*(x.transpose(1, 2) for x in (q, k, v)), capped, None)[0].square().sum()

    inputs = [x.transpose(1, 2).contiguous().bfloat16() for x in operands()]
    check(compiled, wanted, *inputs, dtype=torch.bfloat16, limit=6e-2)
