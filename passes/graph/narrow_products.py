"""graph-narrow-products: replace products of f32 by products of bf16 summed in f32, if allowed.

    %y = graph.matmul %a, %w : f32[n, 5]   -->   %0 = graph.cast %a {to = bf16} : bf16[n, 7]
                                                 %1 = graph.cast %w {to = bf16} : bf16[7, 5]
                                                 %y = graph.matmul %0, %1 {to = f32} : f32[n, 5]

Applies with `--precision bf16` if the target multiplies such factors, and with `fast` if that is
also faster (`Facts.narrow_factors`). Weights then take half the memory; they are rounded by
constant folding. Other factors are rounded by a cast, which is fused into the operation that
computes them. Each factor is rounded once, to 8 bits, so results differ from those of f32; `verify`
shows by how much. Convolutions over few channels stay as they are, including depthwise ones
(`Facts.narrow_channels`).

With `--precision fp8`, products with weights become products of one-byte floats with scales, if the
target multiplies these (`Facts.scaled_factors`, `passes/rewrites/graph/scaled_products.py`). Other
products are treated as for bf16.

Enters: simplified operators, so that scales are already folded into weights. Assumes nothing.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Operation, SSAValue

from dialects.graph import (
    AddOp,
    ConstantOp,
    ConvFilterGradientOp,
    ConvOp,
    MatmulOp,
    TransposeOp,
)
from dialects.graph.composite import cast, reshaped
from dialects.strata.types import f32
from passes.base import StrataContext, StrataPass
from passes.rewrites.graph.matching import type_of
from passes.rewrites.graph.scaled_products import scaled_matmul
from passes.rewriting import Rewriter, Rule, functions, rewrite


class GraphNarrowProducts(StrataPass):
    """Round the factors of products if the user and the target allow it."""

    name = "graph-narrow-products"
    rounds = True

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        if context.facts.narrow_factors is None:
            return
        for func in functions(module):
            rewrite(func, NARROWING_RULES, context)


def narrow_matmul(op: MatmulOp, at: Rewriter) -> SSAValue | None:
    # a @ b ~= bf16(a) @ bf16(b), summed in f32
    if op.to is not None or type_of(op.a).element != f32:
        return None
    return at(MatmulOp, *_narrow(at, op.a, op.b), to=f32)


def narrow_conv(op: ConvOp, at: Rewriter) -> SSAValue | None:
    # conv(x, w, b) ~= conv(bf16(x), bf16(w)) + b, summed in f32
    channels = type_of(op.w).shape[1].constant
    few = channels is not None and channels < at.context.facts.narrow_channels
    if op.to is not None or type_of(op.x).element != f32 or few:
        return None
    total = at(ConvOp, *_narrow(at, op.x, op.w), **{**op.properties, "to": f32})
    if op.b is None:
        return total
    bias = reshaped(at, op.b, [*type_of(op.b).shape, *[1] * (type_of(op.x).rank - 2)])
    return at(AddOp, total, bias)


def narrow_filter_gradient(op: ConvFilterGradientOp, at: Rewriter) -> SSAValue | None:
    # the gradient of x and y ~= that of bf16(x) and bf16(y), summed in f32
    if op.to is not None or type_of(op.x).element != f32:
        return None
    return at(ConvFilterGradientOp, *_narrow(at, op.x, op.y), **{**op.properties, "to": f32})


def _narrow(at: Rewriter, *factors: SSAValue) -> list[SSAValue]:
    element = at.context.facts.narrow_factors
    assert element is not None
    return [_rounded(at, x, element) for x in factors]


def _rounded(at: Rewriter, x: SSAValue, element: Attribute) -> SSAValue:
    """A factor in another type.

    A transposition of a weight may not have been folded, because others read the weight as it is.
    Then the weight is rounded, so that the transposition is its only reader.
    """
    op = x.owner
    if isinstance(op, TransposeOp) and isinstance(op.operands[0].owner, ConstantOp):
        return at(TransposeOp, cast(at, op.operands[0], element), **op.properties)
    return cast(at, x, element)


NARROWING_RULES: dict[type[Operation], list[Rule]] = {
    MatmulOp: [scaled_matmul, narrow_matmul],
    ConvOp: [narrow_conv],
    ConvFilterGradientOp: [narrow_filter_gradient],
}
