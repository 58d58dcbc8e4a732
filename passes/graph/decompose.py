"""graph-decompose: replace composite operations by their definitions.

    %y = graph.relu %x       -->     %0 = graph.constant {value = literal[0.0]}
                                     %y = graph.max %x, %0

A composite that the target claims stays as it is, because the target has its own lowering for it.
Definitions may use other composites, which are decomposed in turn. A composite without a definition
for its operands (an LSTM over a symbolic number of steps) raises PassError.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from dialects.graph.base import CompositeOp, ShapeError
from dialects.graph.shape import ReshapeOp
from dialects.strata.types import tensor_type
from dialects.text.syntax import location_name
from passes.base import PassError, StrataContext, StrataPass
from passes.contract import Facts
from passes.rewriting import Rewriter, functions, rewrite


def _as_declared(op: CompositeOp, values: Sequence[SSAValue], at: Rewriter) -> list[SSAValue]:
    """The values in the shapes of the op's results.

    A definition may know a size better: a bias of 2 elements proves that n is 2.
    """
    return [v if v.type == r.type else at(ReshapeOp, v, shape=tensor_type(r).shape)
            for v, r in zip(values, op.results, strict=True)]


def _is_claimed(op: CompositeOp, facts: Facts) -> bool:
    return (op.name in facts.claims and op.may_stay(facts.claimed_channels)
            and not any(t.element in facts.unclaimed_elements for t in op.operand_tensors))


class GraphDecompose(StrataPass):
    """Decompose the composite operations that the target does not claim."""

    name = "graph-decompose"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        faults: list[tuple[str, str]] = []

        def decompose(op: CompositeOp, at: Rewriter) -> Sequence[SSAValue] | None:
            if _is_claimed(op, context.facts):
                return None
            try:
                return _as_declared(op, op.decompose(at), at)
            except ShapeError as error:
                faults.append((location_name(op), f"{op.name}: {error}"))
                return None

        for func in functions(module):
            rewrite(func, {CompositeOp: [decompose]}, context)
        if faults:
            raise PassError(self.name, faults)
