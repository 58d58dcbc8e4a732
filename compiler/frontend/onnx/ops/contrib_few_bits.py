"""com.microsoft: weights of 2, 4 or 8 bits, packed into bytes and scaled per block."""

from __future__ import annotations

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops.contrib import SOME, contrib_op, fixed, positive, refuse, total
from compiler.frontend.values import Value
from dialects.graph.bits import ShiftRightOp
from dialects.strata import types as t

_FP4 = np.array([0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4], np.float32)
_NF4 = np.array([
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0], np.float32)
_TABLES = (np.concatenate([_FP4, -_FP4]), _NF4)
"""The numbers that the 16 codes of bitsandbytes' types FP4 and NF4 stand for."""


@contrib_op("MatMulNBits", ranks=(SOME,))
def matmul_n_bits(
    n: Node, a: Value, packed: Value, scales: Value, zeros: Value | None = None,
    groups: Value | None = None, bias: Value | None = None,
) -> Value:
    """a @ w' + bias, where w [N, K] = (codes - zero point) * scale.

    There is a zero point and a scale for each block of K. The codes are packed into bytes [N,
    blocks, bytes], the first code of a byte in its lowest bits. Integer zero points are packed in
    the same way; float ones are [N, blocks]. The default zero point is 2 ** (bits - 1).

    `groups`, if given, holds the block of each entry of K, padded to whole blocks, from which the
    entry has its scale and zero point.
    """
    refuse(n, "weight_prepacked")
    bits, block = positive(n, "bits", 4), positive(n, "block_size")
    rows, size = positive(n, "N"), positive(n, "K")
    if bits not in (2, 4, 8):
        raise Fault(f"bits is {bits}; 2, 4 and 8 are supported")
    blocks = -(-size // block)
    scales = scales.reshape([rows, blocks])
    zero = _zero_points(n, zeros, bits, rows, blocks, scales)
    codes = _unpacked(n, packed.reshape([rows, blocks * block * bits // 8]), bits)
    codes = codes.cast(scales.element)
    if groups is None:
        scales, zero = (x.reshape([rows, blocks, 1]) if x.rank else x for x in (scales, zero))
        codes = codes.reshape([rows, blocks, block])
    else:  # `groups` names the block of each entry
        which = groups.reshape([groups.type.count]).cast(t.i64)
        scales, zero = (f.gather(x, which, axis=1) if x.rank else x for x in (scales, zero))
    real = ((codes - zero) * scales).reshape([rows, blocks * block])
    weights = real.part(1, 0, size).transpose([1, 0])
    return total(a @ weights, bias)


def _unpacked(n: Node, x: Value, bits: int) -> Value:
    """Bytes [..., count] -> codes [..., count * 8 / bits], low bits first; still ui8."""
    if bits == 8:
        return x
    shifts = n.constant(np.arange(0, 8, bits, dtype=np.uint8))
    apart = n(ShiftRightOp, x.reshape([*x.shape, 1]), shifts)
    codes = apart & (2 ** bits - 1)
    return codes.reshape([*x.shape[:-1], x.shape[-1] * (8 // bits)])


def _zero_points(
    n: Node, zeros: Value | None, bits: int, rows: int, blocks: int, scales: Value
) -> Value:
    """[N, blocks], or a single number, in the scales' element type."""
    if zeros is None:
        return n.scalar(2 ** (bits - 1), scales)
    if t.is_float(zeros.element):
        return zeros.reshape([rows, blocks]).cast(scales.element)
    packed = zeros.reshape([rows, -(-blocks * bits // 8)])
    return _unpacked(n, packed, bits).part(1, 0, blocks).cast(scales.element)


@contrib_op("MatMulBnb4", ranks=(SOME, None, 1))
def matmul_bnb4(n: Node, a: Value, packed: Value, largest: Value) -> Value:
    """a @ w', or a @ w if transB is 0, where w [N, K] consists of 4-bit codes of bitsandbytes.

    A code is an index into a table of numbers, which are scaled by the largest number of the block.
    Blocks are consecutive in the row-major order of w. The first of the two codes in a byte has the
    high bits.
    """
    kind = n.integer("quant_type")
    if kind not in (0, 1):
        raise Fault(f"quant_type is {kind}; it must be 0 (FP4) or 1 (NF4)")
    rows, size, block = (positive(n, name) for name in ("N", "K", "block_size"))
    count = rows * size
    shifts = n.constant(np.array([4, 0], np.uint8))
    both = n(ShiftRightOp, packed.reshape([packed.type.count, 1]), shifts)
    codes = (both & 15).cast(t.i32)
    table = n.constant(_TABLES[kind]).cast(a.element)
    real = f.gather(table, codes, axis=0).reshape([codes.type.count]).part(0, 0, count)
    scale = f.gather(largest, n.constant(np.arange(count) // block), axis=0)
    weights = (real * scale).reshape([rows, size])
    return a @ (weights.transpose([1, 0]) if n.flag("transB", True) else weights)


@contrib_op("GatherBlockQuantized", ranks=(SOME, None, SOME, SOME))
def gather_block_quantized(
    n: Node, data: Value, indices: Value, scales: Value, zeros: Value | None = None
) -> Value:
    """Rows (gather_axis 0) of a table that is quantized in blocks of its last dim.

    A byte holds 8 / bits codes, the first in the lowest bits. The default zero point is 2 ** (bits
    - 1).
    """
    bits, block = n.integer("bits", 4), n.integer("block_size", 128)
    axes = [n.axis(n.integer(name, default), data.rank)
            for name, default in (("gather_axis", 0), ("quantize_axis", 1))]
    if data.element != t.ui8 or bits not in (2, 4, 8) or axes != [0, data.rank - 1]:
        raise Fault(f"{data.type.short} with bits {bits}, gather_axis {axes[0]} and quantize_axis "
                    f"{axes[1]} is not supported", "quantize to bytes, along the last axis")
    n.require_index(indices, data.shape[0])
    rows, factors = (f.gather(x, indices, axis=0) for x in (data, scales))
    codes = _unpacked(n, rows, bits).cast(factors.element)
    zero = n.scalar(2 ** (bits - 1), factors)
    if zeros is not None:
        packed = _unpacked(n, f.gather(zeros, indices, axis=0), bits)
        blocks = fixed(n, factors.shape[-1], "numbers of blocks")
        packed = packed.part(packed.rank - 1, 0, blocks)
        zero = packed.cast(factors.element).reshape([*factors.shape, 1])
    apart = codes.reshape([*factors.shape, block])
    centered = apart - zero
    return (centered * factors.reshape([*factors.shape, 1])).reshape(codes.shape)
