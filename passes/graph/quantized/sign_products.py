"""graph-sign-products: give the quantized bytes of products the signs that the target multiplies.

    %y = graph.matmul_integer %a, %b, %y, %z    -->    %s = graph.bitcast (%a ^ 128) {to = i8}
                                                       %t = graph.matmul %s, %w {to = i32}
                                                       %y = %t - (%y - 128) * sums of %w

The target says which signs its instructions support (here only signed bytes). Weights stay bytes
whatever their zero point is: the contribution of the zero points is subtracted from the sums. The
rules are in `passes/rewrites/graph/signed_products.py`, with their algebra. Assumes nothing.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from passes.base import StrataContext, StrataPass
from passes.rewrites.graph.signed_products import SIGNED_PRODUCT_RULES
from passes.rewriting import functions, rewrite


class GraphSignProducts(StrataPass):
    """Multiply bytes with the signs that the target's instructions support."""

    name = "graph-sign-products"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        if context.facts.byte_factors is None:
            return
        for func in functions(module):
            rewrite(func, SIGNED_PRODUCT_RULES, context)
