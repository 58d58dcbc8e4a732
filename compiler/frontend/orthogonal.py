"""Factors of matrices with orthogonal columns, for importers: QR, singular values, eigenvalues.

    reflections    A = H_1 H_2 ... R, by Householder, in LAPACK's form: one step for each column
    singular       A = U diag(s) V^T, by Jacobi: rotations of pairs of columns until all are
                   orthogonal, whose lengths are the singular values
    eigen          those of a symmetric matrix A, from A + c I, which has no negative ones

A round of rotations takes each column once, so that it is a few operations on whole matrices. The
pairs of the next round are those of a tournament: all columns but the first move on by one place.
Rounds are computed in f64; the signs of singular vectors and of eigenvectors may differ from those
of LAPACK. Matrices are the last two dims, with constant sizes but for reflections.
Source: G. Golub and C. Van Loan, Matrix Computations, 5.1, 5.2, 8.5 and 8.6.3.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.loops import Loop, Turn
from compiler.frontend.node import NodeBase, fixed
from compiler.frontend.peeling import repeat
from compiler.frontend.values import Value, scalar
from dialects.graph.gather import GatherElementsOp
from dialects.graph.ordering import TopKOp
from dialects.records import dataclass
from dialects.strata import types as t
from dialects.symbolic.expr import Expr, minimum

SWEEPS = 12
"""How often each pair of columns is rotated: the angles that are left are below f64's digits."""
_NEGLIGIBLE = 2.0**-54
"""The cosine of two columns that count as orthogonal."""


@dataclass(frozen=True)
class Singular:
    """U [..., m, k] or [..., m, m], s [..., k] in descending order, V [..., n, k] or [..., n, n];
    k is the smaller of m and n."""

    u: Value
    s: Value
    v: Value


def turned(x: Value) -> Value:
    """The transposes of matrices."""
    return x.transpose([*range(x.rank - 2), x.rank - 1, x.rank - 2])


def order_of(x: Value) -> tuple[int, int]:
    """The rows and columns of matrices. Raises Fault for sizes that are open, or 0."""
    rows, columns = (fixed(size, "matrices") for size in x.shape[-2:])
    if not rows or not columns:
        raise Fault("its matrices have no elements")
    return rows, columns


# ---------------------------------------------------------------------- Householder
def reflections(n: NodeBase, x: Value) -> tuple[Value, Value]:
    """Householder's vectors below R, each with 1 at its own row, and their factors [..., k]."""
    height, width = x.shape[-2:]
    rows, columns = n.range(height).reshape([height, 1]), n.range(width)
    down, across = x.rank - 2, x.rank - 1
    zero, one = (scalar(n.build, number, x.element) for number in (0, 1))

    def step(number: Expr, carried: list[Value]) -> Turn:
        x, at = carried[0], n.of_size(number)
        column = x.part(across, number, 1)
        head, tail = column.part(down, number, 1), f.where(rows > at, column, zero)
        square = f.reduce_sum(tail * tail, [down], keepdims=True)
        norm, is_done = f.sqrt(head * head + square), f.equal(square, 0)
        new = f.where(is_done, head, f.where(head < 0, norm, -norm))
        factor = f.where(is_done, zero, (new - head) / f.where(is_done, one, new))
        vector = tail / f.where(is_done, one, head - new)
        own = f.where(f.equal(rows, at), one, vector)
        along = f.reduce_sum(own * x, [down], keepdims=True) * factor
        rest = x - own * f.where(columns > at, along, zero)
        changed = f.where(f.equal(rows, at), new, f.where(rows > at, vector, column))
        return Turn(None, [f.where(f.equal(columns, at), changed, rest)],
                    [factor.reshape(x.shape[:-2])])

    steps = minimum(height, width)
    [found], [factors] = repeat(n.build, Loop(f"{n.name}_reflection", steps, None, [x]), step)
    return found, factors.transpose([*range(1, factors.rank), 0])


