"""The usual ways to write a causal mask: functions of scores, and of a constant that some slice.

Each gives the scores that are left, of s x t, at most 1,200 of each; `BUFFER` are those that read
the constant, whose size is not that of the scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Tensor = torch.Tensor
Mask = Callable[[Tensor, Tensor], Tensor]
LONGEST = 1200


class Attention(nn.Module):
    """softmax(mask(q @ k^T / sqrt(d))) @ v."""

    def __init__(self, mask: Mask):
        super().__init__()
        self.mask = mask
        lower = torch.ones(LONGEST, LONGEST, dtype=torch.bool).tril()
        self.register_buffer("lower", lower.view(1, 1, LONGEST, LONGEST))

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Any:
        scores = q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1]))
        return torch.softmax(self.mask(scores, self.lower), -1) @ v


def _sizes(scores: Tensor) -> tuple[int, int]:
    return scores.shape[-2], scores.shape[-1]


def _lower(scores: Tensor) -> Tensor:
    return torch.ones(*_sizes(scores), dtype=torch.bool).tril()


def _lowest(scores: Tensor) -> float:
    return float(torch.finfo(torch.float16).min)


def _filled(scores: Tensor) -> Tensor:
    return torch.full(_sizes(scores), _lowest(scores), dtype=scores.dtype)


def filled(scores: Tensor, _: Tensor) -> Tensor:
    return scores.masked_fill(~_lower(scores), -math.inf)


def chosen(scores: Tensor, _: Tensor) -> Tensor:
    return torch.where(_lower(scores), scores, torch.tensor(-math.inf, dtype=scores.dtype))


def compared_with_zero(scores: Tensor, _: Tensor) -> Tensor:
    return scores.masked_fill(torch.tril(torch.ones(*_sizes(scores))) == 0, -math.inf)


def upper(scores: Tensor, _: Tensor) -> Tensor:
    mask = torch.ones(*_sizes(scores), dtype=torch.bool).triu(1)
    return scores.masked_fill(mask, -math.inf)


def infinity_added(scores: Tensor, _: Tensor) -> Tensor:
    mask = torch.triu(torch.full(_sizes(scores), -math.inf), 1)
    return scores + mask.to(scores.dtype)


def lowest_added(scores: Tensor, _: Tensor) -> Tensor:
    return scores + torch.triu(_filled(scores), 1)


def zeros_filled(scores: Tensor, _: Tensor) -> Tensor:
    mask = torch.zeros(_sizes(scores), dtype=scores.dtype)
    return scores + mask.masked_fill(_lower(scores).logical_not(), -math.inf)


def numbered(scores: Tensor, _: Tensor) -> Tensor:
    rows, columns = map(torch.arange, _sizes(scores))
    return scores.masked_fill(columns[None, :] > rows[:, None], -math.inf)


def next_row(scores: Tensor, _: Tensor) -> Tensor:
    count = torch.arange(scores.shape[-1])
    mask = _filled(scores).masked_fill(count < (count + 1).view(-1, 1), 0)
    return scores + mask[None, None]


def multiplied(scores: Tensor, _: Tensor) -> Tensor:
    rows, columns = map(torch.arange, _sizes(scores))
    mask = torch.triu(_filled(scores), 1) * (columns > rows.reshape(-1, 1))
    return scores + mask[None, None].expand(scores.shape[0], 1, -1, -1)


def opposite(scores: Tensor, _: Tensor) -> Tensor:
    kept = torch.ones(*_sizes(scores)).tril().to(scores.dtype)
    return scores + (1.0 - kept) * _lowest(scores)


def and_padded(scores: Tensor, _: Tensor) -> Tensor:
    seen = torch.arange(scores.shape[-1]) < scores.shape[-1] - 3
    return scores.masked_fill(~(_lower(scores) & seen[None]), -math.inf)


def windowed(scores: Tensor, _: Tensor) -> Tensor:
    rows, columns = map(torch.arange, _sizes(scores))
    behind = rows[:, None] - columns[None]
    return scores.masked_fill((behind < 0) | (behind >= 40), -math.inf)


def sliced(scores: Tensor, lower: Tensor) -> Tensor:
    rows, columns = _sizes(scores)
    kept = lower[:, :, columns - rows:columns, :columns]
    return torch.where(kept, scores, torch.full([], _lowest(scores), dtype=scores.dtype))


def sliced_and_compared(scores: Tensor, lower: Tensor) -> Tensor:
    rows, columns = _sizes(scores)
    return scores.masked_fill(lower[:, :, :rows, :columns] == 0, -math.inf)


BUFFER: tuple[Mask, ...] = (sliced, sliced_and_compared)
MASKS: tuple[Mask, ...] = (
    filled, chosen, compared_with_zero, upper, infinity_added, lowest_added, zeros_filled,
    numbered, next_row, multiplied, opposite, and_padded, windowed)
