"""The gradient of distances between rows.

    %y = _cdist_forward(%a, %b, p)     f32[..., m, k] of a [..., m, d] and b [..., k, d]
    %da = _cdist_backward(%dy, %a, %b, p, %y)

Source: aten/src/ATen/native/cpu/DistanceOpsKernel.cpp, for the derivative where a distance or a
difference is zero.
"""

from __future__ import annotations

import math
from typing import Any

from compiler.frontend.torch.library import torch_module


def cdist_gradient(given: Any, a: Any, b: Any, p: float, distances: Any) -> Any:
    """The gradient of a: a sum over the rows of b, which no array of all differences is needed for
    where the sum is fused."""
    torch = torch_module()
    if p == 0:
        return torch.zeros_like(a)
    apart = a.unsqueeze(-2) - b.unsqueeze(-3)
    share, far = given.unsqueeze(-1), distances.unsqueeze(-1)
    size = apart.abs()
    if p == 1:
        terms = apart.sign() * share
    elif p == math.inf:
        terms = torch.where(size == far, apart.sign() * share, 0)
    else:
        powers = apart if p == 2 else apart.sign() * size ** (p - 1)
        terms = powers * (share / far ** (p - 1))
        terms = torch.where((far == 0) | (apart == 0) if p < 1 else far == 0, 0, terms)
    return terms.sum(-2).expand(a.shape)
