"""Rewrites of passes that hold for real numbers, but not in the ring of `verify --ring`.

`docs/ring.md` lists all passes with the algebra of what they rewrite, these among them; tests hold
both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Blur:
    """A rewrite after which bits may differ. `operations`: it concerns modules that have one of
    these, by name, before the pass; any module if empty.
    """

    rewrite: str
    reason: str
    operations: frozenset[str] = frozenset()

    def concerns(self, operations: set[str]) -> bool:
        return not self.operations or not self.operations.isdisjoint(operations)


def _graph(*names: str) -> frozenset[str]:
    return frozenset(f"graph.{name}" for name in names)


BLURS: Mapping[str, tuple[Blur, ...]] = {
    "graph-quantize-contractions": (Blur(
        "round(x / t) -> round(x * (1 / t)), (s*x) . (t*y) / u -> (x . y) * (s*t/u)",
        "quotients and products of scales are rounded",
        _graph("quantize_linear", "dequantize_linear")),),
    "graph-fold-constants": (Blur(
        "f(constants) -> one number", "the number is written out, rounded"),),
    "loop-join-online": (Blur(
        "exp(c*x - m) -> exp2((c*log2(e))*x - m)", "c*log2(e) is rounded, unless c is 2**n"),),
    "loop-join-recomputed": (Blur(
        "exp(c*x - l) -> exp2((c*log2(e))*x - l*log2(e))", "c*log2(e) and l*log2(e) are rounded"),),
}
"""Pass -> its blurs. All other passes keep every bit."""


def blur_of(name: str, operations: set[str]) -> Blur | None:
    """The first rewrite of a pass that may blur a module with these operations; None if none may.
    """
    return next((b for b in BLURS.get(name, ()) if b.concerns(operations)), None)
