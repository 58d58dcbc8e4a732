"""Schedule rules of the CUDA target for contractions: matrix products and others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from xdsl.dialects import arith

from dialects.loop import KernelOp, NestOp
from dialects.strata.schedule import Level, Schedule
from dialects.strata.types import TensorType, byte_width, i8, i32, is_float, is_narrow_float
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.kinds import is_contraction
from passes.analyses.loop.pairs import pair_of
from passes.analyses.loop.runs import running_axis
from passes.contract import Packing, Panel
from passes.loop_to_block.compute import is_gathered_dot, is_guarded_dot
from passes.rewrites.loop.axis_fusion import can_fuse, fuse_axes
from passes.rewrites.loop.nests import data_inputs, gathered_inputs, has_calls
from targets.cuda.machine import machine_of
from targets.cuda.scheduling.products.pitch import (
    lone_factors,
    odd_factors,
    scattered_factors,
    skew_of,
)
from targets.cuda.scheduling.products.specialized import may_specialize
from targets.cuda.scheduling.products.tiles import ASSUMED, tiles
from targets.cuda.scheduling.products.time import Product, ProductTile
from targets.cuda.scheduling.products.vector import matrix_direction, vector_products
from targets.cuda.scheduling.roles import (
    Roles,
    epilogue_bytes,
    factor_width,
    has_windows,
    memory_axis,
    reads_vectors,
    roles_of,
    stored_by,
    symbols_of,
)
from targets.cuda.scheduling.tiles import finish, power, width_of
from targets.options import TargetOptions

MIN_DOT = 16
"""The smallest size of each dim of a `tl.dot`."""
MIN_DEPTH = 32
"""The fewest bytes of a row of a factor along the summed dim."""
DEPTH = 128
"""The bytes of such a row that one step loads: a cache line."""
STRIP = 16
"""How many row tiles programs cover before they move to the next columns."""
PROMOTE, PROMOTE_EXACT = 512, 128
"""How many products of narrow floats an instruction may sum with fewer bits than f32 has, before
the sum is added to an f32 sum. PROMOTE keeps the error well below one rounding to bf16;
PROMOTE_EXACT is for results stored as f32."""
VARIED = 3
"""For how many of the best tiles candidates also have other strips."""


def prepare_product(kernel: KernelOp, nest: NestOp) -> None:
    """Fuse the axes of each role of a matrix product."""
    roles = roles_of(nest, stored_by(kernel, nest))
    if roles.rows and roles.columns and is_dot(nest):
        for names in (roles.rows, roles.columns, _summed_order(nest, roles)):
            if can_fuse(kernel, names):
                fuse_axes(kernel, names)


def is_dot(nest: NestOp) -> bool:
    """Whether `tl.dot` can compute a contraction: floats into f32, or signed bytes into i32."""
    result = nest.results[0].type
    assert isinstance(result, TensorType)
    if not (is_gathered_dot(nest) or is_guarded_dot(nest)) or byte_width(result.element) > 4:
        return False
    return is_float(result.element) or (result.element == i32 and _multiplies_bytes(nest))


def _multiplies_bytes(nest: NestOp) -> bool:
    """Whether the body multiplies two sign-extended bytes."""
    multiply = nest.yielded[0].owner
    return isinstance(multiply, arith.MuliOp) and all(
        isinstance(v.owner, arith.ExtSIOp) and v.owner.input.type == i8
        for v in multiply.operands)


def _summed_order(nest: NestOp, roles: Roles) -> Sequence[Symbol]:
    """Summed axes, outermost first. For bytes, the axis along the memory of the rows' factor is
    last.

    A tile of that factor is then loaded with wide vector loads; the other factor is packed in the
    same order.
    """
    if not _multiplies_bytes(nest):
        return roles.reduce
    rows = next(m for m in nest.input_maps if not symbols_of(m) & {*roles.columns})
    last = [a for a in running_axis(rows, nest.axes) if a in roles.reduce]
    return [*(a for a in roles.reduce if a not in last), *last]


def panels(
    kernel: KernelOp, nest: NestOp, constants: Collection[int]
) -> Mapping[int, Packing] | None:
    """The packing of constants that makes each column contiguous, if the product needs it, or of
    factors whose rows begin anywhere or whose elements lie apart."""
    roles = roles_of(nest, stored_by(kernel, nest))
    if not _wants_columns(kernel, nest, roles):
        if not _is_matrix_product(nest, roles) or _is_gathered(nest):
            return None
        kept = {k: None for k, pad in enumerate(nest.pad_values)
                if pad is not None and _reads_matrices(nest)}
        return {**kept, **(odd_factors(kernel, nest, roles) or {}),
                **scattered_factors(kernel, nest, roles)} or None
    [column], [summed] = roles.columns, roles.reduce
    return {k: Panel(column, 1, (summed,)) for k in constants
            if column in symbols_of(nest.input_maps[k])
            and memory_axis(nest, k) != summed}


def _wants_columns(kernel: KernelOp, nest: NestOp, roles: Roles) -> bool:
    """Whether contiguous columns are faster. They are where tensor cores need both factors along
    the summed axis, as they do for bytes; and where memory bandwidth bounds the product, so that
    programs read long pieces of a few columns each.
    """
    if _is_gathered(nest):
        return False
    if not is_plain(nest) or len(roles.columns) != 1 or len(roles.reduce) != 1:
        return _is_matrix_product(nest, roles) and _multiplies_bytes(nest)
    if not roles.rows:
        return matrix_direction(nest, roles) is not None
    if not _is_matrix_product(nest, roles):
        return False
    rows = kernel.axes[roles.rows[0]].constant
    bytes_ = factor_width(nest) == 1
    return bytes_ or (rows is not None and rows <= MIN_DOT)


def _is_matrix_product(nest: NestOp, roles: Roles) -> bool:
    """Whether a contraction with fused axes is a `tl.dot` of rows by columns."""
    single = all(len(x) == 1 for x in (roles.rows, roles.columns, roles.reduce))
    return single and is_dot(nest)


def schedule_product(kernel: KernelOp, nest: NestOp, options: TargetOptions) -> Schedule:
    """The schedule of a kernel that has a contraction."""
    return next(_candidates(kernel, nest, options))


def candidates(kernel: KernelOp, options: TargetOptions) -> Iterator[Schedule]:
    """Schedules of a kernel that has a contraction, the rules' choice first; else none."""
    nest = next((n for n in kernel.nests if is_contraction(n)), None)
    if nest is not None:
        yield from dict.fromkeys(_candidates(kernel, nest, options))


