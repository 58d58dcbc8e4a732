"""Operators that no compiler knows, for tests of what is left to eager PyTorch."""

from __future__ import annotations

import torch


@torch.library.custom_op("strata_tests::foreign", mutates_args=())
def foreign(x: torch.Tensor) -> torch.Tensor:
    """The sine of each element, as a contiguous tensor."""
    return x.sin().contiguous()


@torch.library.custom_op("strata_tests::stranger", mutates_args=())
def stranger(x: torch.Tensor) -> torch.Tensor:
    """The cosine of each element, as a contiguous tensor."""
    return x.cos().contiguous()


@foreign.register_fake
@stranger.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)
