"""Decompositions of linear algebra: small matrices in one step for each row, without branches.

A step changes whole matrices under masks, so that it is one kernel or two. Larger matrices, and
those of open sizes, take a loop (`operators.py`). Pivots, signs, the forms of factors and the order
of elements in memory are those of LAPACK. Eigenvalues, and matrices of complex numbers, stay with
PyTorch.
Source: G. Golub and C. Van Loan, Matrix Computations, 3.1-3.4, 4.2 and 5.1-5.2.
"""

from __future__ import annotations

from typing import Any

from compiler.frontend.torch.core.strided import in_order_of
from compiler.frontend.torch.library import torch_module
from compiler.frontend.torch.matrices.operators import operators

MOST = 24
"""The largest number of steps."""


def linear_algebra_decompositions() -> dict[Any, Any]:
    """Operator -> function."""
    aten = torch_module().ops.aten
    found = {aten.linalg_lu_factor_ex.default: lu_factor, aten.linalg_lu.default: lu,
            aten.lu_unpack.default: lu_unpack, aten.linalg_lu_solve.default: lu_solve,
            aten._linalg_solve_ex.default: solve, aten.linalg_inv_ex.default: inverse,
            aten._linalg_det.default: determinant, aten._linalg_slogdet.default: slogdet,
            aten.linalg_solve_triangular.default: solve_triangular,
            aten.triangular_solve.default: triangular_solve,
            aten.linalg_cholesky_ex.default: cholesky_ex, aten.cholesky.default: cholesky,
            aten.cholesky_solve.default: cholesky_solve,
            aten.cholesky_inverse.default: cholesky_inverse, aten.linalg_qr.default: qr,
            aten.geqrf.default: geqrf, aten.ormqr.default: product_with_reflections,
            aten.linalg_householder_product.default: householder_product}
    return {op: in_order_of(op, function) for op, function in found.items()}


def _is_foreign(x: Any) -> bool:
    """Whether elements are not real, so that the operator stays with PyTorch."""
    return not x.is_floating_point()


def _is_large(x: Any) -> bool:
    """Whether a matrix has too many steps to write them out, or sizes that are not known."""
    sizes = x.shape[-2:]
    return not all(isinstance(size, int) for size in sizes) or min(sizes) > MOST


def _steps(x: Any) -> Any:
    """The smaller of the sizes of a matrix, which may be open."""
    return torch_module().sym_min(*x.shape[-2:])


def _places(x: Any, dim: int) -> Any:
    return torch_module().arange(x.shape[dim], device=x.device)


# ---------------------------------------------------------------------- LU
def lu_factor(x: Any, *, pivot: bool = True, check_errors: bool = False) -> Any:
    """L and U in one matrix, the row (from 1 on) with which each row was exchanged, and the number
    of the first pivot that is 0."""
    if _is_foreign(x):
        return NotImplemented
    if _is_large(x):
        return operators().lu(x, pivot)
    torch = torch_module()
    rows, columns, steps = _places(x, -2), _places(x, -1), min(x.shape[-2:])
    chosen: list[Any] = []
    info = torch.zeros(x.shape[:-2], dtype=torch.int32, device=x.device)
    for k in range(steps):
        if pivot:
            sizes = torch.where(rows >= k, x[..., k].abs(), -1.0)
            at = sizes.argmax(-1, keepdim=True)
            order = torch.where(rows == k, at, torch.where(rows == at, k, rows))
            x = x.gather(-2, order.unsqueeze(-1).expand(x.shape))
        else:
            at = torch.full((*x.shape[:-2], 1), k, dtype=torch.int64, device=x.device)
        chosen.append(at + 1)
        top = x[..., k, k]
        info = torch.where((top == 0) & (info == 0), k + 1, info)
        column = x[..., k] / torch.where(top == 0, 1.0, top).unsqueeze(-1)
        factor = torch.where(rows > k, column, 0.0).unsqueeze(-1)
        rest = torch.where(columns > k, x[..., k, :], 0.0).unsqueeze(-2)
        below = ((rows > k).unsqueeze(-1)) & (columns == k)
        x = torch.where(below, column.unsqueeze(-1), x - factor * rest)
    pivots = torch.cat(chosen, -1).to(torch.int32) if chosen else torch.zeros(
        (*x.shape[:-2], 0), dtype=torch.int32, device=x.device)
    return x, pivots, info.to(torch.int32)


