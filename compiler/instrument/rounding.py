"""Measures how much a model's outputs change if every operation rounds differently.

Sums in another order differ in the last bits. In most models such differences stay small. A model
that subtracts nearly equal numbers on the given inputs amplifies them, and then no lowered form of
it can be closer to the reference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import isfinite

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from compiler.measuring.comparison import worst
from dialects import graph
from dialects.graph.interpret import evaluate_func
from dialects.semantics.evaluation import EvaluationContext
from dialects.semantics.numerics import widen
from dialects.strata.assumptions import DataError, SizeError
from dialects.strata.binding import EvaluationError
from dialects.strata.func import main_function
from dialects.strata.types import Array, element_of, is_float, precision
from dialects.strata.weights import WeightStore

TRIALS = 4
BOUNDED = (graph.SigmoidOp, graph.TanhOp, graph.ErfOp)
"""Functions with values up to 1, which libraries may compute to a unit in the last place of 1: for
-20, onnxruntime's sigmoid returns 0."""


@dataclass
class Rounding:
    """A tensor-level module with its weights, inputs and expected outputs.

    `errors` caches the results of the runs so far. `bounded`: by how many units in the last place
    of 1 the functions of BOUNDED may be off.
    """

    module: ModuleOp
    weights: WeightStore
    inputs: Sequence[Array]
    expected: Sequence[Array]
    errors: list[float] = field(default_factory=list[float])
    bounded: int = 0

    def effect(self) -> float:
        """The largest error of several runs in which every number of every result is randomly
        perturbed by at most one unit in the last place. Runs that overflow are ignored.
        """
        return max(self.effects())

    def effects(self) -> Iterator[float]:
        """The largest error after each run. Runs are made on demand, and the error only grows."""
        for seed in range(TRIALS):
            if seed == len(self.errors):
                self.errors.append(self._trial(np.random.default_rng(seed)))
            yield max(filter(isfinite, self.errors[:seed + 1]), default=0.0)

    def _trial(self, random: np.random.Generator) -> float:
        try:
            found = altered_run(self.module, self.weights, self.inputs, random,
                                bounded=self.bounded)
        except (EvaluationError, DataError, SizeError):
            return 0.0
        return worst(found, self.expected)[0]


def altered_run(
    module: ModuleOp, weights: WeightStore, inputs: Sequence[Array],
    random: np.random.Generator, step: float | None = None, bounded: int = 0,
) -> list[Array]:
    """The outputs if every number of the inputs and of every result is randomly perturbed.

    The inputs count because a sum of products of them may cancel: its terms then round by more than
    the result does. An input of one number is exact, as a constant of one number is.

    `step`, relative, applies to f64; its default, and the step of all other types, is one unit in
    the last place. Results of BOUNDED are also off by up to `bounded` units of 1. Raises
    EvaluationError, or DataError where numbers become indices.
    """
    def alter(op: Operation | None, array: Array) -> Array:
        if not is_float(element_of(array.dtype)):
            return array
        wide = widen(array)
        given = step if array.dtype == np.float64 else None
        unit = precision(element_of(array.dtype)) if given is None else given
        factors = 1 + wide.dtype.type(unit) * random.integers(-1, 2, array.shape, np.int8)
        altered = wide * factors
        if bounded and isinstance(op, BOUNDED):
            altered += unit * random.integers(-bounded, bounded + 1, array.shape, np.int8)
        return np.asarray(altered).astype(array.dtype)

    context = EvaluationContext(weights=weights)
    with np.errstate(all="ignore"):
        given = [alter(None, array) if array.size > 1 else array for array in inputs]
        return evaluate_func(main_function(module), given, context, alter)
