"""A step of decoding with a static cache, of which a mask shows the keys that are live."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

Mask = Callable[[Any, Any, Any], Any]
"""Which keys are shown: of the places of keys, the position, and what each row of a batch sees."""


class Step(torch.nn.Module):
    def __init__(self, mask: Mask) -> None:
        super().__init__()
        self.mask = mask

    def forward(self, query: Any, key: Any, value: Any, position: Any, seen: Any) -> Any:
        at = torch.arange(key.shape[2])[None, None, None]
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=self.mask(at, position, seen), enable_gqa=True)


def live_keys(given: tuple[Any, ...], mask: Mask) -> Any:
    """Which keys each row of a batch sees: bool[batch, keys]. `given`: the arguments of a step."""
    query, key, _, position, seen = given
    keys = key.shape[2]
    return mask(torch.arange(keys)[None, None, None], position, seen).expand(
        len(query), 1, 1, keys)[:, 0, 0]
