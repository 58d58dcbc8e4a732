"""graph-narrow-products: products of f32 become products of bf16, summed in f32, where allowed.

    %y = graph.matmul %a, %w : f32[n, 5]   -->   %0 = graph.cast %a {to = bf16} : bf16[n, 7]
                                                 %1 = graph.cast %w {to = bf16} : bf16[7, 5]
                                                 %y = graph.matmul %0, %1 {to = f32} : f32[n, 5]

For `--precision bf16` where a target multiplies such factors, and for `fast` where that is faster
(`Target.narrow_factors`). Weights, which take half the memory then, are rounded when constants are
folded; other factors by a cast, which becomes part of what computes them. Each factor is rounded
once, to 8 bits: results differ from those of f32 by what `verify` shows. Convolutions over few
channels stay as they are, depthwise ones too: `Target.narrow_channels`.

For `--precision fp8` products with weights are those of floats of a byte, with scales, where a
target multiplies these (`Target.scaled_factors`, `rules/scaled_products.py`); others as for bf16.

Enters: simplified operators, so that scales have become part of weights. Assumes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Operation, SSAValue

from dialects.graph import AddOp, ConstantOp, ConvOp, MatmulOp, TransposeOp
from dialects.graph.composite import cast, reshaped
from dialects.strata.types import f32
from passes.base import StrataContext, StrataPass
from passes.rewrites.graph.matching import type_of
from passes.rewrites.graph.scaled_products import scaled_matmul
from passes.rewriting import Rewriter, Rule, functions, rewrite


@dataclass(frozen=True)
class GraphNarrowProducts(StrataPass):
    """Round the factors of products where the user and the target allow it."""

    name = "graph-narrow-products"
    rounds = True

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        if context.target is None or context.target.narrow_factors(context.options) is None:
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
    assert at.context.target is not None
    channels, least = type_of(op.w).shape[1].constant, at.context.target.narrow_channels(
        at.context.options)
    few = channels is not None and channels < least
    if op.to is not None or type_of(op.x).element != f32 or few:
        return None
    total = at(ConvOp, *_narrow(at, op.x, op.w), **{**op.properties, "to": f32})
    if op.b is None:
        return total
    bias = reshaped(at, op.b, [*type_of(op.b).shape, *[1] * (type_of(op.x).rank - 2)])
    return at(AddOp, total, bias)


def _narrow(at: Rewriter, *factors: SSAValue) -> list[SSAValue]:
    assert at.context.target is not None
    element = at.context.target.narrow_factors(at.context.options)
    assert element is not None
    return [_rounded(at, x, element) for x in factors]


def _rounded(at: Rewriter, x: SSAValue, element: Attribute) -> SSAValue:
    """A factor of another type. Of a transposed weight, which may not be folded since others read
    it as it lies, the weight is rounded, and then the transposition has it alone."""
    op = x.owner
    if isinstance(op, TransposeOp) and isinstance(op.operands[0].owner, ConstantOp):
        return at(TransposeOp, cast(at, op.operands[0], element), **op.properties)
    return cast(at, x, element)


NARROWING_RULES: dict[type[Operation], list[Rule]] = {
    MatmulOp: [scaled_matmul, narrow_matmul],
    ConvOp: [narrow_conv],
}
