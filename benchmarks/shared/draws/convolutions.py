"""Convolutions, forward and by their arguments; filters are arguments."""

from __future__ import annotations

from random import Random

import torch
import torch.nn.functional as F

from draws import Array, Draw, near, one_of

Tensor = torch.Tensor


def _image(random: Random, channels: int) -> tuple[Array, str]:
    """An image of so many channels whose size goes down where they go up."""
    side = one_of(random, 7, 14, 28, 56, 112, near(random, 7, 80))
    while side > 7 and side * side * channels > 1 << 20:
        side = side // 2
    batch = max(1, min(near(random, 1, 64), (24 << 20) // (side * side * channels)))
    last = random.random() < 0.7
    name = f"{batch}x{channels}x{side}x{side}{' last' if last else ''}"
    return Array((batch, channels, side, side), last=last), name


def _channels(random: Random) -> int:
    return near(random, 16, 768, random.choice((32, 32, 8, 1)))


def _filter(shape: tuple[int, ...], image: Array) -> Array:
    return Array(shape, scale=0.05, last=image.last)


def _plain(random: Random, side: int, strides: tuple[int, ...], dilation: int = 1) -> Draw:
    c, k, stride = _channels(random), _channels(random), random.choice(strides)
    image, name = _image(random, c)
    padding = dilation * (side // 2)

    def layer(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.relu(F.conv2d(x, w, b, stride, padding, dilation))
    return Draw(f"{name} by {k} {side}x{side} /{stride}{f' d{dilation}' if dilation > 1 else ''}",
                layer, [image, _filter((k, c, side, side), image), Array((k,))])


def pointwise(random: Random) -> Draw:
    return _plain(random, 1, (1, 1, 2))


def three(random: Random) -> Draw:
    return _plain(random, 3, (1, 1, 2))


def dilated(random: Random) -> Draw:
    return _plain(random, 3, (1,), one_of(random, 2, 4, 6))


def larger(random: Random) -> Draw:
    return _plain(random, one_of(random, 5, 7), (1, 2))


def stem(random: Random) -> Draw:
    """The first layer of a network: few channels, a large image."""
    side, k = one_of(random, 224, 256, 384), one_of(random, 32, 64, 96)
    size, stride = one_of(random, (7, 2), (3, 2), (4, 4), (16, 16))
    batch, last = near(random, 1, 32), random.random() < 0.7
    image = Array((batch, 3, side, side), last=last)

    def layer(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.conv2d(x, w, b, stride, 0 if size == stride else size // 2)
    return Draw(f"{batch}x3x{side}x{side}{' last' if last else ''} by {k} {size}x{size} /{stride}",
                layer, [image, _filter((k, 3, size, size), image), Array((k,))])


def depthwise(random: Random) -> Draw:
    c, side, stride = _channels(random), one_of(random, 3, 3, 5, 7), one_of(random, 1, 1, 2)
    image, name = _image(random, c)

    def layer(x: Tensor, w: Tensor) -> Tensor:
        return F.conv2d(x, w, None, stride, side // 2, 1, c)
    filters = _filter((c, 1, side, side), image)
    return Draw(f"{name} {side}x{side} /{stride}", layer, [image, filters])


def groups(random: Random) -> Draw:
    each, count = one_of(random, 8, 16, 32, 48), one_of(random, 4, 8, 16)
    c, stride = each * count, one_of(random, 1, 2)
    image, name = _image(random, c)

    def layer(x: Tensor, w: Tensor) -> Tensor:
        return F.conv2d(x, w, None, stride, 1, 1, count)
    filters = _filter((c, each, 3, 3), image)
    return Draw(f"{name} 3x3 /{stride} in {count}", layer, [image, filters])


def transposed(random: Random) -> Draw:
    c, k = _channels(random), _channels(random)
    image, name = _image(random, c)
    size, stride, padding = one_of(random, (4, 2, 1), (2, 2, 0), (3, 2, 1))

    def layer(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.conv_transpose2d(x, w, b, stride, padding)
    return Draw(f"{name} by {k} {size}x{size} /{stride}", layer,
                [image, _filter((c, k, size, size), image), Array((k,))])


def _gradient(random: Random, by_filter: bool) -> Draw:
    c, k, side = _channels(random), _channels(random), one_of(random, 1, 3, 3)
    image, name = _image(random, c)
    filters = _filter((k, c, side, side), image)
    result = Array((image.shape[0], k, *image.shape[2:]), last=image.last)

    def layer(g: Tensor, x: Tensor, w: Tensor) -> Tensor:
        found = torch.ops.aten.convolution_backward(
            g, x, w, None, [1, 1], [side // 2] * 2, [1, 1], False, [0, 0], 1,
            [not by_filter, by_filter, False])
        return found[1 if by_filter else 0]
    return Draw(f"{name} by {k} {side}x{side}", layer, [result, image, filters])


def by_input(random: Random) -> Draw:
    return _gradient(random, False)


def by_filter(random: Random) -> Draw:
    return _gradient(random, True)


def line(random: Random) -> Draw:
    """In one dimension, as in speech."""
    c, k, size = _channels(random), _channels(random), one_of(random, 3, 5, 9)
    batch, length, stride = near(random, 1, 16), near(random, 200, 4000), one_of(random, 1, 2)

    def layer(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.gelu(F.conv1d(x, w, b, stride, size // 2))
    return Draw(f"{batch}x{c}x{length} by {k} {size} /{stride}", layer,
                [Array((batch, c, length)), Array((k, c, size), scale=0.05), Array((k,))])


CLASSES = {"convolution 1x1": pointwise, "convolution 3x3": three, "dilated": dilated,
           "convolution larger": larger, "stem": stem, "depthwise": depthwise, "groups": groups,
           "transposed": transposed, "gradient by input": by_input,
           "gradient by filter": by_filter, "convolution 1-d": line}