def _order(pivots: Any, count: Any) -> Any:
    """The row of x that is at each place after all exchanges."""
    torch = torch_module()
    if not isinstance(count, int) or not isinstance(pivots.shape[-1], int) or (
            pivots.shape[-1] > MOST):
        return operators().order(pivots, count)
    places = torch.arange(count, device=pivots.device)
    order = places.expand((*pivots.shape[:-1], count))
    for k in range(pivots.shape[-1]):
        at = (pivots[..., k:k + 1] - 1).to(torch.int64)
        swap = torch.where(places == k, at, torch.where(places == at, k, places))
        order = order.gather(-1, swap)
    return order


def lu_unpack(
    x: Any, pivots: Any, unpack_data: bool = True, unpack_pivots: bool = True
) -> Any:
    """P, L and U of x = P L U."""
    if _is_foreign(x):
        return NotImplemented
    torch, count, steps = torch_module(), x.shape[-2], _steps(x)
    empty = x.new_empty((0,))
    eye = torch.eye(count, dtype=x.dtype, device=x.device)
    exchanged, lower, upper = empty, empty, empty
    if unpack_pivots:
        exchanged = eye[_order(pivots, count)].transpose(-1, -2)
    if unpack_data:
        lower = x[..., :steps].tril(-1) + torch.eye(count, steps, dtype=x.dtype, device=x.device)
        upper = x[..., :steps, :].triu()
    return exchanged, lower, upper


def lu(x: Any, *, pivot: bool = True) -> Any:
    if _is_foreign(x):
        return NotImplemented
    factors, pivots, _ = lu_factor(x, pivot=pivot)
    found = lu_unpack(factors, pivots, True, pivot)
    return found if pivot else (x.new_empty((0,)), *found[1:])


def lu_solve(
    x: Any, pivots: Any, b: Any, *, left: bool = True, adjoint: bool = False
) -> Any:
    """The solution of A X = B or X A = B, with the factors of A or of its transpose."""
    if _is_foreign(x):
        return NotImplemented
    torch = torch_module()
    if not left:
        found = lu_solve(x, pivots, b.transpose(-1, -2), adjoint=not adjoint)
        return found.transpose(-1, -2)
    batch = torch.broadcast_shapes(x.shape[:-2], b.shape[:-2])
    x, b = x.expand((*batch, *x.shape[-2:])), b.expand((*batch, *b.shape[-2:]))
    order = _order(pivots, x.shape[-1]).expand((*batch, x.shape[-1]))
    if adjoint:
        found = _solved(x.transpose(-1, -2), b, False, False)
        found = _solved(x.transpose(-1, -2), found, True, True)
        back = order.argsort(-1)
        return found.gather(-2, back.unsqueeze(-1).expand(found.shape))
    found = _solved(x, b.gather(-2, order.unsqueeze(-1).expand(b.shape)), False, True)
    return _solved(x, found, True, False)


def solve(x: Any, b: Any, *, left: bool = True, check_errors: bool = False) -> Any:
    """The solution for matrices, or for vectors where b has one dim less."""
    if _is_foreign(x):
        return NotImplemented
    factors, pivots, info = lu_factor(x)
    is_vector = b.dim() == 1 or (b.dim() == x.dim() - 1 and b.shape == x.shape[:-1])
    found = lu_solve(factors, pivots, b.unsqueeze(-1) if is_vector else b, left=left or is_vector)
    return found.squeeze(-1) if is_vector else found, factors, pivots, info


def inverse(x: Any, *, check_errors: bool = False) -> Any:
    if _is_foreign(x):
        return NotImplemented
    factors, pivots, info = lu_factor(x)
    torch = torch_module()
    eye = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device).expand(x.shape)
    return lu_solve(factors, pivots, eye), info


def _sign_of_order(pivots: Any) -> Any:
    """-1 for an odd number of exchanges."""
    torch = torch_module()
    places = torch.arange(1, pivots.shape[-1] + 1, device=pivots.device)
    return 1 - 2 * ((pivots != places).sum(-1) % 2)


