"""The pass `example-expand`.

    %y = example.square %x   ->   %y = graph.mul %x, %x
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from dialects.graph.elementwise import MulOp
from passes.base import StrataContext, StrataPass
from passes.rewriting import Rewriter, rewrite
from strata_example.dialect import SquareOp


@dataclass(frozen=True)
class ExampleExpand(StrataPass):
    """Replace squares by products."""

    name = "example-expand"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        rewrite(module, {SquareOp: [_square]}, context)


def _square(op: SquareOp, at: Rewriter) -> SSAValue:
    # x^2 == x*x
    return at(MulOp, op.x, op.x)
