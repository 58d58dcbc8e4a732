"""Schedules that the tuner tries on GPUs: the rules' other choices, and variations of a given one.

All of them are legal: tiles are powers of two that do not exceed their axes, `tl.dot` has at least
its smallest sizes, and registers and shared memory suffice, by estimate. The cost is a guess that
only ranks them. Axes, kinds of levels and all other options stay as the rules chose them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, pairwise, product
from math import ceil, log2, prod
from typing import NamedTuple

from dialects.loop import KernelOp, NestOp
from dialects.strata.schedule import Level, Schedule
from dialects.strata.schedule_options import DOT
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.kinds import is_contraction
from passes.loop_to_block.copies import copied_level
from targets.cuda.libraries.forms import called, library_calls, library_form, without_library
from targets.cuda.machine import Machine, machine_of
from targets.cuda.scheduling import attention
from targets.cuda.scheduling import options as declared
from targets.cuda.scheduling.attention import is_attention
from targets.cuda.scheduling.products import rules as products
from targets.cuda.scheduling.products.rules import MIN_DEPTH, MIN_DOT
from targets.cuda.scheduling.rules import schedule_kernel
from targets.cuda.scheduling.tiles import power, width_of
from targets.options import TargetOptions

VERSION = 1
"""Version of the meaning and the set of schedules; winners of other versions are ignored."""
TILES = (16, 32, 64, 128, 256)
DEPTHS = (16, 32, 64, 128, 256)
WARPS, STREAM_WARPS = (2, 4, 8), (1, 2, 4, 8, 16)
STAGES = (1, 2, 3, 4, 5)
FIRST_TILES = 10
"""How many whole schedules come before the small variations."""
SUMS = 128
"""Registers of a thread that hold sums."""
MOST_ELEMENTS = 64
"""The most elements of a tile per thread in kernels without products."""
IDEAL_ELEMENTS = 16
MOST = 200
"""The most schedules of a product, from the rules and from the guess each."""
REPEATED = 0.08
"""The penalty on each further schedule with the same tile of sums, since guesses err."""
OPEN_SIZE = 1024
"""The assumed value of a size known only at run time."""


def candidates(
    kernel: KernelOp, around: Schedule, options: TargetOptions
) -> Sequence[Schedule]:
    """Schedules other than `around`, each once, most promising first."""
    form = library_form(kernel, options) if options.library else None
    library = [] if form is None else [called(around, call) for call in library_calls(form)]
    around = without_library(around)
    space = Space(kernel, _ordinary(kernel, around, options), machine_of(options.features))
    own = _of_rules(kernel, options)
    whole = list(_products(space) if space.is_product else _streams(space))
    others = [*whole[:FIRST_TILES], *_steps(space), *whole[FIRST_TILES:]]
    ordered = [*library, *own[:FIRST_TILES], *filter(space.fits, others), *own[FIRST_TILES:]]
    return [s for s in dict.fromkeys(ordered) if s != around]


def _ordinary(kernel: KernelOp, schedule: Schedule, options: TargetOptions) -> Schedule:
    """The schedule without warp specialization, with a tile from the rules."""
    if is_attention(kernel) and schedule.option(declared.SPECIALIZE):
        return [*attention.candidates(kernel, options)][-1]
    return replace(schedule, options=tuple(
        (name, value) for name, value in schedule.options if name != declared.SPECIALIZE.name))


def _of_rules(kernel: KernelOp, options: TargetOptions) -> list[Schedule]:
    """The other choices of the product rules, if the kernel's schedule is their first choice."""
    if is_attention(kernel):
        return [*attention.candidates(kernel, options)][1:]
    found = list(islice(products.candidates(kernel, options), MOST))
    return found[1:] if found[:1] == [schedule_kernel(kernel, options)] else []


