"""Singular values and eigenvalues of small matrices, and what is unique of their vectors.

LAPACK's signs of singular vectors and eigenvectors depend on how it computes them, so operators
that return these stay with PyTorch, as larger matrices do. PrimTorch's `svd` promises no signs.
"""

from __future__ import annotations

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.loops import Loop, Turn
from compiler.frontend.orthogonal import eigen, order_of, singular, singular_values, turned
from compiler.frontend.peeling import repeat
from compiler.frontend.torch.matrices.decompositions import MOST
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import aten_op
from compiler.frontend.values import Value, operand, scalar
from dialects.strata import types as t
from dialects.symbolic.expr import Expr

_SIGNS = "LAPACK's signs of these vectors follow from how it computes them"
_TERMS = 4
"""The matrix exponential is a polynomial of the degree `_TERMS` ** 2, in blocks of this length."""
_NORM = 0.75
"""Up to this norm its error is below f64's digits."""


def _checked(x: Value) -> None:
    """Raises Fault for a matrix that has too many steps."""
    if min(order_of(x)) > MOST:
        raise Fault(f"a matrix of more than {MOST} rows and columns is LAPACK's work")


def _is_empty(x: Value) -> bool:
    """Whether matrices have no elements, so that they have no singular values either."""
    return any(size.constant == 0 for size in x.shape[-2:])


def _nothing(n: Node, x: Value, *sizes: Expr | int) -> Value:
    """A result without elements: one of these sizes is 0."""
    return scalar(n.build, 0, x.element).broadcast([*x.shape[:-2], *sizes])


@aten_op("prims.svd.default")
def svd(n: Node, x: Value, full: bool) -> list[Value]:
    found = singular(n, x, full)
    return [found.u, found.s, turned(found.v)]


@aten_op("aten._linalg_svd.default", ignored=("driver",))
def values_of_svd(n: Node, x: Value, full: bool, compute_uv: bool) -> list[Value]:
    if n.wants(0) or n.wants(2):
        raise Fault(_SIGNS)
    if _is_empty(x):
        return [x, _nothing(n, x, 0), x]
    _checked(x)
    found = singular_values(n, x)
    return [x, found, x]


@aten_op("aten._linalg_eigh.default")
def values_of_eigh(n: Node, x: Value, uplo: str, compute_v: bool) -> list[Value]:
    if n.wants(1):
        raise Fault(_SIGNS)
    if _is_empty(x):
        return [_nothing(n, x, 0), x]
    _checked(x)
    return [eigen(n, _symmetric(n, x, uplo.upper() == "L"), False)[0], x]


def _symmetric(n: Node, x: Value, lower: bool) -> Value:
    """The matrix of which only one triangle counts."""
    width, _ = order_of(x)
    rows, columns = n.range(width).reshape([width, 1]), n.range(width)
    return f.where(rows >= columns if lower else columns >= rows, x, turned(x))


@aten_op("aten.linalg_pinv.atol_rtol_tensor")
def pseudo_inverse(
    n: Node, x: Value, absolute: Value | None, relative: Value | None, hermitian: bool
) -> Value:
    """V diag(1 / s) U^T, without the singular values that are nearly 0."""
    if _is_empty(x):
        return _nothing(n, x, *x.shape[:-3:-1])
    _checked(x)
    x = _symmetric(n, x, True) if hermitian else x
    found = singular(n, x.cast(t.f64), False)
    largest = found.s.part(found.s.rank - 1, 0, 1)
    digits = 2.0**-52 if x.element == t.f64 else 2.0**-23
    if relative is None:
        default = max(order_of(x)) * digits
        relative = operand(0.0 if absolute is not None else default, largest)
        if absolute is not None:
            relative = f.where(_column(absolute).cast(t.f64) > 0, relative,
                               operand(default, largest))
    else:
        relative = _column(relative)
    least = relative.cast(t.f64) * largest
    if absolute is not None:
        least = f.maximum(_column(absolute).cast(t.f64), least)
    is_kept = found.s > least
    inverse = f.where(is_kept, 1.0 / f.where(is_kept, found.s, 1), 0)
    scaled = found.v * inverse.reshape([*inverse.shape[:-1], 1, inverse.shape[-1]])
    return (scaled @ turned(found.u)).cast(x.element)


def _column(x: Value) -> Value:
    """A limit for each matrix, beside its singular values."""
    return x.reshape([*x.shape, 1])


@aten_op("aten.linalg_matrix_exp.default")
def exponential(n: Node, x: Value) -> Value:
    """Taylor's polynomial of x / 2^k, squared k times, where k is large enough for each matrix."""
    if _is_empty(x):
        return x
    width, _ = order_of(x)
    _checked(x)
    wide, axis = x.cast(t.f64), x.rank - 1
    norm = f.reduce_max(f.reduce_sum(abs(wide), [axis], keepdims=True), [axis - 1], keepdims=True)
    squarings = f.maximum(f.ceil(f.log(f.maximum(norm, _NORM) / _NORM) * (1 / _LOG_2)), 0.0)
    wide = wide * 2.0 ** -squarings
    eye = f.equal(n.range(width).reshape([width, 1]), n.range(width)).cast(t.f64)
    powers = [eye, wide]
    for _ in range(_TERMS - 1):
        powers.append(powers[-1] @ wide)
    factor, begin = 1.0, list[list[float]]()
    for block in range(_TERMS):
        begin.append([])
        for term in range(_TERMS):
            number = block * _TERMS + term
            factor /= max(number, 1)
            begin[-1].append(factor)
    found = powers[-1] * (factor / _TERMS**2)
    for block in reversed(begin):
        if block is not begin[-1]:
            found = found @ powers[-1]
        found = found + f.total([p * c for p, c in zip(powers[:-1], block, strict=True)])

    def squared(step: Expr, carried: list[Value]) -> Turn:
        found, done = carried
        found = f.where(done < squarings, found @ found, found)
        return Turn(goes_on(done + 1.0), [found, done + 1.0], [])

    def goes_on(done: Value) -> Value:
        return f.reduce_max((done < squarings).cast(t.i32), [*range(x.rank)]) > 0

    zero = operand(0.0, norm)
    loop = Loop(f"{n.name}_squaring", None, goes_on(zero), [found, zero])
    return repeat(n.build, loop, squared)[0][0].cast(x.element)


_LOG_2 = 0.6931471805599453
