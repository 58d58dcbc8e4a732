"""Arguments for every operator that is imported for complex numbers, by its full name."""

from __future__ import annotations

from typing import Any

import torch

Arguments = tuple[Any, ...]
COMPLEX_SAMPLES: dict[str, list[Arguments]] = {}


def numbers(*shape: int, dtype: torch.dtype = torch.complex64) -> torch.Tensor:
    source = torch.Generator().manual_seed(sum(shape) + len(shape))
    return torch.randn(shape, generator=source, dtype=dtype)


def sample(names: str, *arguments: Arguments) -> None:
    """The same samples for some operators of ATen, by names that blanks separate."""
    for name in names.split():
        name = name if name.startswith("prims.") else f"aten.{name}"
        COMPLEX_SAMPLES.setdefault(name, []).extend(arguments)


Z, Y, ROW, X = numbers(3, 4), numbers(3, 4).flip(0) * 2, numbers(4), numbers(3, 4).real.clone()
D, H = numbers(3, 4, dtype=torch.complex128), numbers(3, 4).to(torch.complex32)
B, ROWS = X > 0, torch.tensor([2, 0])
PLACES = torch.tensor([[0, 2, 1, 0], [1, 1, 0, 2]])

# ---------------------------------------------------------------------- arithmetic
sample("add.Tensor sub.Tensor", (Z, ROW), (Z, X), (X, Z), (D, D), (Z, Y, {"alpha": 2}),
       (Z, Y, {"alpha": 1 + 2j}), (H, H))
sample("rsub.Tensor", (Z, Y))
sample("add.Scalar sub.Scalar rsub.Scalar", (Z, 2), (X, 1 + 2j))
sample("mul.Tensor div.Tensor", (Z, ROW), (Z, X), (X, Z), (D, D))
sample("mul.Tensor", (H, H))
sample("mul.Scalar div.Scalar", (Z, 2.5), (Z, 1 - 2j), (X, 3j))
sample("reciprocal.default square.default neg.default", (Z,), (D,))
sample("addcmul.default", (Z, Y, X, {"value": 2}))
sample("pow.Tensor_Scalar", (Z, 2), (Z, -1), (Z, 0.5), (X, 1j), (Z, 7))
sample("pow.Tensor_Tensor", (Z, Y), (X.abs(), Z))
sample("pow.Scalar", (2.0, Z), (1j, X))

# ---------------------------------------------------------------------- parts
sample("_conj.default _conj_physical.default conj_physical.default prims.conj_physical.default",
       (Z,))
sample("view_as_real.default view_as_real_copy.default", (Z,), (D,))
sample("view_as_complex.default view_as_complex_copy.default", (torch.view_as_real(Z).clone(),))
sample("complex.default polar.default", (X.abs(), X.flip(0)), (X.double().abs(), X.double()))
sample("_to_copy.default", (X, {"dtype": torch.complex64}), (Z, {"dtype": torch.complex128}),
       (torch.arange(4), {"dtype": torch.complex64}))
sample("abs.default angle.default sgn.default", (Z,), (D,), (Z * 1e25,), (Z * 0,))
sample("prims.abs.default", (Z,))
sample("eq.Tensor ne.Tensor", (Z, torch.where(B, Z, Y)), (X, Z))
sample("eq.Scalar ne.Scalar", (Z, 1j))
sample("prims.eq.default prims.ne.default", (Z, torch.where(B, Z, Y)))
ODD = torch.tensor([complex("nan+1j"), complex("inf"), complex("1+infj"), 1j, 0j])
sample("isnan.default isinf.default isfinite.default prims.isfinite.default", (ODD,))

# ---------------------------------------------------------------------- functions
sample(" ".join(f"{name}.default" for name in (
    "exp", "log", "log2", "log10", "sqrt", "rsqrt", "sin", "cos", "tanh", "sigmoid", "tan", "sinh",
    "cosh", "exp2", "log1p", "expm1")), (Z,), (D * 3,))
sample(" ".join(f"prims.{name}.default" for name in (
    "exp", "log", "log2", "log10", "sqrt", "rsqrt", "sin", "cos", "tanh", "tan", "sinh", "cosh",
    "exp2")), (Z,))
EDGES = torch.tensor([0, 1, -1, 1j, -1j, -2.0, complex(-1.0, -0.0), 1 + 1e-4j, 30 + 1j, -30 + 1j])
sample("log.default", (EDGES[1:],))
sample("sqrt.default exp.default tanh.default", (EDGES,))

