"""graph-decompose: composite operations become what they are defined by.

    %y = graph.relu %x       -->     %0 = graph.constant {value = literal[0.0]}
                                     %y = graph.max %x, %0

A composite that the target claims stays whole: the target has its own lowering of it. Definitions
may use composites again; they are decomposed in turn. One that
has no definition for its operands (an LSTM over a symbolic number of steps) is a PassError.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from dialects.graph.base import CompositeOp, ShapeError
from dialects.syntax import location_name
from passes.base import PassError, StrataContext, StrataPass
from passes.rewriting import Rewriter, functions, rewrite


@dataclass(frozen=True)
class GraphDecompose(StrataPass):
    """Decompose the composite operations that the target does not claim."""

    name = "graph-decompose"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        faults: list[tuple[str, str]] = []

        def decompose(op: CompositeOp, at: Rewriter) -> Sequence[SSAValue] | None:
            if context.target is not None and context.target.claims(op.name):
                return None
            try:
                return op.decompose(at)
            except ShapeError as error:
                faults.append((location_name(op), f"{op.name}: {error}"))
                return None

        for func in functions(module):
            rewrite(func, {CompositeOp: [decompose]}, context)
        if faults:
            raise PassError(self.name, faults)
