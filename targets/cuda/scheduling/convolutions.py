"""Schedule rules of the CUDA target for convolutions as implicit matrix products.

    nest (n, i, j, o, reduce c, p, q) ins(%x[n, i + p, j + q, c], %w[o, c, p, q])
    ->  nest (r, o, reduce k) ins(%x[r floordiv ..., ..., k mod C], %w'[0, k, o])

The rows are the result's positions and the columns its channels. The summed axis runs through the
data in memory order: over the window, and innermost over the channels. If a tile of that axis stays
inside one position of the window, the position is one number for the whole tile, and each row of
the tile is read with wide vector loads. Filters are packed in the same order, with the result's
channels contiguous. The exception is instructions that need 32-bit factors along the summed axis,
where each channel is packed separately.

In the gradient of a filter, the batch is summed, and the channels are rows. They lie last in
memory, as the columns do in the other factor, so the summed axis runs through the data in memory
order, and neither factor is packed.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from xdsl.ir import Attribute

from dialects.loop import KernelOp, NestOp
from dialects.strata.schedule import Level, Schedule
from dialects.strata.types import byte_width, is_float
from dialects.symbolic.symbol import Symbol
from passes.contract import Parts
from targets.cuda.machine import Machine, machine_of
from targets.cuda.scheduling.convolution_roles import (
    apart,
    channel_axes,
    channels_of,
    convolution_roles,
    groups_of,
    is_narrow,
    places_of,
    rows_run,
    run_of,
    sizes_of,
    taps_apart,
    tiled_roles,
)
from targets.cuda.scheduling.products.parts import divisors, fastest_parts, parts_of
from targets.cuda.scheduling.products.rules import schedule_product
from targets.cuda.scheduling.products.tiles import SIZES, tile_seconds, tiles
from targets.cuda.scheduling.products.time import WORD, Product, ProductTile, Skew
from targets.cuda.scheduling.roles import Roles, epilogue_bytes, reads_vectors
from targets.cuda.scheduling.tiles import finish, tails_of, width_of
from targets.options import TargetOptions

STEPS = (64, 32)
"""Numbers of channels of a step that stays at one tap."""
LEAST = 64
"""The fewest channels of one part of a split sum."""
FILLED = 7
"""The last part of a sum over channels is short by at most one in FILLED of all channels."""
POSITIONS = 1024
"""Sums over so many positions are those of a gradient; no filter has as many taps."""
MOST_CUTS, NEXT_CUT = 256, 10
"""The most parts of a sum over positions; and of how many parts the next number that is tried has
one more, at least."""


# ---------------------------------------------------------------------- what is multiplied together
def joined_groups(
    inputs: int, outputs: int, count: int, element: Attribute, is_constant: bool,
    options: TargetOptions,
) -> int:
    """How many groups make a tile's channels whole: products with zeros among them cost nothing.
    A launch that fills a filter with zeros does. It pays where a group's channels at a position are
    less than what memory moves at a time.
    """
    if not is_float(element) or byte_width(element) > 4 or inputs == outputs == 1 or (
            not is_constant and inputs * byte_width(element) >= Skew.SECTORS):
        return 1
    narrow = byte_width(element) <= 2 or options.precision == "tf32"
    least = machine_of(options.features).fitted.joined_channels if narrow else SIZES[0]
    return next((n for n in range(1, count + 1) if count % n == 0
                 and least <= n * inputs <= 2 * least and n * inputs % SIZES[0] == 0
                 and n * outputs <= 2 * least), 1)


def joins_phases(
    zeros: int | None, kernels: int, element: Attribute, options: TargetOptions
) -> bool:
    """Whether multiplying zeros takes less time than the kernels that it saves. Of an unknown
    number, as many are assumed as take longer."""
    machine = machine_of(options.features)
    facts = machine.fitted.products
    narrow = byte_width(element) <= 2 or options.precision == "tf32"
    rate = facts.efficiency * machine.tensor_rate if narrow else (
        facts.fma_efficiency * machine.fma_rate)
    saved = (kernels - 1) * (facts.start + machine.fitted.parts.adding)
    return zeros is not None and 2 * zeros <= saved * rate * 1e12


# ---------------------------------------------------------------------- tiles
def is_plain(roles: Roles) -> bool:
    """Whether every role has exactly one axis."""
    return all(len(x) == 1 for x in (roles.rows, roles.columns, roles.reduce))


def schedule_convolution(kernel: KernelOp, nest: NestOp, options: TargetOptions) -> Schedule:
    """Tiles of rows by columns with the summed axis in steps; a product's schedule if axes could
    not be fused."""
    roles = tiled_roles(nest)
    if roles is None or not is_plain(roles):
        return schedule_product(kernel, nest, options)
    return scheduled(kernel, nest, roles, options)


def scheduled(
    kernel: KernelOp, nest: NestOp, roles: Roles, options: TargetOptions
) -> Schedule:
    """The schedule for the tile that the model of time prefers."""
    product = convolved_form(kernel, nest, roles, options)
    tile = tiles(product, machine_of(options.features))[0]
    return tiled_product(kernel, roles, tile, options)


def convolved_form(
    kernel: KernelOp, nest: NestOp, roles: Roles, options: TargetOptions
) -> Product:
    """All on which the choice of the tiles of a convolution depends."""
    return replace(windowed_product(nest, roles, options),
                   epilogue_bytes=epilogue_bytes(kernel, nest, roles),
                   vectors=reads_vectors(kernel, nest, roles))


def tiled_product(
    kernel: KernelOp, roles: Roles, tile: ProductTile, options: TargetOptions
) -> Schedule:
    """The schedule for a tile."""
    [rows], [columns], [summed] = roles.rows, roles.columns, roles.reduce
    groups = _groups(kernel, roles)
    levels = [*(Level("grid", b) for b in roles.batch if b not in groups),
              Level("grid", rows, tile.rows), *(Level("grid", g) for g in groups),
              Level("grid", columns, tile.columns), Level("loop", summed, tile.depth)]
    return finish(kernel, levels, dot=1, tails=tails_of(kernel.axes[summed], tile.depth),
                  warps=tile.warps, stages=tile.stages, precision=options.precision)


def _groups(kernel: KernelOp, roles: Roles) -> list[Symbol]:
    """The batch axes that are groups of channels: programs of all groups read the same lines."""
    nest = next(n for n in kernel.nests if n.is_reduction)
    return [b for b in roles.batch if b in groups_of(nest, roles)]


def windowed_product(nest: NestOp, roles: Roles, options: TargetOptions) -> Product:
    """The facts that a convolution's tiles depend on, if only its results are stored."""
    made = replace(factors_of(nest, roles, is_narrow(nest, options)), run=run_of(nest))
    if rows_run(nest):
        return replace(made, overlap=places_of(nest))
    return replace(made, read=channels_of(nest))


