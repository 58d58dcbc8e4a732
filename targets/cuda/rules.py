"""Schedule rules of the CUDA target: what one program computes, and with how many warps.

Ordered rules, the first that fits decides: a matrix product on tensor cores or FMA units, a
contraction without one, a reduction, elementwise. Tiles are powers of two, the rest is masked.
Sizes come from the kernel's own axes; tuning replaces these choices by measured ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from dialects.expr import Expr
from dialects.loop import KernelOp, NestOp
from dialects.schedule import Level, Schedule
from dialects.types import TensorType, byte_width, i8, i32, is_float
from passes.loop.axis_fusion import can_fuse, fuse_axes
from passes.loop.outline import is_contraction
from passes.loop.pack_operands import Panel
from passes.loop.runs import common_rows, contiguous_axes, memory_order, result_order, running_axis
from passes.loop_to_block.compute import product_operands
from targets.base import TargetOptions

MIN_DOT = 16
"""The least size of each dim of a `tl.dot`."""
MIN_DEPTH = 32
"""The least bytes that one row of its factors has along the summed dim."""
DEPTH = 128
"""The bytes of such a row that one step loads: a line of the cache."""
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
            for names in (roles.rows, roles.columns, _summed_order(nest, roles)):
                if can_fuse(kernel, names):
                    fuse_axes(kernel, names)
        return
    if any(n.is_reduction for n in kernel.nests):
        for names in _walked_alike(kernel):
            fuse_axes(kernel, names)


def _walked_alike(kernel: KernelOp) -> list[list[str]]:
    """The axes beside the rows that every nest sums over, walks in parallel, or lacks, together.

    In the order in which they run through the memory of a reduction's input.
    """
    rows = set(common_rows(kernel))
    alike: dict[tuple[bool | None, ...], list[str]] = {}
    for name in kernel.axes:
        kinds = tuple(next((a.reduce for a in n.axes if a.name == name), None)
                      for n in kernel.nests)
        if name not in rows:
            alike.setdefault(kinds, []).append(name)
    return [memory_order(next(n for n, kind in zip(kernel.nests, kinds, strict=True) if kind),
                         names)
            for kinds, names in alike.items() if len(names) > 1 and True in kinds]


def _is_dot(nest: NestOp) -> bool:
    """Whether a contraction is one that `tl.dot` has: of floats into f32, signed bytes into i32."""
    result = nest.results[0].type
    assert isinstance(result, TensorType)
    if product_operands(nest) is None or len(nest.inputs) != 2 or byte_width(result.element) > 4:
        return False
    return is_float(result.element) or (result.element == i32 and _multiplies_bytes(nest))


def _multiplies_bytes(nest: NestOp) -> bool:
    """Whether the body multiplies two bytes with their sign."""
    multiply = nest.yielded[0].owner
    return isinstance(multiply, arith.MuliOp) and all(
        isinstance(v.owner, arith.ExtSIOp) and v.owner.input.type == i8
        for v in multiply.operands)


def _width(value: SSAValue) -> int:
    """The bytes of an element."""
    assert isinstance(value.type, TensorType)
    return byte_width(value.type.element)


def _summed_order(nest: NestOp, roles: Roles) -> Sequence[str]:
    """Summed axes, outermost first. For bytes, what runs along the memory of the rows' factor ends.

    So that a tile of it is loaded in long words; the other factor is packed in the same order.
    """
    if not _multiplies_bytes(nest):
        return roles.reduce
    rows = next(m for m in nest.input_maps if not _symbols(m) & {*roles.columns})
    last = [a for a in running_axis(rows, nest.axes) if a in roles.reduce]
    return [*(a for a in roles.reduce if a not in last), *last]


def _symbols(map_: Sequence[Expr]) -> set[str]:
    return set[str]().union(*(e.symbols for e in map_))


def panels(kernel: KernelOp, constants: Collection[int]) -> Mapping[int, Panel] | None:
    """Constant bytes with columns are packed so that each column is contiguous.

    Tensor cores take both factors of bytes along the summed axis.
    """
    nest = next(n for n in kernel.nests if is_contraction(n))
    roles = roles_of(nest)
    if not (_is_matrix_product(nest, roles) and _multiplies_bytes(nest)):
        return None
    [column], [summed] = roles.columns, roles.reduce
    return {k: Panel(column, 1, (summed,)) for k in constants
            if column in _symbols(nest.input_maps[k]) and not _runs_along(nest, k, summed)}


def _runs_along(nest: NestOp, position: int, axis: str) -> bool:
    """Whether an input is walked by an axis in the order of its memory."""
    type_ = nest.inputs[position].type
    assert isinstance(type_, TensorType)
    pairs = zip(nest.input_maps[position], type_.shape, strict=True)
    return [e.as_symbol for e, size in pairs if size.constant != 1][-1:] == [axis]


def _is_matrix_product(nest: NestOp, roles: Roles) -> bool:
    """Whether a contraction, its axes fused, is a `tl.dot` of rows by columns."""
    single = all(len(x) == 1 for x in (roles.rows, roles.columns, roles.reduce))
    return single and _is_dot(nest)


def schedule_kernel(kernel: KernelOp, options: TargetOptions) -> Schedule:
    """The schedule of a kernel."""
    nest = next((n for n in kernel.nests if is_contraction(n)), None)
    if nest is not None:
        roles = roles_of(nest)
        if _is_matrix_product(nest, roles):
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
    width = max(map(_width, nest.inputs))
    width = width if options.precision == "f32" else min(width, 2)
    most = 128 if width <= 2 else 64
    tile_m, tile_n = _power(extents[m], most, MIN_DOT), _power(extents[n], most, MIN_DOT)
    tile_k = _power(extents[k], DEPTH // width, max(MIN_DOT, MIN_DEPTH // width))
    if width == 1 and (extents[k] % tile_k).constant == tile_k // 2 >= MIN_DEPTH:
        tile_k //= 2  # so that the last step needs no masks
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
    *outer, last = sorted(roles.reduce, key=lambda a: extents[a].constant or 1 << 31)
    levels += [*(Level("loop", a) for a in outer),
               Level("loop", last, 1 if row else _power(extents[last], 64))]
    return _finish(kernel, levels, tails="mask", warps=4)


# ---------------------------------------------------------------------- everything else
def _reduction(kernel: KernelOp) -> Schedule:
    """Rows in parallel. An axis along memory is held whole, or walked in long steps."""
    extents = kernel.axes
    rows = common_rows(kernel)
    inner = [a for a in extents if a not in rows]
    along = contiguous_axes(kernel)
    if rows and not _sums_along_memory(kernel, inner) and (not along or along[0] in rows):
        return _strided_reduction(kernel, rows, inner, along)
    placed = _inner_levels(kernel, inner)
    tiles = [x for x in placed if x.tile > 1]
    width = max((x.tile for x in tiles), default=1)
    fits = all(x.kind == "whole" for x in tiles)
    height = max(1, min(ELEMENTS // width, 16)) if fits else 1
    levels = [Level("grid", a) for a in rows[:-1]]
    levels += [Level("grid", a, _power(extents[a], height)) for a in rows[-1:]]
    return _finish(kernel, [*levels, *placed], tails="mask",
                   warps=4 if fits and width <= 2048 else 8)


def _sums_along_memory(kernel: KernelOp, inner: Sequence[str]) -> bool:
    """Whether a reduction's input ends in a dim that summed axes, fused by division, walk alone."""
    ends = [m[-1].symbols for n in kernel.nests if n.is_reduction for m in n.input_maps if m]
    return any(symbols and symbols <= {*inner} for symbols in ends)


def _inner_levels(kernel: KernelOp, inner: Sequence[str]) -> list[Level]:
    """Of the axes that a nest has beside rows, the last has a tile: whole, or long steps."""
    levels: dict[str, Level] = {}
    for name in reversed(inner):
        others = {a.name for n in kernel.nests for a in n.axes if _has(n, name)}
        size = kernel.axes[name].constant
        if any(x.axis in others and x.tile > 1 for x in levels.values()):
            levels[name] = Level("loop", name)
        elif size is not None and size <= MAX_WHOLE:
            levels[name] = Level("whole", name, _power(kernel.axes[name], MAX_WHOLE))
        else:
            levels[name] = Level("loop", name, STEP)
    return [levels[name] for name in inner]


def _has(nest: NestOp, name: str) -> bool:
    return any(a.name == name for a in nest.axes)


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
