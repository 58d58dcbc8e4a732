"""Functions that take views of a matrix f32[n, 6], and functions that do something with views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

View = Callable[[Tensor], Any]

VIEWS: dict[str, View] = {
    "t": lambda x: x.t(),
    "row": lambda x: x[1],
    "last": lambda x: x[x.shape[0] - 1],
    "half": lambda x: x[x.shape[0] // 2:],
    "element": lambda x: x[0, 1],
    "none": lambda x: x[:0],
    "every second": lambda x: x[:, ::2],
    "narrow": lambda x: x.narrow(1, 1, 2),
    "select": lambda x: x.select(1, x.shape[1] // 2),
    "chunk": lambda x: x.chunk(2),
    "chunk of columns": lambda x: x.chunk(3, 1),
    "split": lambda x: x.split([1, x.shape[0] - 1]),
    "tensor_split": lambda x: x.tensor_split(3),
    "unbind": lambda x: x.unbind(1),
    "heads": lambda x: [part.unflatten(1, (2, 1)).transpose(0, 1) for part in x.chunk(3, -1)],
    "unsqueeze": lambda x: x.unsqueeze(1),
    "squeeze": lambda x: x[:, :1].squeeze(1),
    "permute": lambda x: x[None].permute(2, 0, 1),
    "transposed twice": lambda x: x.t()[1:].t()[1:],
    "diagonal": lambda x: x.diagonal(),
    "whole": lambda x: x[...],
    "detach": lambda x: x.detach(),
    "view_as": lambda x: x.view_as(x),
    "bits": lambda x: x.view(torch.int32),
    "half of bits": lambda x: x.view(torch.int32)[x.shape[0] // 2:],
    "last of bits": lambda x: x.view(torch.int32)[x.shape[0] - 1],
    "same": lambda x: x,
    "dropout": lambda x: F.dropout(x, training=False),
    "to": lambda x: x.to(torch.float32),
    "sizes": lambda x: (x[1:], x.shape[0], x.numel() - 1),
}
"""Views whose elements have memory of their own, so that all of them can be written."""
OVERLAPPING: dict[str, View] = {
    "expand": lambda x: x.expand(3, *x.shape),
    "expand a row": lambda x: x[:1].expand(5, -1),
    "unfold": lambda x: x.unfold(1, 3, 2),
    "as_strided": lambda x: x.as_strided((2, 3), (2, 1), 1),
}
CONTIGUOUS: dict[str, View] = {
    "flat": lambda x: x.view(-1),
    "view": lambda x: x.view(x.shape[0], 2, -1),
    "reshape": lambda x: x.reshape(2, -1),
    "contiguous": lambda x: x.contiguous(),
    "short": lambda x: x.view(torch.int16),
    "half of short": lambda x: x.view(torch.int16)[x.shape[0] // 2:],
    "chunk of pairs": lambda x: x.view(torch.complex64).chunk(2),
    "complex": lambda x: torch.view_as_complex(x.view(-1, 2)),
}
"""Views of contiguous matrices."""


def matrix(*shape: int) -> Tensor:
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape)


LAYOUTS: dict[str, Callable[[int], Tensor]] = {
    "contiguous": lambda n: matrix(n, 6),
    "transposed": lambda n: matrix(6, n).t(),
    "with gaps": lambda n: matrix(2 * n, 12)[::2, ::2],
    "in the middle": lambda n: matrix(n + 2, 8)[1:-1, 1:7],
}


def _tensors(value: Any) -> list[Tensor]:
    found = value if isinstance(value, (list, tuple)) else [value]
    return [v for v in found if isinstance(v, Tensor)]


def _written(value: Any) -> Any:
    for tensor in _tensors(value):
        tensor.add_(3)
    return value


USES: dict[str, Callable[[View], View]] = {
    "of an argument": lambda view: view,
    "of a result": lambda view: lambda x: ((y := x * 2), view(y)),
    "of an intermediate": lambda view: lambda x: view(x * 2),
    "of a transposed intermediate": lambda view: lambda x: view((x.t() + 1).t()),
    "of what was written": lambda view: lambda x: (x.mul_(2), view(x), x + 1)[1:],
    "of what is not used otherwise": lambda view: lambda x: (view(x + 1), x * 2),
}
WRITES: dict[str, Callable[[View], View]] = {
    "an argument": lambda view: lambda x: (_written(view(x)), x + 1),
    "an intermediate": lambda view: lambda x: ((y := x + 1), _written(view(y)), y),
}
