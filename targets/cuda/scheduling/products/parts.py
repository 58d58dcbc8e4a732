"""Split-K: products split along the summed axis where a product's own tiles would idle most of a
GPU.

The input is a contraction before kernels are formed. The result is the summed axis to split and the
number of parts, provided that the parts and the kernel that adds them take clearly less time than
one product. A batched product already has enough programs, or consists of another product's parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from dialects.loop import NestOp
from dialects.symbolic.size_products import product as size_of
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.constants import constant_source
from passes.contract import Parts
from targets.cuda.machine import Machine, machine_of
from targets.cuda.scheduling.memory.sums import MOST_PARTS
from targets.cuda.scheduling.products.rules import is_dot, is_plain, on_tensor_cores, product_of
from targets.cuda.scheduling.products.specialized import are_copied
from targets.cuda.scheduling.products.tap_products import channel_of, programs_of
from targets.cuda.scheduling.products.tiles import LINE, SIZES, tile_seconds, tiles
from targets.cuda.scheduling.products.time import Product
from targets.cuda.scheduling.products.vector import COLUMNS, matrix_direction
from targets.cuda.scheduling.roles import Roles, has_windows, memory_axis, roles_of
from targets.options import TargetOptions

MOST_OUTER = 128
"""The most parts of a sum whose terms lie apart in memory."""
SUM, STORED = 4, 2
"""Bytes per element of a partial sum, and of a typical stored result."""
SELECTED, WINDOWS, SHORTEST, SHARE = 128, 512, 32, 8
"""Results of a program that sums what it selects, and of one that moves a window, the fewest steps
of a part, and the most programs for each multiprocessor."""


def product_parts(nest: NestOp, options: TargetOptions) -> Parts | None:
    """The axis and the number of parts; None: compute whole sums."""
    roles = roles_of(nest)
    is_open = any(a.extent.constant is None for a in nest.axes)
    if is_open or roles.batch or not roles.reduce or not is_plain(nest):
        return None
    machine = machine_of(options.features)
    product = replace(product_of(nest, roles), copied=are_copied(nest, roles, options))
    outer = _outer_axes(nest, roles)
    if roles.rows and roles.columns and outer:
        suits = is_dot(nest) and on_tensor_cores(nest, options)
        return _parts_of_outer(product, outer, machine) if suits else None
    if len(roles.reduce) != 1:
        return None
    least = 2 * LINE // product.width
    if roles.rows and roles.columns:
        suits = is_dot(nest) and on_tensor_cores(nest, options)
        return _parts_of_sum(product, roles.reduce[0], machine, least) if suits else None
    parts = _parts_of_columns(nest, roles, product, machine, least)
    return Parts(roles.reduce[0], parts) if parts > 1 else None


def _parts_of_sum(product: Product, axis: Symbol, machine: Machine, least: int) -> Parts | None:
    """Equal parts; or, of a sum that has no such parts, parts of whole lines and a short last one.
    """
    count = parts_of(product, machine, least)
    if count > 1 or product.depth % (2 * SIZES[0]) == 0:
        return Parts(axis, count) if count > 1 else None
    line, sizes = LINE // product.width, dict[int, int]()
    for wanted in range(2, min(product.depth // least, MOST_PARTS) + 1):
        size = -(-product.depth // (wanted * line)) * line
        sizes.setdefault(-(-product.depth // size), size)
    count = fastest_parts(product, machine, {
        n: replace(product, depth=size, run=size) for n, size in sizes.items()})
    return Parts(axis, count, sizes[count]) if count > 1 else None


def idle_parts(nest: NestOp, options: TargetOptions) -> Parts | None:
    """The longest summed axis, and the number of parts, of a sum with few results that walks its
    elements one by one: of rows that an index selects, or of a depthwise filter's gradient. A step
    takes as long as a load, and nothing hides it."""
    windows, roles = has_windows(nest), roles_of(nest)
    is_tiled = is_dot(nest) and (not windows or (roles.rows and roles.columns))
    is_vector = matrix_direction(nest, roles) is not None  # each program reads long pieces
    if is_tiled or is_vector or any(a.extent.constant is None for a in nest.axes):
        return None
    divided = {a.name.followed_by("_part") for a in nest.axes}
    left = [a for a in nest.reduce_axes if a.name not in divided]
    if not left:
        return None
    summed = max(left, key=lambda a: a.extent.constant or 1)
    count = size_of(a.extent for a in nest.parallel_axes).constant or 1
    programs = programs_of(nest) if channel_of(nest) is not None else (
        -(-count // (WINDOWS if windows else SELECTED)))
    most = SHARE * machine_of(options.features).multiprocessors // programs
    steps = size_of(a.extent for a in nest.reduce_axes).constant or 1
    length = summed.extent.constant or 1
    counts = [n for n in range(2, min(length // 2, steps // SHORTEST, most) + 1)
              if length % n == 0]
    return Parts(summed.name, counts[-1]) if counts else None


def _outer_axes(nest: NestOp, roles: Roles) -> dict[Symbol, int]:
    """Summed axes that run along no factor's memory, as positions do in a gradient of weights;
    their parts begin at aligned addresses, whatever their length."""
    along = [memory_axis(nest, k) for k in range(len(nest.inputs))]
    sizes = {a.name: a.extent.constant or 1 for a in nest.axes if a.name in roles.reduce}
    if None in along:
        return {}
    return {a: n for a, n in sizes.items() if a not in along and n > 1}


def _parts_of_outer(
    product: Product, axes: Mapping[Symbol, int], machine: Machine
) -> Parts | None:
    """Equal parts of one of these axes."""
    cut = {count: axis for axis, size in reversed(list(axes.items()))
           for count in range(2, min(size, MOST_OUTER) + 1) if size % count == 0
           and product.depth // count >= LINE // product.width}
    count = fastest_parts(product, machine, {
        n: replace(product, depth=product.depth // n, run=product.run // n) for n in sorted(cut)})
    return Parts(cut[count], count) if count > 1 else None


def parts_of(product: Product, machine: Machine, least: int) -> int:
    """Into how many equal parts to split the sums, each of at least `least` elements; mostly 1."""
    return fastest_parts(product, machine, {
        n: replace(product, depth=product.depth // n, run=product.run // n)
        for n in divisors(product.run, least)})


def fastest_parts(product: Product, machine: Machine, choices: Mapping[int, Product]) -> int:
    """Into which number of parts, given one of each, to split the sums; mostly 1.

    Another kernel adds the parts, so splitting must pay clearly.
    """
    times = {1: _fastest(replace(product, epilogue_bytes=STORED), machine)}
    for parts, part in choices.items():
        whole = replace(part, batch=parts * product.batch, epilogue_bytes=SUM, copied=False)
        times[parts] = _fastest(whole, machine) + _adding(product, parts, machine)
    best = min(times, key=lambda parts: times[parts])
    return best if times[best] < machine.fitted.parts.gain * times[1] else 1


def _fastest(product: Product, machine: Machine) -> float:
    return tile_seconds(product, tiles(product, machine)[0], machine)


def _adding(product: Product, parts: int, machine: Machine) -> float:
    """The seconds of the kernel that adds the parts."""
    read = SUM * parts * product.batch * product.rows * product.columns
    facts = machine.fitted
    return facts.parts.adding + read / (facts.products.memory * machine.bandwidth * 1e9)


def divisors(length: int, least: int) -> Iterator[int]:
    """The numbers of equal parts that are long enough and start at aligned addresses."""
    yield from (n for n in range(2, min(length // least, MOST_PARTS) + 1)
                if length % (n * SIZES[0]) == 0)


def _parts_of_columns(
    nest: NestOp, roles: Roles, product: Product, machine: Machine, least: int
) -> int:
    """How many parts give a vector times a matrix a few programs per multiprocessor.

    If sums run along the matrix's memory, programs of a few columns each suffice. Packed constants
    have that layout (`products.panels`). Constants that the caller holds do not; for them, fewer
    columns per program give enough programs, and take less time than adding parts.
    """
    along = matrix_direction(nest, roles)
    if along is None or along[1] in roles.reduce or constant_source(nest.inputs[along[0]]):
        return 1
    programs = -(-product.rows * product.columns * product.width // COLUMNS)
    if 2 * programs >= machine.multiprocessors:
        return 1
    wanted = -(-machine.fitted.parts.programs * machine.multiprocessors // programs)
    return max((n for n in divisors(product.depth, least) if n <= wanted), default=1)
