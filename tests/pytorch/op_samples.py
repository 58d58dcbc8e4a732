"""Arguments for every ATen operator that is imported, by its full name.

Tensors among the arguments become inputs of the exported program; all else is constant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

Arguments = tuple[Any, ...]

SAMPLES: dict[str, list[Arguments]] = {}


def floats(*shape: int) -> torch.Tensor:
    """Standard normal numbers, the same for each shape."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape) + len(shape)))


def positive(*shape: int) -> torch.Tensor:
    return floats(*shape).abs() + 0.1


def ints(*shape: int, low: int = -5, high: int = 6, dtype: torch.dtype = torch.int64
         ) -> torch.Tensor:
    source = torch.Generator().manual_seed(sum(shape) + high)
    return torch.randint(low, high, shape, generator=source, dtype=dtype)


def bools(*shape: int) -> torch.Tensor:
    return floats(*shape) > 0


def sample(names: str | Sequence[str], *arguments: Arguments) -> None:
    """The same samples for some operators."""
    for name in [names] if isinstance(names, str) else names:
        SAMPLES.setdefault(f"aten.{name}", []).extend(arguments)


X, Y, ROW, N, J, B = (floats(2, 3, 4), floats(2, 3, 4) * 2, floats(4), ints(2, 3, 4),
                      ints(3, 4, low=1), bools(2, 3, 4))
IMAGE = floats(2, 4, 9, 8)

# ---------------------------------------------------------------------- arithmetic
for name in ("add", "sub", "rsub"):
    sample(f"{name}.Tensor", (X, ROW), (X, N), (N, J), (X, torch.tensor(2)))
    sample(f"{name}.Scalar", (X, 1.5), (N, 2), (X.bfloat16(), 0.1))
sample("add.Tensor", (B, B.flip(0)))
sample("mul.Tensor", (X, ROW), (X, N), (B, B.flip(0)), (X.half(), Y.half()))
sample("mul.Scalar", (X, 1.5), (X.half(), 0.1))
sample("div.Tensor", (X, positive(4)), (N, J), (N.int(), J))
sample("div.Scalar", (X, 2), (N, 2))
sample("div.Tensor_mode", *((a, b, mode) for a, b in ((X, positive(4)), (N, J.neg()))
                            for mode in ("floor", "trunc", None)))
sample("div.Scalar_mode", (X, 0.7, "floor"), (N, 3, "trunc"), (N, -3, "floor"))
sample("floor_divide.default", (N, J), (X, positive(4)))
for name in ("remainder", "fmod"):
    sample(f"{name}.Tensor", (X, positive(4)), (N, J))
    sample(f"{name}.Scalar", (X, 0.7), (N, 3))
sample("remainder.Scalar_Tensor", (-2.5, X), (7, J))
sample(["maximum.default", "minimum.default"], (X, ROW), (N, J), (B, B.flip(0)))
sample("pow.Tensor_Tensor", (positive(2, 3), floats(3)), (ints(3, low=1), ints(3, low=0)))
sample("pow.Tensor_Scalar", *((positive(2, 3), e) for e in (2, 3, 0.5, -0.5, -1, 1.7)), (N, 2))
sample("pow.Scalar", (2.0, X), (2, ints(3, low=0)))

# ---------------------------------------------------------------------- comparisons, logic
for name in ("eq", "ne", "lt", "le", "gt", "ge"):
    sample(f"{name}.Tensor", (N, J), (X, N), (B, B.flip(0)))
    sample(f"{name}.Scalar", (N, 2), (X, 0), (N, 1.5))
for name in ("and", "or", "xor"):
    sample([f"bitwise_{name}.Tensor", f"__{name}__.Tensor"], (B, B.flip(0)), (N, J))
    sample([f"bitwise_{name}.Scalar", f"__{name}__.Scalar"], (N, 3))
    sample(f"logical_{name}.default", (B, B.flip(0)), (X, N))
sample("logical_not.default", (B,), (N,))
sample("bitwise_not.default", (B,), (N,), (ints(5, low=0, high=256, dtype=torch.uint8),))
for way in ("left", "right"):
    sample([f"bitwise_{way}_shift.Tensor", f"__{way[0]}shift__.Tensor"], (N, J))
    sample([f"bitwise_{way}_shift.Tensor_Scalar", f"__{way[0]}shift__.Scalar"], (N, 2), (N, 64))
    sample(f"bitwise_{way}_shift.Scalar_Tensor", (-9, J))
