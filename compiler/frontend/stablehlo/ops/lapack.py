"""Calls of LAPACK and BLAS, of cuSOLVER, and of a TPU's compiler, which JAX's programs have in the
place of operations.

Each matrix is factored in one step for each row. `lapack_spotrf_ffi` is the one for f32; d is f64.
Factors with orthogonal columns are those of `compiler/frontend/orthogonal.py`: signs of singular
vectors and of eigenvectors may be others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.node import fixed
from compiler.frontend.orthogonal import (
    eigen,
    product_of,
    reflections,
    singular,
    singular_values,
    turned,
)
from compiler.frontend.stablehlo.node import Node
from compiler.frontend.stablehlo.ops.linear_algebra import factor, order_of, solved
from compiler.frontend.values import Value, scalar
from dialects.graph.gather import GatherElementsOp
from dialects.graph.ordering import ArgMaxOp
from dialects.strata import types as t
from dialects.strata.types import TensorType
from dialects.symbolic.expr import Expr

Call: TypeAlias = "Callable[[Node, Mapping[str, Any], Sequence[Value]], list[Value]]"


def _letter(config: Mapping[str, Any], name: str) -> str:
    """An option, which is the code of a letter. Raises Fault for any other."""
    code = config.get(name)
    if not isinstance(code, int) or code not in b"NTCLRU":
        raise Fault(f"its option {name} is {code}")
    return chr(code)


def potrf(n: Node, config: Mapping[str, Any], operands: Sequence[Value]) -> list[Value]:
    """The Cholesky factor, and 1 where there is none. cuSOLVER's call says `lower`."""
    lower = config["lower"] if "lower" in config else _letter(config, "uplo") == "L"
    made = factor(n, operands[0], bool(lower))
    failed = f.is_nan(made).cast(t.i32)
    return [made, f.reduce_max(failed, [made.rank - 2, made.rank - 1])]


def trsm(n: Node, config: Mapping[str, Any], operands: Sequence[Value]) -> list[Value]:
    """The solution of a triangular system."""
    a, b = operands[:2]
    return [solved(a, b, lower=_letter(config, "uplo") == "L", left=_letter(config, "side") == "L",
                   turned=_letter(config, "trans_x") != "N", unit=_letter(config, "diag") == "U")]


def getrf(n: Node, config: Mapping[str, Any], operands: Sequence[Value]) -> list[Value]:
    """Both factors in one matrix, the row with which each row was exchanged, and the first pivot
    that is 0; both are counted from 1."""
    x = operands[0]
    count, width, axis = order_of(x.transpose([*range(x.rank - 2), x.rank - 1, x.rank - 2])), (
        order_of(x)), x.rank - 2
    rows, columns = n.range(count), n.range(width)
    batch, pivots = list(x.shape[:-2]), list[Value]()
    info = n.scalar(0, operands[0]).cast(t.i64).broadcast(batch)
    for k in range(min(count, width)):
        sizes = abs(x.part(axis + 1, k, 1)).reshape([*batch, count])
        chosen = n(ArgMaxOp, f.where(rows < k, n.scalar(-1, x), sizes), axis=axis, keepdims=True,
                   last=False)
        order = f.where(f.equal(rows, chosen), n.of_size(k), rows)
        order = f.where(f.equal(rows, k), chosen, order)
        places = order.reshape([*batch, count, 1]).broadcast(x.shape)
        x = n(GatherElementsOp, x, places, axis=axis)
        pivots.append(chosen + 1)
        pivot = x.part(axis, k, 1).part(axis + 1, k, 1)
        zero = f.equal(pivot, 0)
        below = (rows > k).reshape([count, 1])
        column = x.part(axis + 1, k, 1) / f.where(zero, n.scalar(1, x), pivot)
        column = f.where(below, column, n.scalar(0, x))
        rest = x - column * f.where(columns > k, x.part(axis, k, 1), n.scalar(0, x))
        x = f.where(below & f.equal(columns, k), column, rest)
        info = f.where(zero.reshape(batch) & f.equal(info, 0), n.of_size(k + 1), info)
    return [x, f.concat(pivots, axis=axis).cast(t.i32), info.cast(t.i32)]


def permutation(n: Node, config: Mapping[str, Any], operands: Sequence[Value]) -> list[Value]:
    """The order of rows after each is exchanged with the one of its pivot, counted from 0."""
    pivots = operands[0]
    return [_order(n, pivots, n.result.shape[-1])]


def _order(n: Node, pivots: Value, size: Expr) -> Value:
    axis, rows = pivots.rank - 1, n.range(size, pivots.element)
    found = rows.broadcast([*pivots.shape[:-1], size])
    for k in range(pivots.shape[-1].constant or 0):
        with_ = pivots.part(axis, k, 1)
        there = n(GatherElementsOp, found, with_, axis=axis)
        here = found.part(axis, k, 1)
        found = f.where(f.equal(rows, with_), here, found)
        found = f.where(f.equal(rows, k), there, found)
    return found


