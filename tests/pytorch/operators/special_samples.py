"""Arguments for special functions, functions of bits, and operators of PrimTorch."""

from __future__ import annotations

import math

import torch

from tests.pytorch.op_samples import Arguments, floats, ints, positive

SPECIAL_SAMPLES: dict[str, list[Arguments]] = {}

X, Y, P, N, B = floats(2, 3), floats(2, 3) * 2 + 1, positive(2, 3), ints(2, 3), floats(2, 3) > 0
EDGES = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.5, math.inf, -math.inf, math.nan])


def sample(names: str, *arguments: Arguments) -> None:
    """The same samples for some operators, by names that blanks separate."""
    for name in names.split():
        SPECIAL_SAMPLES.setdefault(name, []).extend(arguments)


# ---------------------------------------------------------------------- special functions
sample(" ".join(f"aten.{name}.default" for name in (
    "special_erfcx", "special_log_ndtr", "special_modified_bessel_i0",
    "special_modified_bessel_i1", "special_bessel_j0", "special_bessel_j1",
    "special_spherical_bessel_j0")), (X,), (N.abs() + 1,))
sample(" ".join(f"aten.{name}.default" for name in (
    "lgamma", "digamma", "erfc", "i0", "special_i0e", "special_i1", "special_i1e")),
    (X,), (X.bfloat16(),), (N.abs() + 1,))
sample(" ".join(f"aten.special_{name}.default" for name in (
    "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1", "bessel_y0", "bessel_y1")), (P,))
sample("aten.erfinv.default", (X.tanh(),), (X.tanh().double(),))
sample("aten.special_ndtri.default", (X.sigmoid(),))
sample("aten.polygamma.default", *((k, P * 3) for k in range(4)), (2, -P))
sample("aten.special_zeta.default", (P + 1.5, P * 3))
sample("aten.special_zeta.other_scalar", (P + 1.5, 2.0))
sample("aten.special_zeta.self_scalar", (2.5, P))
sample("aten.atan2.default prims.atan2.default", (X, Y),
       (EDGES[:, None].expand(8, 8).contiguous(), EDGES.expand(8, 8).contiguous()))
sample("aten.hypot.default prims.hypot.default", (X, Y), (X.double(), Y.double()))
sample("aten.fmax.default aten.fmin.default prims.fmax.default prims.fmin.default",
       (EDGES, EDGES.flip(0)), (N, N.flip(0)), (B, B.flip(0)))
sample("aten.signbit.default", (EDGES,), (N,), (B,), (X.bfloat16(),))
sample("aten.copysign.Tensor", (X, EDGES[:3]), (N, Y), (X, N), (X.half(), Y.half()))
sample("aten.copysign.Scalar", (X, -1.0), (N, 2))
sample("aten.nextafter.default prims.nextafter.default", (EDGES, EDGES.flip(0)), (X, Y),
       (X.double(), Y.double()))
sample("aten.frexp.Tensor prims.frexp.default", (EDGES,), (X * 1e6,), (X.double(),), (X.half(),))

# ---------------------------------------------------------------------- PrimTorch
sample(" ".join(f"prims.{name}.default" for name in (
    "atan", "asinh", "cos", "cosh", "erf", "exp", "exp2", "expm1", "sin", "sinh", "tan", "tanh",
    "ceil", "floor", "round", "abs", "neg", "sign", "trunc", "isfinite", "view_of", "clone",
    "cbrt")), (X,))
sample(" ".join(f"prims.{name}.default" for name in (
    "log", "log10", "log2", "log1p", "sqrt", "rsqrt", "reciprocal", "lgamma", "digamma", "erfc",
    "erfcx", "bessel_i0", "bessel_i0e", "bessel_i1", "bessel_i1e", "bessel_j0", "bessel_j1",
    "spherical_bessel_j0")), (P,))
sample(" ".join(f"prims.{name}.default" for name in ("acos", "asin", "atanh", "erf_inv")),
       (X.tanh(),))
sample("prims.acosh.default", (P + 1,))
sample("prims.ndtri.default", (X.sigmoid(),))
sample("prims.zeta.default", (P + 1.5, P))
sample(" ".join(f"prims.{name}.default" for name in (
    "add", "sub", "mul", "eq", "ne", "lt", "le", "gt", "ge", "maximum", "minimum")),
    (X, Y), (N, N.flip(0)))
sample("prims.div.default prims.fmod.default prims.remainder.default", (X, Y), (N, N.abs() + 1))
sample("prims.pow.default", (P, X))
sample("prims.bitwise_not.default", (N,), (B,))
sample("prims.bitwise_and.default prims.bitwise_or.default prims.bitwise_xor.default",
       (N, N.flip(0)), (B, B.flip(0)))
sample("prims.shift_left.default prims.shift_right_arithmetic.default", (N, N.abs()))
sample("prims.where.default", (B, X, Y))
sample("prims.sum.default prims.prod.default prims.amax.default prims.amin.default",
       (X, [0]), (X, [0, 1]), (N, [1]))
