"""graph-fold-sizes: evaluate shape computations symbolically.

Models compute shapes with tensor operations. If the value of such an integer tensor is known in
terms of sizes, the chain becomes one operation, and operations that only it used are erased:

    %s = graph.sizes {values = [batch, 3, 2*h]} : i64[3]        %t = graph.sizes {values = [6*h]}
    %a = graph.gather %s, 1      %b = graph.gather %s, 2   -->
    %t = graph.mul %a, %b

A tensor of plain integers becomes a `graph.constant`. Comparisons and selections are decided if
they have the same outcome for all sizes. A `strata.require` on such a tensor becomes
`strata.assume`s. Assumes nothing.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from dialects.graph.base import Build, GraphOp, ShapeError
from dialects.graph.constant import ConstantOp, SizesOp
from dialects.graph.fold_sizes import fold_sizes
from dialects.graph.inference import certain_sign
from dialects.graph.shape import ReshapeOp
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.func import FuncOp
from dialects.strata.requirements import RequireOp
from dialects.strata.sizes import AssumeOp
from dialects.strata.types import Array, TensorType, i1, i32, i64
from dialects.symbolic.expr import Expr
from dialects.symbolic.ranges import is_at_most
from dialects.text.syntax import location_name
from passes.base import StrataContext, StrataPass
from passes.rewriting import erase, erase_unused, functions, replace

FOLLOWED = (i1, i32, i64)
"""Element types of shape computations; narrower ones could wrap around."""


class GraphFoldSizes(StrataPass):
    """Replace integer tensors that are known in terms of sizes by `graph.sizes` or constants."""

    name = "graph-fold-sizes"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        for func in functions(module):
            _fold(func, context)


def _fold(func: FuncOp, context: StrataContext) -> None:
    known: dict[SSAValue, Array] = {}
    for op in list(func.body.block.ops):
        if isinstance(op, RequireOp) and op.values in known:
            _settle(op, known[op.values])
            continue
        values = _known_values(op, known)
        if values is None:
            continue
        result = op.results[0]
        if _is_worth_replacing(op, values):
            result = _written_out(op, values, context)
            replace(op, [result], context, "known-from-sizes")
        known[result] = values
    erase_unused(func.body.block, context)


def _settle(op: RequireOp, values: Array) -> None:
    """Turn a requirement on known sizes into assumptions; it stays if some certainly violate it."""
    low, high = op.low.data, op.high.data - 1
    pairs = [p for e in map(Expr.of, values.reshape(-1)) for p in ((low, e), (e, high))]
    if any(certain_sign(b - a) == -1 for a, b in pairs):
        return
    build = Build(op)
    for below, above in dict.fromkeys(p for p in pairs if not is_at_most(*p)):
        build.insert(AssumeOp.of(below, "<=", above))
    erase(op)


def _known_values(op: Operation, known: dict[SSAValue, Array]) -> Array | None:
    """The result as an object array of size expressions, or None."""
    if not isinstance(op, GraphOp) or not all(map(_is_followed, (*op.results, *op.operands))):
        return None
    try:
        values = fold_sizes(op, [known.get(v) for v in op.operands], EvaluationContext())
    except ShapeError:  # a symbolic size where evaluation needs a known one
        return None
    return values if values is None or _fits(values, op.result_tensors[0]) else None


def _is_followed(value: SSAValue) -> bool:
    return isinstance(value.type, TensorType) and value.type.element in FOLLOWED


def _fits(values: Array, type_: TensorType) -> bool:
    """Whether the plain integers are in the range of their type, so that none wrapped around."""
    numbers = [e.constant for e in values.reshape(-1)]
    if type_.element == i1:
        return all(n in (0, 1) for n in numbers)
    bounds = ml_dtypes.iinfo(type_.dtype)
    return all(n is None or bounds.min <= n <= bounds.max for n in numbers)


def _is_worth_replacing(op: Operation, values: Array) -> bool:
    if isinstance(op, SizesOp):
        return _plain(values) is not None
    return not isinstance(op, ConstantOp)


def _plain(values: Array) -> list[int] | None:
    numbers = [e.constant for e in values.reshape(-1)]
    return None if None in numbers else numbers


def _written_out(op: Operation, values: Array, context: StrataContext) -> SSAValue:
    """The value as a constant or as sizes, reshaped if it has several dims."""
    build, type_ = Build(op), op.results[0].type
    assert isinstance(type_, TensorType)
    numbers = _plain(values)
    if numbers is not None:
        array = np.array(numbers, np.int64).astype(type_.dtype).reshape(values.shape)
        constant = ConstantOp.of_array(array, context.weights, location_name(op))
        return build.insert(constant).results[0]
    flat = list(values.reshape(-1))
    if values.ndim < 2:
        return build(SizesOp, values=flat, shape=list(values.shape), to=type_.element)
    sizes = build(SizesOp, values=flat, shape=[len(flat)], to=type_.element)
    return build(ReshapeOp, sizes, shape=list(values.shape))
