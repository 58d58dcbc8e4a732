"""Schedule rules of the CUDA target for products with an online softmax: fused attention.

A program computes a block of rows. It keeps their query factor, and loops over the columns of the
scores. Each step computes a tile of scores by `tl.dot`, exponentiates it, and multiplies the result
by a tile of the values with another `tl.dot`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from math import prod

from xdsl.ir import BlockArgument, SSAValue

from dialects.loop import KernelOp, NestOp
from dialects.strata.schedule import Level, Schedule
from dialects.strata.types import TensorType, bf16, f16, f32
from dialects.symbolic.expr import Expr
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.kinds import is_contraction
from passes.analyses.loop.limits import limit_of
from passes.analyses.loop.online import running_maximum
from passes.analyses.loop.private import block_axis
from passes.analyses.loop.runs import common_rows
from passes.analyses.loop.seen import seen_scores
from passes.loop_to_block.compute import is_dot
from passes.rewrites.loop.common_factors import take_factor_out
from passes.rewrites.loop.nests import reads_of
from targets.cuda.machine import Machine, machine_of
from targets.cuda.scheduling.products.pitch import LEAST, WORD
from targets.cuda.scheduling.products.rules import MIN_DOT
from targets.cuda.scheduling.roles import symbols_of
from targets.cuda.scheduling.specialized_attention import may_specialize
from targets.cuda.scheduling.tiles import finish, power, tails_of, two_powers, width_of
from targets.options import TargetOptions

MAX_REGISTERS = 255
MAX_WIDTH, SPLIT_WIDTH = 256, 64
"""The most columns of a factor that a program holds, and the most of a split f32 factor."""


def is_attention(kernel: KernelOp) -> bool:
    """Whether a contraction of the kernel follows a running maximum (online softmax)."""
    return any(is_contraction(n) and running_maximum(n) for n in kernel.nests)


def joins(kernel: KernelOp, options: TargetOptions) -> bool:
    """Whether fusing attention pays: both products run on tensor cores, or are of one row each, and
    their factors fit.

    On FMA units, products of many rows take the same number of operations either way. Separate
    kernels have larger tiles there, and recompute nothing. One row keeps a device busy in parts of
    its keys alone (`attention_parts.py`), and how many rows there are tells into which.
    """
    products = _products(kernel)
    inner = [kernel.axes[a].constant for a in _held(kernel)]
    if len(products) != 2 or not all(map(is_dot, products)) or not all(
            size is not None and size <= MAX_WIDTH for size in inner):
        return False
    if block_axis(kernel) is None:
        return all(size.constant is not None for a, size in kernel.axes.items()
                   if a != walked_axis(kernel))
    narrow = all(_is_narrow(n) or options.precision != "f32" for n in products)
    return narrow or _is_split(kernel, options)


def selects(kernel: KernelOp, options: TargetOptions) -> bool:
    """Whether programs should read keys and values from the parts of a concatenation: where one
    block holds all rows, so that each part is read once. Several blocks would select anew, and copy
    their tiles through registers."""
    if not is_attention(kernel) or (row := block_axis(kernel)) is None:
        return True
    blocks = [kernel.axes[row].ceildiv(level.tile).constant
              for level in schedule_attention(kernel, options).levels if level.axis == row]
    return blocks == [1]


def _products(kernel: KernelOp) -> list[NestOp]:
    return [n for n in kernel.nests if is_contraction(n)]


def _is_narrow(nest: NestOp) -> bool:
    """Whether both factors are 16-bit floats."""
    return all(isinstance(v.type, TensorType) and v.type.element in (f16, bf16)
               for v in nest.inputs)


def _is_split(kernel: KernelOp, options: TargetOptions) -> bool:
    """Whether f32 factors are split into sums of two tf32 factors each, to use tensor cores.

    The relative error of each product is 2^-22, less than what the additions of a sum of 32
    contribute.
    """
    elements = {v.type.element for n in _products(kernel) for v in n.inputs
                if isinstance(v.type, TensorType)}
    held = [kernel.axes[a].constant or MAX_WIDTH for a in _held(kernel)]
    return (options.precision == "f32" and elements == {f32} and max(held) <= SPLIT_WIDTH
            and machine_of(options.features).has_wgmma)


def walked_axis(kernel: KernelOp) -> Symbol:
    """The axis of the keys, along which all sums are online."""
    [axis] = _products(kernel)[-1].reduce_axes
    return axis.name


def _held(kernel: KernelOp) -> list[Symbol]:
    """The axes of the factors besides rows and keys; a program holds them whole."""
    rows = common_rows(kernel)
    return [a for a in kernel.axes if a not in rows and a != walked_axis(kernel)]


@dataclass(frozen=True)
class Tiles:
    """Rows of a program, columns of a step, warps, and stages in flight. `registers`: a limit per
    thread that lets another program share the multiprocessor; 0: none."""

    rows: int
    step: int
    warps: int
    stages: int
    registers: int = 0

    def fits(self, held: int, width: int, machine: Machine) -> bool:
        """Whether factors `held` columns wide fit into shared memory, and sums into registers."""
        shared = held * width * (self.rows + 2 * self.step * self.stages)
        sums = self.rows * (held + self.step) // (32 * self.warps)
        return shared <= machine.shared and sums <= (self.registers or MAX_REGISTERS) * 3 // 4


_NARROW = (Tiles(64, 64, 4, 3), Tiles(64, 32, 4, 2))
"""For factors no wider than a cache line: several programs share a multiprocessor."""
_BARE = (Tiles(128, 128, 8, 3, 128), *_NARROW)
"""For such factors, if nothing but factors is read and all steps are whole: registers hold the
scores and sums."""
_WIDE = (Tiles(128, 64, 8, 2, 128), Tiles(64, 64, 4, 3), Tiles(64, 64, 4, 2), Tiles(64, 32, 4, 2))
"""For wider factors: more rows, so that the factors are loaded less often."""
_LIMITED = _WIDE[1:]
"""For wider factors under a causal mask, where one loop covers each row up to the diagonal."""
_SPLIT = (Tiles(128, 64, 8, 2), Tiles(32, 32, 4, 2))
"""For split f32 factors, whose parts need registers of their own."""
_SPECIALIZED = Tiles(64, 128, 8, 2)
"""For wider factors with warp specialization: the tiles of each of two consumer groups, where the
machine's facts say that this is faster (`CopiedTimes`)."""
_HEADS = 4
"""How many heads' rows of equal length run next to each other."""
_LINE = 128
STEP = 256
"""How many keys a program with one row loads per step, all in flight at the same time."""


