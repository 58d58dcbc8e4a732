"""A model of the time that a product takes on a GPU, by the tiles that its programs compute.

It covers matrix products, convolutions (whose rows are read by windows), and products on FMA units.
A step of a program multiplies, and loads the data of later steps (software pipelining). In a single
program nothing overlaps with the prologue, which is the first loads, or with the epilogue. Programs
that share a multiprocessor hide each other's latency, and share its multipliers and its bandwidth.
The time of a multiprocessor is therefore the longer of two: that of its waves of programs, each as
long as a single program, and that of all its programs' work. Thus 133 programs take twice as long
on 132 multiprocessors as 132 programs do. Reading all data from memory once is a lower bound.

What the model needs of a device it takes from the device's facts (`targets/cuda/facts`): fitted
where somebody has measured, else from the data sheet.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from targets.cuda.machine import Machine

WORD = 16
"""The bytes that a lane loads at once, where as many lie side by side."""
WINDOW = 80
"""Instructions of each thread in a step that reads by windows: where the rows of the tile lie at
the step's tap, and which of them are inside (in SASS for sm_90, beyond those of a matrix product).
"""
CROSSED = 20
"""Instructions that find the place of one word of a step that crosses from tap to tap."""
LONE = 4
"""Instructions that bring a single element to shared memory: its place, its load, and its store."""


class Skew(IntEnum):
    """Of what all rows of a matrix in memory begin at multiples: cache lines, sectors (what moves
    between memory and cache at once), the words that a lane loads, or less."""

    LINES = 128
    SECTORS = 32
    WORDS = 16
    LESS = 1

    @staticmethod
    def of(pitch: int) -> Skew:
        """That of rows that are so many bytes apart."""
        return next(s for s in Skew if pitch % s == 0)

    def longer(self, skewed: tuple[float, float, float]) -> float:
        """How much longer loads take than of lines, given this for the others."""
        return dict(zip(Skew, (1, *skewed), strict=True))[self]


@dataclass(frozen=True)
class Product:
    """`batch` times rows x depth by depth x columns.

    `width`: bytes of a factor's element. `epilogue_bytes`: what the epilogue reads and writes for
    each result. `run`: how many elements of the sum are contiguous in the rows' factor; fewer than
    `depth` if it is read by windows. `narrow`: whether tensor cores multiply. `open`: whether any
    extent is unknown, and assumed. `twice`: whether registers hold partial sums and totals
    (promotion). `copied`: whether a producer warp may load the factors. `vectors`: whether the
    epilogue reads a number per column, such as a bias. `overlap`: how many rows, or products of the
    batch, read the same elements. `read`: how many elements of its own a row reads, if not `run`.
    `lone`: whether the rows' and the columns' factor are loaded element by element (`pitch.py`).
    `skew`: where the rows of both factors and of the result begin in memory (`Skew`).
    """

    batch: int
    rows: int
    columns: int
    depth: int
    width: int
    epilogue_bytes: int
    run: int
    narrow: bool = True
    open: bool = False
    twice: bool = False
    copied: bool = False
    vectors: bool = False
    overlap: int = 1
    read: int = 0
    lone: tuple[bool, bool] = (False, False)
    skew: tuple[Skew, Skew, Skew] = (Skew.LINES, Skew.LINES, Skew.LINES)

    @property
    def bytes(self) -> int:
        """Bytes of the factors and of the epilogue's data. Overlapping windows count once."""
        rows = self.rows * (self.read or self.run) // self.overlap
        factors = (rows + self.depth * self.columns) * self.width
        return self.batch * (factors + self.rows * self.columns * self.epilogue_bytes)


@dataclass(frozen=True)
class ProductTile:
    """The tile of one program, with steps of `depth` along the sum.

    `groups`: in warp-specialized kernels, the number of consumer warp groups, each with such a
    tile; 0 in ordinary kernels.
    """

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int
    groups: int = 0

    @property
    def sums(self) -> int:
        return self.rows * self.columns

    def shared(self, width: int) -> int:
        """The bytes of shared memory for all stages of both factors."""
        return (self.rows + self.columns) * self.depth * width * self.stages


