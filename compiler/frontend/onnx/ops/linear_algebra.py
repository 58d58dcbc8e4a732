"""Determinants (Det), and images from overlapping blocks (Col2Im)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node, rounded_once
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.values import Value
from dialects.graph.ordering import ArgMaxOp
from dialects.records import dataclass
from dialects.symbolic.expr import Expr
from dialects.symbolic.size_products import product

MAX_ORDER = 32
"""The maximum order of a matrix: larger ones would be unrolled into too many operations."""
MAX_KNOWN = 1 << 20
"""Of Col2Im: the most entries over an image's elements along a dim that are a constant."""


def order_of(x: Value, what: str) -> int:
    """The order of square matrices. Raises Fault, which names `what` they are needed for,
    otherwise.
    """
    order = x.shape[-1].constant if x.rank > 1 else None
    if order is None or not 1 <= order <= MAX_ORDER or x.shape[-2] != x.shape[-1]:
        raise Fault(f"{what} of {x.type.short} are not supported; matrices must be square, of "
                    f"constant order up to {MAX_ORDER}")
    return order


@onnx_op("Det")
def det(n: Node, x: Value) -> Value:
    """The product of the pivots of Gaussian elimination. Each exchange of rows changes its sign."""
    order, batch = order_of(x, "determinants"), x.shape[:-2]
    rest, pivots = x.reshape([x.type.count // (order * order), order, order]), list[Value]()
    for _ in range(order - 1):
        pivot, rest = _eliminated(n, rest)
        pivots.append(pivot)
    pivots.append(rest.reshape([rest.shape[0]]))
    return f.product(pivots).reshape(batch)


def _eliminated(n: Node, x: Value) -> tuple[Value, Value]:
    """One elimination step on x [b, k, k]: the pivot [b], and the remaining matrices [b, k-1, k-1].

    The pivot is the element of the first column with the largest magnitude. If another row than the
    first holds it, the two rows are exchanged, and the pivot is negated.
    """
    [order] = n.known_ints(n.of_sizes([x.shape[1]]), "orders")
    column = x.part(2, 0, 1).reshape(x.shape[:2])
    which = n(ArgMaxOp, abs(column), axis=1, keepdims=True, last=False)  # [b, 1]
    row = f.gather_nd(x, which, batch_dims=1).reshape([x.shape[0], 1, order])
    first, others = x.part(1, 0, 1), x.part(1, 1, order - 1)
    chosen = f.equal(n.constant(np.arange(1, order)), which)
    others = f.where(chosen.reshape([x.shape[0], order - 1, 1]), first, others)
    pivot = row.part(2, 0, 1)
    zero = f.equal(pivot, 0)
    divisor = f.where(zero, 1, pivot)
    factor = others.part(2, 0, 1) / divisor
    rest = others.part(2, 1, order - 1) - factor * row.part(2, 1, order - 1)
    signed = f.where(f.equal(which, 0), *(v.reshape([x.shape[0], 1]) for v in (pivot, -pivot)))
    return signed.reshape([x.shape[0]]), rest


# ---------------------------------------------------------------------- images from blocks
@onnx_op("Col2Im")
@rounded_once
def col_to_im(n: Node, x: Value, image: Value, block: Value) -> Value:
    """Add up blocks at their positions in the image, along one dim after the other."""
    dims = block.type.count.constant or image.type.count.constant
    kernel = n.known_sizes(block, "block sizes", dims)
    rank = len(kernel)
    sizes = n.known_sizes(image, "image sizes", rank)
    strides, dilations = n.ints("strides", [1] * rank), n.ints("dilations", [1] * rank)
    pads = n.ints("pads", [0] * (2 * rank))
    if x.rank != 3 or not len(sizes) == len(strides) == len(dilations) == len(pads) / 2 == rank:
        raise Fault(f"image_shape {_text(sizes)}, block_shape {_text(kernel)}, strides, dilations "
                    "and each side of pads must have equal numbers of entries, and the input must "
                    f"have 3 dims, not be {x.type.short}")
    known = [k.constant for k in (*sizes, *kernel) if k.constant is not None]
    if min([*known, *strides, *dilations], default=1) < 1:
        raise Fault(f"image_shape {_text(sizes)}, block_shape {_text(kernel)}, strides and "
                    "dilations must be positive")
    folds = [_Fold(*row) for row in zip(
        sizes, kernel, strides, dilations, pads[:rank], pads[rank:], strict=True)]
    counts, entries = [fold.count for fold in folds], product(kernel)
    for k in kernel:
        n.build.assume(1, "<=", k)
    for count in counts:
        n.build.assume(0, "<=", count)
    channels = x.shape[1] // entries
    n.build.assume(x.shape[1], "==", channels * entries)
    n.build.assume(x.shape[2], "==", product(counts))
    apart = x.reshape([x.shape[0], channels, *kernel, *counts])
    pairs = [2 + k + dim for k in range(rank) for dim in (0, rank)]  # per dim: entries, blocks
    value = apart.transpose([0, 1, *pairs])
    for dim in reversed(range(rank)):
        value = _folded(n, value, 2 + 2 * dim, folds[dim])
    return value


def _text(sizes: Sequence[Expr]) -> str:
    return f"[{', '.join(map(str, sizes))}]"


@dataclass(frozen=True)
class _Fold:
    """Blocks along one dim: entry k of block l is at element l*stride + k*dilation - low."""

    size: Expr
    kernel: Expr
    stride: int
    dilation: int
    low: int
    high: int

    @property
    def count(self) -> Expr:
        room = self.size + self.low + self.high - (self.kernel - 1) * self.dilation - 1
        return room // self.stride + 1


    def sources(self, n: Node) -> tuple[Value, Value]:
        """Two values [size, most]: the entries (k*count + l) that each element sums, and which of
        them exist.
        """
        size, kernel, count = (s.constant for s in (self.size, self.kernel, self.count))
        if size is None or kernel is None or count is None or size * kernel > MAX_KNOWN:
            return self._computed_sources(n)
        entry, block = np.indices((kernel, count)).reshape(2, -1)
        target = block * self.stride + entry * self.dilation - self.low
        order = np.argsort(target, kind="stable")
        first, last = (np.searchsorted(target[order], np.arange(size), side)
                       for side in ("left", "right"))
        nth = np.arange(max(1, int((last - first).max(initial=0))))
        exist = nth < (last - first)[:, None]
        places = np.where(exist, order[np.where(exist, first[:, None] + nth, 0)], 0)
        return n.constant(places), n.constant(exist)

    def _computed_sources(self, n: Node) -> tuple[Value, Value]:
        """One source for each entry, as there is one block at most whose entry is at an element."""
        entry, blocks = n.range(self.kernel), n.of_size(self.count)
        distance = n.range(self.size).reshape([self.size, 1]) + self.low - entry * self.dilation
        block = distance / self.stride
        exist = f.all_of([distance >= 0, f.equal(block * self.stride, distance), block < blocks])
        return f.where(exist, entry * blocks + block, 0), exist


def _folded(n: Node, x: Value, axis: int, fold: _Fold) -> Value:
    """Fold two dims of x into one: `axis`, which holds entries, and `axis` + 1, which holds blocks.
    """
    before, after = x.shape[:axis], x.shape[axis + 2:]
    places, exist = fold.sources(n)
    parts = f.gather(x.reshape([*before, fold.kernel * fold.count, *after]), places, axis)
    if exist.array is None or not exist.array.all():
        parts = f.where(exist.reshape([*exist.shape, *[1] * len(after)]), parts, 0)
    return f.reduce_sum(parts, [axis + 1])
