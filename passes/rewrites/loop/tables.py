"""Tables that are computed at compile time, because they depend on nothing but their index.

    %i = nest (i0: 28) {floor(max(0, (i0 + 0.5) / 1.5 - 0.5))}   ->   %i = constant : i64[28]

Such are the coordinates and weights of a resampling along an axis. Programs would compute them
again at every call, in kernels of their own. What has several axes stays a formula: a mask tells
later passes more than its elements do, and takes memory as a constant.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from dialects.graph import ConstantOp
from dialects.loop import NestOp
from dialects.semantics.evaluation import EvaluationContext
from passes.rewrites.loop.nests import body_size, index_exprs
from passes.rewriting import Rewriter

MOST, LEAST = 1 << 12, 8
"""So many elements at most, each of so many operations at least."""


def fold_table(nest: NestOp, at: Rewriter) -> Sequence[SSAValue] | None:
    """Replace a short nest of one axis that reads no tensor by its elements."""
    extents = [a.extent.constant for a in nest.axes]
    if {s for e in index_exprs(nest) for s in e.symbols} - {a.name for a in nest.axes}:
        return None  # it depends on sizes
    if nest.inputs or not nest.is_elementwise or len(extents) != 1 or (
            not 0 < (extents[0] or 0) <= MOST or body_size(nest) < LEAST):
        return None
    from dialects.loop.interpret import evaluate_nest

    found = evaluate_nest(nest, EvaluationContext(weights=at.context.weights))
    return [at.insert(ConstantOp.of_array(array, at.context.weights, "table")).results[0]
            for array in found]
