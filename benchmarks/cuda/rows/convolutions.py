"""Convolutions of images with channels last, beside cuDNN, which is what eager PyTorch calls.

Rows are of three kinds. In the first, tensors have channels last and the function permutes them to
what PyTorch calls its channels. In the others, tensors have PyTorch's memory format of channels
last, and the filter is a constant or an argument.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional

from rows import Goal, Measure, Setting
from rows.kernels import Kernel, Spec, Tensor, against_peers

TITLE = "fp16 convolutions, channels last: the best peer's time / ours"
APART = False
GOAL = Goal(1.05, 1.15)
LEAST = Goal(0.9, 1.0)
"""Of rows whose filter is an argument: it is rearranged at each call, as cuDNN does as well."""


@dataclass(frozen=True)
class Shape:
    """`size`: of both spatial dims of the data, whose batch is 32."""

    size: int
    inputs: int
    outputs: int
    window: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1


PLAIN = {
    "1x1 256 to 64 channels 56x56": Shape(56, 256, 64, 1),
    "1x1 stride 2 256 to 512 channels 56x56": Shape(56, 256, 512, 1, 2),
    "3x3 64 channels 56x56": Shape(56, 64, 64, 3, 1, 1),
    "3x3 256 channels 14x14": Shape(14, 256, 256, 3, 1, 1),
    "3x3 stride 2 128 channels 56x56": Shape(56, 128, 128, 3, 2, 1),
    "3x3 dilated by 2 128 channels 28x28": Shape(28, 128, 128, 3, 1, 2, 2),
    "3x3 100 to 72 channels 27x27": Shape(27, 100, 72, 3, 1, 1),
    "3x3 each of 144 channels 56x56": Shape(56, 144, 144, 3, 1, 1, groups=144),
    "7x7 stride 2 3 to 64 channels 224x224": Shape(224, 3, 64, 7, 2, 3)}
TRANSPOSED = {
    "transposed 4x4 stride 2 128 to 64 channels 28x28": Shape(28, 128, 64, 4, 2, 1),
    "transposed 3x3 stride 2 128 to 64 channels 28x28": Shape(28, 128, 64, 3, 2, 1),
    "transposed 2x2 stride 2 128 to 64 channels 28x28": Shape(28, 128, 64, 2, 2, 0)}


def rows(setting: Setting) -> dict[str, Measure]:
    torch.backends.cudnn.benchmark = True
    shapes = {"3x3 64 channels 56x56 b32": (56, 64, 1, 3),
              "3x3 128 channels in 32 groups 56x56 b32": (56, 128, 32, 3),
              "3x3 144 channels, each by itself, 56x56 b32": (56, 144, 144, 3),
              "5x5 672 channels, each by itself, 14x14 b32": (14, 672, 672, 5)}
    permuted = {name: against_peers(_kernel(*shape), GOAL, "convolutions")
                for name, shape in shapes.items()}
    kinds = {"argument": LEAST, "constant": GOAL}
    return permuted | {
        f"{name}, filter {kind}": against_peers(make(shape, kind == "constant"), goal,
                                                "convolutions")
        for kind, goal in kinds.items() for shapes_, make in _FORMS
        for name, shape in shapes_.items()}


def _kernel(size: int, channels: int, groups: int, window: int) -> Kernel:
    return Kernel(channels_last, (Spec((32, size, size, channels), torch.float16),),
                  (Spec((channels, window, window, channels // groups), torch.float16, 0.05),))


def channels_last(x: Tensor, w: Tensor) -> Tensor:
    """Both lie with channels last, and are permuted to what PyTorch calls them."""
    y = functional.conv2d(x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2), padding=w.shape[1] // 2,
                          groups=x.shape[-1] // w.shape[-1])
    return y.permute(0, 2, 3, 1)


# ---------------------------------------------------------------------- the memory format
def plain(shape: Shape, constant: bool) -> Kernel:
    def function(x: Tensor, w: Tensor) -> Tensor:
        return functional.conv2d(x, w, stride=shape.stride, padding=shape.padding,
                                 dilation=shape.dilation, groups=x.shape[1] // w.shape[1])

    filter_ = (shape.outputs, shape.inputs // shape.groups, shape.window, shape.window)
    return _formatted(function, shape, filter_, constant)


def transposed(shape: Shape, constant: bool) -> Kernel:
    def function(x: Tensor, w: Tensor) -> Tensor:
        return functional.conv_transpose2d(x, w, stride=shape.stride, padding=shape.padding)

    return _formatted(function, shape, (shape.inputs, shape.outputs, shape.window, shape.window),
                      constant)


def _formatted(
    function: Callable[..., Tensor], shape: Shape, filter_: tuple[int, ...], constant: bool
) -> Kernel:
    data = Spec((32, shape.inputs, shape.size, shape.size), torch.float16, channels_last=True)
    weight = Spec(filter_, torch.float16, 0.05, channels_last=True)
    inputs, constants = ((data,), (weight,)) if constant else ((data, weight), ())
    return Kernel(function, inputs, constants)


_FORMS = ((PLAIN, plain), (TRANSPOSED, transposed))
