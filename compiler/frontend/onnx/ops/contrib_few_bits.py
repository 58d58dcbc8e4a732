"""com.microsoft: weights of 2, 4 or 8 bits, packed into bytes and scaled per block."""

from __future__ import annotations

import numpy as np

from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops.contrib import SOME, contrib_op, fixed, positive, refuse, total
from compiler.frontend.values import Value
from dialects.graph.bits import ShiftRightOp
from dialects.graph.contraction import MatmulOp
from dialects.graph.elementwise import MulOp, SubOp
from dialects.graph.gather import GatherOp
from dialects.graph.logic import AndOp
from dialects.strata import types as t

_FP4 = np.array([0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4], np.float32)
_NF4 = np.array([
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0], np.float32)
_TABLES = (np.concatenate([_FP4, -_FP4]), _NF4)
"""What the 16 codes of bitsandbytes' two 4-bit types stand for."""


@contrib_op("MatMulNBits", ranks=(SOME,))
def matmul_n_bits(
    n: Node, a: Value, packed: Value, scales: Value, zeros: Value | None = None,
    groups: Value | None = None, bias: Value | None = None,
) -> Value:
    """a w' + bias, where w [N, K] = (codes - zero point) * scale, each per block of K.

    The codes are packed into bytes [N, blocks, bytes], the first of each in the lowest bits. Packed
    zero points are alike; those of floats are [N, blocks]. The default is half of the codes.
    `groups`, if given, names the block whose scale and zero point each entry of K, filled up to
    whole blocks, has.
    """
    refuse(n, "weight_prepacked")
    bits, block = positive(n, "bits", 4), positive(n, "block_size")
    rows, size = positive(n, "N"), positive(n, "K")
    if bits not in (2, 4, 8):
        raise Fault(f"bits is {bits}; 2, 4 and 8 are supported")
    blocks = -(-size // block)
    scales = n.reshape(scales, [rows, blocks])
    zero = _zero_points(n, zeros, bits, rows, blocks, scales)
    codes = _unpacked(n, n.reshape(packed, [rows, blocks * block * bits // 8]), bits)
    codes = n.cast(codes, scales.element)
    if groups is None:
        scales, zero = (n.reshape(x, [rows, blocks, 1]) if x.rank else x for x in (scales, zero))
        codes = n.reshape(codes, [rows, blocks, block])
    else:  # blocks of any entries, which groups names
        which = n.cast(n.reshape(groups, [groups.type.count]), t.i64)
        scales, zero = (n(GatherOp, x, which, axis=1) if x.rank else x for x in (scales, zero))
    real = n.reshape(n(MulOp, n(SubOp, codes, zero), scales), [rows, blocks * block])
    weights = n.transpose(n.part(real, 1, 0, size), [1, 0])
    return total(n, n(MatmulOp, a, weights), bias)


def _unpacked(n: Node, x: Value, bits: int) -> Value:
    """Bytes [..., count] -> codes [..., count * 8 / bits], low bits first; still ui8."""
    if bits == 8:
        return x
    shifts = n.constant(np.arange(0, 8, bits, dtype=np.uint8))
    apart = n(ShiftRightOp, n.reshape(x, [*x.shape, 1]), shifts)
    codes = n(AndOp, apart, n.scalar(2 ** bits - 1, apart))
    return n.reshape(codes, [*x.shape[:-1], x.shape[-1] * (8 // bits)])


def _zero_points(
    n: Node, zeros: Value | None, bits: int, rows: int, blocks: int, scales: Value
) -> Value:
    """[N, blocks], or a single number, in the scales' element type."""
    if zeros is None:
        return n.scalar(2 ** (bits - 1), scales)
    if t.is_float(zeros.element):
        return n.cast(n.reshape(zeros, [rows, blocks]), scales.element)
    packed = n.reshape(zeros, [rows, -(-blocks * bits // 8)])
    return n.cast(n.part(_unpacked(n, packed, bits), 1, 0, blocks), scales.element)


@contrib_op("MatMulBnb4", ranks=(SOME, None, 1))
def matmul_bnb4(n: Node, a: Value, packed: Value, largest: Value) -> Value:
    """a w', or a w without transB, where w [N, K] has 4-bit codes of bitsandbytes.

    A code stands for a number of a table, to be scaled by its block's largest number; blocks are
    of w in row-major order. The first of two codes has the high bits.
    """
    kind = n.integer("quant_type")
    if kind not in (0, 1):
        raise Fault(f"quant_type is {kind}; it must be 0 (FP4) or 1 (NF4)")
    rows, size, block = (positive(n, name) for name in ("N", "K", "block_size"))
    count = rows * size
    shifts = n.constant(np.array([4, 0], np.uint8))
    both = n(ShiftRightOp, n.reshape(packed, [packed.type.count, 1]), shifts)
    codes = n.cast(n(AndOp, both, n.scalar(15, both)), t.i32)
    table = n.cast(n.constant(_TABLES[kind]), a.element)
    real = n.part(n.reshape(n(GatherOp, table, codes, axis=0), [codes.type.count]), 0, 0, count)
    scale = n(GatherOp, largest, n.constant(np.arange(count) // block), axis=0)
    weights = n.reshape(n(MulOp, real, scale), [rows, size])
    return n(MatmulOp, a, n.transpose(weights, [1, 0]) if n.flag("transB", True) else weights)


@contrib_op("GatherBlockQuantized", ranks=(SOME, None, SOME, SOME))
def gather_block_quantized(
    n: Node, data: Value, indices: Value, scales: Value, zeros: Value | None = None
) -> Value:
    """Rows (gather_axis 0) of a table that is quantized in blocks of its last dim.

    Bytes hold 8 / bits codes, the first in the lowest bits; the default zero point is half of them.
    """
    bits, block = n.integer("bits", 4), n.integer("block_size", 128)
    axes = [n.axis(n.integer(name, default), data.rank)
            for name, default in (("gather_axis", 0), ("quantize_axis", 1))]
    if data.element != t.ui8 or bits not in (2, 4, 8) or axes != [0, data.rank - 1]:
        raise Fault(f"{data.type.short} with bits {bits}, gather_axis {axes[0]} and quantize_axis "
                    f"{axes[1]} is not supported", "quantize to bytes, along the last axis")
    n.require_index(indices, data.shape[0])
    rows, factors = (n(GatherOp, x, indices, axis=0) for x in (data, scales))
    codes = n.cast(_unpacked(n, rows, bits), factors.element)
    zero = n.scalar(2 ** (bits - 1), factors)
    if zeros is not None:
        packed = _unpacked(n, n(GatherOp, zeros, indices, axis=0), bits)
        blocks = fixed(n, factors.shape[-1], "numbers of blocks")
        packed = n.part(packed, packed.rank - 1, 0, blocks)
        zero = n.reshape(n.cast(packed, factors.element), [*factors.shape, 1])
    apart = n.reshape(codes, [*factors.shape, block])
    centered = n(SubOp, apart, zero)
    return n.reshape(n(MulOp, centered, n.reshape(factors, [*factors.shape, 1])), codes.shape)
