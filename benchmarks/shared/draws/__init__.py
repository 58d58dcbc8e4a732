"""Kernels at random sizes, as models have them: the rows of the sampled suites.

A class is a function from a random generator to a `Draw`: a function of tensors, and what it is
called with. Sizes come from distributions that hold round numbers, odd ones and primes. The files
beside this one have the classes; `CLASSES` names all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch

Tensor = torch.Tensor
MOST_BYTES = 256 << 20
"""No array of a draw is larger, in 16-bit elements."""


@dataclass(frozen=True)
class Array:
    """An input: its shape, and what its values are.

    `values`: "normal", "positive" (above 0.1), "mask" (booleans), or an integer n for indices
    below n. `scale` multiplies normal values. `last`: channels are innermost in memory.
    """

    shape: tuple[int, ...]
    values: str | int = "normal"
    scale: float = 1.0
    last: bool = False

    def make(self, kind: torch.dtype, seed: int) -> Tensor:
        """The tensor in memory of the host, of `kind` where it is of floats."""
        source = torch.Generator().manual_seed(seed)
        if isinstance(self.values, int):
            return torch.randint(self.values, self.shape, generator=source)
        if self.values == "mask":
            return torch.rand(self.shape, generator=source) < 0.8
        found = torch.randn(self.shape, generator=source) * self.scale
        if self.values == "positive":
            found = found.abs() + 0.1
        if self.last:
            found = found.contiguous(memory_format=torch.channels_last)
        return found.to(kind)


@dataclass(frozen=True)
class Draw:
    """`call(*inputs)` is the kernel; `name` tells its sizes. With `open_size`, sizes are unknown
    to compilers."""

    name: str
    call: Callable[..., Any]
    inputs: Sequence[Array]
    open_size: bool = False

    def make(self, kind: torch.dtype) -> list[Tensor]:
        return [array.make(kind, seed) for seed, array in enumerate(self.inputs)]


Class = Callable[[Random], Draw]


# ---------------------------------------------------------------------- sizes
def one_of(random: Random, *choices: Any) -> Any:
    return random.choice(choices)


def near(random: Random, low: int, high: int, step: int = 1) -> int:
    """A size between the two, even in its logarithm: a multiple of `step`."""
    found = low * (high / low) ** random.random()
    return max(step, round(found / step) * step)


def width(random: Random, low: int = 256, high: int = 4096) -> int:
    """Of a layer: mostly a multiple of 64, sometimes of 8, sometimes odd."""
    return near(random, low, high, random.choice((64, 64, 64, 64, 8, 1)))


def rows(random: Random, low: int = 64, high: int = 16384) -> int:
    """So many tokens, of any number."""
    return near(random, low, high, random.choice((128, 16, 1, 1)))


def classes() -> dict[str, Class]:
    """All classes by their names."""
    from draws import attention, convolutions, moves, products, reductions, streams

    parts = (products, convolutions, attention, reductions, moves, streams)
    return {name: make for part in parts for name, make in part.CLASSES.items()}
