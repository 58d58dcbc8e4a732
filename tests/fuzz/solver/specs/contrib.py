"""onnxruntime's own operators, domain com.microsoft: those that it has kernels for on CPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.fuzz.solver.domains import POSITIVE, UNIT
from tests.fuzz.solver.draft import (
    BF16,
    F16,
    F32,
    F64,
    I8,
    I32,
    I64,
    U8,
    Dim,
    Domain,
    Draft,
    DType,
    Impossible,
    Value,
    same,
)
from tests.fuzz.solver.specs.reductions import nonempty

DOMAIN = "com.microsoft"
WIDE = (F32, F32, F32, F16, BF16)
"""onnxruntime has most kernels for f32 alone; of the others its own in f32 are asked."""


def microsoft(
    draft: Draft, name: str, inputs: Sequence[Value | str], dtype: DType, shape: Sequence[Dim],
    **attributes: Any,
) -> Value:
    return draft.node(name, inputs, dtype, shape, DOMAIN, **attributes)


def _pick(draft: Draft, low: int = 1, high: int = 4, dtypes: Sequence[DType] = WIDE) -> Value:
    """Its kernels are not made for empty tensors."""
    x = draft.pick([draft.choose(dtypes)], low, high)
    nonempty(draft, x.shape)
    return x


# ---------------------------------------------------------------------- floats
def activation(draft: Draft) -> None:
    name = draft.choose(("Gelu", "BiasGelu", "FastGelu", "QuickGelu"))
    x = _pick(draft)
    bias = [draft.like(x.dtype, x.shape[-1:])] \
        if name == "BiasGelu" or (name == "FastGelu" and draft.chance()) else []
    more = {"alpha": 0.5} if name == "QuickGelu" and draft.chance() else {}
    microsoft(draft, name, [x, *bias], x.dtype, x.shape, **more)


def skip_norm(draft: Draft) -> None:
    """A sum with what skips a layer, and its normalization; perhaps the sum as well."""
    simple = draft.chance(0.4)
    x = _pick(draft, 3, 3)
    draft.require(x.shape[-1] >= 2)
    skip = draft.like(x.dtype, draft.choose(
        (x.shape, x.shape) if simple else (x.shape, x.shape[1:], (1, *x.shape[1:]))))
    rows = [draft.placeholder(x.dtype, x.shape[-1:], fixed=True) for _ in range(3)]
    given = rows[:draft.integer(1, 2 if simple else 3)]
    results = [(x.dtype, x.shape), (F32, ()), (F32, ()), (x.dtype, x.shape)]
    name = "SkipSimplifiedLayerNormalization" if simple else "SkipLayerNormalization"
    made = draft.nodes(name, [x, skip, *given], results, DOMAIN, keep=False, epsilon=2.0**-7)
    whole = draft.chance()
    draft.body.nodes[-1].outputs[:] = [made[0].name, *(["", "", made[3].name] if whole else [])]
    draft.values.extend([made[0], made[3]] if whole else [made[0]])


def fused_matmul(draft: Draft) -> None:
    x = _pick(draft, 2, 4)
    a, b = draft.integer(0, 1), draft.integer(0, 1)
    *batch, rows, inner = [*x.shape[:-2], *(x.shape[:-3:-1] if a else x.shape[-2:])]
    columns = draft.dim()
    nonempty(draft, [columns])
    y = draft.like(x.dtype, [*batch, *((columns, inner) if b else (inner, columns))])
    microsoft(draft, "FusedMatMul", [x, y], x.dtype, [*batch, rows, columns], transA=a, transB=b,
              alpha=draft.choose((1.0, 0.5)))


def fused_gemm(draft: Draft) -> None:
    x = _pick(draft, 2, 2)
    columns, b = draft.dim(), draft.integer(0, 1)
    nonempty(draft, [columns])
    rows, inner = x.shape
    y = draft.like(x.dtype, [columns, inner] if b else [inner, columns])
    bias = [draft.placeholder(x.dtype, draft.choose(([columns], [rows, columns])))] \
        if draft.chance(0.7) else []
    microsoft(draft, "FusedGemm", [x, y, *bias], x.dtype, [rows, columns], transB=b, alpha=0.5,
              **_activation(draft))


def _activation(draft: Draft) -> dict[str, Any]:
    name = draft.choose(("Relu", "Tanh", "Sigmoid", "LeakyRelu"))
    return {"activation": name, **({"activation_alpha": 0.25} if name == "LeakyRelu" else {})}


def fused_conv(draft: Draft) -> None:
    """A convolution, perhaps a bias and another image, an activation."""
    x = _pick(draft, 4, 4)
    kernel, filters = [draft.choose((1, 2, 3)) for _ in range(2)], draft.dim()
    nonempty(draft, [filters])
    sizes = [s + (2 - k + 1) for s, k in zip(x.shape[2:], kernel, strict=True)]
    draft.require(*(s >= 1 for s in sizes))
    shape = [x.shape[0], filters, *sizes]
    w = draft.placeholder(x.dtype, [filters, x.shape[1], *kernel], fixed=True)
    bias = draft.placeholder(x.dtype, [filters], fixed=True) if draft.chance() else ""
    image = [draft.like(x.dtype, shape)] if draft.chance(0.4) else []
    name = draft.choose(("Relu", "Tanh", "Sigmoid", "LeakyRelu"))
    more = {"activation_params": [0.25]} if name == "LeakyRelu" else {}
    microsoft(draft, "FusedConv", [x, w, bias, *image], x.dtype, shape, activation=name,
              kernel_shape=kernel, pads=[1, 1, 1, 1], **more)


def distances(draft: Draft) -> None:
    x = _pick(draft, 2, 2, (F32, F32, F64))
    y = draft.like(x.dtype, [draft.dim(), x.shape[1]])
    nonempty(draft, y.shape)
    microsoft(draft, "CDist", [x, y], x.dtype, [x.shape[0], y.shape[0]],
              metric=draft.choose(("euclidean", "sqeuclidean")))


# ---------------------------------------------------------------------- heads
def _projected(draft: Draft, heads: int, dims: Sequence[Dim], x: Value | None = None) -> Value:
    """[..., heads * width]."""
    whole = draft.dim()
    width = draft.choose((2, 4, 8))
    draft.require(same(whole, heads * width))
    draft.pinned.append(whole)
    return draft.placeholder(F32 if x is None else x.dtype, [*dims, whole])


def rotary(draft: Draft) -> None:
    heads, batch, length, most = draft.choose((1, 2, 3)), draft.dim(), draft.dim(), draft.dim()
    width = draft.choose((2, 4, 8))
    nonempty(draft, [batch, length])
    draft.require(most >= length)
    dtype = draft.choose((F32, F32, F16))
    x = draft.placeholder(dtype, [batch, heads, length, width])
    places = draft.placeholder(I64, [batch, length], Domain("index", most, from_zero=True))
    angles = [draft.placeholder(dtype, [most, width // 2], UNIT) for _ in range(2)]
    microsoft(draft, "RotaryEmbedding", [x, places, *angles], dtype, x.shape,
              interleaved=draft.integer(0, 1))


def multi_head(draft: Draft) -> None:
    heads, batch, rows, keys = draft.choose((1, 2, 3)), draft.dim(), draft.dim(), draft.dim()
    nonempty(draft, [batch, rows, keys])
    q = _projected(draft, heads, [batch, rows])
    k = draft.like(F32, [batch, keys, q.shape[-1]])
    v = _projected(draft, heads, [batch, keys])
    causal = draft.chance(0.3)
    if causal:
        draft.require(same(rows, keys))
    scores = ["", "", draft.placeholder(F32, [1, heads, rows, keys])] if draft.chance(0.4) else []
    microsoft(draft, "MultiHeadAttention", [q, k, v, *scores], F32, [batch, rows, v.shape[-1]],
              num_heads=heads, unidirectional=int(causal),
              **({"scale": 0.25} if draft.chance() else {}))


def attention(draft: Draft) -> None:
    """Projections of one input by one matrix."""
    heads, width = draft.choose((1, 2, 3)), draft.choose((2, 4))
    x = _pick(draft, 3, 3, (F32,))
    whole = heads * width
    w = draft.placeholder(F32, [x.shape[-1], 3 * whole], fixed=True)
    bias = draft.placeholder(F32, [3 * whole], fixed=True)
    microsoft(draft, "Attention", [x, w, bias], F32, [*x.shape[:2], whole], num_heads=heads,
              unidirectional=draft.integer(0, 1))


def embedding(draft: Draft) -> None:
    batch, length, words, width = (draft.dim() for _ in range(4))
    nonempty(draft, [batch, length, words])
    draft.require(width >= 2)
    ids = draft.placeholder(I32, [batch, length], Domain("index", words, from_zero=True))
    table = draft.placeholder(F32, [words, width], fixed=True)
    places = draft.placeholder(F32, [draft.dim(), width], fixed=True)
    draft.require(places.shape[0] >= length)
    rows = [draft.placeholder(F32, [width], fixed=True) for _ in range(2)]
    made = draft.nodes("EmbedLayerNormalization", [ids, "", table, places, "", *rows],
                       [(F32, [batch, length, width]), (I32, [batch])], DOMAIN, keep=False)
    draft.values.append(made[0])


# ---------------------------------------------------------------------- integers
def _scale(draft: Draft, dtype: DType = F32) -> str:
    return draft.constant(draft.choose((0.125, 0.25, 0.0625)), dtype)


def _coded(draft: Draft, dtype: DType) -> tuple[str, str]:
    """A scale and a zero point."""
    return _scale(draft), draft.constant(draft.integer(0, 5), dtype)


def quantized_binary(draft: Draft) -> None:
    x = _pick(draft, 1, 4, (U8, I8))
    y, shape = draft.partner(x)
    nonempty(draft, shape)
    codes = [_coded(draft, x.dtype) for _ in range(3)]
    microsoft(draft, draft.choose(("QLinearAdd", "QLinearMul")),
              [x, *codes[0], y, *codes[1], *codes[2]], x.dtype, shape)


def quantized_unary(draft: Draft) -> None:
    name = draft.choose(("QLinearSigmoid", "QLinearLeakyRelu"))
    x = _pick(draft, 1, 4, (U8, I8))
    more = {"alpha": 0.25} if name == "QLinearLeakyRelu" else {}
    scale, zero = (str(draft.constant(2.0**-8, F32)), draft.constant(0, x.dtype)) \
        if name == "QLinearSigmoid" else _coded(draft, x.dtype)
    microsoft(draft, name, [x, *_coded(draft, x.dtype), scale, zero], x.dtype, x.shape, **more)


def quantized_concat(draft: Draft) -> None:
    x = _pick(draft, 1, 4, (U8, I8))
    axis, more = draft.integer(0, x.rank - 1), draft.dim()
    nonempty(draft, [more])
    y = draft.placeholder(x.dtype, [more if a == axis else d for a, d in enumerate(x.shape)])
    shape = [d + more if a == axis else d for a, d in enumerate(x.shape)]
    microsoft(draft, "QLinearConcat", [*_coded(draft, x.dtype), x, *_coded(draft, x.dtype), y,
                                       *_coded(draft, x.dtype)], x.dtype, shape, axis=axis)


def quantized_mean(draft: Draft) -> None:
    x = _pick(draft, 4, 4, (U8, I8))
    microsoft(draft, "QLinearGlobalAveragePool",
              [x, *_coded(draft, x.dtype), *_coded(draft, x.dtype)], x.dtype,
              [*x.shape[:2], 1, 1], channels_last=0)


def integer_product(draft: Draft) -> None:
    """With small numbers for a second factor, as those of `products.matmul_integer`."""
    x = _pick(draft, 2, 3, (U8, I8))
    columns = draft.dim()
    nonempty(draft, [columns])
    y = draft.placeholder(draft.choose((U8, I8)) if x.dtype == U8 else I8,
                          [x.shape[-1], columns], fixed=True)
    scales = [_scale(draft), draft.placeholder(F32, [columns], POSITIVE, fixed=True).name
              if draft.chance() else _scale(draft)]
    zeros = [draft.constant(draft.integer(0, 3), v.dtype) for v in (x, y)]
    bias = [draft.placeholder(F32, [columns], fixed=True)] if draft.chance() else []
    microsoft(draft, "MatMulIntegerToFloat", [x, y, *scales, *zeros, *bias], F32,
              [*x.shape[:-1], columns])


def few_bits(draft: Draft) -> None:
    """A product with weights of a few bits, whose blocks have scales."""
    bits, block, blocks = draft.choose((4, 4, 8)), 16, draft.choose((1, 2, 3))
    rows, columns = draft.dim(), draft.choose((1, 3, 8, 17))
    nonempty(draft, [rows])
    x = draft.placeholder(F32, [rows, block * blocks])
    w = draft.constant(draft.random.integers(0, 256, (columns, blocks, block * bits // 8)), U8)
    scales = draft.placeholder(F32, [columns, blocks], POSITIVE, fixed=True)
    microsoft(draft, "MatMulNBits", [x, w, scales], F32, [rows, columns], N=columns,
              K=block * blocks, block_size=block, bits=bits)


# ---------------------------------------------------------------------- movement
def triangle(draft: Draft) -> None:
    x = _pick(draft, 2, 4, (F32, F32, F64, I64))
    more = [draft.constant(draft.integer(-3, 3))] if draft.chance() else []
    microsoft(draft, "Trilu", [x, *more], x.dtype, x.shape, upper=draft.integer(0, 1))


def unfold(draft: Draft) -> None:
    x = _pick(draft, 1, 4, (F32, I32))
    axis, size, step = draft.integer(0, x.rank - 1), draft.integer(1, 3), draft.integer(1, 3)
    draft.require(x.shape[axis] >= size)
    room: Any = x.shape[axis] - size
    count: Dim = room / step + 1 if not isinstance(room, int) else room // step + 1
    microsoft(draft, "UnfoldTensor", [x], x.dtype,
              [*(count if a == axis else d for a, d in enumerate(x.shape)), size], dim=axis,
              size=size, step=step)


def expand_dims(draft: Draft) -> None:
    x = _pick(draft, 1, 4, (F32, I64))
    axis = draft.integer(0, x.rank)
    microsoft(draft, "ExpandDims", [x, draft.constant(axis, "i4")], x.dtype,
              [*x.shape[:axis], 1, *x.shape[axis:]])


def unless_special(draft: Draft) -> None:
    """Heads and codes of numbers that are not finite are nobody's business."""
    if draft.special:
        raise Impossible
    draft.choose((multi_head, attention, rotary, quantized_binary, quantized_unary,
                  quantized_concat, quantized_mean, integer_product, few_bits, embedding))(draft)


SPECS = {activation: 3, skip_norm: 2, fused_matmul: 2, fused_gemm: 1.5, fused_conv: 1.5,
         distances: 0.4, unless_special: 7, triangle: 0.5, unfold: 0.5, expand_dims: 0.3}