SEARCHED = 4096
"""For how many elements of a mask a program looks at the same time: some tens in each thread."""


def row_multiples(kernel: KernelOp) -> Mapping[int, int]:
    """Which biases and masks to copy: those of which no load can be asynchronous, because their
    rows begin anywhere or their length is open, so that every step might wait for memory."""
    row = block_axis(kernel)
    if row is None:
        return {}
    walked, found = walked_axis(kernel), dict[int, int]()
    reads = [read for n in kernel.nests for read in reads_of(n)]
    padded = {r.value for r in reads if r.pad is not None}  # the end of a row means something
    for nest in [n for n in kernel.nests if n.is_elementwise]:
        for value, map_ in ((r.value, r.map) for r in reads_of(nest)):
            if isinstance(value, BlockArgument) and value not in padded and (
                    row in symbols_of(map_) and map_[-1].as_symbol == walked) and _is_odd(value):
                found[value.index] = WORD // width_of(value)
    return found


def _is_odd(value: SSAValue) -> bool:
    assert isinstance(value.type, TensorType)
    length = value.type.shape[-1].constant
    return length is None or bool(length * width_of(value) % LEAST)


def prepare_attention(kernel: KernelOp) -> None:
    """Move the mask of the scores before their scaling."""
    for nest in [n for n in kernel.nests if n.is_elementwise]:
        take_factor_out(nest)


