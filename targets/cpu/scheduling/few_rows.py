"""Attention of few rows, as in decoding with a static cache: one walk over the keys that are seen.

    %s = nest (h, j, reduce d) ins(%q[h, d], %k[h floordiv 4, j, d])
    %m = nest (h, reduce j) ins(%x[h, j]) outs(max)          %x: %s, or -inf where a mask hides it
    %y = nest (h, e, reduce j) ins(%p[h, j], %v[h floordiv 4, j, e])
    ->
    nests (g, r, j, reduce e), (g, r, reduce j), (g, r, e, reduce j)
    schedule<grid g tile 1, grid r tile 4, whole e tile 64 lanes, loop j tile 2 | online = 1>

Separate kernels would compute the scores of all keys, of which most may be hidden: a static cache
is as long as the longest text. This kernel leaves them out (`passes.analyses.loop.seen`). Both
products have a column of a head in lanes: the first one sums over lanes, so its axis gets the name
of the second one's columns. Rows that share keys, as queries of a group of heads, read them once.

Separate kernels keep their scores in vectors, and are faster where nothing is hidden or caches hold
the keys.
"""

from __future__ import annotations

from dialects.loop import KernelOp, NestOp
from dialects.strata.schedule import Level, Schedule
from dialects.strata.schedule_options import ONLINE
from dialects.strata.types import byte_width, tensor_type
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.kinds import is_contraction
from passes.analyses.loop.online import running_maximum
from passes.analyses.loop.private import private_values, reuses
from passes.analyses.loop.runs import common_rows
from passes.analyses.loop.seen import seen_scores
from passes.rewrites.loop.nests import rename_axes, replace_nest
from passes.rewrites.loop.shared_heads import divide_heads
from targets.cpu.machine import Machine

STEP = 2
"""Keys of a step: with more, loads of keys and of values alternate too rarely to be in flight
together, and with one, each score waits for an exponential."""
MOST_ROWS = 8
"""The most rows that share keys. More fill the lanes of blocks of rows (`row_blocks.py`)."""
WIDEST = 256
"""The most columns of a head, which a program holds in registers."""


def is_few_rows(kernel: KernelOp) -> bool:
    """Whether a contraction of the kernel follows a running maximum (online softmax)."""
    return not private_values(kernel) and any(
        is_contraction(n) and running_maximum(n) for n in kernel.nests)


def joins_few_rows(kernel: KernelOp, machine: Machine) -> bool:
    """Whether one walk is faster: a mask of the inputs may hide keys, of which there are more than
    a core's cache holds."""
    products = _products(kernel)
    if len(products) != 2 or seen_scores(kernel) is None:
        return False
    rows, column, walked = common_rows(kernel), _column(kernel), _walked(kernel)
    if column is None or (kernel.axes[column].constant or WIDEST + 1) > WIDEST:
        return False
    if any(reuses(n, a) and (kernel.axes[a].constant or MOST_ROWS + 1) > MOST_ROWS
           for n in products for a in rows):
        return False
    own = {a for n in kernel.nests for a in _own_axes(n, kernel)}
    if any(len(_own_axes(n, kernel)) > 1 for n in kernel.nests) or any(
            kernel.axes[a] != kernel.axes[column] for a in own):
        return False
    size = tensor_type(products[1].inputs[1]).byte_size.constant
    return kernel.axes[walked].constant is None or size is None or 2 * size > machine.caches[1]


def name_columns(kernel: KernelOp) -> None:
    """Split heads that share keys from their groups, and give what the first product sums over the
    name of the second one's columns."""
    divide_heads(kernel)
    column = _column(kernel)
    assert column is not None
    for nest in kernel.nests:
        if names := _own_axes(nest, kernel) - {column}:
            replace_nest(nest, rename_axes(nest, dict.fromkeys(names, column)))


def schedule_few_rows(kernel: KernelOp, machine: Machine) -> Schedule:
    """A program for as many rows that share keys as registers have room for their sums."""
    column = _column(kernel)
    assert column is not None
    width = kernel.axes[column].constant or WIDEST
    products = _products(kernel)
    widest = max(byte_width(tensor_type(n.results[0]).element) for n in products)
    room = machine.vector_registers // 2 * machine.vector_bytes // (width * widest)
    levels: list[Level] = []
    for axis in common_rows(kernel):
        size = kernel.axes[axis].constant
        shared = size is not None and all(reuses(n, axis) for n in products)
        levels.append(Level("grid", axis, _divisor(size, room) if shared and size else 1))
    levels += [Level("whole", column, width, lanes=True), Level("loop", _walked(kernel), STEP)]
    return Schedule(tuple(levels), ((ONLINE.name, 1),))


def _divisor(size: int, most: int) -> int:
    """The largest divisor of a size that is no larger than `most`, or 1."""
    return max((n for n in range(1, size + 1) if size % n == 0 and n <= most), default=1)


def _products(kernel: KernelOp) -> list[NestOp]:
    return [n for n in kernel.nests if is_contraction(n)]


def _walked(kernel: KernelOp) -> Symbol:
    """The axis of keys, which the last product sums over."""
    [axis, *_] = _products(kernel)[-1].reduce_axes
    return axis.name


def _column(kernel: KernelOp) -> Symbol | None:
    """The only axis of the last product's results that is not one of rows."""
    rows = common_rows(kernel)
    found = [a.name for a in _products(kernel)[-1].parallel_axes if a.name not in rows]
    return found[0] if len(found) == 1 else None


def _own_axes(nest: NestOp, kernel: KernelOp) -> set[Symbol]:
    """The axes of a nest besides rows and keys."""
    return {a.name for a in nest.axes} - {*common_rows(kernel), _walked(kernel)}
