"""Calls that change nothing: whether a result is the argument, a view of it or a copy, as eagerly.

PyTorch's decompositions return their argument in some such cases where the operator copies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.pytorch.memory.sharing import differences

SIZE = 4
NONE = torch.zeros(0, dtype=torch.int64)
CALLS: dict[str, Sequence[Callable[[Tensor], Tensor]]] = {
    "channels": [
        lambda x: F.channel_shuffle(x, 1), lambda x: F.channel_shuffle(x, 6),
        lambda x: torch.native_channel_shuffle(x, 1), lambda x: F.pixel_shuffle(x, 1),
        lambda x: F.pixel_unshuffle(x, 1), lambda x: F.unfold(x, 1),
        lambda x: F.fold(F.unfold(x, 1), (SIZE, SIZE), 1)],
    "dropout and pads": [
        lambda x: F.dropout(x, 0.5, False), lambda x: F.dropout(x, 0.0, True),
        lambda x: torch.native_dropout(x, 0.5, False)[0], lambda x: F.dropout2d(x, 0.5, False),
        lambda x: F.pad(x, (0, 0, 0, 0)), lambda x: F.pad(x, (0, 0, 0, 0), "reflect"),
        lambda x: F.pad(x, (0, 0, 0, 0), "replicate"),
        lambda x: F.pad(x, (0, 0, 0, 0), "circular")],
    "repetition": [
        lambda x: x.repeat(1, 1, 1, 1), lambda x: x.tile(1), lambda x: x.repeat_interleave(1, 0),
        lambda x: x.roll(0, 0), lambda x: x.rot90(0, (2, 3)), lambda x: x.rot90(4, (2, 3)),
        lambda x: x.flip([]), lambda x: torch.cat([x]), lambda x: torch.cat([x, x[:0]]),
        lambda x: torch.stack(x.unbind(0)), lambda x: torch.hstack([x])],
    "conversion": [
        lambda x: x.to(torch.float32), lambda x: x.to(torch.float32, copy=True),
        lambda x: x.type_as(x), lambda x: x.float(), lambda x: x.contiguous(),
        lambda x: x.clone(), torch.real, lambda x: x.conj(), lambda x: x.resolve_conj(),
        lambda x: x.conj_physical(), lambda x: x.detach(), lambda x: x.view(torch.float32)],
    "resizing": [
        *(lambda x, mode=mode: F.interpolate(x, size=(SIZE, SIZE), mode=mode)
          for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area")),
        lambda x: F.adaptive_avg_pool2d(x, SIZE), lambda x: F.adaptive_max_pool2d(x, SIZE),
        lambda x: F.avg_pool2d(x, 1), lambda x: F.max_pool2d(x, 1)],
    "reduction": [
        lambda x: x[:, :1].mean(1, keepdim=True), lambda x: x[:1].logsumexp(0, keepdim=True),
        lambda x: x[:1].cumsum(0), lambda x: x[:1].sort(0)[0], lambda x: x.diff(n=0),
        lambda x: x[:1].prod(0, keepdim=True), lambda x: x.sum_to_size(2, 6, SIZE, SIZE)],
    "selection": [
        lambda x: x[..., :], lambda x: x.index_select(0, torch.arange(2)),
        lambda x: x[torch.arange(2)], lambda x: x.index_fill(0, NONE, 1.0),
        lambda x: x.masked_fill(torch.tensor(False), 0.0),
        lambda x: torch.where(torch.tensor(True), x, x), lambda x: x.narrow_copy(0, 0, 2),
        lambda x: x.slice_scatter(x[:0], 0, 0, 0), lambda x: x.select_scatter(x[0], 0, 0)],
    "arithmetic": [
        lambda x: +x, lambda x: x + 0, lambda x: x * 1, lambda x: x**1, lambda x: x - 0,
        lambda x: x / 1, lambda x: x.abs(), lambda x: x.relu(), lambda x: x.nan_to_num(),
        lambda x: x.clamp(max=1e9), lambda x: x.round(decimals=0), lambda x: x.lerp(x, 0.0),
        lambda x: F.hardtanh(x, 0, 1e9), lambda x: x.tril(9), lambda x: x.triu(-9),
        lambda x: x.to(torch.int64).floor(), lambda x: x.to(torch.int64).nan_to_num()],
    "views": [
        lambda x: x.squeeze(), lambda x: x.reshape(x.shape), lambda x: x.flatten(0, 0),
        lambda x: x.unflatten(0, (2,)), lambda x: x.movedim(0, 0), lambda x: x.swapaxes(1, 1),
        torch.atleast_3d, lambda x: torch.einsum("abcd->abcd", x), lambda x: x.expand_as(x),
        lambda x: x.tensor_split(1)[0], lambda x: x.chunk(1)[0],
        lambda x: torch.broadcast_tensors(x, x)[0]],
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "open"])
@pytest.mark.parametrize("kind", CALLS)
def test_what_changes_nothing(kind: str, dynamic: bool) -> None:
    def f(x: Tensor) -> list[Tensor]:
        return [call(x) for call in CALLS[kind]]

    def given() -> list[Tensor]:
        return [torch.arange(1.0, 1 + 12 * SIZE**2).reshape(2, 6, SIZE, SIZE)]

    assert not differences(f, [given], dynamic=dynamic)
