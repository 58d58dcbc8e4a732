"""Scatters of many updates by many programs: sort the updates by place, and sum runs of a place.

    order    = the numbers of the updates, sorted by place
    s[k]     = place[order[k]]                   v[k] = updates[order[k]]
    v[k]     = the sum of v[k - 7d], ..., v[k - d], v[k] where s has the value s[k] there
               for d = 1, 8, 64, ...
    end[p]   = the number of places up to p
    y[p]     = x[p] + v[end[p] - 1] where end[p] > end[p - 1], else x[p]

After d, every element holds the sum of up to 8d elements of its run. The order of additions depends
on places only, so results are the same on every run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import SSAValue

from dialects.graph.search import SearchSortedOp
from dialects.loop import ViewOp
from dialects.strata import types as t
from dialects.strata.types import TensorType, tensor
from dialects.symbolic.expr import Expr
from dialects.symbolic.size_products import product
from passes.graph_to_loop.nests import Domain, Read, make_nest, type_of
from passes.graph_to_loop.scalars import Body, Scalar
from passes.graph_to_loop.sorting import sorted_indices
from passes.rewriting import Rewriter

SUMMED = 8
"""The elements of a run that a nest sums at a time."""

Merge = Callable[[Scalar, Scalar], Scalar]
"""An element and an update, or two updates, merged."""


def scatter_sorted(
    at: Rewriter, x: SSAValue, places: SSAValue, updates: SSAValue, count: int, merge: Merge
) -> SSAValue:
    """x [rows, ...] with updates [count, ...] merged into the rows that places [count] name."""
    rows = type_of(x).shape[0]
    order = sorted_indices(at, _narrowed(at, places, rows), 0, descending=False)
    keys = _by_order(at, order, places, count)
    sums, step = _by_order(at, order, updates, count), 1
    while step < count:
        sums = _runs(at, keys, sums, [step * k for k in range(SUMMED) if step * k < count], merge)
        step *= SUMMED
    return _merged(at, x, sums, _ends(at, keys, rows), merge)


def _narrowed(at: Rewriter, places: SSAValue, rows: Expr) -> SSAValue:
    """The places in the narrowest type, which has the fewest digits to sort by."""
    size = rows.constant or 1 << 63
    widths = ((1 << 8, t.ui8), (1 << 16, t.ui16), (1 << 31, t.i32))
    element = next((element for most, element in widths if size <= most), t.i64)
    domain = Domain()
    point = domain.parallel(*type_of(places).shape)
    return make_nest(at, domain, [Read(places, point)], tensor(element, type_of(places).shape),
                     lambda body, read: read[0].to(element))


def _by_order(at: Rewriter, order: SSAValue, values: SSAValue, count: int) -> SSAValue:
    """The values in that order."""
    type_ = type_of(values)
    domain = Domain()
    k, *rest = domain.parallel(count, *type_.shape[1:])
    reads = [Read(order, [k]), Read(values, [Expr.gathered(0), *rest])]
    return make_nest(at, domain, reads, type_, lambda body, read: read[1])


def _runs(
    at: Rewriter, keys: SSAValue, values: SSAValue, steps: Sequence[int], merge: Merge
) -> SSAValue:
    """Each value, merged with those at the given distances before it that have its key."""
    type_ = type_of(values)
    domain = Domain()
    k, *rest = domain.parallel(*type_.shape)
    reads = [Read(keys, [k - step], -1 if step else None) for step in steps]
    reads += [Read(values, [k - step, *rest], 0 if step else None) for step in steps]

    def merged(body: Body, read: Sequence[Scalar]) -> Scalar:
        own, *others = read[:len(steps)]
        total, *found = read[len(steps):]
        for other, value in zip(others, found, strict=True):
            total = other.compare("eq", own).where(merge(total, value), total)
        return total

    return make_nest(at, domain, reads, type_, merged)


def _ends(at: Rewriter, keys: SSAValue, rows: Expr) -> SSAValue:
    """For each row, the number of keys up to it."""
    domain = Domain()
    [p] = domain.parallel(rows)
    numbers = make_nest(at, domain, [], tensor(t.i64, [rows]), lambda body, read: body.index(p))
    return at.insert(SearchSortedOp.of(keys, numbers)).results[0]


def _merged(
    at: Rewriter, x: SSAValue, sums: SSAValue, ends: SSAValue, merge: Merge
) -> SSAValue:
    """Each row, merged with the sum of its run, which the last element of the run holds."""
    type_ = type_of(x)
    domain = Domain()
    p, *rest = domain.parallel(*type_.shape)
    reads = [Read(ends, [p]), Read(ends, [p - 1], 0), Read(x, [p, *rest]),
             Read(sums, [Expr.gathered(0) - 1, *rest], 0)]

    def merged(body: Body, read: Sequence[Scalar]) -> Scalar:
        end, before, own, total = read
        return before.compare("lt", end).where(merge(own, total), own)

    return make_nest(at, domain, reads, type_, merged)


def in_rows(at: Rewriter, x: SSAValue, depth: int) -> SSAValue:
    """x with its first `depth` dims as one."""
    shape = type_of(x).shape
    if depth == 1:
        return x
    return at.insert(ViewOp.of(x, [product(shape[:depth]), *shape[depth:]])).results[0]


def linear_places(
    at: Rewriter, entries: Sequence[SSAValue], sizes: Sequence[Expr]
) -> SSAValue:
    """The rows of index vectors whose entries are given apart, each inside its dim."""
    if len(entries) == 1:
        return entries[0]
    type_: TensorType = type_of(entries[0])
    domain = Domain()
    point = domain.parallel(*type_.shape)

    def row(body: Body, read: Sequence[Scalar]) -> Scalar:
        total = read[0]
        for size, entry in zip(sizes[1:], read[1:], strict=True):
            total = total * (size.constant or 1) + entry
        return total

    return make_nest(at, domain, [Read(e, point) for e in entries], type_, row)
