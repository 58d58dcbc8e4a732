"""graph-quantize-contractions: compute products of quantized tensors as sums of integers.

    %x = graph.dequantize_linear %a, %s, %z {to = f32}       %0 = graph.matmul_integer %a, %b, %z, 0
    %w = graph.dequantize_linear %b, %t {to = f32}           %1 = graph.cast %0 {to = f32}
    %y = graph.matmul %x, %w                           -->   %2 = graph.mul %1, s*t/u
    %r = graph.quantize_linear %y, %u, %v {to = ui8}         %r = graph.quantize_linear %2, 1.0, %v

Operations between two products that only move elements move integers instead. Elementwise operators
stay as they are, because fusion merges them with the conversions around them anyway. The rules are
in `passes/rewrites/graph/quantization.py`, each with its algebra.

A result differs from the definition in floats by at most one quantization step. With the option
`exact`, the pass does nothing. Assumes nothing. It finds the most before constants are folded,
because folding would turn dequantized weights into floats.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from passes.base import StrataContext, StrataPass
from passes.rewrites.graph.quantization import LEFT_OVER_RULES, QUANTIZATION_RULES
from passes.rewriting import functions, rewrite


class GraphQuantizeContractions(StrataPass):
    """Compute products of quantized tensors with integers."""

    name = "graph-quantize-contractions"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        if context.exact:
            return
        for func in functions(module):
            rewrite(func, QUANTIZATION_RULES, context)
            rewrite(func, LEFT_OVER_RULES, context)
