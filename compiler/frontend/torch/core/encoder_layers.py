"""Decompositions of PyTorch's fused encoder layers, for which it has none.

In inference, `nn.TransformerEncoderLayer` and `nn.MultiheadAttention` become one operator each.
Source: aten/src/ATen/native/transformers/{attention,transformer}.cpp.
"""

from __future__ import annotations

from typing import Any

from compiler.frontend.torch.library import torch_module

KEYS = 1
"""The type of a mask of [batch, keys]. Others broadcast to [batch, heads, rows, keys]."""


def encoder_decompositions() -> dict[Any, Any]:
    """Operator -> function."""
    aten = torch_module().ops.aten
    return {aten._transformer_encoder_layer_fwd.default: encoder_layer,
            aten._native_multi_head_attention.default: multi_head_attention}


def encoder_layer(
    x: Any, width: int, heads: int, qkv_weight: Any, qkv_bias: Any, out_weight: Any, out_bias: Any,
    use_gelu: bool, norm_first: bool, epsilon: float, norm_weight: Any, norm_bias: Any,
    norm2_weight: Any, norm2_bias: Any, up_weight: Any, up_bias: Any, down_weight: Any,
    down_bias: Any, mask: Any = None, mask_type: int | None = None,
) -> Any:
    """Attention and a feed-forward network, each with a residual and a layer norm. [b, n, width]"""
    functional = torch_module("torch.nn.functional")
    norms = ((norm_weight, norm_bias), (norm2_weight, norm2_bias))

    def norm(value: Any, number: int) -> Any:
        return functional.layer_norm(value, (width,), *norms[number], epsilon)

    given = norm(x, 0) if norm_first else x
    x = x + multi_head_attention(given, given, given, width, heads, qkv_weight, qkv_bias,
                                 out_weight, out_bias, mask, False, True, mask_type)[0]
    x = x if norm_first else norm(x, 0)
    hidden = functional.linear(norm(x, 1) if norm_first else x, up_weight, up_bias)
    hidden = functional.gelu(hidden) if use_gelu else functional.relu(hidden)
    x = x + functional.linear(hidden, down_weight, down_bias)
    return x if norm_first else norm(x, 1)


def multi_head_attention(
    query: Any, key: Any, value: Any, width: int, heads: int, qkv_weight: Any, qkv_bias: Any,
    out_weight: Any, out_bias: Any, mask: Any = None, need_weights: bool = True,
    average_weights: bool = True, mask_type: int | None = None,
) -> tuple[Any, Any]:
    """The result [b, n, width], and the weights [b, (heads,) n, keys] if they are needed.

    Where a mask is true, or is a number other than 0, nothing is seen. A row that sees nothing is
    NaN.
    """
    functional = torch_module("torch.nn.functional")
    if query is key and key is value:
        parts = functional.linear(query, qkv_weight, qkv_bias).chunk(3, -1)
    else:
        parts = [functional.linear(x, weight, bias) for x, weight, bias in zip(
            (query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True)]
    q, k, v = (part.unflatten(-1, (heads, width // heads)).transpose(1, 2) for part in parts)
    scores = q * (width // heads) ** -0.5 @ k.transpose(-1, -2)
    if mask is not None:
        hidden = mask != 0 if mask.is_floating_point() else mask
        hidden = hidden[:, None, None] if mask_type == KEYS else hidden
        scores = scores.masked_fill(hidden, float("-inf"))
    seen = scores.softmax(-1)
    mixed = functional.linear((seen @ v).transpose(1, 2).flatten(2), out_weight, out_bias)
    if not need_weights:
        return mixed, query.new_empty((0,))
    return mixed, seen.mean(1) if average_weights else seen