def product_of(n: NodeBase, vectors: Value, factors: Value, width: int) -> Value:
    """The first columns of the product of reflections, as `reflections` returns them."""
    height = vectors.shape[-2]
    eye = f.equal(n.range(height).reshape([height, 1]), n.range(width)).cast(vectors.element)
    begin = eye.broadcast([*vectors.shape[:-1], width])
    return reflected(n, vectors, factors, begin, False)


def reflected(n: NodeBase, vectors: Value, factors: Value, b: Value, transpose: bool) -> Value:
    """Q b for the product Q of reflections, as `reflections` returns them, or Q^T b."""
    height = vectors.shape[-2]
    rows, down, across = n.range(height).reshape([height, 1]), vectors.rank - 2, vectors.rank - 1
    zero, one = (scalar(n.build, number, vectors.element) for number in (0, 1))
    count = factors.shape[-1]

    def step(number: Expr, carried: list[Value]) -> Turn:
        place = number if transpose else count - 1 - number
        x, at = carried[0], n.of_size(place)
        below = f.where(rows > at, vectors.part(across, place, 1), zero)
        own = f.where(f.equal(rows, at), one, below)
        factor = factors.part(factors.rank - 1, place, 1).reshape([*vectors.shape[:-2], 1, 1])
        along = f.reduce_sum(own * x, [down], keepdims=True) * factor
        return Turn(None, [x - own * along], [])

    return repeat(n.build, Loop(f"{n.name}_product", count, None, [b]), step)[0][0]


# ---------------------------------------------------------------------- Jacobi
def singular_values(n: NodeBase, x: Value) -> Value:
    """The singular values in descending order [..., k]."""
    height, width = order_of(x)
    found, scale = _rotated(n, turned(x) if height < width else x, False)
    return _by_length(n, found, found)[1].cast(x.element) * scale.cast(x.element)


def singular(n: NodeBase, x: Value, full: bool) -> Singular:
    """All factors. `full`: whole orthogonal matrices."""
    height, width = order_of(x)
    if height < width:
        found = singular(n, turned(x), full)
        return Singular(found.v, found.s, found.u)
    both, scale = _rotated(n, x, True)
    down, across = x.rank - 2, x.rank - 1
    rows, right = both.part(down, 0, height), both.part(down, height, width)
    [left, right], lengths = _by_length(n, rows, rows, right)
    vectors, factors = reflections(n, left)
    diagonal = f.equal(n.range(height).reshape([height, 1]), n.range(width))
    heads = f.reduce_sum(f.where(diagonal, vectors, 0), [down], keepdims=True)
    u = product_of(n, vectors, factors, height if full else width)
    own = u.part(across, 0, width)
    u = f.concat([f.where(heads < 0, -own, own), u.part(across, width, height - width)],
                 axis=across) if full and height > width else f.where(heads < 0, -own, own)
    return Singular(*(v.cast(x.element) for v in (u, lengths * scale, right)))


def eigen(n: NodeBase, x: Value, with_vectors: bool) -> tuple[Value, Value | None]:
    """Eigenvalues of symmetric matrices in ascending order [..., n], and eigenvectors."""
    width, _ = order_of(x)
    wide, across = x.cast(t.f64), x.rank - 1
    most = f.reduce_max(f.reduce_sum(abs(wide), [across], keepdims=True), [x.rank - 2],
                        keepdims=True)
    rows = n.range(width).reshape([width, 1])
    moved = wide + f.where(f.equal(rows, n.range(width)), most, 0)
    found, scale = _rotated(n, moved, with_vectors)
    columns = found.part(x.rank - 2, 0, width)
    others = [found.part(x.rank - 2, width, width)] if with_vectors else []
    vectors, lengths = _by_length(n, columns, *others, descending=False)
    values = lengths * scale - most.reshape([*x.shape[:-2], 1])
    return values.cast(x.element), vectors[0].cast(x.element) if with_vectors else None


