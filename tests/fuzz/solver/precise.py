"""What a model computes in f64, and how far each element of it may be off by rounding alone.

The imported module is executed with f64 in the place of f32, f16 and bf16. Then it is executed some
times more, each result moved by what rounding in its own type may do to it: half of a unit for one
rounding, more for a sum of many terms, nothing for what only moves elements or is exact; and each
is a number of its own type again, so that numbers which are equal there are equal here, too. An
LSTM is run step by step, since what one step rounds is in all that follow, and so is a layer
normalization, whose mean is rounded before it is taken away. So the allowance is per element, and
comes from the model and its inputs; a comparison that flips, or an index that another order of
additions would choose, is told by the runs that flip.
(Stochastic arithmetic: Parker, Monte Carlo arithmetic, 1997.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.ir import Attribute, Operation, SSAValue

from dialects import graph
from dialects.graph.base import ShapeError
from dialects.semantics.evaluation import EvaluationContext, evaluation_of
from dialects.strata.binding import EvaluationError, bind_sizes
from dialects.strata.control import IfOp, LoopOp, function_of
from dialects.strata.func import FuncOp, main_function
from dialects.strata.types import (
    Array,
    TensorType,
    element_of,
    is_float,
    is_narrow_float,
    precision,
    tensor,
    wide_element,
)
from dialects.strata.weights import WeightStore
from passes.base import StrataContext
from passes.rewriting import Rewriter, functions, rewrite
from tests.fuzz.solver.rounding import is_rounded

F64 = np.dtype(np.float64)
LINEAR = frozenset((
    "avg_pool", "conv", "conv_transpose", "cumulative_sum", "grouped_matmul", "matmul",
    "reduce_mean", "reduce_sum", "resize", "scatter_elements", "scatter_nd"))
"""Operations that add up products: an element may be off by units of the terms' magnitudes."""
SINGLE = frozenset(("add", "sub", "mul", "div", "sqrt", "reciprocal", "cast"))
"""Operations that round once."""
EXACT = frozenset((
    "abs", "arg_max", "arg_min", "bitcast", "broadcast", "ceil", "clip", "concat", "constant",
    "floor", "fmod", "frames", "gather", "gather_elements", "gather_nd", "max", "max_pool",
    "max_pool_indices", "min", "neg", "pad", "range", "reduce_max", "reduce_min", "relu",
    "reshape", "round", "sign", "sizes", "slice", "top_k", "transpose", "where"))
"""Operations that compute nothing which could be rounded."""


CANCELLING = frozenset(("gelu", "log_softmax", "mish", "resize", "softplus"))
"""Operations whose results may be far smaller than what they are the difference of."""


IN_STEPS = (graph.LayerNormOp, graph.LstmOp)
"""Operations whose steps round what later ones enlarge: a state, a mean that is taken away."""


def is_wide(attribute: Attribute) -> bool:
    """Whether it is the type of f64, f32, f16 or bf16."""
    try:
        return is_float(attribute) and not is_narrow_float(attribute)
    except (KeyError, ValueError):
        return False


