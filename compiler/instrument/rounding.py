"""How far a model's outputs move when every operation rounds its result otherwise.

Sums in another order differ in the last bits. Most models keep such differences small; one that
subtracts nearly equal numbers on the inputs at hand does not, and then no other form of it can be
closer to what was computed first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import isfinite

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from compiler.measuring.comparison import worst
from dialects.graph.interpret import evaluate_func
from dialects.semantics.evaluation import EvaluationContext
from dialects.semantics.numerics import widen
from dialects.strata.assumptions import IndexRangeError
from dialects.strata.binding import EvaluationError
from dialects.strata.func import main_function
from dialects.strata.types import Array, element_of, is_float, precision
from dialects.strata.weights import WeightStore

TRIALS = 4


@dataclass
class Rounding:
    """A module over tensors with its weights, inputs, and what it computes of them.

    `errors` keeps what was found by the runs that have been made.
    """

    module: ModuleOp
    weights: WeightStore
    inputs: Sequence[Array]
    expected: Sequence[Array]
    errors: list[float] = field(default_factory=list[float])

    def effect(self) -> float:
        """The largest error of some runs in which each number of each result is off by one unit in
        its last place, or by none. Runs that leave the range of numbers tell nothing.
        """
        return max(self.effects())

    def effects(self) -> Iterator[float]:
        """The same after each run, which is made when it is asked for: it only grows."""
        for seed in range(TRIALS):
            if seed == len(self.errors):
                self.errors.append(self._trial(np.random.default_rng(seed)))
            yield max(filter(isfinite, self.errors[:seed + 1]), default=0.0)

    def _trial(self, random: np.random.Generator) -> float:
        try:
            found = altered_run(self.module, self.weights, self.inputs, random)
        except (EvaluationError, IndexRangeError):
            return 0.0
        return worst(found, self.expected)[0]


def altered_run(
    module: ModuleOp, weights: WeightStore, inputs: Sequence[Array],
    random: np.random.Generator, step: float | None = None,
) -> list[Array]:
    """The outputs where each number of each result is off by `step` times itself, or by none.

    `step`: that of f64; by default, and of other types always, a unit in the last place. Raises
    EvaluationError, or IndexRangeError where numbers become indices.
    """
    def alter(array: Array) -> Array:
        if not is_float(element_of(array.dtype)):
            return array
        wide = widen(array)
        given = step if array.dtype == np.float64 else None
        unit = precision(element_of(array.dtype)) if given is None else given
        factors = 1 + wide.dtype.type(unit) * random.integers(-1, 2, array.shape, np.int8)
        return np.asarray(wide * factors).astype(array.dtype)

    context = EvaluationContext(weights=weights)
    with np.errstate(all="ignore"):
        return evaluate_func(main_function(module), inputs, context, alter)
