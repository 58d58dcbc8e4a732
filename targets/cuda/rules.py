"""Schedule rules of the CUDA target: what one program computes, and with how many warps.

Ordered rules, the first that fits decides: a matrix product on tensor cores or FMA units, a
contraction without one, a reduction, elementwise. Tiles are powers of two, the rest is masked.
Sizes come from the kernel's own axes; tuning replaces these choices by measured ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dialects.expr import Expr
from dialects.loop import KernelOp, NestOp
from dialects.schedule import Level, Schedule
from dialects.types import TensorType, byte_width, is_float
from passes.loop.axis_fusion import can_fuse, fuse_axes
from passes.loop.outline import is_contraction
from passes.loop.runs import common_rows, contiguous_axes, result_order
from passes.loop_to_block.compute import product_operands
from targets.base import TargetOptions

MIN_DOT = 16
"""The least size of each dim of a `tl.dot`."""
ELEMENTS = 1024
"""Elements of one program of an elementwise kernel."""
MAX_WHOLE = 8192
"""The longest axis that one program holds whole."""
STEP = 1024
"""Elements of a longer axis that one trip of a reduction takes."""


@dataclass(frozen=True)
class Roles:
    """What the axes of a contraction are: in both factors and the result, in one, or summed."""

    batch: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    reduce: tuple[str, ...]


def roles_of(nest: NestOp) -> Roles:
    """Columns run along the result's memory; their factor is the one they index."""
    order = result_order(nest)
    last = order[-1] if order else ""
    factors = [set[str]().union(*(e.symbols for e in m)) if m else set[str]()
               for m in nest.input_maps]
    right = [f for f in factors if last in f]
    left = [f for f in factors if last not in f]
    batch = [a for a in order if all(a in f for f in factors)]
    columns = [a for a in order if a not in batch and all(a in f for f in right)
               and not any(a in f for f in left)]
    rows = [a for a in order if a not in batch and a not in columns]
    return Roles(tuple(batch), tuple(rows), tuple(columns),
                 tuple(a.name for a in nest.reduce_axes))


def prepare_kernel(kernel: KernelOp, options: TargetOptions) -> None:
    """Fuse the axes of each role of a matrix product, and those that a reduction sums over."""
    del options
    nest = next((n for n in kernel.nests if is_contraction(n)), None)
    if nest is not None:
        roles = roles_of(nest)
        if roles.rows and roles.columns and _is_dot(nest):
            for names in (roles.rows, roles.columns, roles.reduce):
                if can_fuse(kernel, names):
                    fuse_axes(kernel, names)
        return
    rows = set(common_rows(kernel))
    inner = [a for a in kernel.axes if a not in rows]
    if any(n.is_reduction for n in kernel.nests) and _can_fuse_inner(kernel, inner):
        fuse_axes(kernel, inner)


def _can_fuse_inner(kernel: KernelOp, names: Sequence[str]) -> bool:
    """As `can_fuse`, but a nest may sum over what another walks in parallel."""
    wanted = set(names)
    return len(wanted) > 1 and all(
        len([a for a in n.axes if a.name in wanted]) in (0, len(wanted)) for n in kernel.nests)


def _is_dot(nest: NestOp) -> bool:
    """Whether a contraction is a sum of plain products of floats."""
    result = nest.results[0].type
    assert isinstance(result, TensorType)
    return product_operands(nest) is not None and len(nest.inputs) == 2 and is_float(
        result.element) and byte_width(result.element) <= 4


def schedule_kernel(kernel: KernelOp, options: TargetOptions) -> Schedule:
    """The schedule of a kernel."""
    nest = next((n for n in kernel.nests if is_contraction(n)), None)
    if nest is not None:
        roles = roles_of(nest)
        single = all(len(x) == 1 for x in (roles.rows, roles.columns, roles.reduce))
        if single and _is_dot(nest):
            return _matrix_product(kernel, nest, roles, options)
        return _small_contraction(kernel, roles)
    if any(n.is_reduction for n in kernel.nests):
        return _reduction(kernel)
    return _elementwise(kernel)


def _power(size: Expr, most: int, least: int = 1) -> int:
    """The power of two that holds an extent, between bounds; the upper one when unknown."""
    value = size.constant
    return most if value is None else max(least, min(most, 1 << max(0, value - 1).bit_length()))


def _finish(
    kernel: KernelOp, levels: Sequence[Level], **options: int | str
) -> Schedule:
    """The levels, and a loop over what they do not place."""
    placed = {x.axis for x in levels}
    rest = [Level("loop", a) for a in kernel.axes if a not in placed]
    return Schedule((*levels, *rest), tuple(options.items()))