def schedule_attention(kernel: KernelOp, options: TargetOptions) -> Schedule:
    """Blocks of rows in the grid, the factors' axes whole, and the columns in steps."""
    return next(candidates(kernel, options))


def candidates(kernel: KernelOp, options: TargetOptions) -> Iterator[Schedule]:
    """The preferred schedule, then others that may be as good."""
    row = block_axis(kernel)
    if row is None:
        yield _single_rows(kernel)
        return
    if _is_specialized(kernel, row, options):
        yield _specialized(kernel, row, options)
    yield _ordinary(kernel, row, options)


def _ordinary(kernel: KernelOp, row: Symbol, options: TargetOptions) -> Schedule:
    """A schedule without warp specialization."""
    extents, walked = kernel.axes, walked_axis(kernel)
    held = {a: two_powers(extents[a], MAX_WIDTH, MIN_DOT) for a in _held(kernel)}
    split = _is_split(kernel, options)
    tiles = _tiles(kernel, row, max(held.values()), machine_of(options.features), split)
    length = extents[walked].constant
    if length is not None and length <= tiles.step:  # no loop would hold the parts (`tails_of`)
        held = {a: power(extents[a], MAX_WIDTH, MIN_DOT) for a in held}
    levels = [*(Level("grid", a) for a in common_rows(kernel) if a != row),
              Level("grid", row, block := power(extents[row], tiles.rows, MIN_DOT)),
              *(Level("whole", a, size) for a, size in held.items()),
              Level("loop", walked, power(extents[walked], tiles.step, MIN_DOT))]
    more = {"registers": tiles.registers} if tiles.registers else {}
    limited = limit_of(kernel, walked) is not None
    once = _is_even(kernel, tiles.step) or (not split and _is_wide(kernel, held.values()))
    more |= {"strip": _HEADS, "descend": 1} if limited else {}
    more |= {"branch": 1} if limited and once else {}
    tails = "mask" if limited and once else tails_of(extents[walked], tiles.step)
    more |= _search(kernel, {row: block}) if extents[row].ceildiv(block) == Expr.of(1) else {}
    return finish(kernel, levels, online=1, dot=1, pointers=1, warps=tiles.warps, tails=tails,
                  stages=tiles.stages,
                  precision="tf32x3" if split else options.precision, **more)


def _is_specialized(kernel: KernelOp, row: Symbol, options: TargetOptions) -> bool:
    """Whether warp specialization makes a kernel faster: wide factors and enough programs."""
    machine, walked, held = machine_of(options.features), walked_axis(kernel), _held(kernel)
    times = machine.fitted.copied
    if times is None:
        return False
    widths = [kernel.axes[a].constant or MAX_WIDTH for a in held]
    length, limit = kernel.axes[walked].constant, limit_of(kernel, walked)
    if limit is not None and limit.begin is not None:
        return False  # few steps, which begin where only a program knows
    limited = limit is not None
    pair = _SPECIALIZED.rows * _SPECIALIZED.warps // 4
    programs = product([*(kernel.axes[a] for a in common_rows(kernel) if a != row),
                        kernel.axes[row].ceildiv(pair)]).constant
    return (2 * max(widths) > _LINE and max(widths) <= _LINE
            and (length is None or length > (times.reach - 1 if limited else _SPECIALIZED.step))
            and programs is not None and 8 * programs > 7 * machine.multiprocessors
            and may_specialize(kernel, _products(kernel), row, walked, held, options))