sample("where.self", (B, X, Y), (B, N, X))
sample("where.ScalarSelf", (B, 1.0, X))
sample("where.ScalarOther", (B, X, -1.0))
sample("where.Scalar", (B, 1, 0))
sample("masked_fill.Scalar", (X, B, -math.inf), (N, B, 7))
sample("masked_fill.Tensor", (X, B, torch.tensor(2.0)))
sample("clamp.default", (X, -0.5, 0.5), (X, None, 0.5), (N, -1, 2), (N, 0.5, None))
sample("clamp.Tensor", (X, ROW, None), (X, ROW, ROW + 1))
sample("hardtanh.default", (X, -0.5, 0.7))
sample(["clamp_min.default", "clamp_max.default"], (X, 0.1))
sample(["clamp_min.Tensor", "clamp_max.Tensor"], (X, ROW))

# ---------------------------------------------------------------------- one operand
sample([f"{name}.default" for name in (
    "exp", "tanh", "erf", "sin", "cos", "sigmoid", "tan", "atan", "sinh", "cosh", "asinh", "exp2",
    "expm1", "floor", "ceil", "round", "neg", "abs", "sign", "sgn", "trunc", "fix", "square")],
    (X,), (X.half(),))
sample("round.decimals", *((v * 40, {"decimals": k}) for k in (2, 0, -1, 5) for v in (X, Y)))
sample([f"{name}.default" for name in (
    "log", "sqrt", "reciprocal", "rsqrt", "log1p", "log2", "log10")], (positive(2, 3),))
sample([f"{name}.default" for name in ("asin", "acos", "atanh")], (X.tanh(),))
sample("acosh.default", (positive(2, 3) + 1,))
sample(["exp.default", "sqrt.default", "sin.default"], (ints(5, low=0),))
sample(["neg.default", "abs.default", "sign.default", "floor.default"], (N,))
ODD = torch.tensor([1.0, math.nan, math.inf, -math.inf])
sample(["isnan.default", "isinf.default", "isfinite.default"], (ODD,), (N,))

# ---------------------------------------------------------------------- activations
sample([f"{name}.default" for name in (
    "relu", "silu", "hardswish", "relu6", "hardsigmoid", "mish")], (X * 3,))
sample("gelu.default", (X,), (X.bfloat16(),))
sample("leaky_relu.default", (X,), (X, 0.3))
sample("elu.default", (X,), (X, 1.3), (X, 1.5, 1.1), (X, 1.0, 1.0, 0.5))
sample("softplus.default", (X * 30,), (X, 2.0, 1.0))
sample("threshold.default", (X, 0.1, 20.0))
sample(["prelu.default", "_prelu_kernel.default"], (X, torch.tensor([0.2]).reshape(1)))
sample("prelu.default", (X, floats(3)))
sample("glu.default", (X, -1))
sample(["_softmax.default", "_log_softmax.default"], (X, 1, False), (X, -1, False))
sample(["softmax.int", "log_softmax.int"], (X, -1), (X.half(), 0), (N, 1, torch.float32))
sample("_safe_softmax.default", (X, -1))

# ---------------------------------------------------------------------- shapes
sample(["view.default", "reshape.default", "_unsafe_view.default", "view_copy.default",
        "_reshape_copy.default"], (X, [6, 4]), (X, [-1]))
sample("view_as.default", (X, floats(6, 4)))
sample(["unsqueeze.default", "unsqueeze_copy.default"], (X, 1), (X, -1))
sample(["squeeze.default", "squeeze_copy.default"], (floats(2, 1, 3, 1),))
sample(["squeeze.dim", "squeeze_copy.dim"], (floats(2, 1, 3, 1), 1), (X, 0))
sample(["squeeze.dims", "squeeze_copy.dims"], (floats(2, 1, 3, 1), [1, 3]))
sample("flatten.using_ints", (X, 1), (X,))
sample("unflatten.int", (X, 2, [2, 2]), (X, 1, [-1, 3]))
sample([f"{name}.default" for name in (
    "clone", "alias", "detach", "contiguous", "lift_fresh_copy", "lift_fresh", "alias_copy",
    "detach_copy")], (X,))