def lu(n: Node, config: Mapping[str, Any], operands: Sequence[Value]) -> list[Value]:
    """A TPU's call: both factors, pivots counted from 0, and the order of rows."""
    made, pivots, _ = getrf(n, config, operands)
    return [made, pivots - 1, _order(n, pivots - 1, made.shape[-2])]


# ---------------------------------------------------------------------- orthogonal columns
def geqrf(n: Node, config: Mapping[str, Any], operands: Sequence[Value]) -> list[Value]:
    """Householder's vectors below R, and their factors."""
    return list(reflections(n, operands[0]))


def orgqr(n: Node, config: Mapping[str, Any], operands: Sequence[Value]) -> list[Value]:
    """The first columns of the product of reflections, as many as the result has."""
    vectors, factors = operands
    return [product_of(n, vectors, factors, fixed(n.result.shape[-1], "columns"))]


def gesdd(n: Node, config: Mapping[str, Any], operands: Sequence[Value]) -> list[Value]:
    """LAPACK's singular values, and factors U and V^T if asked for."""
    return _factored(n, operands[0], config.get("mode") != ord("N"), True)


def gesvdj(n: Node, config: Mapping[str, Any], operands: Sequence[Value]) -> list[Value]:
    """cuSOLVER's singular values, and factors U and V if asked for."""
    return _factored(n, operands[0], bool(config.get("compute_uv")), False)


def _factored(n: Node, x: Value, with_vectors: bool, is_turned: bool) -> list[Value]:
    """What such a call returns: a matrix to forget, s, both factors, and 0 for success."""
    _, _, u, v, info = n.op.types
    success = _zeros(n, info)
    if not with_vectors:
        return [x, singular_values(n, x), _zeros(n, u), _zeros(n, v), success]
    full = u.shape[-2:] == (x.shape[-2],) * 2 and v.shape[-2:] == (x.shape[-1],) * 2
    found = singular(n, x, full)
    return [x, found.s, found.u, turned(found.v) if is_turned else found.v, success]


def _zeros(n: Node, type_: TensorType) -> Value:
    return scalar(n.build, 0, type_.element).broadcast(type_.shape)


def syevd(n: Node, config: Mapping[str, Any], operands: Sequence[Value]) -> list[Value]:
    """Eigenvectors, eigenvalues in ascending order, and 0 for success. cuSOLVER's call says
    `lower`."""
    lower = config["lower"] if "lower" in config else _letter(config, "uplo") == "L"
    values, vectors = eigen(n, _whole(n, operands[0], bool(lower)), True)
    assert vectors is not None
    return [vectors, values, _zeros(n, n.result)]


def _whole(n: Node, x: Value, lower: bool) -> Value:
    """The symmetric matrix of which only one triangle counts."""
    places = n.range(x.shape[-1])
    rows = places.reshape([x.shape[-1], 1])
    return f.where(rows >= places if lower else places >= rows, x, turned(x))


def eigh(n: Node, config: Mapping[str, Any], operands: Sequence[Value]) -> list[Value]:
    """A TPU's call: eigenvectors and eigenvalues. Its options begin with whether the lower triangle
    counts, and whether eigenvalues are sorted."""
    lower = str(n.op.attributes.get("backend_config", "1")).strip('"').startswith("1")
    values, vectors = eigen(n, _whole(n, operands[0], lower), True)
    assert vectors is not None
    return [vectors, values]


CALLS: Mapping[str, Call] = {
    **{f"lapack_{kind}potrf_ffi": potrf for kind in "sd"},
    **{f"lapack_{kind}trsm_ffi": trsm for kind in "sd"},
    **{f"lapack_{kind}getrf_ffi": getrf for kind in "sd"},
    **{f"{name}solver_getrf_ffi": getrf for name in ("cu", "hip")},
    **{f"{name}solver_potrf_ffi": potrf for name in ("cu", "hip")},
    **{f"{name}_lu_pivots_to_permutation": permutation for name in ("cu", "hip")},
    "LuDecomposition": lu,
    **{f"lapack_{kind}geqrf_ffi": geqrf for kind in "sd"},
    **{f"lapack_{kind}orgqr_ffi": orgqr for kind in "sd"},
    **{f"lapack_{kind}gesdd_ffi": gesdd for kind in "sd"},
    **{f"lapack_{kind}syevd_ffi": syevd for kind in "sd"},
    **{f"{name}solver_geqrf_ffi": geqrf for name in ("cu", "hip")},
    **{f"{name}solver_orgqr_ffi": orgqr for name in ("cu", "hip")},
    **{f"{name}solver_gesvdj_ffi": gesvdj for name in ("cu", "hip")},
    **{f"{name}solver_syevd_ffi": syevd for name in ("cu", "hip")},
    "Qr": geqrf, "ProductOfElementaryHouseholderReflectors": orgqr, "Eigh": eigh}