@dataclass
class Precise:
    """Runs a module in f64. `random`: None for the exact run, else results are moved."""

    weights: WeightStore
    random: np.random.Generator | None = None
    strength: float = 1.0

    def run(self, module: ModuleOp, inputs: Sequence[Array]) -> list[Array]:
        """The outputs; floats are f64. Raises EvaluationError."""
        context = EvaluationContext(weights=self.weights)
        with np.errstate(all="ignore"):
            return self._function(main_function(module), [_widened(a) for a in inputs], context)

    def _function(
        self, func: FuncOp, inputs: Sequence[Array], context: EvaluationContext
    ) -> list[Array]:
        arguments = func.body.block.args
        types = [cast(TensorType, a.type) for a in arguments]
        given = {s: context.sizes[s] for s in func.caller_sizes if s in context.sizes}
        sizes = bind_sizes(types, inputs, func.input_names, given)
        context = replace(context, sizes={**context.sizes, **sizes})
        values: dict[SSAValue, Array] = dict(zip(arguments, inputs, strict=True))
        for op in func.body.block.ops:
            if op is func.return_op:
                break
            results = self._operation(op, [values[o] for o in op.operands], context)
            values.update(zip(op.results, results, strict=True))
        return [values[o] for o in func.return_op.operands]

    def _operation(
        self, op: Operation, operands: list[Array], context: EvaluationContext
    ) -> Sequence[Array]:
        if isinstance(op, IfOp | LoopOp):
            return self._control(op, operands, context)
        results = [_widened(r) for r in _evaluated(op, operands, context)]
        if self.random is None or not results:
            return results
        return self._moved(op, operands, results, context)

    def _control(
        self, op: IfOp | LoopOp, operands: list[Array], context: EvaluationContext
    ) -> list[Array]:
        if isinstance(op, IfOp):
            name = op.then_.data if bool(operands[0]) else op.else_.data
            results = self._function(function_of(op, name), operands[1:], context)
        else:
            results = op.run(context, operands, lambda name, values, sizes: self._function(
                function_of(op, name), values, replace(context, sizes=sizes)))
            results = [_widened(r) for r in results]
        op.bind(context, results)
        return results

    # ------------------------------------------------------------------ rounding
    def _moved(
        self, op: Operation, operands: list[Array], results: list[Array],
        context: EvaluationContext,
    ) -> list[Array]:
        """The results, each element moved by what rounding may do to it."""
        name = op.name.partition(".")[2]
        if name in EXACT:
            return results
        if name not in LINEAR and name not in SINGLE:
            results = self._from_moved(op, operands, results, context)
        extent = _extent(op, operands, results, context) if name in LINEAR else None
        if name in CANCELLING:
            extent = np.full(results[0].shape, _magnitude(operands))
        exact = _unrounded(name, op.results[0].type, operands, results[0])
        return [self._noisy(array, value.type, extent if k == 0 else None, exact)
                for k, (value, array) in enumerate(zip(op.results, results, strict=True))]

    def _noisy(
        self, array: Array, type_: Attribute, extent: Array | None, exact: Array | None
    ) -> Array:
        """`exact`: which numbers need no rounding."""
        if not isinstance(type_, TensorType) or not is_wide(type_.element):
            return array
        noise = self._noise(array.shape) * np.abs(array) * precision(type_.element)
        if exact is not None:
            noise = np.where(exact, 0.0, noise)
        if extent is not None:
            noise += self._noise(array.shape) * extent * _computed_step(type_.element)
        return np.where(np.isfinite(array), _held(array + noise, type_.dtype), array)

    def _noise(self, shape: tuple[int, ...]) -> Array:
        assert self.random is not None
        return self.random.integers(-1, 2, shape) * self.strength

    def _from_moved(
        self, op: Operation, operands: list[Array], results: list[Array],
        context: EvaluationContext,
    ) -> list[Array]:
        """The results on operands that are a unit off: what is computed in several steps."""
        moved = [a + self._noise(a.shape) * np.abs(a) * _computed_step(cast(
            TensorType, o.type).element) if a.dtype == F64 else a
            for o, a in zip(op.operands, operands, strict=True)]
        try:
            found = [_widened(r) for r in _evaluated(op, moved, context)]
        except EvaluationError:
            return results
        return [np.where(np.isfinite(f), f, r) if f.shape == r.shape and r.dtype == F64 else f
                for f, r in zip(found, results, strict=True)]


def _unrounded(
    name: str, type_: Attribute, operands: Sequence[Array], result: Array
) -> Array | None:
    """Which numbers of an operation that rounds once are in its type as they are."""
    if name not in SINGLE or not isinstance(type_, TensorType) or not is_wide(type_.element):
        return None
    if type_.dtype == F64:
        return ~is_rounded(name, operands, result)
    return result.astype(type_.dtype).astype(F64) == result


def _held(array: Array, dtype: np.dtype[Any]) -> Array:
    """The nearest numbers that a type has; those beyond its range as they are."""
    held = array.astype(dtype).astype(F64)
    return np.where(np.isfinite(held), held, array)


def step_by_step(module: ModuleOp) -> ModuleOp:
    """The module with each operation of `IN_STEPS` as those of its steps, where they are known."""
    def written_out(op: Any, at: Rewriter) -> Sequence[SSAValue] | None:
        try:
            return op.decompose(at)
        except ShapeError:
            return None

    if not any(isinstance(op, IN_STEPS) for op in module.walk()):
        return module
    module = module.clone()
    for function in functions(module):
        rewrite(function, {kind: [written_out] for kind in IN_STEPS}, StrataContext())
    return module


