"""graph-delay-scales: multiply one-byte floats directly, and apply their scales to the products.

    %p = graph.mul (graph.cast %a {to = f32}), %s      %t = graph.matmul %a, %b {to = f32}
    %q = graph.dequantize_linear %b, %u {to = f32}     %y = %t * %s * %u
    %y = graph.matmul %p, %q : f32[n, 5]          -->

A scale that does not depend on the summed dim is a factor of the sum. It may belong to the whole
tensor, to a row of the first operand (a token), or to a column of the second (an output channel).
Weights stay bytes, which is why this pass runs before constants are folded. If nothing is scaled,
only the widening is dropped. Applies to targets whose instructions multiply such floats
(`Facts.multiplies`).

Where products of few rows read integer codes instead (`Facts.blocked_rows`), scales of blocks of a
row are repeated, so that the codes stay as they lie:

    %b = graph.reshape (graph.cast %w {to = f32}) : f32[n, 64, 32]     %w: ui8[n, 2048]
    %f = graph.reshape (graph.mul %b, %s) : f32[n, 2048]   -->   graph.mul (graph.cast %w), %r

That is exact. Otherwise, intermediate roundings disappear, and sums are scaled instead of factors,
so results differ by rounding errors. Under `--exact`, only products without scales are rewritten.
Assumes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from dialects.graph import (
    BroadcastOp,
    CastOp,
    DequantizeLinearOp,
    DivOp,
    MatmulOp,
    MulOp,
    ReshapeOp,
    TransposeOp,
)
from dialects.graph.base import ints_of
from dialects.graph.composite import cast, reshaped
from dialects.records import dataclass
from dialects.strata.types import bf16, f16, f32, holds, is_float, is_narrow_float
from dialects.symbolic.expr import Expr
from passes.base import StrataContext, StrataPass
from passes.rewrites.graph.block_scales import repeat_scales
from passes.rewrites.graph.matching import type_of
from passes.rewriting import Rewriter, Rule, functions, rewrite

_SUMMED = (f32, f16, bf16)
"""Element types of products whose sums are f32."""
_LONGEST = 8
"""The most operations between a product and the one-byte floats."""


class GraphDelayScales(StrataPass):
    """Scale sums of products instead of their factors; repeat scales of blocks of codes."""

    name = "graph-delay-scales"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        rules: dict[type[Operation], list[Rule]] = {}
        if context.facts.multiplies:
            rules[MatmulOp] = [multiply_bytes]
        if context.facts.blocked_rows:
            rules[ReshapeOp] = [repeat_scales]
        for func in functions(module) if rules else ():
            rewrite(func, rules, context)


def multiply_bytes(op: MatmulOp, at: Rewriter) -> SSAValue | None:
    # (a * s) @ (b * u) == (a @ b) * s * u, where s and u do not depend on what is summed
    element = type_of(op.result).element
    if op.to is not None or element not in _SUMMED or min(
            type_of(op.a).rank, type_of(op.b).rank) < 2:
        return None
    left, right = factor_of(op.a, at), factor_of(op.b, at)
    if left is None or right is None or not (left.is_even(-1) and right.is_even(-2)):
        return None
    scales = [*left.scales, *right.scales]
    bytes_ = type_of(left.x).element
    if type_of(right.x).element != bytes_ or bytes_ not in at.context.facts.multiplies or (
            scales and at.context.exact):
        return None
    total = at(MatmulOp, left.x, right.x, to=f32)
    for scale in scales:
        total = at(DivOp if scale.divides else MulOp, total, cast(at, scale.value, f32))
    return cast(at, total, element)


@dataclass(frozen=True)
class Scale:
    """A tensor that another one, to which it broadcasts, is multiplied or divided by."""

    value: SSAValue
    divides: bool = False


class Factor(NamedTuple):
    """One-byte floats and their scales."""

    x: SSAValue
    scales: Sequence[Scale] = ()

    def scaled(self, scale: SSAValue, *, divides: bool = False) -> Factor:
        """The factor with one more scale, without the casts that would round the scale."""
        while isinstance(scale.owner, CastOp) and is_float(type_of(scale.owner.x).element):
            scale = scale.owner.x
        return Factor(self.x, [*self.scales, Scale(scale, divides)])

    def is_even(self, dim: int) -> bool:
        """Whether no scale depends on a dim, which is counted from the end."""
        shapes = [type_of(s.value).shape for s in self.scales]
        return all(len(shape) < -dim or shape[dim].constant == 1 for shape in shapes)


def factor_of(value: SSAValue, at: Rewriter, steps: int = _LONGEST) -> Factor | None:
    """The one-byte floats that a value was computed from; None if there are none."""
    op = value.owner
    if is_narrow_float(type_of(value).element):
        return Factor(value)
    if not steps:
        return None
    match op:
        case CastOp() if _widens(op):
            return factor_of(op.x, at, steps - 1)
        case DequantizeLinearOp() if op.zero is None and op.block_size is None:
            factor = factor_of(op.x, at, steps - 1)
            return factor and factor.scaled(op.along(at, op.scale))
        case MulOp():
            return _product(op.x, op.y, at, steps) or _product(op.y, op.x, at, steps)
        case DivOp():
            return _product(op.x, op.y, at, steps, divides=True)
        case TransposeOp():
            factor = factor_of(op.x, at, steps - 1)
            return factor and _transposed(factor, ints_of(op.properties, "perm"), at)
        case ReshapeOp():
            factor = factor_of(op.x, at, steps - 1)
            return factor and _reshaped(factor, type_of(value).shape, at)
        case _:
            return None


def _widens(op: CastOp) -> bool:
    """Whether a cast keeps all values of the one-byte floats, though it may round scaled ones."""
    source, to = type_of(op.x).element, type_of(op.result).element
    return to in _SUMMED and is_float(source) and (not is_narrow_float(source)
                                                   or holds(to, source))


def _product(
    x: SSAValue, scale: SSAValue, at: Rewriter, steps: int, *, divides: bool = False
) -> Factor | None:
    """x times or divided by a scale that broadcasts to x."""
    wide, narrow = type_of(x).shape, type_of(scale).shape
    trailing = wide[len(wide) - len(narrow):]
    if len(narrow) > len(wide) or any(
            n.constant != 1 and n != w for n, w in zip(narrow, trailing, strict=True)):
        return None
    factor = factor_of(x, at, steps - 1)
    return factor and factor.scaled(scale, divides=divides)


def _transposed(factor: Factor, perm: Sequence[int], at: Rewriter) -> Factor:
    scales = [replace(s, value=at(TransposeOp, _filled(s.value, len(perm), at), perm=perm))
              if type_of(s.value).rank else s for s in factor.scales]
    return Factor(at(TransposeOp, factor.x, perm=perm), scales)


def _filled(value: SSAValue, rank: int, at: Rewriter) -> SSAValue:
    """The value with leading dims of 1 up to the given rank."""
    shape = type_of(value).shape
    missing = rank - len(shape)
    return reshaped(at, value, [*[1] * missing, *shape]) if missing else value


def _reshaped(factor: Factor, shape: Sequence[Expr], at: Rewriter) -> Factor | None:
    """The factor in another shape, if that only regroups its rows."""
    own = type_of(factor.x).shape
    if not own or not shape or own[-1] != shape[-1] or not factor.is_even(-1):
        return None
    return Factor(reshaped(at, factor.x, shape),
                  [_by_rows(s, own[:-1], shape[:-1], at) for s in factor.scales])


def _by_rows(scale: Scale, own: Sequence[Expr], rows: Sequence[Expr], at: Rewriter) -> Scale:
    """A scale per row, for regrouped rows."""
    if not type_of(scale.value).rank:
        return scale
    each, value = (*own, Expr.of(1)), scale.value
    if type_of(value).shape != each:
        value = at(BroadcastOp, value, shape=each)
    return replace(scale, value=reshaped(at, value, [*rows, 1]))
