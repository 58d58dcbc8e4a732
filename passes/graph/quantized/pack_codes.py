"""graph-pack-codes: weights of 4 bits lie two in a byte where products of one row read them.

    %y = matmul %x, transpose((cast(%w) - 8) * %s)             %w: ui8[n, 2k], values below 16
    -->
    %a = (cast(%p and 15) - 8) * %s[:, :k]                     %p: ui8[n, k], w[:, :k] + 16*w[:, k:]
    %b = (cast(%p shifted right by 4) - 8) * %s[:, k:]
    %y = reduce_sum(%x[:k] * %a + %x[k:] * %b)                 in f32 or f64, rounded once

The memory of weights bounds such a product, and one nest reads each byte once: halves of a row lie
in one byte, so that neighbours in memory are neighbours in the sum. Packed are integers that no
more than 16 values span, past what dequantizes them element by element. For targets that ask for it
(`Facts.packs_codes`). Under `--exact`, sums keep their order, and nothing is packed.

Enters: folded constants. Constant folding keeps what this pass makes (`takes_codes_apart`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from dialects.graph import (
    AddOp,
    AndOp,
    CastOp,
    ConstantOp,
    DivOp,
    MatmulOp,
    MulOp,
    ReduceSumOp,
    ShiftRightOp,
    SubOp,
    TransposeOp,
)
from dialects.graph.base import Build, GraphOp, ints_of
from dialects.graph.composite import cast, part, reshaped
from dialects.strata.types import Array, f32, f64, i8, is_float, ui8
from dialects.symbolic.size_products import product
from passes.base import StrataContext, StrataPass
from passes.rewrites.graph.matching import type_of
from passes.rewriting import functions, replace

LEAST = 1 << 16
"""Fewer codes are not worth the operations that take them apart: caches hold their bytes."""
VALUES = 16
_BETWEEN = (AddOp, SubOp, MulOp, DivOp, CastOp)
"""What dequantization computes."""
_STEPS = 8
"""The most operations between codes and a product."""


class GraphPackCodes(StrataPass):
    """Let two codes of 4 bits share a byte."""

    name = "graph-pack-codes"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        if not context.facts.packs_codes or context.exact:
            return
        for func in functions(module):
            for op in [op for op in func.body.block.ops if isinstance(op, MatmulOp)]:
                weight = _weight(op, context)
                if weight is not None and context.allowance.take(op, self.name):
                    _multiply(op, weight, context)


class _Weight(NamedTuple):
    """A weight that is computed from codes, and the dim along which it is summed."""

    value: SSAValue
    codes: ConstantOp
    dim: int
    least: int
    """The smallest code."""

    @property
    def half(self) -> int:
        size = type_of(self.value).shape[self.dim].constant
        assert size is not None
        return size // 2


def _weight(op: MatmulOp, context: StrataContext) -> _Weight | None:
    """The weight of a product of one row, if it is made of codes of 4 bits."""
    if op.to is not None or type_of(op.b).rank != 2 or not is_float(type_of(op.b).element) or (
            product(type_of(op.a).shape[:-1]).constant != 1):
        return None
    value, dim, maker = op.b, 0, op.b.owner
    if isinstance(maker, TransposeOp) and ints_of(maker.properties, "perm") == (1, 0):
        value, dim = maker.x, 1
    size, codes = type_of(value).shape[dim].constant, _codes(value, type_of(value).shape)
    if codes is None or size is None or size % 2:
        return None
    try:
        ends = [(int(a.min()), int(a.max())) for a in codes.arrays(context.weights)]
    except KeyError:  # text that was read without its weights
        return None
    least = min(low for low, _ in ends)
    least = 0 if least >= 0 and max(high for _, high in ends) < VALUES else least
    return _Weight(value, codes, dim, least) if all(
        high < least + VALUES for _, high in ends) else None


def _codes(value: SSAValue, shape: Sequence[object], steps: int = _STEPS) -> ConstantOp | None:
    """The only integers of this shape from which a value is computed, element by element."""
    op, type_ = value.owner, type_of(value)
    if isinstance(op, ConstantOp):
        count = type_.count.constant
        is_code = not is_float(type_.element) and type_.element in (i8, ui8)
        return op if is_code and type_.shape == shape and count is not None and (
            count >= LEAST) else None
    if not isinstance(op, _BETWEEN) or type_.shape != shape or not steps:
        return None
    found = [codes for v in op.operands if (codes := _codes(v, shape, steps - 1)) is not None]
    return found[0] if len(found) == 1 else None


# ---------------------------------------------------------------------- the product
def _multiply(op: MatmulOp, weight: _Weight, context: StrataContext) -> None:
    """Replace a product by the sum over both halves."""
    build, store, half = Build(op), context.weights, weight.half
    element = type_of(op.result).element
    wide = f64 if element == f64 else f32
    packed = weight.codes.derived(store, ".packed", f"pack {weight.dim} {weight.least}", partial(
        pack, dim=weight.dim, least=weight.least))
    build.insert(packed)
    x = reshaped(build, op.a, [2 * half] if weight.dim else [2 * half, 1])
    products: list[SSAValue] = []
    for k in range(2):
        number = ConstantOp.scalar(4 if k else VALUES - 1, ui8)
        build.insert(number)
        nibbles = build(ShiftRightOp if k else AndOp, packed.result, number.result)
        factor = _half(build, weight.value, weight, k, nibbles)
        taken = part(build, x, 0, k * half, half)
        products.append(build(MulOp, cast(build, taken, wide), cast(build, factor, wide)))
    total = build(ReduceSumOp, build(AddOp, *products), axes=[weight.dim])
    made = reshaped(build, cast(build, total, element), type_of(op.result).shape)
    replace(op, [made], context, "packed")


def _half(build: Build, value: SSAValue, weight: _Weight, number: int, nibbles: SSAValue
          ) -> SSAValue:
    """One half of what is computed from codes; of all else, the half that belongs to it."""
    op, type_, element = value.owner, type_of(value), weight.codes.type.element
    if op is weight.codes:
        codes = cast(build, nibbles, element)
        if not weight.least:
            return codes
        least = ConstantOp.scalar(weight.least, element)
        build.insert(least)
        return build(AddOp, codes, least.result)
    if isinstance(op, _BETWEEN) and _codes(value, type_of(weight.value).shape) is weight.codes:
        operands = [_half(build, v, weight, number, nibbles) for v in op.operands]
        if isinstance(op, CastOp):
            return build(CastOp, *operands, to=op.to)
        kind: type[GraphOp] = type(op)
        return build(kind, *operands)
    dim = weight.dim - (type_of(weight.value).rank - type_.rank)
    if dim < 0 or type_.shape[dim].constant == 1:
        return value
    return part(build, value, dim, number * weight.half, weight.half)


def pack(codes: Array, dim: int, least: int) -> Array:
    """Codes in the halves of bytes: those of the first half of a dim in the low ones."""
    first, second = np.split((codes.astype(np.int16) - least).astype(np.uint8), 2, dim)
    return first | second << np.uint8(4)