def determinant(x: Any) -> Any:
    if _is_foreign(x):
        return NotImplemented
    factors, pivots, _ = lu_factor(x)
    found = factors.diagonal(dim1=-2, dim2=-1).prod(-1) * _sign_of_order(pivots)
    return found.to(x.dtype), factors, pivots


def slogdet(x: Any) -> Any:
    """The sign of the determinant, and the logarithm of its size."""
    if _is_foreign(x):
        return NotImplemented
    factors, pivots, _ = lu_factor(x)
    diagonal = factors.diagonal(dim1=-2, dim2=-1)
    sign = diagonal.sign().prod(-1) * _sign_of_order(pivots)
    return sign.to(x.dtype), diagonal.abs().log().sum(-1), factors, pivots


# ---------------------------------------------------------------------- triangles
def _substituted(x: Any, b: Any, upper: bool, unit: bool) -> Any:
    """The solution of X Y = B for a triangle of X, a column of X in each step."""
    torch, rows, count = torch_module(), _places(x, -2), x.shape[-1]
    for k in range(count)[::-1] if upper else range(count):
        row = b[..., k, :] if unit else b[..., k, :] / x[..., k, k].unsqueeze(-1)
        others = torch.where(rows < k if upper else rows > k, x[..., k], 0.0).unsqueeze(-1)
        rest = b - others * row.unsqueeze(-2)
        b = torch.where((rows == k).unsqueeze(-1), row.unsqueeze(-2), rest)
    return b


def _solved(x: Any, b: Any, upper: bool, unit: bool) -> Any:
    """The same for a triangle of any size."""
    if _is_large(x):
        return operators().substituted(x, b, upper, unit)
    return _substituted(x, b, upper, unit)