# ---------------------------------------------------------------------- contractions
def _matrix_product(
    kernel: KernelOp, nest: NestOp, roles: Roles, options: TargetOptions
) -> Schedule:
    """Tiles of rows by columns, the summed axis in steps."""
    extents = kernel.axes
    (m,), (n,), (k,) = roles.rows, roles.columns, roles.reduce
    narrow = all(isinstance(v.type, TensorType) and byte_width(v.type.element) <= 2
                 for v in nest.inputs) or options.precision != "f32"
    most = 128 if narrow else 64
    tile_m, tile_n = _power(extents[m], most, MIN_DOT), _power(extents[n], most, MIN_DOT)
    tile_k = _power(extents[k], 64 if narrow else 32, MIN_DOT)
    levels = [*(Level("grid", b) for b in roles.batch), Level("grid", m, tile_m),
              Level("grid", n, tile_n), Level("loop", k, tile_k)]
    warps = 8 if tile_m * tile_n >= 128 * 128 else 4
    return _finish(kernel, levels, dot=1, tails="mask", warps=warps, stages=3,
                   precision=options.precision)


def _small_contraction(kernel: KernelOp, roles: Roles) -> Schedule:
    """Products without rows or columns: a matrix and a vector, a depthwise convolution."""
    extents = kernel.axes
    column = (roles.columns or roles.batch or roles.rows)[-1:]
    parallel = [a for a in (*roles.batch, *roles.rows, *roles.columns) if a not in column]
    row = parallel[-1:] if not roles.columns or roles.rows else []
    levels = [Level("grid", a) for a in parallel if a not in row]
    levels += [Level("grid", a, _power(extents[a], 8)) for a in row]
    levels += [Level("grid", a, _power(extents[a], 64)) for a in column]
    for position, name in enumerate(roles.reduce):
        last = position == len(roles.reduce) - 1 and not row
        levels.append(Level("loop", name, _power(extents[name], 64) if last else 1))
    return _finish(kernel, levels, tails="mask", warps=4)


# ---------------------------------------------------------------------- everything else
def _reduction(kernel: KernelOp) -> Schedule:
    """Rows in parallel. An axis along memory is held whole, or walked in long steps."""
    extents = kernel.axes
    rows = common_rows(kernel)
    inner = [a for a in extents if a not in rows]
    along = contiguous_axes(kernel)
    if rows and (not along or along[0] in rows):
        return _strided_reduction(kernel, rows, inner, along)
    whole = _power(extents[inner[-1]], MAX_WHOLE) if inner else 1
    size = extents[inner[-1]].constant if inner else 1
    levels = [Level("grid", a) for a in rows[:-1]]
    fits = size is not None and size <= MAX_WHOLE
    height = max(1, min(ELEMENTS // whole, 16)) if fits else 1
    levels += [Level("grid", a, _power(extents[a], height)) for a in rows[-1:]]
    levels += [Level("loop", a) for a in inner[:-1]]
    if inner:
        levels.append(Level("whole", inner[-1], whole) if fits
                      else Level("loop", inner[-1], STEP))
    return _finish(kernel, levels, tails="mask", warps=8 if whole > 2048 else 4)


def _strided_reduction(
    kernel: KernelOp, rows: Sequence[str], inner: Sequence[str], along: Sequence[str]
) -> Schedule:
    """Sums across memory: neighbouring rows side by side, the summed axis in short steps."""
    extents = kernel.axes
    column = along[0] if along else rows[-1]
    levels = [Level("grid", a) for a in rows if a != column]
    levels.append(Level("grid", column, _power(extents[column], 64)))
    levels += [Level("loop", a) for a in inner[:-1]]
    levels += [Level("loop", a, _power(extents[a], 16)) for a in inner[-1:]]
    return _finish(kernel, levels, tails="mask", warps=4)


def _elementwise(kernel: KernelOp) -> Schedule:
    """Tiles along memory; of two directions, when inputs and results run along different axes.

    A scatter's other axes are loops inside.
    """
    extents = kernel.axes
    rows = common_rows(kernel)
    along = [a for a in contiguous_axes(kernel) if a in rows][:2] or rows[-1:]
    tiles: dict[str, int] = {}
    if len(along) == 2:
        tiles = {a: _power(extents[a], 32) for a in along}
    elif along:
        tiles = {along[0]: _power(extents[along[0]], ELEMENTS)}
    for name in reversed(rows):
        room = ELEMENTS
        for size in tiles.values():
            room //= size
        if room > 1 and name not in tiles:
            tiles[name] = _power(extents[name], room)
    levels = [Level("grid", a, tiles.get(a, 1)) for a in rows]
    return _finish(kernel, levels, tails="mask", warps=4)
