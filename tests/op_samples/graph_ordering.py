"""Samples of operations that order or count elements: running sums, extrema's places, scatters."""

from __future__ import annotations

from typing import Any

import numpy as np

import dialects.graph as g
from dialects.strata.types import Array
from tests.op_samples.sample import BF16, F16, F32, F64, I8, I32, I64, U8, Random, S, Sample, onnx

_TIES = np.float32([[1, 3, 3, -2, 3], [0, 0, 0, 0, 0], [-np.inf, 5, np.inf, np.inf, -5]])
_NANS = np.float32([[1, np.nan, 3, np.nan, 2], [-1, 5, np.inf, np.nan, 0]])


def _cumulative() -> list[Sample]:
    rows: list[Sample] = []
    for op in (g.CumulativeSumOp, g.CumulativeProdOp):
        for exclusive, reverse in ((0, 0), (1, 0), (0, 1), (1, 1)):
            reference = onnx("CumSum", 0, np.array(1), exclusive=exclusive, reverse=reverse)
            rows.append(S(op, F32(3, 13), dims="n m", axis=1, exclusive=bool(exclusive),
                          reverse=bool(reverse),
                          reference=reference if op is g.CumulativeSumOp else None))
        rows += [
            S(op, F32(2, 5, 3), dims="a b c", axis=1),
            S(op, F32(2, 75), dims="a b", axis=1, reverse=True),
            S(op, F64(1, 4), dims="1 n", axis=0),
            S(op, I64(17, low=-3, high=3), dims="n", axis=0),
            S(op, U8(9), dims="n", axis=0, reverse=True),
            S(op, F16(3, 33), dims="n m", axis=1, tolerance=2e-2),
            S(op, BF16(3, 7), dims="n m", axis=1, tolerance=0.1),
            S(op, F32(3, 0), dims="3 n", axis=1),
        ]
    return rows


def _places() -> list[Sample]:
    rows: list[Sample] = []
    for op, name in ((g.ArgMaxOp, "ArgMax"), (g.ArgMinOp, "ArgMin")):
        for last in (0, 1):
            rows += [
                S(op, _TIES, dims="n m", axis=1, keepdims=True, last=bool(last),
                  reference=onnx(name, axis=1, keepdims=1, select_last_index=last)),
                S(op, F32(5, 3, 2), dims="a b c", axis=1, last=bool(last),
                  reference=onnx(name, axis=1, keepdims=0, select_last_index=last)),
            ]
        rows += [
            S(op, _NANS, dims="n m", axis=1),
            S(op, I32(4, 7, low=-3, high=3), dims="n 7", axis=0,
              reference=onnx(name, axis=0, keepdims=0)),
            S(op, U8(9, 3), dims="n 3", axis=0, keepdims=True),
            S(op, F16(3, 5), dims="n 5", axis=1),
            S(op, BF16(7), dims="n", axis=0),
        ]
    return rows


def _trees(count: int, depth: int, columns: int, dtype: Any) -> tuple[Array, Array]:
    """Nodes and roots of full trees, whose leaves are their own children."""
    rng = np.random.default_rng(count)
    inner, size = 2 ** depth - 1, 2 ** (depth + 1)  # node 1 of a tree is unused
    nodes = np.zeros((count, size, 2), np.int64)
    at = np.arange(inner)
    own = np.where(at, at + 1, 0)  # the k-th inner node has the children 2k + 2 and 2k + 3
    nodes[:, :, 0] = np.iinfo(dtype).min
    nodes[:, :, 1] = np.arange(size)
    nodes[:, own, 0] = rng.integers(-9, 9, (count, inner))
    nodes[:, own, 1] = 2 * at + 2
    nodes[:, :, 1] += np.arange(count)[:, None] * size
    nodes[:, :, 1] *= columns
    nodes[:, own, 1] += rng.integers(0, columns, (count, inner))
    return nodes.reshape(-1, 2).astype(dtype), np.arange(count) * size


def _descents() -> list[Sample]:
    rows: list[Sample] = []
    for count, depth, dtype in ((3, 2, np.int32), (19, 4, np.int64), (1, 3, np.int16)):
        nodes, roots = _trees(count, depth, 5, dtype)
        x = Random((7, 5), np.dtype(dtype))
        rows.append(S(g.DescendOp, x, nodes, roots, dims="n 5; k 2; m", steps=depth))
    nodes, roots = _trees(6, 3, 4, np.int32)
    return [*rows, S(g.DescendOp, I32(2, 4), nodes, roots.reshape(2, 3), dims="n 4; k 2; a b",
                     steps=3),
            S(g.DescendOp, I32(1, 4), nodes, roots[:1].astype(np.int32), steps=1),
            S(g.DescendOp, I32(0, 4), nodes, roots, dims="n 4; k 2; m", steps=0)]


def _top(k: int, axis: int, largest: bool = True):
    return onnx("TopK", 0, np.array([k]), outputs=2, axis=axis, largest=int(largest))


_TOP_K = [
    S(g.TopKOp, F32(4, 11), dims="n 11", axis=1, k=3, largest=True, reference=_top(3, 1)),
    S(g.TopKOp, F32(4, 11), dims="4 m", axis=0, k=2, largest=False, reference=_top(2, 0, False)),
    S(g.TopKOp, _TIES, dims="n 5", axis=1, k=5, largest=True, reference=_top(5, 1)),
    S(g.TopKOp, _TIES, dims="n 5", axis=1, k=4, largest=False, reference=_top(4, 1, False)),
    S(g.TopKOp, _NANS, dims="n 5", axis=1, k=4, largest=True),
    S(g.TopKOp, _NANS, dims="n 5", axis=1, k=4, largest=False),
    S(g.TopKOp, I64(2, 9, low=-3, high=3), dims="n 9", axis=1, k=9, largest=True,
      reference=_top(9, 1)),
    S(g.TopKOp, U8(7, 2), dims="n 2", axis=0, k=1, largest=True),
    S(g.TopKOp, BF16(5), dims="n", axis=0, k=0, largest=True),
    S(g.TopKOp, F32(0), dims="n", axis=0, k=0, largest=True),
]