sample("dropout.default", (X, 0.5, False))
sample("to.dtype", (X, torch.int32), (N, torch.float16), (X, torch.bool), (B, torch.float32))
sample("to.device", (X, torch.device("cpu"), torch.float64))
sample("type_as.default", (X, N))
sample("copy.default", (X, ROW), (X, N))
sample(["permute.default", "permute_copy.default"], (X, [2, 0, 1]), (X, [-1, 0, 1]))
sample(["transpose.int", "transpose_copy.int"], (X, 0, 2), (X, -1, -2))
sample(["t.default", "t_copy.default", "numpy_T.default"], (floats(3, 4),))
sample("flip.default", (X, [0, 2]), (X, [-1]))
sample("roll.default", (X, [1, -1], [0, 2]), (X, [5]))
sample(["expand.default", "expand_copy.default", "broadcast_to.default"],
       (ROW, [2, 3, 4]), (floats(2, 1, 4), [2, 3, 4]), (floats(2, 1, 4), [5, 2, 3, -1]))
sample("expand_as.default", (ROW, X))
sample("repeat.default", (X, [1, 2, 3]), (ROW, [2, 2]))
sample("repeat_interleave.self_int", (X, 2), (X, 3, 1), (X, 3, 1, {"output_size": 9}))
sample("diff.default", (X,), (N, 2, 1), (B, 1, 0), (X, 1, 1, X[:, :1], N[:, :2].float()), (X, 5))
sample("cat.default", ([X, Y], 1), ([X, N], -1), ([torch.zeros(0), X], 0))
sample("stack.default", ([X, Y], 0), ([X, Y], -1))
sample(["slice.Tensor", "slice_copy.Tensor"], (X, 2, 1, 3), (X, -1, -3, 100, 2), (X, 1, 0, -1))
sample(["select.int", "select_copy.int"], (X, 1, 2), (X, -1, -1))
sample(["split.Tensor", "split_copy.Tensor"], (floats(7, 2), 3), (X, 2, -1))
sample(["split_with_sizes.default", "split_with_sizes_copy.default", "split.sizes"],
       (floats(7, 2), [3, 4]), (floats(2, 7), [3, 4], 1))
sample("chunk.default", (floats(7, 2), 3))
sample(["unbind.int", "unbind_copy.int"], (X,), (X, 1))
sample(["unfold.default", "unfold_copy.default"], (floats(2, 9), 1, 3, 2), (X, 2, 2, 1))
sample("slice_scatter.default", (X, floats(2, 3, 2), 2, 1, 3), (X, floats(2, 3, 2), 2, 0, 2),
       (X, floats(2, 3, 2), 2, 0, 4, 2))
sample("select_scatter.default", (X, floats(2, 4), 1, -1), (X, floats(3, 4), 0, 1))
sample("constant_pad_nd.default", (X, [1, 2], 3.0), (X, [0, 1, -1, 2]))
sample("pad.default", (X, [1, 2], "reflect"), (X, [1, 1], "replicate"), (X, [2, 1], "circular"),
       (X, [1, 0, 0, 1], "constant", 2.0))
sample(["reflection_pad1d.default", "replication_pad1d.default"], (X, [1, 2]))
sample(["reflection_pad2d.default", "replication_pad2d.default"], (IMAGE, [1, 2, 0, 3]))
sample(["reflection_pad3d.default", "replication_pad3d.default"],
       (floats(1, 2, 3, 4, 5), [1, 2, 0, 1, 1, 0]))

# ---------------------------------------------------------------------- from sizes and numbers
for name in ("zeros", "ones"):
    sample(f"{name}.default", ([2, 3],))
    sample([f"{name}_like.default"], (X,), (N,))
    sample(f"new_{name}.default", (X, [2, 5]))
sample("zero.default", (X,))
sample("full.default", ([2, 3], 1.5), ([2], 3))
sample("full_like.default", (X, 2.0))
sample("new_full.default", (X, [2, 5], -1.0))
sample("fill.Scalar", (X, 1.0))
sample("fill.Tensor", (X, torch.tensor(3.0)))
sample("scalar_tensor.default", (2.5,))
sample("arange.default", (5,), (2.5,))
sample("arange.start", (2, 7))
sample("arange.start_step", (1, 10, 3), (5, -3, -2), (0.0, 1.0, 0.3))
sample("linspace.default", (0.0, 1.0, 5))
sample("eye.default", (3,))
sample("eye.m", (3, 5))
sample(["tril.default", "triu.default"], (X,), (X, 1), (N, -1))

