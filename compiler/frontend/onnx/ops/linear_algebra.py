"""Determinants (Det), and images from overlapping blocks (Col2Im)."""

from __future__ import annotations

from math import prod

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.onnx.halves import rounded_once
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.values import Value
from dialects.graph.ordering import ArgMaxOp
from dialects.records import dataclass
from dialects.strata.types import Array

MAX_ORDER = 32
"""The maximum order of a matrix: larger ones would be unrolled into too many operations."""
MAX_BLOCK = 4096
"""The maximum number of elements in a block of an image."""
MAX_IMAGE = 1 << 14
"""The maximum size of an image along a dim, since the blocks over each element become a constant.
"""


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


@onnx_op("Col2Im")
@rounded_once
def col_to_im(n: Node, x: Value, image: Value, block: Value) -> Value:
    """Add up blocks at their positions in the image, along one dim after the other."""
    kernel, sizes = n.known_ints(block, "block sizes"), n.known_ints(image, "image sizes")
    rank, entries = len(kernel), prod(kernel)
    strides, dilations = n.ints("strides", [1] * rank), n.ints("dilations", [1] * rank)
    pads = n.ints("pads", [0] * (2 * rank))
    if x.rank != 3 or not len(sizes) == len(strides) == len(dilations) == len(pads) / 2 == rank:
        raise Fault(f"image_shape {sizes}, block_shape {kernel}, strides, dilations and each side "
                    "of pads must have equal numbers of entries, and the input must have 3 dims, "
                    f"not be {x.type.short}")
    if min([*sizes, *kernel, *strides, *dilations], default=0) < 1 or entries > MAX_BLOCK or (
            max(sizes) > MAX_IMAGE):
        raise Fault(f"image_shape {sizes} must have sizes from 1 to {MAX_IMAGE}, block_shape "
                    f"{kernel} from 1 to {MAX_BLOCK} elements, and strides and dilations must be "
                    "positive")
    rows = list(zip(sizes, kernel, strides, dilations, pads[:rank], pads[rank:], strict=True))
    counts = [(size + low + high - d * (k - 1) - 1) // s + 1
              for size, k, s, d, low, high in rows]
    apart = x.reshape([x.shape[0], x.shape[1] // entries, *kernel, *counts])
    pairs = [2 + k + dim for k in range(rank) for dim in (0, rank)]  # per dim: entries, blocks
    value = apart.transpose([0, 1, *pairs])
    for dim in reversed(range(rank)):
        size, k, stride, dilation, low, _ = rows[dim]
        value = _folded(n, value, 2 + 2 * dim, _Fold(size, k, stride, dilation, low, counts[dim]))
    return value


@dataclass(frozen=True)
class _Fold:
    """Blocks along one dim: entry k of block l is at element l*stride + k*dilation - low."""

    size: int
    kernel: int
    stride: int
    dilation: int
    low: int
    count: int

    def sources(self) -> tuple[Array, Array]:
        """Two arrays [size, most]: the entries (k*count + l) that each element sums, and a mask
        of those that exist.
        """
        entry, block = np.indices((self.kernel, self.count)).reshape(2, -1)
        target = block * self.stride + entry * self.dilation - self.low
        found = [np.flatnonzero(target == place) for place in range(self.size)]
        most = max(1, *map(len, found))
        places = [np.pad(s, (0, most - len(s))) for s in found]
        return np.array(places, np.int64), np.array([np.arange(most) < len(s) for s in found])


def _folded(n: Node, x: Value, axis: int, fold: _Fold) -> Value:
    """Fold two dims of x into one: `axis`, which holds entries, and `axis` + 1, which holds blocks.
    """
    before, after = x.shape[:axis], x.shape[axis + 2:]
    places, exist = fold.sources()
    joined = x.reshape([*before, fold.kernel * fold.count, *after])
    parts = f.gather(joined, n.constant(places), axis)
    if not exist.all():
        there = n.constant(exist.reshape(*exist.shape, *[1] * len(after)))
        parts = f.where(there, parts, 0)
    return f.reduce_sum(parts, [axis + 1])
