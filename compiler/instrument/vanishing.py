"""Outputs that are zero but for rounding: sums of terms that cancel.

The gradient of a bias before a batch norm, or of the bias of attention's keys, is zero, and each
way of computing it leaves another remainder of its terms. A remainder has no error relative to
itself. So an output that is a sum, and in f64 no larger than what rounding its terms may leave, may
have any value up to that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.ir import Operation, SSAValue

from compiler.instrument.doubles import in_doubles, widen_inputs
from dialects import graph
from dialects.graph.base import ints_of
from dialects.graph.interpret import evaluate_func
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.assumptions import DataError, SizeError
from dialects.strata.binding import EvaluationError
from dialects.strata.func import main_function
from dialects.strata.types import Array, element_of, f32, is_float, precision
from dialects.strata.weights import WeightStore

GRANTED = 8
"""The units in the last place by which terms, and sums of them, may be off."""
SAME_ELEMENTS = (graph.ReshapeOp, graph.CastOp)


def vanishing(
    module: ModuleOp, weights: WeightStore, inputs: Sequence[Array], expected: Sequence[Array]
) -> Mapping[int, Array]:
    """The numbers of the outputs that vanish -> what each element may be, of either sign.

    `module`: at graph level; nothing is known of another. `expected`: its outputs.
    """
    found = in_doubles(module, weights)
    if found is None:
        return {}
    sums = _sums(main_function(found[0]).return_op.operands)
    sums = {k: op for k, op in sums.items() if is_float(element_of(expected[k].dtype))}
    try:
        with np.errstate(all="ignore"):
            exact, terms = _evaluated(*found, widen_inputs(inputs), sums)
    except (EvaluationError, DataError, SizeError):
        return {}
    limits = {k: _left_over(op, terms[k], expected[k]) for k, op in sums.items()}
    return {k: limit for k, limit in limits.items() if is_within(exact[k], limit)}


def is_within(output: Array, limit: Array) -> bool:
    """Whether no element is larger, as NaN and infinity are."""
    return bool(np.all((np.abs(output.astype(np.float64)) <= limit) & np.isfinite(limit)))


def _sums(outputs: Sequence[SSAValue]) -> dict[int, graph.ReduceSumOp]:
    """The outputs that are sums, in any shape and type, with the operation that adds."""
    owners = {k: _maker(value) for k, value in enumerate(outputs)}
    return {k: op for k, op in owners.items() if isinstance(op, graph.ReduceSumOp)}


def _maker(value: SSAValue) -> Operation | None:
    while isinstance(op := value.owner, SAME_ELEMENTS):
        value = op.operands[0]
    return op if isinstance(op, Operation) else None


def _evaluated(
    module: ModuleOp, weights: WeightStore, inputs: Sequence[Array],
    sums: Mapping[int, graph.ReduceSumOp],
) -> tuple[Mapping[int, Array], Mapping[int, Array]]:
    """These outputs, and the terms of each. The module's results change."""
    func = main_function(module)
    results = [*(func.return_op.operands[k] for k in sums), *(op.x for op in sums.values())]
    func.return_op.operands = results
    func.properties["result_types"] = ArrayAttr([r.type for r in results])
    arrays = evaluate_func(func, inputs, EvaluationContext(weights=weights))
    half = len(sums)
    return (dict(zip(sums, arrays[:half], strict=True)),
            dict(zip(sums, arrays[half:], strict=True)))


def _left_over(op: graph.ReduceSumOp, terms: Array, output: Array) -> Array:
    """What rounding may leave of each sum, in the shape of the output.

    The terms are rounded independently, to their type; sums on the way are at most as large as all
    terms, and are kept in f32 or f64.
    """
    wide, axes = terms.astype(np.float64), ints_of(op.properties, "axes")
    unit = precision(element_of(output.dtype))
    of_terms = unit * np.sqrt(op.reduce(np.square(wide), axes, True))
    of_sums = min(unit, precision(f32)) * op.reduce(np.abs(wide), axes, True)
    return GRANTED * (of_terms + of_sums).reshape(output.shape)