# ---------------------------------------------------------------------- reductions
sample("sum.default", (X,), (N,), (B,))
sample("sum.dim_IntList", (X, [1]), (X, [0, -1], True), (X.half(), [2]))
sample("mean.default", (X,))
sample("mean.dim", (X, [1, 2]), (X.bfloat16(), [-1], True))
sample("prod.default", (X,), (ints(4, low=1),))
sample("prod.dim_int", (X, 1), (X, -1, True))
sample(["any.default", "all.default"], (B,), (X,))
sample(["any.dim", "all.dim"], (B, 1), (B, -1, True))
sample(["any.dims", "all.dims"], (B, [0, 1]))
sample(["var.correction", "std.correction", "var_mean.correction"], (X, [1]), (X, None))
sample("linalg_matrix_exp.default", (X @ X.mT,))
sample("linalg_vector_norm.default", (X,), (X, 1, [1]), (X, 3, [-1], True), (X, math.inf))
sample("logsumexp.default", (X, [1]), (X, [0, 2], True))
sample(["amax.default", "amin.default"], (X, [1]), (X, []), (N, [0, -1], True))
sample(["max.default", "min.default"], (X,), (N,), (B,))
sample(["max.dim", "min.dim"], (X, 1), (N, -1, True))

# ---------------------------------------------------------------------- order
sample(["cumsum.default", "cumprod.default"], (X, 1), (N, -1), (B, 0), (X.half(), 2))
sample(["argmax.default", "argmin.default"], (X,), (X, 1), (N, -1, True))
DISTINCT = torch.randperm(24, generator=torch.Generator().manual_seed(1)).reshape(2, 12).float()
sample("histc.default", (floats(40), 5, -1.0, 1.5), (ints(40, low=0).float(), 4, 0, 3),
       (torch.arange(8).float(), 8, 0, 7))
sample("topk.default", (DISTINCT, 3), (DISTINCT, 2, 0), (DISTINCT, 4, -1, False))
sample("sort.default", (DISTINCT,), (DISTINCT, 0, True))
sample("sort.stable", (DISTINCT, {"stable": True}))
sample("argsort.default", (DISTINCT, -1, True))

# ---------------------------------------------------------------------- indices
TABLE, PLACES = floats(7, 3), ints(2, 4, low=0, high=7)
sample("embedding.default", (TABLE, PLACES), (TABLE, PLACES.int()))
sample("index_select.default", (TABLE, 0, ints(5, low=0, high=7)), (X, -1, torch.tensor([0, 2])))
sample("gather.default", (TABLE, 0, ints(4, 2, low=0, high=7)),
       (X, 2, ints(2, 3, 2, low=0, high=4)))
sample("one_hot.default", (PLACES, 7))
PAIR = (torch.tensor([0, 1, 1]), torch.tensor([2, 0, 1]))
sample(["index.Tensor", "_unsafe_index.Tensor"],
       (X, [torch.tensor([1, 0])]), (X, [None, torch.tensor([[2, 0]])]), (X, list(PAIR)),
       (X, [None, *PAIR]), (X, [PAIR[0], None, PAIR[1]]), (X, [PAIR[0][:, None], PAIR[1]]))
INDEX = ints(2, 3, 1, low=0, high=4)
sample("scatter.src", (X, 2, INDEX, floats(2, 3, 1)), (X, 2, INDEX, Y))
sample("scatter.value", (X, 2, INDEX, 7.0))
sample("scatter_add.default", (X, 2, ints(2, 3, 2, low=0, high=4), Y))
sample("scatter.reduce", (X, 2, INDEX, Y, "multiply"))
sample("scatter_reduce.two", (X, 2, ints(2, 3, 4, low=0, high=4), Y, "amax"),
       (X, 2, ints(2, 3, 4, low=0, high=4), Y, "sum"))