@dataclass(frozen=True)
class Space:
    """The choices around a schedule of a kernel."""

    kernel: KernelOp
    around: Schedule
    machine: Machine

    @property
    def is_product(self) -> bool:
        return self.around.option(DOT)

    @property
    def warps(self) -> Sequence[int]:
        return [w for w in (WARPS if self.is_product else STREAM_WARPS)
                if w * self.machine.warp <= 1024]

    @cached_property
    def width(self) -> int:
        """Bytes of a factor's element."""
        nest = next(n for n in self.kernel.nests if is_contraction(n))
        return max(map(width_of, nest.inputs))

    def size(self, axis: Symbol) -> int:
        return self.kernel.axes[axis].constant or OPEN_SIZE

    def tiles_of(self, schedule: Schedule) -> Mapping[Symbol, int]:
        """The innermost tile of each axis."""
        return {x.axis: x.tile for x in schedule.levels}

    def most(self, level: Level, limit: int) -> int:
        """The largest tile of a level."""
        return max(level.tile, power(self.kernel.axes[level.axis], limit))

    def least(self, level: Level) -> int:
        """The smallest tile of a level: limited by `tl.dot` where the level is part of one."""
        if not self.is_product or level.tile < MIN_DOT:
            return 1
        return max(MIN_DOT, MIN_DEPTH // self.width) if level.kind == "loop" else MIN_DOT

    # ------------------------------------------------------------------ legality
    def fits(self, schedule: Schedule) -> bool:
        """Whether registers and shared memory suffice, by estimate."""
        warps = schedule.option(declared.WARPS)
        if warps not in self.warps:
            return False
        threads = warps * self.machine.warp
        tiles = self.tiles_of(schedule)
        copied = copied_level(schedule)
        if copied is not None and self.size(copied.axis) % copied.tile:
            return False
        if not self.is_product:
            return max((_elements(n, tiles) for n in self.kernel.nests), default=1
                       ) <= MOST_ELEMENTS * threads
        sums = max(_elements(n, tiles, sums=False) for n in self.kernel.nests)
        return sums <= SUMS * threads and self.shared(schedule) <= self.machine.shared

    def shared(self, schedule: Schedule) -> int:
        """Bytes of shared memory for the factors' tiles in all stages."""
        tiles = self.tiles_of(schedule)
        nests = [n for n in self.kernel.nests if is_contraction(n)]
        stages = max(schedule.option(declared.STAGES), 1)
        return max(stages * sum(
            width_of(v) * prod(tiles[a] for a in _axes_of(n, k))
            for k, v in enumerate(n.inputs[:2])) for n in nests)


def _elements(nest: NestOp, tiles: Mapping[Symbol, int], sums: bool = True) -> int:
    """The elements of a nest's tile; without `sums`, those of its results alone."""
    axes = nest.axes if sums else nest.parallel_axes
    return prod(tiles.get(a.name, 1) for a in axes)


def _axes_of(nest: NestOp, position: int) -> list[Symbol]:
    """The axes that index an input."""
    used = set[Symbol]().union(*(e.symbols for e in nest.input_maps[position]))
    return [a.name for a in nest.axes if a.name in used]


def _with_options(schedule: Schedule, **options: int) -> Schedule:
    """The schedule with these options set or replaced."""
    given = dict(schedule.options) | options
    return replace(schedule, options=tuple(given.items()))


def _with_tiles(schedule: Schedule, tiles: Mapping[Symbol, int]) -> Schedule:
    """The schedule with other tiles; a level that was fully unrolled stays so."""
    levels = [replace(x, tile=tiles.get(x.axis, x.tile)) for x in schedule.levels]
    return replace(schedule, levels=tuple(
        replace(x, unroll=x.tile) if x.kind == "grid" and x.unroll > 1 else x for x in levels))


# ---------------------------------------------------------------------- products
class Point(NamedTuple):
    """A product's tile, and how a program computes it."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


@dataclass(frozen=True)
class Product:
    """A product of rows by columns. `others`: programs, and steps of a program, of other axes."""

    space: Space
    levels: tuple[Level, Level, Level]
    others: tuple[int, int]

    @staticmethod
    def of(space: Space) -> Product | None:
        """None if the tiled axes are not rows, columns and depth."""
        tiled = [x for x in space.around.levels if x.tile >= MIN_DOT]
        if [x.kind for x in tiled] != ["grid", "grid", "loop"]:
            return None
        rows, columns, depth = tiled
        others = [[ceil(space.size(x.axis) / x.tile) for x in space.around.levels
                   if x.kind == kind and x not in tiled] for kind in ("grid", "loop")]
        return Product(space, (rows, columns, depth), (prod(others[0]), prod(others[1])))

    def points(self) -> Iterator[Point]:
        """All points that fit the machine."""
        space = self.space
        sizes = [[t for t in tiles if space.least(x) <= t <= space.most(x, tiles[-1])]
                 for x, tiles in zip(self.levels, (TILES, TILES, DEPTHS), strict=True)]
        for point in product(*sizes, space.warps, STAGES):
            point = Point(*point)
            if (point.rows * point.columns <= SUMS * point.warps * space.machine.warp
                    and self.shared(point) <= space.machine.shared):
                yield point

    def shared(self, point: Point) -> int:
        """Bytes of shared memory."""
        return point.stages * (point.rows + point.columns) * point.depth * self.space.width

    def schedule(self, point: Point) -> Schedule:
        tiles = {x.axis: t for x, t in zip(self.levels, point[:3], strict=True)}
        return _with_options(_with_tiles(self.space.around, tiles),
                             warps=point.warps, stages=point.stages)

    # ------------------------------------------------------------------ a guess
    @cached_property
    def sizes(self) -> list[int]:
        """The extents of the axes of rows, columns and depth."""
        return [self.space.size(x.axis) for x in self.levels]

    def cost(self, point: Point) -> float:
        """Guessed cycles, for programs that share a multiprocessor and run in waves."""
        space, machine = self.space, self.space.machine
        guess = machine.fitted.guess
        counts = [ceil(size / t) for size, t in zip(self.sizes, point[:3], strict=True)]
        programs, steps = counts[0] * counts[1] * self.others[0], counts[2] * self.others[1]
        moved = (point.rows + point.columns) * point.depth * space.width / guess.near_bytes
        multiplied = point.rows * point.columns * point.depth / self._rate(point) + guess.step
        together = min(self._resident(point), ceil(programs / machine.multiprocessors))
        rounds = ceil(programs / (machine.multiprocessors * together))
        parts = together * multiplied, together * moved, guess.latency / max(1, point.stages - 1)
        each = max(parts) if point.stages > 1 else sum(parts)
        return rounds * (steps * each + guess.start)

    def _rate(self, point: Point) -> float:
        """Multiply-adds of a multiprocessor per cycle; larger tiles reuse more."""
        machine, guess = self.space.machine, self.space.machine.fitted.guess
        full = guess.narrow_rate if self.space.width <= 2 else guess.wide_rate
        in_groups = point.warps % 4 == 0 and point.rows >= 64
        reuse = point.rows / (point.rows + 32) * point.columns / (point.columns + 32)
        return full * reuse * (1.0 if in_groups or not machine.has_wgmma else guess.ungrouped)

    def _resident(self, point: Point) -> int:
        """How many programs fit on a multiprocessor at a time."""
        machine, threads = self.space.machine, point.warps * self.space.machine.warp
        registers = point.rows * point.columns + 64 * threads
        return max(1, min(machine.shared // self.shared(point), machine.registers // registers,
                          machine.threads // threads))


def _products(space: Space) -> Iterator[Schedule]:
    """Tiles, warps and stages of one product, ranked by the guess."""
    found = Product.of(space)
    if found is None:
        return
    alike: defaultdict[tuple[int, int], list[tuple[float, Point]]] = defaultdict(list)
    for point in found.points():
        alike[point.rows, point.columns].append((found.cost(point), point))
    ranked = [(cost * (1 + REPEATED * rank), point) for group in alike.values()
              for rank, (cost, point) in enumerate(sorted(group))]
    yield from (found.schedule(point) for _, point in sorted(ranked)[:MOST])


# ---------------------------------------------------------------------- memory-bound kernels
def _streams(space: Space) -> Iterator[Schedule]:
    """Tiles of the last two axes, from a quarter to eight times the size, and numbers of warps."""
    tiled = [x for x in space.around.levels if x.kind != "whole"]
    chosen = ([x for x in tiled if x.tile > 1] or tiled)[-2:]
    found: list[tuple[float, Schedule]] = []
    for factors in product((0.25, 0.5, 1, 2, 4, 8), repeat=len(chosen)):
        tiles = {x.axis: round(x.tile * f) for x, f in zip(chosen, factors, strict=True)}
        if any(not 1 <= tiles[x.axis] <= space.most(x, 1 << 15) for x in chosen):
            continue
        distance = sum(abs(log2(f)) for f in factors)
        for warps in space.warps:
            schedule = _with_options(_with_tiles(space.around, tiles), warps=warps)
            found.append((_stream_cost(space, schedule) + distance / 4, schedule))
    yield from (s for _, s in sorted(found, key=lambda pair: pair[0]))


def _stream_cost(space: Space, schedule: Schedule) -> float:
    """The distance from enough programs and from an ideal share of each thread, in powers of two.
    """
    tiles, machine = space.tiles_of(schedule), space.machine
    threads = schedule.option(declared.WARPS) * machine.warp
    share = max(_elements(n, tiles) for n in space.kernel.nests) / threads
    programs = prod(ceil(space.size(x.axis) / x.tile)
                    for x in schedule.levels if x.kind == "grid")
    short = max(0.0, log2(2 * machine.multiprocessors / max(1, programs)))
    return abs(log2(max(share, 2 ** -6) / IDEAL_ELEMENTS)) + short


# ---------------------------------------------------------------------- small variations
def _steps(space: Space) -> Iterator[Schedule]:
    """One thing changed: warps, stages, strips of programs, the tile of one axis, or the order."""
    around = space.around
    warps = around.option(declared.WARPS)
    yield from (_with_options(around, warps=w) for w in (2 * warps, warps // 2))
    if any(x.kind == "loop" and x.tile > 1 for x in around.levels):
        stages = around.option(declared.STAGES)
        yield from (_with_options(around, stages=s) for s in (stages + 1, stages - 1)
                    if STAGES[0] <= s <= STAGES[-1])
    strip = around.option(declared.STRIP, 0)
    if strip:
        yield from (_with_options(around, strip=s) for s in (2 * strip, max(1, strip // 2)))
    for level in around.levels:
        if level.kind != "whole" and not (space.is_product and level.tile < MIN_DOT):
            yield from (_with_tiles(around, {level.axis: t})
                        for t in (2 * level.tile, level.tile // 2)
                        if space.least(level) <= t <= space.most(level, 1 << 15))
    for k, (a, b) in enumerate(pairwise(around.levels)):
        if a.kind == b.kind == "grid" and a.axis != b.axis:
            levels = (*around.levels[:k], b, a, *around.levels[k + 2:])
            yield replace(around, levels=levels)
