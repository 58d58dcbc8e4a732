"""PyTorch's encoder layers and their attention, as they run in inference."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import compiler

WIDTH, ROWS = 12, 5
CAUSAL = torch.ones(ROWS, ROWS, dtype=torch.bool).triu(1)
PADDED = torch.tensor([[False] * ROWS, [False] * 3 + [True] * 2])
HIDDEN = torch.tensor([[False] * ROWS, [True] * ROWS])
"""A batch entry that sees nothing."""


def layer(**options: Any) -> nn.Module:
    torch.manual_seed(0)
    return nn.TransformerEncoderLayer(WIDTH, 3, 20, batch_first=True, **options).eval()


CALLS: dict[str, Callable[[nn.Module, Tensor], Tensor]] = {
    "plain": lambda model, x: model(x),
    "causal": lambda model, x: model(x, src_mask=CAUSAL),
    "padded": lambda model, x: model(x, src_key_padding_mask=PADDED),
    "both": lambda model, x: model(x, src_mask=CAUSAL, src_key_padding_mask=PADDED),
    "hidden": lambda model, x: model(x, src_key_padding_mask=HIDDEN),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "after": {}, "first": {"norm_first": True}, "gelu": {"activation": "gelu"},
    "half": {"dtype": torch.bfloat16}}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("call", CALLS)
def test_a_layer(call: str, options: str, caplog: pytest.LogCaptureFixture) -> None:
    """Compiled as a whole: nothing runs eagerly."""
    caplog.set_level(logging.WARNING, "strata")
    model = layer(**OPTIONS[options])
    x = torch.randn(2, ROWS, WIDTH).to(OPTIONS[options].get("dtype", torch.float32))
    torch._dynamo.reset()
    fast = torch.compile(lambda x: CALLS[call](model, x), backend="strata")
    with torch.no_grad():
        got, want = fast(x), CALLS[call](model, x)
    assert not [m for m in caplog.messages if "eagerly" in m]
    tolerance = 3e-2 if x.dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)


def test_layers_that_are_exported() -> None:
    model = nn.TransformerEncoder(layer(), 2, enable_nested_tensor=False).eval()  # type: ignore[arg-type]
    x = torch.randn(2, ROWS, WIDTH)
    with torch.no_grad():
        program = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim.AUTO},))
        exe = compiler.compile(program, cache="off", tuned="off", threads=1)
        for batch in (2, 3):
            x = torch.randn(batch, ROWS, WIDTH)
            torch.testing.assert_close(exe(x)[0], model(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("mask", [None, CAUSAL, PADDED])
def test_attention_with_weights(mask: Tensor | None, average: bool) -> None:
    torch.manual_seed(0)
    model = nn.MultiheadAttention(WIDTH, 3, batch_first=True).eval()
    q, kv = torch.randn(2, ROWS, WIDTH), torch.randn(2, ROWS, WIDTH)
    types = {id(None): None, id(CAUSAL): 0, id(PADDED): 1}

    def call(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return torch._native_multi_head_attention(
            q, k, v, WIDTH, 3, model.in_proj_weight, model.in_proj_bias, model.out_proj.weight,
            model.out_proj.bias, mask, True, average, types[id(mask)])

    torch._dynamo.reset()
    with torch.no_grad():
        for inputs in ((q, q, q), (q, kv, kv)):
            got = torch.compile(call, backend="strata")(*inputs)
            for one, other in zip(got, call(*inputs), strict=True):
                torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