for combiner in ("sum", "prod", "mean", "amax", "amin"):  # some places are not met
    sample("scatter_reduce.two", *(
        (v, 2, ints(2, 3, 3, low=0, high=3), v * 2, combiner, include_self)
        for v in (X, N) for include_self in (True, False)))
sample(["index_put.default", "_unsafe_index_put.default"],
       (X, list(PAIR), floats(3, 4)), (X, [None, PAIR[1]], floats(2, 3, 4)),
       (X, [PAIR[0]], floats(4), True), (X, [B], torch.tensor(9.0)), (X, [bools(2)], floats(1)),
       (X, [None, torch.tensor([-1])], floats(2, 1, 4)), (X, [None, torch.tensor(1)], floats(4)),
       (X, [torch.tensor([[1]])], floats(1, 1, 3, 1)), (X, [torch.tensor([1])], floats(4), True))
sample(["index_copy.default", "index_add.default"], (X, 1, torch.tensor([2, 0]), floats(2, 2, 4)))
sample(["index_copy.default", "index_add.default"], (X, 1, torch.tensor([2]), floats(2, 1, 4)))
sample("index_add.default", (X, 0, torch.tensor([1, 0, 1]), floats(3, 3, 4)))
sample("index_add.default", (torch.tensor(2.0), 0, torch.tensor([0]), torch.tensor(3.0)))
sample("index_copy.default", (torch.tensor(2.0), 0, torch.tensor([0]), torch.tensor([3.0])))
sample(["unfold.default", "unfold_copy.default"], (torch.tensor(2.0), 0, 1, 1))
sample("index_copy.default", (X, -1, torch.tensor(3), floats(2, 3, 1)))

# ---------------------------------------------------------------------- products
sample("mm.default", (floats(2, 3), floats(3, 4)), (floats(2, 3).half(), floats(3, 4).half()))
sample("bmm.default", (floats(2, 3, 4), floats(2, 4, 5)))
CODES = (floats(24, 16) * 60).to(torch.int8), (floats(8, 16) * 60).to(torch.int8)
sample("_int_mm.default", (CODES[0], CODES[1].t()))
sample("_weight_int8pack_mm.default", (floats(3, 16), CODES[1], positive(8)))
sample("matmul.default", (floats(2, 3, 4), floats(4, 5)), (floats(3), floats(3)),
       (floats(5, 1, 2, 3), floats(4, 3, 2)))
sample("mv.default", (floats(2, 3), floats(3)))
sample("dot.default", (floats(5), floats(5)))
sample("linear.default", (X, floats(5, 4), floats(5)), (X, floats(5, 4)), (X, floats(4)))
sample("addmm.default", (floats(4), floats(2, 3), floats(3, 4)))
GROUPED = floats(16, 32).bfloat16(), floats(4, 32, 24).bfloat16()
sample("_grouped_mm.default", (*GROUPED, torch.tensor([3, 3, 11, 16], dtype=torch.int32)))
FLOAT8 = floats(16, 32).to(torch.float8_e4m3fn), floats(24, 32).to(torch.float8_e4m3fn).t()
sample("_scaled_mm.default",
       (*FLOAT8, torch.tensor(0.5), torch.tensor(0.25), None, None, torch.bfloat16),
       (*FLOAT8, positive(16, 1), positive(1, 24), floats(24).bfloat16(), None, torch.bfloat16))
sample("baddbmm.default", (floats(2, 3, 5), floats(2, 3, 4), floats(2, 4, 5)))
sample("addmv.default", (floats(2), floats(2, 3), floats(3)))
QUERY, KEY, VALUE = floats(2, 4, 5, 8), floats(2, 4, 6, 8), floats(2, 4, 6, 8) * 2
MASK = bools(2, 1, 5, 6)
MASK[1, 0, 2] = False
sample("scaled_dot_product_attention.default",
       (QUERY, KEY, VALUE), (QUERY, KEY, VALUE, MASK), (QUERY, KEY, VALUE, floats(5, 6)),
       (QUERY, QUERY, QUERY, None, 0.0, True), (QUERY.half(), KEY.half(), VALUE.half()),
       (QUERY, KEY[:, :2], VALUE[:, :2], None, 0.0, False, {"scale": 0.3, "enable_gqa": True}))
sample("_scaled_dot_product_flash_attention_for_cpu.default", (QUERY, KEY, VALUE),
       (QUERY, KEY[:, :2], VALUE[:, :2]))

