"""Requests to libraries: products and convolutions of given buffers, by their forms."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from math import prod

from targets.cuda.libraries.cublas import Matrix, Product
from targets.cuda.libraries.cudnn import Convolution, Tensor
from targets.cuda.libraries.words import COMPILED, FACTOR, PLACES, RELU, TF32

Order = Sequence[int]
"""The kernel's buffers in the order of the call: the factors, factors per channel, bias, added
tensor, result."""


def product_of(
    form: str, shapes: Sequence[Sequence[int]], elements: Sequence[str]
) -> tuple[Product, Order]:
    """The product of a form on buffers of these shapes and element types."""
    dims, words = _split(form, len(shapes))
    last = len(shapes) - 1
    left = _first(dims, lambda d: "m" in d and "k" in d)
    right = _first(dims, lambda d: "n" in d and "k" in d)
    bias = [k for k, d in enumerate(dims) if d == "n"]
    added = [k for k in range(last) if dims[k] == dims[last]]
    a, b, y = (_matrix(shapes[k], elements[k]) for k in (left, right, last))
    return Product(
        a, b, y, dims[left].endswith("km"), dims[right].endswith("nk"),
        elements[bias[0]] if bias else None, bool(added), RELU in words,
    ), (left, right, *bias, *added, last)


def convolution_of(
    form: str, shapes: Sequence[Sequence[int]], elements: Sequence[str]
) -> tuple[Convolution, Order]:
    """The convolution of a form on buffers of these shapes and element types."""
    dims, words = _split(form, len(shapes))
    last = len(shapes) - 1
    data = _first(dims, lambda d: "c" in d and "o" not in d)
    filter_ = _first(dims, lambda d: "g" in d or ("c" in d and "o" in d))
    scale, bias = ([k for k, d in enumerate(dims) if d == wanted] for wanted in (f"{FACTOR}o", "o"))
    added = [k for k in range(last) if k not in (data, filter_, *scale, *bias)]
    places = [x for x in PLACES if x in dims[last]]
    names = places if len(places) > 1 else PLACES[-2:]

    def tensor(k: int, outer: str, inner: str) -> Tensor:
        return _tensor(dict(zip(dims[k], shapes[k], strict=True)), [outer, inner, *names],
                       elements[k], dims[data].endswith("c"))
    x, y = tensor(data, "n", "c"), tensor(last, "n", "o")
    w = tensor(filter_, "g" if "g" in dims[filter_] else "o", "c")
    strides, dilations, before = (
        tuple({**dict.fromkeys(names, usual), **dict(zip(places, _numbers(words, x), strict=False))}
              .values()) for x, usual in (("s", 1), ("d", 1), ("p", 0)))
    after = tuple(
        max(0, (out - 1) * s + (window - 1) * d + 1 - size - b)
        for out, s, window, d, size, b in zip(
            y.sizes[2:], strides, w.sizes[2:], dilations, x.sizes[2:], before, strict=True))
    return Convolution(
        x, w, y, strides, dilations, before, after, elements[scale[0]] if scale else None,
        elements[bias[0]] if bias else None, tensor(added[0], "n", "o") if added else None,
        RELU in words, TF32 in words, COMPILED in words,
    ), (data, filter_, *scale, *bias, *added, last)


# ---------------------------------------------------------------------- words and sizes
def _split(form: str, buffers: int) -> tuple[Sequence[str], Sequence[str]]:
    """The dims of the buffers, and the words that follow them."""
    parts = form.split(".")
    return parts[:buffers], parts[buffers:]


def _first(dims: Sequence[str], fits: Callable[[str], bool]) -> int:
    return next(k for k, d in enumerate(dims) if fits(d))


def _numbers(words: Sequence[str], letter: str) -> Sequence[int]:
    """The numbers of a word such as `s2x1`; none if there is no such word."""
    found = next((w for w in words if re.fullmatch(rf"{letter}\d+(x\d+)*", w)), letter)
    return [int(n) for n in found[1:].split("x") if n]


def _matrix(shape: Sequence[int], element: str) -> Matrix:
    *batch, rows, columns = shape
    return Matrix(rows, columns, element, *batch)


def _tensor(
    sizes: Mapping[str, int], order: Sequence[str], element: str, channels_last: bool
) -> Tensor:
    """A buffer with dims in memory order as a tensor with dims in cuDNN's `order`.

    A dim that the buffer lacks has size 1, and the stride that it would have with a larger size.
    """
    outer, inner, *places = order
    usual = [outer, *places, inner] if channels_last else [outer, inner, *places]
    letters = [*sizes]
    steps = {x: prod(sizes[y] for y in letters[k + 1:]) for k, x in enumerate(letters)}
    missing = {x: prod(sizes.get(y, 1) for y in usual[k + 1:]) for k, x in enumerate(usual)}
    return Tensor(tuple(sizes.get(x, 1) for x in order),
                  tuple(steps.get(x, missing[x]) for x in order), element)