def _candidates(kernel: KernelOp, nest: NestOp, options: TargetOptions) -> Iterator[Schedule]:
    roles = roles_of(nest, stored_by(kernel, nest))
    if not _is_matrix_product(nest, roles):
        yield from vector_products(kernel, nest, roles, machine_of(options.features))
        yield _small_contraction(kernel, roles)
    elif _reads_matrices(nest) and on_tensor_cores(nest, options):
        yield from _tiled(kernel, nest, roles, options)
    else:
        yield _matrix_product(kernel, nest, roles, options)


def is_plain(nest: NestOp) -> bool:
    """Whether the factors are indexed by plain dims, without padding."""
    plain = not any(map(has_calls, nest.input_maps))
    return plain and all(p is None for p in nest.pad_values)


def _reads_matrices(nest: NestOp) -> bool:
    """Whether the factors are read as matrices: without windows, and padded only where the last
    part of a sum is shorter. Several dims that one axis covers, as in a 1x1 convolution, count as
    one dim. Rows, and matrices of a batch, may be gathered as long as loads stay wide."""
    summed = {a.name for a in nest.reduce_axes}
    padded = (e for m, p in zip(nest.input_maps, nest.pad_values, strict=True) if p is not None
              for e in m)
    plain = not has_windows(nest) and not any(nest.pad_values) and all(
        e.as_symbol is not None or e.symbols & summed for e in padded)
    return plain and not any(gathered_inputs(nest.input_maps[k][-1:]) for k in data_inputs(nest))


def _is_gathered(nest: NestOp) -> bool:
    """Whether some input holds the indices of a gathered factor."""
    return len(data_inputs(nest)) < len(nest.inputs)


def on_tensor_cores(nest: NestOp, options: TargetOptions) -> bool:
    """Whether the factors' type suits tensor cores, or the factors may be rounded."""
    return factor_width(nest) <= 2 or options.precision != "f32"