# ---------------------------------------------------------------------- windows
sample("convolution.default",
       (IMAGE, floats(6, 4, 3, 3), floats(6), [2, 1], [1, 0], [1, 2], False, [0, 0], 1),
       (IMAGE, floats(4, 1, 3, 3), None, [1], [1], [1], False, [0], 4),
       (floats(2, 4, 9), floats(6, 4, 3), None, [1], [1], [1], False, [0], 1),
       (IMAGE, floats(4, 3, 3, 3), floats(3), [2, 2], [1, 1], [1, 1], True, [1, 1], 1))
for k, x in ((1, floats(2, 4, 9)), (2, IMAGE), (3, floats(1, 2, 5, 6, 7))):
    kernel = floats(4, x.shape[1] // 2, *[3] * k)
    sample(f"conv{k}d.default", (x, kernel, floats(4), [2], [1], [1], 2), (x[0], kernel, None, [
        1], [2], [2], 2), (x, floats(3, x.shape[1], *[3] * k), None))
    sample(f"avg_pool{k}d.default", (x, [3]), (x, [3], [2], [1]), (x, [2], [2], [0], True),
           (x, [3], [2], [1], False, False), (x[0], [2]))
    if k > 1:  # with ceil_mode, the last windows lie in the pads, and are left out
        sample(f"avg_pool{k}d.default", (x, [3], [2], [1], True, False, 5),
               (x, [2], [3], [1], True, True, 7))
    if k < 3:  # with ceil_mode, windows larger than x
        sample(f"avg_pool{k}d.default", (x, [20], [20], [1], True))
    sample([f"adaptive_avg_pool{k}d.default"], (x, [1] * k), (x, [3] * k))
    sample(f"adaptive_max_pool{k}d.default", (x, [1] * k), (x, [3] * k), (x[0], [4] * k))
    sample(f"max_pool{k}d.default", (x, [3]), (x, [3], [2], [1]))
sample("avg_pool2d.default", *((ints(2, 3, 14, 15, low=-most, high=most), [7], [3], [2])
                                for most in (4, 10**6, 2**40)))
sample("adaptive_avg_pool2d.default", (IMAGE, [3, 3]), (IMAGE, [9, 4]), (IMAGE, [1, 3]))
sample("_adaptive_avg_pool2d.default", (IMAGE, [2, 2]))
sample("_adaptive_avg_pool3d.default", (floats(1, 2, 5, 6, 7), [2, 2, 2]))
sample("max_pool2d_with_indices.default", (IMAGE, [3, 3], [2, 2], [1, 1]))
sample("max_pool3d_with_indices.default", (floats(1, 2, 5, 6, 7), [2, 2, 2]))

# ---------------------------------------------------------------------- normalizations
C = floats(4), floats(4) + 1
sample("layer_norm.default", (X, [4], *C), (X, [3, 4]), (X.half(), [4], C[0].half(), C[1].half()))
sample("native_layer_norm.default", (X, [4], *C, 1e-5), (X, [3, 4], None, None, 1e-5))
sample("group_norm.default", (IMAGE, 2, *C), (IMAGE, 4))
sample("native_group_norm.default", (IMAGE, *C, 2, 4, 72, 2, 1e-5))
sample("rms_norm.default", (X, [4], C[0], 1e-6), (X, [3, 4]))
sample("_fused_rms_norm.default", (X, [4], C[0], 1e-6))
STATISTICS = floats(4), positive(4)
sample("_native_batch_norm_legit_no_training.default", (IMAGE, *C, *STATISTICS, 0.1, 1e-5))
sample("batch_norm.default", (IMAGE, *C, *STATISTICS, False, 0.1, 1e-5, False),
       (IMAGE, None, None, *STATISTICS, False, 0.1, 1e-5, False),
       (IMAGE, *C, None, None, True, 0.1, 1e-5, False))
sample("_native_batch_norm_legit.no_stats", (IMAGE, *C, True, 0.1, 1e-5),
       (IMAGE, None, None, True, 0.1, 1e-3))
sample("_native_batch_norm_legit_functional.default",
       (IMAGE, *C, *STATISTICS, True, 0.1, 1e-5), (IMAGE, None, None, *STATISTICS, True, 0.3, 1e-3))
sample("instance_norm.default", (IMAGE, *C, None, None, True, 0.1, 1e-5, False),
       (IMAGE, *C, *STATISTICS, False, 0.1, 1e-5, False))
sample(["_weight_norm_interface.default", "_weight_norm.default"],
       (floats(4, 3, 2), positive(4, 1, 1), 0))

# ---------------------------------------------------------------------- resampling
for k, x in ((1, floats(2, 4, 9)), (2, IMAGE), (3, floats(1, 2, 5, 6, 7))):
    sizes = [11, 5, 13][:k]
    sample([f"upsample_nearest{k}d.vec", f"_upsample_nearest_exact{k}d.vec"],
           (x, sizes, None), (x, None, [2.0] * k), (x, None, [1.7] * k))
    sample([f"upsample_nearest{k}d.default", f"_upsample_nearest_exact{k}d.default"], (x, sizes))
for name, x, k in (("linear1d", floats(2, 4, 9), 1), ("bilinear2d", IMAGE, 2),
                   ("trilinear3d", floats(1, 2, 5, 6, 7), 3), ("bicubic2d", IMAGE, 2)):
    sizes = [11, 5, 13][:k]
    sample(f"upsample_{name}.vec", (x, sizes, False, None), (x, None, True, [2.0] * k),
           (x, None, False, [1.7] * k))
    sample(f"upsample_{name}.default", (x, sizes, True))

FIRST_ONLY = frozenset(f"aten.{name}" for name in (
    "_scaled_dot_product_flash_attention_for_cpu.default", "_fused_rms_norm.default"))
"""Operators whose other results are for training."""

UNSAMPLED = frozenset((
    "aten._linalg_svd.default", "aten._linalg_eigh.default", "prims.svd.default",
    "aten.linalg_pinv.atol_rtol_tensor",  # LAPACK is the truth: `operators/test_spectra.py`
    "prims.convert_element_type.default",  # only other decompositions make it
    "aten.mkldnn_rnn_layer.default",  # only decompositions make it, of LSTM layers
    "prims.fma.default",  # only Dynamo makes it, for optimizers
    "prims.maximum_value.default", "prims.minimum_value.default", "prims._make_token.default",
    "aten._neg_view.default",  # of imaginary parts: `complex/test_fourier.py`
    "prims.xor_sum.default",  # PyTorch does not run or folds them: `operators/test_primtorch.py`
    "aten._to_copy.default", "aten.to.dtype_layout", "aten.detach_.default",
    "aten.lift.default",  # torch 2.11 exports no call of it by a program
    "prims.signbit.default",  # PyTorch gives its result the type of the operand
    "aten.special_ndtr.default",  # taken apart before
    "prims.empty.default", "prims.empty_permuted.default", "prims.empty_strided.default",
    "aten.empty.memory_format", "aten.empty_like.default", "aten.new_empty.default",
    "aten.empty_permuted.default", "aten.empty_strided.default",
    "aten.new_empty_strided.default",  # their contents are anything
    "aten._scaled_dot_product_efficient_attention.default",
    "aten._scaled_dot_product_flash_attention.default",
    "aten._scaled_dot_product_cudnn_attention.default",  # only for GPUs
    "aten._adaptive_avg_pool1d.default",  # there is none
    "aten.nonzero.default", "aten.masked_select.default", "aten.repeat_interleave.Tensor",
    "aten.bincount.default", "aten._unique2.default", "aten.unique_dim.default",
    "aten.unique_consecutive.default",  # sizes depend on data: tests/pytorch/operators
    "transformers.grouped_mm_fallback.default",  # only where that library is: as _grouped_mm
    *(f"strata_matrices.{name}.default" for name in (
        "lu", "cholesky", "reflections", "reflected", "order", "substituted")),
    "aten._linalg_check_errors.default",  # decompositions make these: `matrices` has their tests
))
"""Operators that cannot be called by themselves, or have no result to compare."""

sample("_cdist_forward.default", *((floats(2, 5, 3), floats(2, 4, 3), p, None)
                           for p in (0.0, 1.0, 2.0, 3.5, math.inf)),
       (floats(3, 30), floats(4, 30), 2.0, 1), (floats(2, 1, 5, 3), floats(3, 4, 3), 2.0, None))