sample("prims.var.default", (X, [1], 1.0), (X, [0, 1], 0.0))
sample("prims.reshape.default", (X, [3, 2]))
sample("prims.collapse.default prims.collapse_view.default", (floats(2, 3, 4), 1, 2))
sample("prims.split_dim.default", (floats(2, 6), 1, 2))
sample("prims.squeeze.default", (floats(2, 1, 3), [1]))
sample("prims.broadcast_in_dim.default", (X, [2, 4, 3], [0, 2]), (floats(1, 3), [5, 3], [0, 1]))
sample("prims.transpose.default", (X, [1, 0]))
sample("prims.rev.default", (X, [0, 1]))
sample("prims.cat.default", ([X, Y], 1))
sample("prims.copy_strided.default", (X, [1, 2]))
sample("prims.device_put.default", (X, torch.device("cpu")))
sample("prims.view_of_dtype.default", (X, torch.int32))
CREATED = {"dtype": torch.float32, "device": torch.device("cpu"), "requires_grad": False}
sample("prims.full.default", ([2, 3], 1.5, CREATED))
sample("prims.full_like.default", (X, 2.0, CREATED))
sample("prims.fill.default", (X, 2.0))
sample("prims.scalar_tensor.default",
       (2.5, {"dtype": torch.float32, "device": torch.device("cpu")}))
sample("prims.iota.default", (5, {**CREATED, "start": 2, "step": 3, "dtype": torch.int64}))

# ---------------------------------------------------------------------- orthogonal polynomials
for family in ("chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v",
               "chebyshev_polynomial_w", "hermite_polynomial_h", "hermite_polynomial_he",
               "laguerre_polynomial_l", "legendre_polynomial_p"):
    sample(f"aten.special_{family}.default", (X, torch.tensor([-1, 0, 5])))
    sample(f"aten.special_{family}.n_scalar", (X, 3))
    sample(f"aten.special_{family}.x_scalar", (0.7, torch.tensor([0.0, 1.0, 2.9])))
    if family.startswith("chebyshev"):
        sample(f"aten.special_shifted_{family}.default", (X.sigmoid(), torch.tensor([1, 2, 9])))
        sample(f"aten.special_shifted_{family}.n_scalar", (X, 2))
        sample(f"aten.special_shifted_{family}.x_scalar", (0.2, torch.tensor([0, 1, 4])))

# ---------------------------------------------------------------------- truth values
T, PLACE = torch.tensor([True, False, True, False]), torch.tensor([0, 1, 1, 3])
sample("aten.scatter_add.default", (T, 0, PLACE, ~T))
for how in ("sum", "prod", "amax", "amin"):
    sample("aten.scatter_reduce.two", (T, 0, PLACE, ~T, how), (T, 0, PLACE, ~T, how, False))
sample("aten.index_put.default", (T, [PLACE], ~T, True))
sample("aten.sign.default aten.sgn.default", (T,))
sample("aten.clamp_min.Tensor aten.clamp_max.Tensor", (T, ~T))

# ---------------------------------------------------------------------- places and orders
M = floats(3, 4)
sample("aten.diagonal.default aten.diagonal_copy.default", (M,), (M, 1), (M, -2), (M, 9),
       (floats(2, 3, 4), 1, 2, 0))
sample("aten.view.dtype aten.view_copy.dtype", (M, torch.int32), (N, torch.float64))
ORDERED = torch.tensor([-1.0, 0.0, 0.5, 0.5, 2.0])
sample("aten.searchsorted.Tensor", (ORDERED, EDGES), (ORDERED, EDGES, False, True),
       (floats(3, 5).sort()[0], M), (N.flatten().sort()[0], N, True), (ORDERED, M, False, False, {
           "side": "right"}), (M, M, False, False, {"sorter": M.argsort()}))
sample("aten.searchsorted.Scalar", (ORDERED, 0.5), (ORDERED, 0.5, False, True),
       (ORDERED, 0.5, False, False, {"side": "right"}))
sample("aten.bucketize.Tensor", (EDGES, ORDERED), (N, ORDERED, True, True))
sample("aten.bucketize.Scalar", (0.5, ORDERED))
sample("aten.masked_scatter.default", (M, M > 0, floats(12)), (M, M[0] > 0, floats(12)))
sample("aten.nonzero_static.default", (M > 0, {"size": 5}), (M > 0, {"size": 20, "fill_value": 7}))

# ---------------------------------------------------------------------- integers
sample("aten.gcd.default prims.gcd.default", (N * 12, N.flip(0) * 18), (N.int() * 4, N.int()),
       (ints(2, 3, low=-128, high=128, dtype=torch.int8), torch.full((2, 3), 6).to(torch.int8)))
sample("aten.hash_tensor.default", (floats(3, 5),), (N, [1], {"keepdim": True}), (X.half(), [0]))
sample("aten.igamma.default aten.igammac.default prims.igamma.default prims.igammac.default "
       "aten.special_gammainc.default aten.special_gammaincc.default", (P * 3, P.flip(0) * 4))