# ---------------------------------------------------------------------- other places
sample("view.default reshape.default", (Z, [2, 6]))
sample("_unsafe_view.default", (Z, [12]))
sample("squeeze.default", (numbers(3, 1),))
sample("squeeze.dim", (numbers(3, 1), 1))
sample("squeeze.dims", (numbers(3, 1), [1]))
sample("unsqueeze.default", (Z, 1))
sample("clone.default alias.default detach.default t.default numpy_T.default t_copy.default", (Z,))
sample("permute.default permute_copy.default", (Z, [1, 0]))
sample("transpose.int transpose_copy.int", (Z, 0, 1))
sample("flip.default", (Z, [1]))
sample("roll.default", (Z, [1], [1]))
sample("diagonal.default diagonal_copy.default", (Z,))
sample("expand.default broadcast_to.default", (ROW, [3, 4]))
sample("expand_as.default", (ROW, Z))
sample("repeat.default", (Z, [2, 1]))
sample("repeat_interleave.self_int", (Z, 2, 1))
sample("diff.default", (Z,))
sample("cat.default stack.default", ([Z, Y], 1))
sample("slice.Tensor slice_copy.Tensor", (Z, 1, 1, 3))
sample("select.int select_copy.int", (Z, 1, 2))
sample("split.Tensor split_copy.Tensor", (Z, 2, 1))
sample("split_with_sizes.default split.sizes", (Z, [1, 3], 1))
sample("chunk.default", (Z, 2, 1))
sample("unbind.int unbind_copy.int", (Z,))
sample("unfold.default unfold_copy.default", (Z, 1, 2, 1))
sample("slice_scatter.default", (Z, Y[:, :2], 1, 1, 3))
sample("select_scatter.default", (Z, ROW, 0, 1))
sample("constant_pad_nd.default", (Z, [1, 2], 0.0), (Z, [1, 0], 3.0))
sample("index_select.default", (Z, 0, ROWS))
sample("gather.default", (Z, 0, PLACES))
sample("index.Tensor _unsafe_index.Tensor", (Z, [ROWS]))
sample("scatter.src scatter_add.default", (Z, 0, PLACES[:1], Y))
sample("scatter.value", (Z, 0, PLACES[:1], 2.0))
sample("index_put.default _unsafe_index_put.default", (Z, [ROWS], Y[:2]), (Z, [ROWS], Y[:2], True))
sample("index_copy.default index_add.default", (Z, 0, ROWS, Y[:2]))
sample("tril.default triu.default", (Z,))
sample("where.self", (B, Z, Y), (B, Z, X))
sample("masked_fill.Scalar", (Z, B, 2.0), (Z, B, 1j))
sample("masked_fill.Tensor", (Z, B, torch.tensor(1j)))
sample("copy.default", (Z, Y), (Z, X))
sample("embedding.default", (Z, PLACES))

# ---------------------------------------------------------------------- sums, products, numbers
sample("sum.default mean.default", (Z,), (D,))
sample("sum.dim_IntList mean.dim", (Z, [1], True))
sample("cumsum.default", (Z, 1))
sample("mm.default matmul.default", (Z, Y.mT.contiguous()), (D, D.mT.contiguous()))
sample("bmm.default", (numbers(2, 3, 4), numbers(2, 4, 5)))
sample("mv.default", (Z, ROW))
sample("dot.default", (ROW, ROW.flip(0)))
sample("linear.default", (Z, Y, numbers(3)), (Z, Y))
sample("addmm.default", (numbers(3, 3), Z, Y.mT.contiguous(), {"beta": 2j, "alpha": 0.5}))
sample("baddbmm.default", (numbers(2, 3, 5), numbers(2, 3, 4), numbers(2, 4, 5)))
sample("addmv.default", (numbers(3), Z, ROW))
SIGNAL, FILTER = numbers(2, 3, 7), numbers(4, 3, 2)
sample("conv1d.default", (SIGNAL, FILTER, numbers(4)), (SIGNAL, FILTER))
sample("conv2d.default", (SIGNAL[..., None], FILTER[..., None], numbers(4)))
sample("conv3d.default", (SIGNAL[..., None, None], FILTER[..., None, None]))
sample("zeros_like.default ones_like.default zero.default", (Z,))
sample("full_like.default", (Z, 2.0), (Z, 1j))
sample("new_zeros.default new_ones.default", (Z, [2, 3]))
sample("new_full.default", (Z, [2, 3], 1 + 1j))
sample("fill.Scalar", (Z, 2.0), (Z, 1j))
sample("fill.Tensor", (Z, torch.tensor(1j)))
sample("zeros.default ones.default", ([2, 3], {"dtype": torch.complex64}))
sample("full.default", ([2, 3], 1j), ([2, 3], 2.0, {"dtype": torch.complex64}))
sample("scalar_tensor.default", (1j, {"dtype": torch.complex64}))

# ---------------------------------------------------------------------- transforms
sample("_fft_c2c.default", *((Z, [1, 0], scale, way) for scale in range(3) for way in (
    True, False)), (D, [0], 0, True))
sample("_fft_r2c.default", *((X, [0, 1], scale, half) for scale in range(3) for half in (
    True, False)), (X.double(), [0], 0, True))
sample("_fft_c2r.default", *((Z, [0, 1], scale, last) for scale in range(3) for last in (6, 7)))
sample("prims.fft_c2c.default", (Z, {"dim": [0], "forward": True}))
sample("prims.fft_r2c.default", (X, {"dim": [1], "onesided": True}))
sample("prims.fft_c2r.default", (Z, {"dim": [1], "last_dim_size": 6}))