def solve_triangular(
    x: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Any:
    if _is_foreign(x):
        return NotImplemented
    torch = torch_module()
    batch = torch.broadcast_shapes(x.shape[:-2], b.shape[:-2])
    x, b = x.expand((*batch, *x.shape[-2:])), b.expand((*batch, *b.shape[-2:]))
    if left:
        return _solved(x, b, upper, unitriangular)
    found = _solved(x.transpose(-1, -2), b.transpose(-1, -2), not upper, unitriangular)
    return found.transpose(-1, -2)


def triangular_solve(
    b: Any, x: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    if _is_foreign(x):
        return NotImplemented
    given = x.transpose(-1, -2) if transpose else x
    found = solve_triangular(given, b, upper=upper != transpose, unitriangular=unitriangular)
    return found, x.expand((*found.shape[:-2], *x.shape[-2:])).clone()


# ---------------------------------------------------------------------- Cholesky
def cholesky_ex(x: Any, *, upper: bool = False, check_errors: bool = False) -> Any:
    """L of x = L L^T, or its transpose, and the number of the first pivot that is not positive."""
    if _is_foreign(x):
        return NotImplemented
    x = x.transpose(-1, -2) if upper else x
    if _is_large(x):
        found, info = operators().cholesky(x)
        return found.transpose(-1, -2) if upper else found, info
    torch, rows, columns = torch_module(), _places(x, -2), _places(x, -1)
    info = torch.zeros(x.shape[:-2], dtype=torch.int32, device=x.device)
    for k in range(x.shape[-1]):
        top = x[..., k, k]
        info = torch.where((info == 0) & ~(top > 0), k + 1, info)
        column = torch.where(rows >= k, x[..., k], 0.0) / top.sqrt().unsqueeze(-1)
        below = torch.where(rows > k, column, 0.0)
        rest = x - below.unsqueeze(-1) * below.unsqueeze(-2)
        x = torch.where(columns == k, column.unsqueeze(-1), rest)
    found = x.tril()
    return found.transpose(-1, -2) if upper else found, info.to(torch.int32)


def cholesky(x: Any, upper: bool = False) -> Any:
    """Eager mode raises where a pivot is not positive, which cannot be known here."""
    return NotImplemented if _is_foreign(x) else cholesky_ex(x, upper=upper)[0]


def cholesky_solve(b: Any, x: Any, upper: bool = False) -> Any:
    if _is_foreign(x):
        return NotImplemented
    lower = x.transpose(-1, -2) if upper else x
    found = solve_triangular(lower, b, upper=False)
    return solve_triangular(lower.transpose(-1, -2), found, upper=True)


def cholesky_inverse(x: Any, upper: bool = False) -> Any:
    torch = torch_module()
    eye = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device).expand(x.shape)
    return cholesky_solve(eye, x, upper)


# ---------------------------------------------------------------------- QR
def geqrf(x: Any) -> Any:
    """Householder's vectors below R, each with 1 at its own row, and their factors."""
    if _is_foreign(x):
        return NotImplemented
    if _is_large(x):
        return operators().reflections(x)
    torch, rows, columns = torch_module(), _places(x, -2), _places(x, -1)
    factors: list[Any] = []
    for k in range(min(x.shape[-2:])):
        head = x[..., k, k]
        tail = torch.where(rows > k, x[..., k], 0.0)
        square = (tail * tail).sum(-1)
        norm = (head * head + square).sqrt()
        new = torch.where(square == 0, head, torch.where(head < 0, norm, -norm))
        factor = torch.where(square == 0, 0.0, (new - head) / torch.where(new == 0, 1.0, new))
        divisor = torch.where(square == 0, 1.0, head - new)
        vector = tail / divisor.unsqueeze(-1)
        own = torch.where(rows == k, 1.0, vector)
        along = (own.unsqueeze(-1) * x).sum(-2) * factor.unsqueeze(-1)
        along = torch.where(columns > k, along, 0.0)
        rest = x - own.unsqueeze(-1) * along.unsqueeze(-2)
        below = torch.where(rows > k, vector, x[..., k])
        changed = torch.where(rows == k, new.unsqueeze(-1), below)
        x = torch.where(columns == k, changed.unsqueeze(-1), rest)
        factors.append(factor)
    tau = torch.stack(factors, -1) if factors else x.new_zeros((*x.shape[:-2], 0))
    return x, tau


def householder_product(x: Any, tau: Any) -> Any:
    """The first columns of the product of the reflections, the last applied first."""
    if _is_foreign(x):
        return NotImplemented
    torch, rows = torch_module(), _places(x, -2)
    found = torch.eye(x.shape[-2], x.shape[-1], dtype=x.dtype, device=x.device).expand(x.shape)
    if _is_large(x) or tau.shape[-1] > MOST:
        return operators().reflected(x, tau, found, False)
    for k in reversed(range(tau.shape[-1])):
        vector = torch.where(rows == k, 1.0, torch.where(rows > k, x[..., k], 0.0))
        along = (vector.unsqueeze(-1) * found).sum(-2) * tau[..., k:k + 1]
        found = found - vector.unsqueeze(-1) * along.unsqueeze(-2)
    return found


def product_with_reflections(
    x: Any, tau: Any, b: Any, left: bool = True, transpose: bool = False
) -> Any:
    """Q B, or Q^T B, or with Q from the right, where Q is the whole product of the reflections."""
    if _is_foreign(x):
        return NotImplemented
    if not left:
        found = product_with_reflections(x, tau, b.transpose(-1, -2), True, not transpose)
        return found.transpose(-1, -2)
    if _is_large(x) or tau.shape[-1] > MOST:
        return operators().reflected(x, tau, b, transpose)
    torch, rows = torch_module(), _places(x, -2)
    for k in range(tau.shape[-1]) if transpose else reversed(range(tau.shape[-1])):
        vector = torch.where(rows == k, 1.0, torch.where(rows > k, x[..., k], 0.0)).unsqueeze(-1)
        along = (vector * b).sum(-2, keepdim=True) * tau[..., k, None, None]
        b = b - vector * along
    return b


def qr(x: Any, mode: str = "reduced") -> Any:
    """Q and R of x = Q R."""
    if _is_foreign(x):
        return NotImplemented
    factors, tau = geqrf(x)
    count, steps = x.shape[-2], _steps(x)
    upper = (factors if mode == "complete" else factors[..., :steps, :]).triu()
    if mode == "r":
        return x.new_empty((0,)), upper
    wide = count if mode == "complete" else steps
    vectors = factors[..., :torch_module().sym_min(wide, factors.shape[-1])]
    if vectors.shape[-1] < wide:
        vectors = torch_module().nn.functional.pad(vectors, (0, wide - vectors.shape[-1]))
    return householder_product(vectors, tau), upper
