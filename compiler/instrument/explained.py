"""How far each element of an output may be off: what rounding in another order explains, in f64.

The outputs are computed in f64, and a few times with each number of each result off by a unit in
the last place that it has in the model's own type, or by none. How far these runs are from f64 is
what rounding does to the model on these inputs. It depends on the element: near 0 a tenth of the
largest error may be a wrong number. So elements of like magnitude are taken together (powers of
two, and their neighbours until there are FEW), and each may be off by GRANTED times the most that
one of them was off.

That a sum is off by more than one unit is part of GRANTED: a sum of 256 numbers in one register,
whose parts all have one sign, is off by 9 units where its result alone would be off by one.

A model that decides by floats (compares, rounds, sorts) can leap where another form of it does not,
so that a few runs tell too little; there `verify` compares with the largest magnitude only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from compiler.instrument.doubles import in_doubles, widen_inputs
from compiler.instrument.rounding import TRIALS, Rounding, altered_run
from dialects import graph
from dialects.strata.assumptions import IndexRangeError
from dialects.strata.binding import EvaluationError
from dialects.strata.types import Array, TensorType, f32, is_float
from targets.reference.interpret import interpret

GRANTED = 8
"""How many times the deviation of like elements an element may be off."""
FEW = 64
"""From how many elements on their runs tell how far they may be off."""
F32_UNIT = float(np.finfo(np.float32).eps)
UNITS = 4
"""How many units in the last place an element may be off in any case."""
LEAPS = (graph.FloorOp, graph.CeilOp, graph.RoundOp, graph.SignOp, graph.ModOp)
"""Operations whose floats leap."""


@dataclass(frozen=True)
class Explained:
    """Per output, what it is in f64 and by how much each element may differ from that."""

    exact: Sequence[Array]
    limits: Sequence[Array]

    def first_beyond(self, outputs: Sequence[Array]) -> int | None:
        """The first output with an element that rounding does not explain."""
        return next((k for k, rows in enumerate(zip(outputs, self.exact, self.limits, strict=True))
                     if not _is_explained(*rows)), None)


def explain(rounding: Rounding) -> Explained | None:
    """What rounding explains of a module at graph level; None where a few runs do not tell that."""
    found = in_doubles(rounding.module, rounding.weights)
    if found is None or decides_by_floats(rounding.module):
        return None
    try:
        with np.errstate(all="ignore"):
            inputs = widen_inputs(rounding.inputs)
            exact = interpret(*found, inputs)
            step = F32_UNIT if _has_f32(rounding.module) else None
            runs = [altered_run(*found, inputs, np.random.default_rng(seed), step)
                    for seed in range(TRIALS)]
    except (EvaluationError, IndexRangeError):
        return None
    limits = [_limits(e, o, [run[k] for run in runs])
              for k, (e, o) in enumerate(zip(exact, rounding.expected, strict=True))]
    return Explained(exact, limits)


def decides_by_floats(module: ModuleOp) -> bool:
    """Whether some result that is no float, or leaps, depends on floats."""
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
    """By how much each element may be off."""
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
    """Per power of two, the most among the nearest powers that together have FEW elements."""
    found, total = np.empty(len(most)), int(count.sum())
    for k in range(len(most)):
        near, reach = slice(k, k + 1), 1
        while reach == 1 or count[near].sum() < min(FEW, total):
            near = slice(max(0, k - reach), k + reach + 1)
            reach += 1
        found[k] = most[near].max()
    return found
