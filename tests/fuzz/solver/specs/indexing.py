"""Operators that read or write by indices, which lie in range at every size."""

from __future__ import annotations

from collections.abc import Sequence

from tests.fuzz.solver.draft import (
    ALL,
    BOOL,
    I32,
    I64,
    Dim,
    Domain,
    Draft,
    Impossible,
    Value,
    same,
)


def _indices(draft: Draft, shape: Sequence[Dim], bound: Dim, from_zero: bool = False) -> Value:
    draft.require(bound >= 1)
    dtype = draft.choose((I64, I64, I32))
    return draft.placeholder(dtype, shape, Domain("index", bound, from_zero))


def gather(draft: Draft) -> None:
    x = draft.pick(ALL, 1, 4)
    axis = draft.integer(0, x.rank - 1)
    rank = draft.choose((0, 1, 1, 2))
    if x.rank - 1 + rank > 5:
        raise Impossible
    indices = _indices(draft, [draft.dim() for _ in range(rank)], x.shape[axis])
    draft.node("Gather", [x, indices], x.dtype,
               [*x.shape[:axis], *indices.shape, *x.shape[axis + 1:]],
               axis=axis - (x.rank if draft.chance(0.3) else 0))


def gather_elements(draft: Draft) -> None:
    x = draft.pick(ALL, 1, 4)
    axis = draft.integer(0, x.rank - 1)
    shape = _smaller(draft, x.shape, axis)
    draft.node("GatherElements", [x, _indices(draft, shape, x.shape[axis])], x.dtype, shape,
               axis=axis)


def _smaller(draft: Draft, shape: Sequence[Dim], axis: int) -> list[Dim]:
    """Dims that are at most the given ones, but for the axis."""
    found: list[Dim] = []
    for a, d in enumerate(shape):
        if a != axis and draft.chance(0.6):
            found.append(d)
            continue
        found.append(draft.dim())
        if a != axis:
            draft.require(found[-1] <= d)
    return found


def gather_nd(draft: Draft) -> None:
    """Indices into the first dim after the batch dims."""
    x = draft.pick(ALL, 1, 4)
    batch = draft.integer(0, x.rank - 1) if draft.opset >= 12 else 0
    shape = [*x.shape[:batch], draft.dim(), 1]
    dtype_indices = _indices(draft, shape, x.shape[batch])
    if dtype_indices.dtype != I64:
        raise Impossible
    more = {"batch_dims": batch} if batch else {}
    draft.node("GatherND", [x, dtype_indices], x.dtype, [*shape[:-1], *x.shape[batch + 1:]],
               **more)


def scatter_elements(draft: Draft) -> None:
    """One element per line is written, or elements are combined."""
    x = draft.pick(draft.allowed("ScatterElements"), 1, 4)
    axis = draft.integer(0, x.rank - 1)
    how = draft.choose(("none", "add", "max", "min", "mul") if draft.opset >= 18 else ("none",))
    if how != "none" and x.dtype == BOOL:
        raise Impossible
    shape = _smaller(draft, x.shape, axis)
    if how == "none":
        shape[axis] = 1
    updates = draft.placeholder(x.dtype, shape)
    more = {} if how == "none" else {"reduction": how}
    draft.node("ScatterElements", [x, _indices(draft, shape, x.shape[axis]), updates], x.dtype,
               x.shape, axis=axis, **more)


def scatter_nd(draft: Draft) -> None:
    x = draft.pick(draft.allowed("ScatterND"), 1, 3)
    how = draft.choose(("none", "add", "max") if draft.opset >= 18 else ("none",))
    if how != "none" and x.dtype == BOOL:
        raise Impossible
    count: Dim = 1 if how == "none" else draft.dim()
    indices = _indices(draft, [count, 1], x.shape[0])
    if indices.dtype != I64:
        raise Impossible
    updates = draft.placeholder(x.dtype, [count, *x.shape[1:]])
    more = {} if how == "none" else {"reduction": how}
    draft.node("ScatterND", [x, indices, updates], x.dtype, x.shape, **more)


def embedding(draft: Draft) -> None:
    """Rows of a table, by numbers that are an input."""
    rows, width = draft.dim(), draft.dim()
    dtype = draft.main if draft.main != BOOL else ALL[0]
    table = draft.placeholder(dtype, [rows, width], fixed=True)
    indices = _indices(draft, [draft.dim(), draft.dim()], rows)
    draft.node("Gather", [table, indices], dtype, [*indices.shape, width])


def last_rows(draft: Draft) -> None:
    """One row at a place that is computed from a size."""
    x = draft.pick(ALL, 1, 4)
    draft.require(x.shape[0] >= 1)
    shape = draft.node("Shape", [x], I64, [x.rank], keep=False)
    size = draft.node("Gather", [shape, draft.constant([0])], I64, [1], keep=False)
    start = draft.node("Sub", [size, draft.constant([1])], I64, [1], keep=False)
    draft.node("Slice", [x, start, size, draft.constant([0])], x.dtype, [1, *x.shape[1:]])


def compress(draft: Draft) -> None:
    """Columns that a constant condition selects."""
    x = draft.pick(ALL, 1, 4)
    axis = draft.integer(0, x.rank - 1)
    length = draft.integer(1, 5)
    condition = [draft.chance() for _ in range(length)]
    draft.require(x.shape[axis] >= length, sum(condition) >= draft.smallest)
    shape = [sum(condition) if a == axis else d for a, d in enumerate(x.shape)]
    draft.node("Compress", [x, draft.constant(condition, bool)], x.dtype, shape, axis=axis)


def nonzero_count(draft: Draft) -> None:
    """How many elements are not zero: a size that data decides, taken back into a number."""
    x = draft.pick(draft.allowed("NonZero"), 1, 3)
    found = draft.node("NonZero", [x], I64, [x.rank, 1], keep=False)
    shape = draft.node("Shape", [found], I64, [2], keep=False)
    draft.node("Gather", [shape, draft.constant(1)], I64, [])
    if draft.chance() and draft.opset >= 13:
        draft.node("ReduceSum", [found, draft.constant([1])], I64, [x.rank], keepdims=0)


def along_shape(draft: Draft) -> None:
    """Reshape to a shape that is put together from sizes and a number."""
    x = draft.pick(ALL, 2, 4)
    shape = draft.node("Shape", [x], I64, [x.rank], keep=False)
    head = draft.node("Gather", [shape, draft.constant([0])], I64, [1], keep=False)
    if draft.smallest == 0:
        draft.require(*(d >= 1 for d in x.shape))
    target = draft.node("Concat", [head, draft.constant([-1])], I64, [2], keep=False, axis=0)
    rest = draft.dim()
    total: Dim = 1
    for d in x.shape[1:]:
        total = total * d
    draft.require(same(rest, total))
    draft.node("Reshape", [x, target], x.dtype, [x.shape[0], rest])


SPECS = {gather: 1.5, gather_elements: 0.7, gather_nd: 0.5, scatter_elements: 0.8,
         scatter_nd: 0.5, embedding: 0.4, last_rows: 0.5, compress: 0.3, nonzero_count: 0.3,
         along_shape: 0.6}
