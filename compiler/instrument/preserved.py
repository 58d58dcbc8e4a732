"""Which passes keep results in the ring (`verify --ring`), and why some cannot.

`docs/ring.md` shows this table, and tests hold both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Blur:
    """A rewrite that holds for real numbers but not in the ring. `operations`: those before the
    pass that it may touch, by name; empty for any.
    """

    rewrite: str
    reason: str
    operations: frozenset[str] = frozenset()

    def concerns(self, operations: set[str]) -> bool:
        return not self.operations or not self.operations.isdisjoint(operations)


def _of(*names: str) -> frozenset[str]:
    return frozenset(f"graph.{name}" for name in names)


BLURS: Mapping[str, tuple[Blur, ...]] = {
    "graph-fold-constants": (Blur(
        "f(constants) -> constant",
        "the constant is rounded to its type, and a rounded number stands for another residue"),),
    "graph-simplify": (Blur(
        "conv(x, w)*s + b -> conv(x, w*s) + b", "w*s is computed in floats and rounded",
        _of("conv", "conv_transpose", "batch_norm", "matmul")),),
    "graph-decompose": (Blur(
        "clamp(round(x) + z, a, b) -> clamp(round(x), a - z, b - z) + z",
        "addition is not monotone in a ring: x < y does not imply x + z < y + z",
        _of("quantize_linear")),),
    "graph-quantize-contractions": (Blur(
        "(x - a)*s . (y - b)*t -> (x . y - ...)*(s*t)", "the product of the scales is rounded"),),
    "graph-narrow-products": (Blur(
        "f32 factors -> narrower ones", "it rounds on purpose, as --precision allows"),),
}
"""Pass -> its blurs. All other passes keep every bit."""


def blur_of(name: str, operations: set[str]) -> Blur | None:
    """The first rewrite of a pass that may blur a module with these operations; None if none may.
    """
    return next((b for b in BLURS.get(name, ()) if b.concerns(operations)), None)
