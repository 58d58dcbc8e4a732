"""Weights in the ring: what passes have computed from others is computed there again.

A weight of the model is a number, which stands for a residue. A filter that Winograd's algorithm
transforms is a number, too, but a rounded one, and stands for another residue than that of the sum
which it is. The store's history says how such an array was computed, so its residues are those of
the computation:

    u = (G @ w) / d   in f64, rounded     ->   u = (G @ w) / d   in the ring, for the residues of w

This concerns computations that say that they are exact in another arithmetic (`on_carriers`), and
all that is computed from their results, such as packed copies.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from compiler.pipeline.source import weight_labels
from dialects.strata.parallel import Arrays

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from dialects.semantics.ring import Ring
    from dialects.strata.types import Array
    from dialects.strata.weights import Recipe, WeightStore


@dataclass
class RingWeights:
    """What arrays mean in a ring; those that have been computed are kept, by their keys."""

    ring: Ring
    known: dict[str, Array | None] = field(default_factory=dict[str, "Array | None"])
    """Key -> its residues; None if they are those of its numbers."""

    def of(self, module: ModuleOp, weights: WeightStore) -> WeightStore:
        """A store in which the weights of a module have the contents that they mean."""
        weights.arrays.settle()
        made = {key: array for key, _ in weight_labels(module)
                if (array := self._residues(key, weights)) is not None}
        return replace(weights, arrays=Arrays({**weights.arrays, **made})) if made else weights

    def _residues(self, key: str, weights: WeightStore) -> Array | None:
        if key not in self.known:
            recipe = (weights.history or {}).get(key)
            self.known[key] = None if recipe is None else self._computed(recipe, weights)
        return self.known[key]

    def _computed(self, recipe: Recipe, weights: WeightStore) -> Array | None:
        sources = [self._residues(key, weights) for key in recipe.sources]
        if all(source is None for source in sources) and not getattr(
                recipe.compute, "on_carriers", False):
            return None
        given = [self.ring.wrap(np.asarray(weights.arrays[key])) if source is None
                 else self.ring.view(source)
                 for key, source in zip(recipe.sources, sources, strict=True)]
        return np.asarray(recipe.compute(*given)).view(np.ndarray)