def seconds(product: Product, tile: ProductTile, machine: Machine) -> float:
    """The modelled seconds of the product in such tiles, which must fit the machine."""
    programs = product.batch * -(-product.rows // tile.rows) * -(-product.columns // tile.columns)
    each = max(1, -(-programs // machine.multiprocessors))
    turns = -(-each // programs_at_a_time(product, tile, machine))
    steps = -(-product.depth // tile.depth)
    step, times = _step(product, tile, machine), machine.fitted.products
    first = times.latency + times.filled * min(tile.stages - 1, steps) * step.loaded
    stored = tile.sums * product.epilogue_bytes
    alone = times.start + first + steps * step.alone + stored / times.stored
    alone += times.spilled if _spills(product, tile, machine) else 0
    shared = each * (steps * step.busy + stored / times.stored_among_others)
    computed = max(turns * alone, times.start + first + shared)
    moved = product.bytes / (times.memory * machine.bandwidth * 1e9)
    return max(computed, moved) + times.beside_memory * min(computed, moved)


def programs_at_a_time(product: Product, tile: ProductTile, machine: Machine) -> int:
    """How many programs a multiprocessor runs at a time; 0 if the tile does not fit."""
    threads = 32 * tile.warps
    registers = tile.sums * (2 if product.twice else 1) // threads
    registers += machine.fitted.products.registers
    if registers > machine.thread_registers:
        return 0
    return min(machine.shared // tile.shared(product.width),
               machine.registers // (registers * threads), machine.threads // threads)


def _spills(product: Product, tile: ProductTile, machine: Machine) -> bool:
    """Whether a thread that adds a number for each column to its sums has too few registers.

    It has its part of a vector along the columns in registers while it adds that to its sums.
    """
    times = machine.fitted.products
    sums = tile.sums * (2 if product.twice else 1) // (32 * tile.warps)
    shared = product.vectors and product.narrow
    vector = tile.columns // times.column_threads if shared else 0
    return sums + vector + times.registers > machine.thread_registers


@dataclass(frozen=True)
class Step:
    """The seconds of a step of the sum: of its loads; of all its work if other programs hide the
    latency; and of the whole step in a single program."""

    loaded: float
    busy: float
    alone: float


def _step(product: Product, tile: ProductTile, machine: Machine) -> Step:
    times = machine.fitted.products
    work = 2 * tile.sums * tile.depth
    multiplied = work / _rate(product, tile, machine)
    rows, columns = (s.longer(times.skewed) for s in product.skew[:2])
    lengths = tile.rows * _words(product) * rows + tile.columns * columns
    loaded = lengths * tile.depth * product.width / (machine.cache_rate * 1e9)
    short = product.narrow and machine.has_wgmma and tile.rows < times.group_rows
    more = times.short_rows * tile.depth * product.width / 256 if short else 0
    idle = 1 if product.narrow else max(1, 4 // tile.warps)  # a warp has a fourth of the FMA units
    alone = together(idle * multiplied, loaded, times.hiding)
    waited = together(alone, times.latency / (tile.stages - 1), times.waiting)
    issued = _issued(product, tile, machine)
    if any(product.lone):  # no asynchronous load, so that nothing hides the latency of a step
        waited = alone + times.latency
    busy = together(multiplied, loaded, times.hiding) + issued
    return Step(loaded, busy, waited + issued + times.step + more)


def _issued(product: Product, tile: ProductTile, machine: Machine) -> float:
    """The seconds in which a multiprocessor issues the instructions of a step that find places:
    of windows, and of elements that are loaded alone."""
    sides = (side for side, lone in zip((tile.rows, tile.columns), product.lone, strict=True)
             if lone)
    windows = 0.0
    if product.narrow and product.run < product.depth:
        word = min(WORD // product.width, product.run)
        crossed = CROSSED * tile.rows * tile.depth / word if product.run % tile.depth else 0
        windows = WINDOW * 32 * tile.warps + crossed
    return (windows + LONE * sum(sides) * tile.depth) / (machine.lanes * machine.clock * 1e9)


def together(one: float, other: float, power: int) -> float:
    """The seconds of two activities that overlap."""
    return (one ** power + other ** power) ** (1 / power)


def _words(product: Product) -> float:
    """How much longer loads take if windows allow only narrow loads of the rows' factor."""
    whole = product.run * product.width
    return 1 if product.run == product.depth else max(1.0, WORD / whole) ** 2


def _rate(product: Product, tile: ProductTile, machine: Machine) -> float:
    """The FLOP/s of a multiprocessor for such tiles."""
    times = machine.fitted.products
    if not product.narrow:
        loads = times.fma_loads / (tile.sums / (32 * tile.warps)) ** 0.5
        full = times.fma_efficiency * machine.fma_rate * 1e12 / machine.multiprocessors
        return full / (1 + loads)
    full = machine.tensor_rate * 1e12 / machine.multiprocessors * 2 / product.width
    groups_of_rows = max(1, tile.rows // times.group_rows)  # more groups share the columns
    columns = tile.columns // max(1, tile.warps // times.group_warps // groups_of_rows)
    filled = min(tile.rows / times.group_rows, 1)
    return times.efficiency * full * filled * columns / (columns + times.half_columns)