def _specialized(kernel: KernelOp, row: Symbol, options: TargetOptions) -> Schedule:
    """Two consumer warp groups, and a producer warp that loads."""
    extents, walked, tiles = kernel.axes, walked_axis(kernel), _SPECIALIZED
    levels = [*(Level("grid", a) for a in common_rows(kernel) if a != row),
              Level("grid", row, tiles.rows),
              *(Level("whole", a, power(extents[a], MAX_WIDTH, MIN_DOT)) for a in _held(kernel)),
              Level("loop", walked, tiles.step)]
    limited = limit_of(kernel, walked) is not None
    more = {"strip": _HEADS, "descend": 1} if limited else {}
    return finish(kernel, levels, online=1, dot=1, tails="mask", branch=1, warps=tiles.warps,
                  stages=tiles.stages, precision=options.precision, specialize=1, **more)


def _single_rows(kernel: KernelOp) -> Schedule:
    """One program per row. Its products are of vectors, so they run on FMA units."""
    extents, walked = kernel.axes, walked_axis(kernel)
    held = {a: power(extents[a], MAX_WIDTH) for a in _held(kernel)}
    step = power(extents[walked], STEP, MIN_DOT)
    levels = [*(Level("grid", a) for a in common_rows(kernel)),
              *(Level("whole", a, size) for a, size in held.items()), Level("loop", walked, step)]
    return finish(kernel, levels, online=1, tails="peel", warps=4, **_search(kernel, {}))


def _search(kernel: KernelOp, rows: Mapping[Symbol, int]) -> Mapping[str, int]:
    """The option with which a program looks for the keys that its rows see, by masks and positions
    that are inputs. It reads keys and values for few rows, so that these cost more than to look.

    `rows`: the tile of each axis that is not one row of a program.
    """
    seen = seen_scores(kernel)
    if seen is None or not seen.derivation.arguments:
        return {}
    each = prod(tile for axis, tile in rows.items() if axis in seen.derivation.axes)
    length = next(a.extent for a in seen.scores.axes if a.name == seen.axis)
    return {"search": power(length, max(MIN_DOT, SEARCHED // each))}


def program_count(kernel: KernelOp, options: TargetOptions) -> int | None:
    """The number of a kernel's programs; None if it is known only at run time."""
    schedule = schedule_attention(kernel, options)
    return product(kernel.axes[x.axis].ceildiv(x.tile) for x in schedule.levels
                   if x.kind == "grid").constant


def _is_wide(kernel: KernelOp, held: Collection[int]) -> bool:
    """Whether factors are wider than a cache line. Then one loop covers rows that end at a diagonal
    at any length: the registers of a second loop would cost more than comparisons in the first."""
    return max(held) * max(width_of(v) for n in _products(kernel) for v in n.inputs) > _LINE


def _is_even(kernel: KernelOp, step: int) -> bool:
    """Whether all steps are whole, so that there is one loop."""
    length = kernel.axes[walked_axis(kernel)].constant
    return length is not None and length % step == 0


def _tiles(
    kernel: KernelOp, row: Symbol, held: int, machine: Machine, split: bool
) -> Tiles:
    """The first tiles that fit and use every multiprocessor, else those with the fewest rows."""
    width = max(width_of(v) for n in _products(kernel) for v in n.inputs)
    limited = limit_of(kernel, walked_axis(kernel)) is not None
    if split:
        choices = _SPLIT
    elif held * width > _LINE:
        choices = _LIMITED if limited else _WIDE
    else:
        bare = len(kernel.body.block.args) == 3 and _is_even(kernel, _BARE[0].step)
        limited = limited and _is_even(kernel, _LIMITED[0].step)
        choices = _BARE if bare and not limited else _NARROW
    most = power(kernel.axes[row], choices[0].rows, choices[-1].rows)
    fitting = [t for t in choices if t.fits(held, width, machine) and t.rows <= most] or [
        choices[-1]]
    others = product(kernel.axes[a] for a in common_rows(kernel) if a != row)
    programs = [(others * kernel.axes[row].ceildiv(t.rows)).constant for t in fitting]
    return next((t for t, n in zip(fitting, programs, strict=True)
                 if n is None or n >= machine.multiprocessors),
                min(fitting, key=lambda t: t.rows))
