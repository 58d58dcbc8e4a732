"""How much each element of an output may differ due to rounding, estimated with f64 runs.

The outputs are computed in f64, and then several times with every number of every result randomly
perturbed by at most one unit in the last place of the model's own type. The deviations of these
runs from f64 show the effect of rounding on these inputs. The effect depends on the element: for
one near 0, a tenth of the largest error may be a wrong number. Elements of similar magnitude are
therefore grouped (by powers of two, with neighbouring powers until there are FEW elements), and
each may deviate by GRANTED times the largest deviation in its group.

GRANTED also covers sums that deviate by more than one unit: a sum of 256 numbers of one sign in a
single register deviates by 9 units where a perturbed result would deviate by one.

A model that makes discrete decisions on floats (compares, rounds, sorts) can be discontinuous, so
that a few runs are not representative. For such models, `verify` only compares relative to the
largest magnitude.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from compiler.instrument.doubles import in_doubles, widen_inputs
from compiler.instrument.rounding import TRIALS, Rounding, altered_run
from dialects import graph
from dialects.strata.assumptions import IndexRangeError, SizeError
from dialects.strata.binding import EvaluationError
from dialects.strata.types import Array, TensorType, f32, is_float
from targets.reference.interpret import interpret

GRANTED = 8
"""The factor by which an element may exceed the deviation of similar elements."""
FEW = 64
"""The least number of elements in a group for a meaningful estimate."""
F32_UNIT = float(np.finfo(np.float32).eps)
UNITS = 4
"""The units in the last place by which an element may always deviate."""
LEAPS = (graph.FloorOp, graph.CeilOp, graph.RoundOp, graph.SignOp, graph.ModOp)
"""Operations that are discontinuous in their floats."""


@dataclass(frozen=True)
class Explained:
    """For each output, its value in f64 and the allowed deviation of each element."""

    exact: Sequence[Array]
    limits: Sequence[Array]

    def first_beyond(self, outputs: Sequence[Array], right: Collection[int] = ()) -> int | None:
        """The first output with an element that rounding does not explain; not one of `right`."""
        return next((k for k, rows in enumerate(zip(outputs, self.exact, self.limits, strict=True))
                     if k not in right and not _is_explained(*rows)), None)


def explain(rounding: Rounding) -> Explained | None:
    """The deviations that rounding explains, for a module at graph level; None if unknown."""
    found = in_doubles(rounding.module, rounding.weights)
    if found is None or decides_by_floats(rounding.module):
        return None
    try:
        with np.errstate(all="ignore"):
            inputs = widen_inputs(rounding.inputs)
            exact = interpret(*found, inputs)
            step = F32_UNIT if _has_f32(rounding.module) else None
            runs = [altered_run(*found, inputs, np.random.default_rng(seed), step,
                                rounding.bounded) for seed in range(TRIALS)]
    except (EvaluationError, IndexRangeError, SizeError):
        return None
    limits = [_limits(e, o, [run[k] for run in runs])
              for k, (e, o) in enumerate(zip(exact, rounding.expected, strict=True))]
    return Explained(exact, limits)


def decides_by_floats(module: ModuleOp) -> bool:
    """Whether a result that is not a float, or is discontinuous, depends on floats."""
    return any((isinstance(op, LEAPS) and any(_floats(op))) or (any(_floats(op)) and any(
        isinstance(r.type, TensorType) and not is_float(r.type.element) for r in op.results))
        for op in module.walk())


def _has_f32(module: ModuleOp) -> bool:
    return any(isinstance(r.type, TensorType) and r.type.element == f32
               for op in module.walk() for r in op.results)


def _floats(op: Operation) -> Iterator[bool]:
    return (isinstance(v.type, TensorType) and is_float(v.type.element) for v in op.operands)


def _is_explained(got: Array, exact: Array, limit: Array) -> bool:
    if got.shape != exact.shape:
        return False
    if got.dtype.kind != "f":
        return np.array_equal(got, exact)
    finite = np.isfinite(exact)
    with np.errstate(invalid="ignore", over="ignore"):
        wide = got.astype(np.float64)
        beyond = np.isinf(wide) & finite & (np.abs(exact) + limit >= np.finfo(got.dtype).max)
        close: Array = np.asarray((np.abs(wide - exact) <= limit) | beyond)
        same: Array = np.asarray((wide == exact) | (np.isnan(wide) & np.isnan(exact)))
    agrees: Array = np.where(finite, close, same)
    return bool(agrees.all())


def _limits(exact: Array, own: Array, runs: Sequence[Array]) -> Array:
    """The allowed deviation of each element."""
    if own.dtype.kind != "f" or not own.size:
        return np.zeros(exact.shape)
    with np.errstate(all="ignore"):
        off = np.fmax.reduce([np.abs(run.astype(np.float64) - exact) for run in runs])
        magnitude = np.abs(exact)
        unit = np.finfo(own.dtype)
        least = UNITS * (magnitude * unit.eps + float(unit.tiny))
    finite = np.isfinite(off) & np.isfinite(exact)
    if not finite.any():
        return least
    power = np.frexp(np.where(finite, magnitude, 0.0))[1]
    first = int(power.min())
    count = np.bincount((power - first)[finite], minlength=int(power.max()) - first + 1)
    most = np.zeros(len(count))
    np.maximum.at(most, (power - first)[finite], off[finite])
    return np.maximum(GRANTED * _among_like(most, count)[power - first], least)


def _among_like(most: Array, count: Array) -> Array:
    """For each power of two, the maximum over the nearest powers with FEW elements in all."""
    found, total = np.empty(len(most)), int(count.sum())
    for k in range(len(most)):
        near, reach = slice(k, k + 1), 1
        while reach == 1 or count[near].sum() < min(FEW, total):
            near = slice(max(0, k - reach), k + reach + 1)
            reach += 1
        found[k] = most[near].max()
    return found
