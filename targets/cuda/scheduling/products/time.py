"""A model of the time that a product takes on a GPU, by the tiles that its programs compute.

It holds for matrix products, for convolutions, whose rows are read by windows, and on FMA units. A
step of a program multiplies, and loads what later ones multiply; the first loads, and what is
written behind the sums, have nothing to hide behind in a program alone. Programs that a
multiprocessor holds at a time hide each other's waiting, and share what multiplies and what loads.
So one multiprocessor takes as long as its turns of programs take alone, or as all of its programs
have work, whichever is longer: 133 programs take twice as long on 132 multiprocessors as 132. What
must come from memory, once, bounds all.

What the model needs of a device it takes from the device's facts (`targets/cuda/facts`): fitted
where somebody has measured, else from the data sheet.
"""

from __future__ import annotations

from dataclasses import dataclass

from targets.cuda.machine import Machine

WORD = 16
"""The bytes that a lane loads at once, where as many lie side by side."""


@dataclass(frozen=True)
class Product:
    """`batch` times rows x depth by depth x columns.

    `width`: bytes of a factor's element. `beside`: bytes that are read and written for each result
    beside the factors. `run`: how many elements of the sum lie side by side in the rows' factor;
    fewer than `depth` where it is read by windows. `narrow`: whether tensor cores multiply. `open`:
    whether any extent is not known, but assumed. `twice`: whether sums are held twice, to be added
    to others after some steps. `copied`: whether a warp that does nothing else may load factors.
    `vectors`: whether what is behind the sums reads a number for each column, such as a bias.
    """

    batch: int
    rows: int
    columns: int
    depth: int
    width: int
    beside: int
    run: int
    narrow: bool = True
    open: bool = False
    twice: bool = False
    copied: bool = False
    vectors: bool = False

    @property
    def bytes(self) -> int:
        """Of the factors, and of what is beside them. Windows overlap."""
        factors = (self.rows * self.run + self.depth * self.columns) * self.width
        return self.batch * (factors + self.rows * self.columns * self.beside)


@dataclass(frozen=True)
class ProductTile:
    """What one program computes, `depth` of the sum in a step.

    `groups`: of warps that multiply such a tile each, beside a warp that loads; 0 without it.
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
        """The bytes of shared memory that the stages of both factors take."""
        return (self.rows + self.columns) * self.depth * width * self.stages


def seconds(product: Product, tile: ProductTile, machine: Machine) -> float:
    """About how long the product takes in such tiles, which must fit the machine."""
    programs = product.batch * -(-product.rows // tile.rows) * -(-product.columns // tile.columns)
    each = max(1, -(-programs // machine.multiprocessors))
    turns = -(-each // programs_at_a_time(product, tile, machine))
    steps = -(-product.depth // tile.depth)
    step, times = _step(product, tile, machine), machine.fitted.products
    first = times.latency + times.filled * min(tile.stages - 1, steps) * step.loaded
    stored = tile.sums * product.beside
    alone = times.start + first + steps * step.alone + stored / times.stored
    alone += times.spilled if _spills(product, tile, machine) else 0
    shared = each * (steps * step.busy + stored / times.stored_among_others)
    computed = max(turns * alone, times.start + first + shared)
    moved = product.bytes / (times.memory * machine.bandwidth * 1e9)
    return max(computed, moved) + times.beside_memory * min(computed, moved)


def programs_at_a_time(product: Product, tile: ProductTile, machine: Machine) -> int:
    """How many programs a multiprocessor holds; 0 if it cannot hold one."""
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
    """The seconds that a step of the sum takes: to load what it multiplies, in all for a program
    among others, which do the waiting, and in all for one alone."""

    loaded: float
    busy: float
    alone: float


def _step(product: Product, tile: ProductTile, machine: Machine) -> Step:
    times = machine.fitted.products
    work = 2 * tile.sums * tile.depth
    multiplied = work / _rate(product, tile, machine)
    lengths = tile.rows * _words(product) + tile.columns
    loaded = lengths * tile.depth * product.width / (machine.cache_rate * 1e9)
    short = product.narrow and machine.has_wgmma and tile.rows < times.group_rows
    more = times.short_rows * tile.depth * product.width / 256 if short else 0
    idle = 1 if product.narrow else max(1, 4 // tile.warps)  # a warp has a fourth of the FMA units
    alone = together(idle * multiplied, loaded, times.hiding)
    waited = together(alone, times.latency / (tile.stages - 1), times.waiting)
    return Step(loaded, together(multiplied, loaded, times.hiding), waited + times.step + more)


def together(one: float, other: float, power: int) -> float:
    """The seconds of what is done at the same time."""
    return (one ** power + other ** power) ** (1 / power)


def _words(product: Product) -> float:
    """How much longer loads take where windows break the words of the rows' factor."""
    whole = product.run * product.width
    return 1 if product.run == product.depth else max(1.0, WORD / whole) ** 2


def _rate(product: Product, tile: ProductTile, machine: Machine) -> float:
    """The FLOP/s of a multiprocessor on such tiles."""
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