def _rotated(n: NodeBase, x: Value, with_right: bool) -> tuple[Value, Value]:
    """Orthogonal columns x V / scale in f64, with V below them if asked for, and the scale
    [..., 1]. There are at least as many rows as columns."""
    height, width = order_of(x)
    batch, down, across = list(x.shape[:-2]), x.rank - 2, x.rank - 1
    x = x.cast(t.f64)
    most = f.reduce_max(abs(x), [down, across], keepdims=True)
    scale = f.where(most > 0, most, 1)
    even = width + width % 2
    found = f.concat([x / scale, *_nothing(n, [*batch, height, even - width])], axis=across)
    if with_right:
        eye = f.equal(n.range(even).reshape([even, 1]), n.range(even)).cast(t.f64)
        found = f.concat([found, eye.broadcast([*batch, even, even])], axis=down)
    half = even // 2
    pair = [found.part(across, k * half, half) for k in (0, 1)]

    def round_(number: Expr, carried: list[Value]) -> Turn:
        p, q = carried
        return Turn(None, _moved_on(*_orthogonal(p, q, height), half), [])

    count = Expr.of(SWEEPS * (even - 1))
    pair = repeat(n.build, Loop(f"{n.name}_rotation", count, None, pair), round_)[0]
    columns = f.concat(pair, axis=across).part(across, 0, width)
    if with_right:
        columns = columns.part(down, 0, height + width)
    return columns, scale.reshape([*batch, 1])


def _nothing(n: NodeBase, shape: Sequence[Expr | int]) -> list[Value]:
    """Columns of zeros, if there are any."""
    return [scalar(n.build, 0, t.f64).broadcast(shape)] if shape[-1] else []


def _orthogonal(p: Value, q: Value, height: int) -> tuple[Value, Value]:
    """Columns of p and q, rotated so that the first rows of each pair are orthogonal."""
    down = p.rank - 2
    upper = [v.part(down, 0, height) for v in (p, q)]
    first, second, both = (f.reduce_sum(a * b, [down], keepdims=True) for a, b in (
        (upper[0], upper[0]), (upper[1], upper[1]), (upper[0], upper[1])))
    turns = abs(both) > f.sqrt(first * second) * _NEGLIGIBLE
    ratio = (second - first) / f.where(turns, both * 2.0, 1)
    root = abs(ratio) + f.sqrt(ratio * ratio + 1.0)
    tangent = f.where(turns, f.where(ratio < 0, -1.0 / root, 1.0 / root), 0)
    cosine = 1.0 / f.sqrt(tangent * tangent + 1.0)
    sine = cosine * tangent
    return p * cosine - q * sine, p * sine + q * cosine


def _moved_on(p: Value, q: Value, half: int) -> list[Value]:
    """The pairs of the next round."""
    if half == 1:
        return [p, q]
    axis = p.rank - 1
    return [f.concat([p.part(axis, 0, 1), q.part(axis, 0, 1), *(
                [p.part(axis, 1, half - 2)] if half > 2 else [])], axis=axis),
            f.concat([q.part(axis, 1, half - 1), p.part(axis, half - 1, 1)], axis=axis)]


def _by_length(
    n: NodeBase, columns: Value, *others: Value, descending: bool = True
) -> tuple[list[Value], Value]:
    """Columns of `others` in the order of the lengths of `columns`, and these lengths."""
    lengths = f.sqrt(f.reduce_sum(columns * columns, [columns.rank - 2]))
    width = lengths.shape[-1]
    lengths, order = n.build.results(TopKOp, lengths, axis=lengths.rank - 1, k=width,
                                     largest=descending)
    order = order.reshape([*order.shape[:-1], 1, width])
    return [n(GatherElementsOp, x, order.broadcast([*x.shape[:-1], width]), axis=x.rank - 1)
            for x in others], lengths
