"""A model of the time that a product takes on a GPU, by the tiles that its programs compute.

It holds for matrix products, for convolutions, whose rows are read by windows, and on FMA units. A
step of a program multiplies, and loads what later ones multiply. Programs that a multiprocessor
holds at a time share what multiplies and what loads, and hide each other's waiting: a round of n
of them takes, in each step, n times the work of one, or as long as one alone waits. Whole rounds
matter: 133 programs take twice as long on 132 multiprocessors as 132. Behind its sums, a program
reads and writes what the epilogue has beside them. What must come from memory, once, bounds all.
"""

from __future__ import annotations

from dataclasses import dataclass

from targets.cuda.machine import Machine

EFFICIENCY = 0.9
"""Of the tensor cores' rate: what a large product reaches."""
HALF = 28
"""A tile of so many columns multiplies at half of that: instructions read all rows of the other
factor again for each group of columns."""
GROUP_ROWS = 64
"""Rows that a group of four warps multiplies at once, where there are such instructions."""
SHORT = 0.05e-6
"""Seconds that 256 bytes of the sum take longer where tiles have fewer rows than these: every warp
then loads its operands into registers."""
FMA_LOADS = 2.3
"""What loads of factors cost on FMA units for n sums of a thread, times the root of n."""
OVERLAP = 0.07
"""The part of the shorter of multiplying and loading that the longer one does not hide."""
LATENCY = 0.52e-6
"""Seconds until data of the device's memory are there."""
STEP = 0.025e-6
"""Seconds of a step of the sum beside its products and loads: it waits, and asks for more."""
START = 2.1e-6
"""Seconds of a round before the first step and behind the last: addresses, the epilogue, stores."""
STORED = 1000e9
"""Bytes per second that the epilogues of a multiprocessor read and write."""
SHARED_WITH_MEMORY = 0.5
"""The part of the shorter of computing and what memory takes that the longer one does not hide."""
REGISTERS, MOST_REGISTERS = 64, 255
"""What a thread needs beside its sums; and the most that it can have."""


@dataclass(frozen=True)
class Product:
    """`batch` times rows x depth by depth x columns.

    `width`: bytes of a factor's element. `beside`: bytes that are read and written for each result
    beside the factors. `run`: how many elements of the sum lie side by side in the rows' factor;
    fewer than `depth` where it is read by windows. `narrow`: whether tensor cores multiply. `open`:
    whether any extent is not known, but assumed. `twice`: whether sums are held twice, to be added
    to others after some steps.
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


@dataclass(frozen=True)
class ProductTile:
    """What one program computes, `depth` of the sum in a step."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int

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
    steps = -(-product.depth // tile.depth)
    together = min(each, programs_at_a_time(product, tile, machine))
    busy, alone = _step(product, tile, machine)
    stored = tile.sums * product.beside / STORED
    rounds, rest = divmod(each, together)

    def taken(count: int) -> float:
        return START + LATENCY + steps * max(count * busy, alone) + count * stored

    computed = rounds * taken(together) + (taken(rest) if rest else 0)
    moved = _moved(product) / (machine.bandwidth * 1e9)
    return max(computed, moved) + SHARED_WITH_MEMORY * min(computed, moved)


def programs_at_a_time(product: Product, tile: ProductTile, machine: Machine) -> int:
    """How many programs a multiprocessor holds; 0 if it cannot hold one."""
    threads = 32 * tile.warps
    registers = tile.sums * (2 if product.twice else 1) // threads + REGISTERS
    if registers > MOST_REGISTERS:
        return 0
    return min(machine.shared // tile.shared(product.width),
               machine.registers // (registers * threads), machine.threads // threads)


def _step(product: Product, tile: ProductTile, machine: Machine) -> tuple[float, float]:
    """The seconds of a step of a program among others, which do all the waiting; and alone."""
    multiplied = 2 * tile.sums * tile.depth / _rate(product, tile, machine)
    loaded = (tile.rows + tile.columns) * tile.depth * product.width / (machine.cache_rate * 1e9)
    busy = max(multiplied, loaded) + OVERLAP * min(multiplied, loaded)
    short = product.narrow and machine.has_wgmma and tile.rows < GROUP_ROWS
    more = SHORT * tile.depth * product.width / 256 if short else 0
    return busy, max(busy, LATENCY / (tile.stages - 1)) + STEP + more


def _rate(product: Product, tile: ProductTile, machine: Machine) -> float:
    """The FLOP/s of a multiprocessor on such tiles."""
    if not product.narrow:
        loads = FMA_LOADS / (tile.sums / (32 * tile.warps)) ** 0.5
        return machine.fma_rate * 1e12 / machine.multiprocessors / (1 + loads)
    full = machine.tensor_rate * 1e12 / machine.multiprocessors * 2 / product.width
    return (EFFICIENCY * full * min(tile.rows / GROUP_ROWS, 1)
            * tile.columns / (tile.columns + HALF))


def _moved(product: Product) -> int:
    """The bytes of the factors, and of what is beside them. Windows overlap."""
    factors = (product.rows * product.run + product.depth * product.columns) * product.width
    return product.batch * (factors + product.rows * product.columns * product.beside)