def _computed_step(element: Attribute) -> float:
    """A unit of the type in which it is computed: f32 for halves."""
    return precision(wide_element(element))


def _magnitude(operands: Sequence[Array]) -> float:
    """The largest finite one, at least 1."""
    return float(max((np.abs(a[np.isfinite(a)]).max(initial=1.0) for a in operands
                      if a.dtype == F64), default=1.0))


def _extent(
    op: Operation, operands: list[Array], results: list[Array], context: EvaluationContext
) -> Array | None:
    """The sum of the terms' magnitudes."""
    try:
        made = _evaluated(op, [np.abs(a) if a.dtype == F64 else a for a in operands], context)
    except EvaluationError:
        return None
    extent = np.abs(np.asarray(made[0], F64))
    if extent.shape != results[0].shape:
        return None
    return np.where(np.isfinite(extent), extent, 0.0)


def _evaluated(
    op: Operation, operands: Sequence[Array], context: EvaluationContext
) -> list[Array]:
    """The results of the operation with f64 types; with its own types, where it has none."""
    function = evaluation_of(op)
    if function is None:
        raise EvaluationError(f"{op.name} has no evaluation")
    if isinstance(op, graph.ConstantOp):
        return [np.asarray(function(context))]
    twin = widened_twin(op)
    try:
        found = twin.evaluate(context, *operands)  # type: ignore[attr-defined]
    except (ValueError, IndexError, KeyError, ArithmeticError, TypeError) as error:
        raise EvaluationError(f"{op.name} failed in f64: {error}") from error
    return list(found) if isinstance(found, list | tuple) else [np.asarray(found)]


def widened_twin(op: Operation) -> Operation:
    """The same operation, outside the module, with f64 for each wide float among its types."""
    operands = [_twin_operand(o) for o in op.operands]
    properties = {k: _widened_attribute(v) for k, v in op.properties.items()}
    types = [_widened_attribute(r.type) for r in op.results]
    twin = type(op).create(operands=operands, result_types=types, properties=properties)
    twin.location = op.location
    return twin


def _twin_operand(value: SSAValue) -> SSAValue:
    from xdsl.dialects.test import TestOp

    return TestOp.create(result_types=[_widened_attribute(value.type)]).results[0]


def _widened_attribute(attribute: Attribute) -> Attribute:
    if isinstance(attribute, TensorType):
        element = _widened_attribute(attribute.element)
        return tensor(element, attribute.shape)
    if isinstance(attribute, ArrayAttr):
        return ArrayAttr([_widened_attribute(a) for a in cast("ArrayAttr[Any]", attribute).data])
    return element_of(F64) if is_wide(attribute) else attribute


def _widened(array: Array) -> Array:
    array = np.asarray(array)
    element = element_of(array.dtype)
    return array.astype(F64) if is_wide(element) else array


# ---------------------------------------------------------------------- the allowance
@dataclass
class Allowance:
    """`module`: for the runs with rounding. `native`: the outputs in the model's own types.
    `exact`: in f64. `slack`: by how much an element may be off, so far.
    """

    module: ModuleOp
    weights: WeightStore
    inputs: Sequence[Array]
    native: Sequence[Array]
    exact: list[Array]
    slack: list[Array]
    trials: int = 0

    @staticmethod
    def of(
        module: ModuleOp, weights: WeightStore, inputs: Sequence[Array], native: Sequence[Array]
    ) -> Allowance:
        """Raises EvaluationError."""
        exact = Precise(weights).run(module, inputs)
        return Allowance(step_by_step(module), weights, inputs, native, exact,
                         [np.zeros(a.shape, F64) for a in exact])

    def widen(self, trials: int) -> None:
        """Make more runs; each that leaves the exact one farther adds to the slack."""
        for _ in range(trials):
            self.trials += 1
            strength = 1.0 if self.trials % 4 else 4.0
            random = np.random.default_rng(self.trials)
            try:
                found = Precise(self.weights, random, strength).run(self.module, self.inputs)
            except EvaluationError:
                continue
            for slack, got, want in zip(self.slack, found, self.exact, strict=True):
                if got.shape != want.shape:
                    continue
                with np.errstate(all="ignore"):
                    gap = np.abs(got.astype(F64) - want.astype(F64))
                np.maximum(slack, np.where(np.isnan(gap), np.inf, gap), out=slack,
                           where=~(np.isnan(got.astype(F64)) & np.isnan(want.astype(F64))))
