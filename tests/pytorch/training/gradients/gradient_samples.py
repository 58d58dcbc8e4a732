"""Arguments for operators that only graphs with gradients have, by full name."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.nn import functional as F

from compiler.torch.attention import operators
from tests.pytorch.op_samples import IMAGE, STATISTICS, Arguments, bools, floats

VOLUME = floats(1, 2, 5, 6, 7)


def _convolution(
    x: torch.Tensor, shape: list[int], stride: list[int], padding: list[int], dilation: list[int],
    transposed: bool = False, extra: tuple[int, ...] = (0, 0, 0), groups: int = 1,
) -> Arguments:
    """Arguments of `convolution_backward` for a filter of this shape."""
    rank, weight = x.dim() - 2, floats(*shape)
    form = (stride, padding, dilation, transposed, list(extra[:rank]), groups)
    made = torch.ops.aten.convolution(x, weight, None, *form)
    count = shape[1] * groups if transposed else shape[0]
    return (floats(*made.shape), x, weight, [count], *form, [True, True, True])


def _max_pools(x: torch.Tensor) -> Iterator[Arguments]:
    rank = x.dim() - 2
    pool = getattr(F, f"max_pool{rank}d")
    for kernel, stride, padding, dilation, ceil in (
            (2, 2, 0, 1, False), (3, 2, 1, 1, False), (3, 1, 1, 1, True), (2, 3, 0, 1, True),
            (2, 1, 1, 2, False)):
        made, indices = pool(x, kernel, stride, padding, dilation, ceil, return_indices=True)
        yield (floats(*made.shape), x, [kernel] * rank, [stride] * rank, [padding] * rank,
               [dilation] * rank, ceil, indices)


def _avg_pools(x: torch.Tensor) -> Iterator[Arguments]:
    rank = x.dim() - 2
    pool = getattr(F, f"avg_pool{rank}d")
    for form in ((2, 2, 0, False, True, None), (3, 2, 1, False, True, None),
                 (3, 2, 1, False, False, None), (3, 1, 1, True, True, None),
                 (2, 3, 0, True, True, None), (3, 2, 1, True, True, None),
                 (3, 2, 1, True, False, 5)):
        kernel, stride, padding, ceil, include, divisor = form
        made = pool(x, *form)
        yield (floats(*made.shape), x, [kernel] * rank, [stride] * rank, [padding] * rank, ceil,
               include, divisor)


ATTENTION, ATTENTION_BACKWARD = operators()
HEADS = (floats(2, 4, 5, 8), floats(2, 2, 6, 8), floats(2, 2, 6, 3))
KEPT = bools(2, 4, 5, 6)


def _attentions() -> Iterator[Arguments]:
    """Arguments of attention, without and with masks, dropout, causal order and a scale."""
    yield (*HEADS, None, None, 0.0, False, None)
    yield (*HEADS, KEPT | (torch.arange(6) == 0), None, 0.0, False, 0.3)
    yield (*HEADS, floats(4, 1, 6), None, 0.0, True, None)
    yield (*HEADS, None, KEPT, 0.25, True, None)
    yield (HEADS[0], HEADS[0] + 1, HEADS[0] * 2, None, None, 0.0, True, None)


def _attention_gradients() -> Iterator[Arguments]:
    for given in _attentions():
        made, sums, largest = ATTENTION(*given)
        is_bias = given[3] is not None and given[3].is_floating_point()
        yield (floats(*made.shape), *given[:3], made, sums, largest if is_bias else None,
               *given[3:], is_bias)


GRADIENT_SAMPLES: dict[str, list[Arguments]] = {
    "strata.attention.default": [*_attentions()],
    "strata.attention_backward.default": [*_attention_gradients()],
    "aten.convolution_backward.default": [
        _convolution(IMAGE, [6, 4, 3, 3], [1, 1], [1, 1], [1, 1]),
        _convolution(IMAGE, [6, 4, 3, 2], [2, 3], [1, 0], [1, 2]),
        _convolution(IMAGE, [6, 2, 3, 3], [2, 1], [2, 1], [2, 1], groups=2),
        _convolution(IMAGE, [4, 1, 3, 3], [1, 2], [1, 1], [1, 1], groups=4),
        _convolution(IMAGE, [8, 4, 1, 1], [1, 1], [0, 0], [1, 1]),
        _convolution(IMAGE, [4, 3, 3, 3], [2, 2], [1, 1], [1, 1], True, (1, 0)),
        _convolution(IMAGE, [4, 3, 2, 3], [3, 1], [0, 1], [1, 2], True, groups=2),
        _convolution(floats(2, 4, 9), [6, 4, 3], [2], [1], [1]),
        _convolution(VOLUME, [4, 2, 3, 2, 3], [1, 2, 1], [1, 0, 1], [1, 1, 2]),
    ],
    **{f"aten.max_pool{x.dim() - 2}d_with_indices_backward.default": [*_max_pools(x)]
       for x in (IMAGE, VOLUME)},
    **{f"aten.avg_pool{x.dim() - 2}d_backward.default": [*_avg_pools(x)]
       for x in (IMAGE, VOLUME)},
    "aten.native_batch_norm_backward.default": [
        (floats(2, 4, 9, 8) + 1, IMAGE, weight, *STATISTICS, *saved, training, 1e-3, [True] * 3)
        for weight in (floats(4), None)
        for training, saved in ((True, (floats(4), STATISTICS[1])), (False, (None, None)))],
    "aten._adaptive_avg_pool2d_backward.default": [
        (floats(2, 4, *sizes), IMAGE) for sizes in ((1, 1), (3, 4), (2, 3), (9, 8))],
    "aten._adaptive_avg_pool3d_backward.default": [(floats(1, 2, 2, 3, 4), VOLUME)],
}