def factors_of(nest: NestOp, roles: Roles, narrow: bool) -> Product:
    """The facts that a product's tiles depend on, if only its results are stored."""
    sizes = sizes_of(nest)
    batch, rows, columns, depth = (prod(sizes[a] for a in axes) for axes in (
        roles.batch, roles.rows, roles.columns, roles.reduce))
    width = max(map(width_of, nest.inputs))
    return Product(batch, rows, columns, depth, width, width_of(nest.results[0]), depth, narrow)


def filled_up(whole: Product, machine: Machine, word: int = 1) -> Product:
    """The product with its channels padded with zeros to whole words, and to whole steps where that
    takes less time: the fewest zeros among what takes about as little as the least."""
    sizes = dict.fromkeys(rounded(whole.run, step) for step in (word, *reversed(STEPS)))
    made = [replace(whole, depth=whole.depth // whole.run * n, run=n) for n in sizes]
    seconds = [_seconds(p, machine) for p in made]
    alike = (1 + machine.fitted.products.alike) * min(seconds)
    return next(p for p, taken in zip(made, seconds, strict=True) if taken <= alike)


def rounded(size: int, step: int) -> int:
    """The next multiple of a step."""
    return -(-size // step) * step


# ---------------------------------------------------------------------- split sums
def convolution_parts(nest: NestOp, options: TargetOptions) -> Parts | None:
    """The summed axis and into how many parts to split it, if the grid would be too small.

    None: one sum is as fast, or the nest is already such a part.
    """
    roles = convolution_roles(nest)
    if roles is None or any(a.extent.constant is None for a in nest.axes):
        return None
    if rows_run(nest):
        return _parts_of_positions(nest, roles, options)
    channels = [*channel_axes(nest)]
    if roles.batch or len(channels) != 1:
        return None
    found = _parts_of_channels(nest, roles, channels[0], options)
    summed = [size for axis, size in sizes_of(nest).items()
              if axis in roles.reduce and axis != channels[0]]
    is_gradient = prod(summed) >= POSITIONS
    return found or (_parts_of_positions(nest, roles, options) if is_gradient else None)


def _parts_of_channels(
    nest: NestOp, roles: Roles, axis: Symbol, options: TargetOptions
) -> Parts | None:
    """Equal parts; or whole steps, with a short last part, where these are faster: nothing can fill
    up the channels of a part that others follow."""
    machine, channels = machine_of(options.features), sizes_of(nest)[axis]
    whole = windowed_product(nest, roles, options)
    if not whole.narrow:
        count = parts_of(whole, machine, LEAST)
        return Parts(axis, count) if count > 1 else None
    taps, cuts = whole.depth // channels, dict[int, Product]()
    short = (n for n in range(LEAST, channels, STEPS[-1]) if -channels % n <= channels // FILLED)
    for size in (*(channels // n for n in divisors(channels, LEAST)), *short):
        part, count = replace(whole, depth=taps * size, run=size), -(-channels // size)
        if count not in cuts or _seconds(part, machine) < _seconds(cuts[count], machine):
            cuts[count] = part
    count = fastest_parts(filled_up(whole, machine, WORD // whole.width), machine, cuts)
    if count == 1:
        return None
    size = cuts[count].run
    return Parts(axis, count) if count * size == channels else Parts(axis, count, size)


def _seconds(product: Product, machine: Machine) -> float:
    return tile_seconds(product, tiles(product, machine)[0], machine)


def _parts_of_positions(nest: NestOp, roles: Roles, options: TargetOptions) -> Parts | None:
    """Parts of a gradient's sum, of any length."""
    if {*roles.batch} - groups_of(nest, roles):
        return None
    tiled = apart(nest, roles) if taps_apart(nest, options) else roles
    whole = windowed_product(nest, tiled, options)
    cuts = _cuts(nest, roles)
    rest = {a: whole.depth // size for a, size in sizes_of(nest).items() if a in roles.reduce}
    depths = {n: cut.size * rest[cut.axis] for n, cut in cuts.items()}
    count = fastest_parts(whole, machine_of(options.features), {
        n: replace(whole, depth=depth, run=depth) for n, depth in depths.items()
        if depth >= LEAST})
    return cuts[count] if count > 1 else None


def _cuts(nest: NestOp, roles: Roles) -> dict[int, Parts]:
    """For numbers of parts, each clearly larger than the last: those that exceed the sum least."""
    sizes, cuts, kept = sizes_of(nest), dict[int, Parts](), dict[int, Parts]()
    more = {a: n for a, n in sizes.items() if a in roles.reduce and n > 1}
    for axis, length in more.items():
        for size in range(1, length):
            cut = Parts(axis, -(-length // size), size)
            other = cuts.get(cut.count)
            if other is None or size * more[other.axis] < other.size * length:
                cuts[cut.count] = cut
    for count in sorted(cuts):
        if count <= MOST_CUTS and NEXT_CUT * count >= (NEXT_CUT + 1) * max(kept, default=1):
            kept[count] = cuts[count]
    return kept