_LONG_TOP_K = [  # tests/passes/test_sort_lowering.py has more
    S(g.TopKOp, I8(2, 270, 2), dims="2 n 2", axis=1, k=270, largest=False),
    S(g.TopKOp, U8(260), dims="260", axis=0, k=3, largest=True),
]

_NONE = {"combiner": "none"}
_ALL = ("none", "add", "mul", "max", "min")


def _scatters() -> list[Sample]:
    rows: list[Sample] = []
    distinct = np.array([[4, -1, 0], [2, 1, 3]])
    repeated = np.array([[1, 1, 1], [2, -3, 2]])
    vectors = np.array([[0, 1], [2, -1], [0, 1], [1, 0]])
    for combiner in _ALL:
        exact = onnx("ScatterElements", axis=1, reduction=combiner)
        rows += [
            S(g.ScatterElementsOp, F32(2, 5), repeated, F32(2, 3), dims="n 5; n 3; n 3", axis=1,
              combiner=combiner, reference=None if combiner == "none" else exact),
            S(g.ScatterElementsOp, I32(4, 5), distinct, I32(2, 3), dims="m 5; 2 3; 2 3", axis=1,
              combiner=combiner, reference=exact),
            S(g.ScatterElementsOp, U8(2, 5), repeated, U8(2, 3), dims="2 m; 2 3; 2 3", axis=1,
              combiner=combiner),
            S(g.ScatterElementsOp, F16(6, 2), np.zeros((3, 1), np.int32), F16(3, 1),
              dims="a 2; b 1; b 1", axis=0, combiner=combiner),
            S(g.ScatterNdOp, F32(3, 4, 2), vectors, F32(4, 2), dims="3 4 c; k 2; k c",
              combiner=combiner),
            S(g.ScatterNdOp, F64(3, 5), np.array([[[1], [-3]]]), F64(1, 2, 5),
              dims="3 m; 1 k 1; 1 k m", combiner=combiner,
              reference=onnx("ScatterND", reduction=combiner)),
        ]
    return [
        *rows,
        S(g.ScatterElementsOp, F32(2, 5), np.zeros((2, 0), np.int64), F32(2, 0),
          dims="n 5; n 0; n 0", axis=1, **_NONE),
        S(g.ScatterNdOp, F32(1, 5), np.array([[0], [-1]]), F32(2, 5), dims="1 n; k 1; k n",
          combiner="add"),
        S(g.ScatterNdOp, F32(5, 2, 3, 40), np.array([[1, 0], [4, -1], [1, 0]]), F32(3, 3, 40),
          dims="a 2 3 b; k 2; k 3 b", combiner="add"),
        S(g.ScatterNdOp, F32(40), np.random.default_rng(1).integers(-40, 40, (200, 1)), F32(200),
          dims="n; k 1; k", **_NONE),
        S(g.ScatterNdOp, U8(7, 3), np.array([[6], [-7], [6]], np.int32), U8(3, 3),
          dims="n 3; k 1; k 3", combiner="max"),
        S(g.ScatterNdOp, BF16(7, 3), np.random.default_rng(3).integers(-7, 7, (90, 1)),
          BF16(90, 3), dims="n c; k 1; k c", combiner="add", order="any"),
        S(g.ScatterElementsOp, I32(5, 7), np.random.default_rng(4).integers(-5, 5, (90, 7)),
          I32(90, 7), dims="n c; k c; k c", axis=0, combiner="add", order="any"),
        S(g.ScatterNdOp, np.array([True, False, True]), np.array([[2], [1]]),
          np.array([False, True]), dims="n; k 1; k", **_NONE),
        S(g.ScatterElementsOp, F32(3, 70), np.random.default_rng(2).integers(-3, 3, (5, 70)),
          F32(5, 70), dims="3 n; k n; k n", axis=0, **_NONE),
        S(g.ScatterElementsOp, F32(6), np.zeros(0, np.int64), F32(0), dims="n; k; k", axis=0,
          combiner="mul"),
        S(g.ScatterNdOp, BF16(3), np.array([[2], [0]]), BF16(2), dims="n; 2 1; 2", **_NONE),
        S(g.ScatterNdOp, F32(3), np.zeros((2, 0), np.int64), F32(2, 3), dims="n; k 0; k n",
          **_NONE),
    ]


_LIST = np.float32([-3, -1, -1, -0.5, 0, 0.25, 0.25, 0.25, 1, 2, 2.5, np.inf, np.inf])
_SEARCHES = [
    *_descents(),
    S(g.SearchSortedOp, _LIST, F32(4, 5), dims="n; m k"),
    S(g.SearchSortedOp, _LIST, np.float32([-np.inf, -3, -1, 0.25, 2.4, np.inf]), dims="n; m"),
    S(g.SearchSortedOp, np.arange(300) // 7, I64(41, low=-5, high=50), dims="n; m"),
    S(g.SearchSortedOp, np.uint8([1, 1, 4, 200]), U8(3, 3), dims="n; a b"),
    S(g.SearchSortedOp, _LIST.astype(np.float16), F16(5), dims="n; m"),
    S(g.SearchSortedOp, F32(0), F32(3), dims="n; m"),
    S(g.SearchSortedOp, np.int32([5]), I32(0), dims="n; m"),
]
ORDERING = [*_cumulative(), *_places(), *_TOP_K, *_LONG_TOP_K, *_scatters(), *_SEARCHES]