def _tiled(
    kernel: KernelOp, nest: NestOp, roles: Roles, options: TargetOptions
) -> Iterator[Schedule]:
    """A matrix product on tensor cores: tiles in the order of their modelled time.

    The first tiles are also tried with other strips, which the model ignores.
    """
    promote, product = _promote(kernel, nest, options), tiled_form(kernel, nest, roles, options)
    for rank, tile in enumerate(tiles(product, machine_of(options.features))):
        taken = tile.rows * max(tile.groups, 1)
        gathered = _is_gathered(nest) and product.rows <= taken and len(roles.batch) == 1
        in_strips = (product.rows > taken or gathered) and product.columns > tile.columns
        for strip in (STRIP, STRIP // 2, 1)[: 3 if rank < VARIED else 1] if in_strips else (1,):
            yield _in_tiles(kernel, roles, tile, strip, options, promote, turned=gathered)


def tiled_form(
    kernel: KernelOp, nest: NestOp, roles: Roles, options: TargetOptions
) -> Product:
    """All on which the choice of the tiles of a product on tensor cores depends."""
    return replace(product_of(nest, roles), twice=_promote(kernel, nest, options) > 0,
                   epilogue_bytes=epilogue_bytes(kernel, nest, roles),
                   vectors=reads_vectors(kernel, nest, roles),
                   copied=may_specialize(kernel, nest, roles, options) and not pair_of(kernel))


def is_tiled(nest: NestOp, roles: Roles, options: TargetOptions) -> bool:
    """Whether a cost model chooses the tiles of a contraction, on tensor cores."""
    return _is_matrix_product(nest, roles) and _reads_matrices(nest) and on_tensor_cores(
        nest, options)


def in_tile(
    kernel: KernelOp, nest: NestOp, roles: Roles, tile: ProductTile, rows: int,
    options: TargetOptions,
) -> Schedule:
    """The schedule of such a contraction with a tile, for about so many rows."""
    columns = kernel.axes[roles.columns[0]].constant or ASSUMED
    strip = STRIP if rows > tile.rows * max(tile.groups, 1) and columns > tile.columns else 1
    return _in_tiles(kernel, roles, tile, strip, options, _promote(kernel, nest, options))


def _promote(kernel: KernelOp, nest: NestOp, options: TargetOptions) -> int:
    """How many products of narrow floats an instruction sums, with fewer bits than f32, before the
    sum is added to an f32 sum; 0 if there are no narrow floats, or fewer bits are allowed."""
    narrow = any(is_narrow_float(v.type.element) for v in nest.inputs
                 if isinstance(v.type, TensorType))
    if not narrow or options.precision not in ("f32", "fp8"):
        return 0
    return PROMOTE if max(map(width_of, kernel.yielded)) <= 2 else PROMOTE_EXACT


def product_of(nest: NestOp, roles: Roles) -> Product:
    """The facts on which the choice of a product's tiles depends."""
    extents = {a.name: a.extent.constant for a in nest.axes}

    def size(names: Sequence[Symbol], assumed: int) -> int:
        known = [extents[name] for name in names]
        return prod([assumed if n is None else max(n, 1) for n in known])

    depth = size(roles.reduce, ASSUMED)
    return Product(
        size(roles.batch, 1), size(roles.rows, ASSUMED), size(roles.columns, ASSUMED), depth,
        factor_width(nest), width_of(nest.results[0]), depth,
        open=any(extents[a] is None for a in (*roles.rows, *roles.columns)),
        lone=lone_factors(nest, roles), skew=skew_of(nest, roles))


def _in_tiles(
    kernel: KernelOp, roles: Roles, tile: ProductTile, strip: int, options: TargetOptions,
    promote: int = 0, *, turned: bool = False,
) -> Schedule:
    """`turned`: batch tiles vary before row tiles, because neighbours may share a gathered
    matrix."""
    (m,), (n,), (k,) = roles.rows, roles.columns, roles.reduce
    shared = len(pair_of(kernel)) or 1  # a step loads tiles of both matrices
    rows = [*(Level("grid", b) for b in roles.batch), Level("grid", m, tile.rows)]
    levels = [*(rows[::-1] if turned else rows), Level("grid", n, tile.columns),
              Level("loop", k, max(tile.depth // shared, MIN_DOT))]
    order = {"strip": strip} if strip > 1 else {}
    order |= {"promote": promote} if promote else {}
    order |= {"specialize": 1} if tile.groups else {}
    return finish(kernel, levels, dot=1, tails="mask", warps=tile.warps, stages=tile.stages,
                  precision=options.precision, **order)


def _matrix_product(
    kernel: KernelOp, nest: NestOp, roles: Roles, options: TargetOptions
) -> Schedule:
    """Tiles of rows by columns, with the summed axis in steps."""
    extents = kernel.axes
    (m,), (n,), (k,) = roles.rows, roles.columns, roles.reduce
    width = factor_width(nest)
    width = width if options.precision == "f32" else min(width, 2)
    most = 128 if width <= 2 else 64
    tile_m, tile_n = power(extents[m], most, MIN_DOT), power(extents[n], most, MIN_DOT)
    tile_k = power(extents[k], DEPTH // width, max(MIN_DOT, MIN_DEPTH // width))
    if width == 1 and (extents[k] % tile_k).constant == tile_k // 2 >= MIN_DEPTH:
        tile_k //= 2  # the last step then needs no masks
    warps = 8 if tile_m * tile_n >= 128 * 128 else 4
    return _in_tiles(kernel, roles, ProductTile(tile_m, tile_n, tile_k, warps, 3), 1, options)


def _small_contraction(kernel: KernelOp, roles: Roles) -> Schedule:
    """Products without rows or columns, such as a matrix times a vector or a depthwise convolution.
    """
    extents = kernel.axes
    column = (roles.columns or roles.batch or roles.rows)[-1:]
    parallel = [a for a in (*roles.batch, *roles.rows, *roles.columns) if a not in column]
    row = parallel[-1:] if not roles.columns or roles.rows else []
    levels = [Level("grid", a) for a in parallel if a not in row]
    levels += [Level("grid", a, power(extents[a], 8)) for a in row]
    levels += [Level("grid", a, power(extents[a], 64)) for a in column]
    *outer, last = sorted(roles.reduce, key=lambda a: extents[a].constant or 1 << 31)
    levels += [*(Level("loop", a) for a in outer),
               Level("loop", last, 1 if row else power(extents[last], 64))]
    return finish(kernel, levels, tails="mask", warps=4)
