"""Products of bytes by their definition: sums of integers of 64 bits, which are exact.

They are the truth for such products, and onnxruntime is not: on a processor without VNNI it adds
the products of two pairs of u8 and i8 in 16 bits (`vpmaddubsw`), where 255 * 127 * 2 saturates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dialects.strata.types import Array

OPERATORS = frozenset((
    "MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv", "QGemm", "MatMulIntegerToFloat",
    "DynamicQuantizeMatMul", "QAttention", "DynamicQuantizeLSTM"))
"""The operators of ONNX and of onnxruntime that multiply bytes."""


def matmul(a: Array, b: Array, a_zero: Any = 0, b_zero: Any = 0) -> Array:
    """a [..., m, k] times b [..., k, n]. The zero points broadcast, or are of rows and of columns.
    """
    return (_wide(a) - _along(a_zero, a, -2)) @ (_wide(b) - _along(b_zero, b, -1))


def convolve(
    x: Array, w: Array, x_zero: Any = 0, w_zero: Any = 0, pads: Sequence[int] = (),
    strides: Sequence[int] = (), dilations: Sequence[int] = (), group: int = 1,
) -> Array:
    """x [n, c, ...] and filters [o, c / group, ...], window by window. What lies in the pads is the
    zero point of x. The zero point of the filters may be one for each of them.
    """
    rank = x.ndim - 2
    pads, strides, dilations = (given or (default,) * count for given, default, count in (
        (pads, 0, 2 * rank), (strides, 1, rank), (dilations, 1, rank)))
    before, after = pads[:rank], pads[rank:]
    wide = np.pad(_wide(x) - _wide(x_zero),
                  [(0, 0), (0, 0), *zip(before, after, strict=True)])
    filters = _wide(w) - _along(w_zero, w, 0)
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(wide, reach, tuple(range(2, x.ndim)))
    steps = tuple(slice(None, None, s) for s in (*strides, *dilations))
    windows = windows[:, :, *steps]
    summed = [1, *range(2 + rank, 2 + 2 * rank)], range(1, w.ndim)
    groups = zip(np.split(windows, group, 1), np.split(filters, group), strict=True)
    return np.moveaxis(np.concatenate([np.tensordot(*g, summed) for g in groups], -1), -1, 1)


def _wide(x: Any) -> Array:
    return np.asarray(x, np.int64)


def _along(zero: Any, x: Array, axis: int) -> Array:
    """A zero point; those that are a vector lie along an axis of x."""
    wide = _wide(zero)
    if wide.ndim != 1:
        return wide
    return wide.reshape([-1, *[1] * (x.ndim - 1 - axis % x.ndim)])
