"""com.microsoft: matrix products with transposed operands, with activations, and of integers."""

from __future__ import annotations

from compiler.frontend import formulas as f
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops.contraction import gemm
from compiler.frontend.onnx.ops.contrib import SOME, contrib_op, total
from compiler.frontend.onnx.ops.contrib_activation import activated, fast_gelu
from compiler.frontend.onnx.ops.quantization import matmul_integer
from compiler.frontend.values import Value
from dialects.graph.activation import ClipOp
from dialects.graph.reduce import ReduceMinOp
from dialects.strata import types as t


# ---------------------------------------------------------------------- floats
@contrib_op("FusedMatMul", "TransposeMatMul")
def fused_matmul(n: Node, a: Value, b: Value) -> Value:
    """alpha * (a' @ b'), where a' and b' are transposed if the attributes say so."""
    left, right = _transposed(n, a, "A"), _transposed(n, b, "B")
    return _scaled(n, left @ right)


def _scaled(n: Node, x: Value) -> Value:
    alpha = n.real("alpha", 1.0)
    return x if alpha == 1.0 else x * alpha


def _transposed(n: Node, x: Value, side: str) -> Value:
    """transBatch moves the first dim after the batch dims; trans then swaps the last two."""
    if x.rank < 2:
        return x
    perm = list(range(x.rank))
    if n.flag(f"transBatch{side}"):
        perm = [*perm[1:-1], 0, perm[-1]]
    if n.flag(f"trans{side}"):
        perm[-2:] = perm[:-3:-1]
    return x.transpose(perm)


@contrib_op("FusedMatMulActivation")
def fused_matmul_activation(n: Node, a: Value, b: Value) -> Value:
    return activated(n, fused_matmul(n, a, b), n.text("activation"), _parameters(n))


@contrib_op("FusedGemm")
def fused_gemm(n: Node, a: Value, b: Value, c: Value | None = None) -> Value:
    return activated(n, gemm(n, a, b, c), n.text("activation"), _parameters(n))


def _parameters(n: Node) -> list[float]:
    """The activation's alpha and beta, if they are given."""
    names = [f"activation_{name}" for name in ("alpha", "beta")]
    return [n.real(name) for name in names if n.has(name)]


@contrib_op("GemmFastGelu")
def gemm_fast_gelu(n: Node, x: Value, w: Value, bias: Value | None = None) -> Value:
    return fast_gelu(n, x @ w, bias)


# ---------------------------------------------------------------------- integers
@contrib_op("MatMulInteger16", ranks=(SOME, SOME))
def matmul_integer_16(n: Node, a: Value, b: Value) -> Value:
    return matmul_integer(n, a, b)


@contrib_op("MatMulIntegerToFloat", ranks=(SOME, SOME))
def matmul_integer_to_float(
    n: Node, a: Value, b: Value, a_scale: Value, b_scale: Value, a_zero: Value | None = None,
    b_zero: Value | None = None, bias: Value | None = None,
) -> Value:
    whole = matmul_integer(n, a, b, a_zero, b_zero)
    return total(_rescaled(whole, a_scale, b_scale), bias)


def _rescaled(whole: Value, a_scale: Value, b_scale: Value) -> Value:
    """Convert an integer product to floats. A scale is a single number, or a vector per column."""
    scales = [s.reshape(()) if s.type.count.constant == 1 else s for s in (a_scale, b_scale)]
    factor = f.product(scales)
    return whole.cast(factor.element) * factor


@contrib_op("DynamicQuantizeMatMul", ranks=(SOME, SOME))
def dynamic_quantize_matmul(
    n: Node, a: Value, b: Value, b_scale: Value, b_zero: Value | None = None,
    bias: Value | None = None,
) -> Value:
    """Quantize `a` to ui8 by its own range, then multiply integers."""
    codes, scale, zero = dynamically_quantized(n, a)
    return total(_rescaled(matmul_integer(n, codes, b, zero, b_zero), scale, b_scale), bias)


def dynamically_quantized(n: Node, x: Value) -> tuple[Value, Value, Value]:
    """x as ui8, its scale, and its zero point.

    The range of x, extended to include 0, maps to the codes 0 to 255.
    """
    axes, zero = list(range(x.rank)), n.scalar(0, x)
    low = f.minimum(n(ReduceMinOp, x, axes=axes, keepdims=False), zero)
    high = f.maximum(f.reduce_max(x, axes=axes), zero)
    scale = (high - low) / 255
    scale = f.where(f.equal(high, low), 1, scale)
    shift = _byte(n, -low / scale)
    codes = _byte(n, total(f.nearest(x / scale), shift))
    return codes.cast(t.ui8), scale, shift.cast(t.ui8)


def _byte(n: Node, x: Value) -> Value:
    """x rounded, and clipped to 0 to 255, but still a float."""
    bounds = n.scalar(0, x), n.scalar(255, x)
    return f.nearest(n(ClipOp, x, *bounds, has_min=True, has_max=True))


@contrib_op("MulInteger")
def mul_integer(
    n: Node, a: Value, a_zero: Value | None, b: Value, b_zero: Value | None = None
) -> Value:
    """(a - zero point) * (b - zero point) in i32."""
    centered = [x.cast(t.i32) if zero is None else x.cast(t.i32) - zero.reshape(()).cast(t.i32)
                for x, zero in ((a, a_zero), (b, b_zero))]
    return f.product(centered)
