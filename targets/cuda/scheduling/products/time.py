"""A model of the time that a product takes on a GPU, by the tiles that its programs compute.

It covers matrix products, convolutions (whose rows are read by windows), and products on FMA units.
A step of a program multiplies, and loads the data of later steps (software pipelining). In a single
program nothing overlaps with the prologue, which is the first loads, or with the epilogue. Programs
that share a multiprocessor hide each other's latency, and share its multipliers and its bandwidth.
The time of a multiprocessor is therefore the longer of two: that of its waves of programs, each as
long as a single program, and that of all its programs' work. Thus 133 programs take twice as long
on 132 multiprocessors as 132 programs do. Reading all data from memory once is a lower bound.

The constants are fitted to 620 measured tiles of 49 shapes on an H200: products of BERT, GPT-2 and
ViT, squares, and the convolutions of ResNet-50. Of these tiles, the ones that it takes for the
fastest take 4% longer than the fastest, on the geometric mean.
"""

from __future__ import annotations

from dataclasses import dataclass

from targets.cuda.machine import Machine

EFFICIENCY, FMA_EFFICIENCY = 0.91, 0.8
"""Of the rates of tensor cores and FMA units: what large products reach."""
HALF = 46
"""A tile of so many columns multiplies at half of that on tensor cores: instructions read all rows
of the other factor again for each group of columns."""
GROUP_ROWS = 64
"""Rows that a group of four warps multiplies at once, where there are such instructions."""
SHORT = 0.057e-6
"""Seconds that 256 bytes of the sum take longer where tiles have fewer rows than these: every warp
then loads its operands into registers."""
FMA_LOADS = 2.3
"""What loads of factors cost on FMA units for n sums of a thread, times the root of n."""
LATENCY = 0.55e-6
"""Seconds until data of the device's memory are there."""
STEP = 0.012e-6
"""Seconds of a step of the sum beside its products and loads."""
START = 2.1e-6
"""Seconds before the first step and behind the last: the launch, addresses."""
FILLED = 0.44
"""The part of the loads before the first step that nothing hides; of the loads of each stage."""
STORED, STORED_AMONG_OTHERS = 120e9, 290e9
"""Bytes per second that the epilogue of a multiprocessor reads and writes, in a program alone, and
in one among others."""
MEMORY, BESIDE_MEMORY = 0.9, 0.37
"""The part of the memory's bandwidth that is reached; and the part of the shorter of computing and
what memory takes that the longer one does not hide."""
HIDING, WAITING = 4, 3
"""How well multiplying and loading hide each other, and both a step's latency: powers, of which the
sum's root lies between the sum of times (1) and the longest (infinity)."""
WORD = 16
"""The bytes that a lane loads at once, where as many lie side by side."""
REGISTERS, MOST_REGISTERS = 64, 255
"""What a thread needs beside its sums; and the most that it can have."""
SPILLED = 2.5e-6
"""Seconds that programs take longer whose threads keep something elsewhere behind their sums: a
guess, by which small products avoid them, as they also take ten times as long to compile."""
COLUMN_THREADS = 4
"""Among so many threads the columns of sums on tensor cores are divided: each has a fourth of a
vector along them in registers while it adds that to its sums."""


@dataclass(frozen=True)
class Product:
    """`batch` times rows x depth by depth x columns.

    `width`: bytes of a factor's element. `beside`: bytes that the epilogue reads and writes for
    each result. `run`: how many elements of the sum are contiguous in the rows' factor; fewer than
    `depth` if it is read by windows. `narrow`: whether tensor cores multiply. `open`: whether any
    extent is unknown, and assumed. `twice`: whether registers hold partial sums and totals
    (promotion). `copied`: whether a producer warp may load the factors. `vectors`: whether the
    epilogue reads a number per column, such as a bias.
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
        """Bytes of the factors and of the epilogue's data. Overlapping windows count once."""
        factors = (self.rows * self.run + self.depth * self.columns) * self.width
        return self.batch * (factors + self.rows * self.columns * self.beside)


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
    step = _step(product, tile, machine)
    first = LATENCY + FILLED * min(tile.stages - 1, steps) * step.loaded
    stored = tile.sums * product.beside
    alone = START + first + steps * step.alone + stored / STORED
    alone += SPILLED if _spills(product, tile) else 0
    shared = each * (steps * step.busy + stored / STORED_AMONG_OTHERS)
    computed = max(turns * alone, START + first + shared)
    moved = product.bytes / (MEMORY * machine.bandwidth * 1e9)
    return max(computed, moved) + BESIDE_MEMORY * min(computed, moved)


def programs_at_a_time(product: Product, tile: ProductTile, machine: Machine) -> int:
    """How many programs a multiprocessor runs at a time; 0 if the tile does not fit."""
    threads = 32 * tile.warps
    registers = tile.sums * (2 if product.twice else 1) // threads + REGISTERS
    if registers > MOST_REGISTERS:
        return 0
    return min(machine.shared // tile.shared(product.width),
               machine.registers // (registers * threads), machine.threads // threads)


def _spills(product: Product, tile: ProductTile) -> bool:
    """Whether a thread that adds a number for each column to its sums has too few registers."""
    sums = tile.sums * (2 if product.twice else 1) // (32 * tile.warps)
    behind = tile.columns // COLUMN_THREADS if product.vectors and product.narrow else 0
    return sums + behind + REGISTERS > MOST_REGISTERS


@dataclass(frozen=True)
class Step:
    """The seconds of a step of the sum: of its loads; of all its work if other programs hide the
    latency; and of the whole step in a single program."""

    loaded: float
    busy: float
    alone: float


def _step(product: Product, tile: ProductTile, machine: Machine) -> Step:
    work = 2 * tile.sums * tile.depth
    multiplied = work / _rate(product, tile, machine)
    lengths = tile.rows * _words(product) + tile.columns
    loaded = lengths * tile.depth * product.width / (machine.cache_rate * 1e9)
    short = product.narrow and machine.has_wgmma and tile.rows < GROUP_ROWS
    more = SHORT * tile.depth * product.width / 256 if short else 0
    idle = 1 if product.narrow else max(1, 4 // tile.warps)  # a warp has a fourth of the FMA units
    alone = together(idle * multiplied, loaded, HIDING)
    waited = together(alone, LATENCY / (tile.stages - 1), WAITING)
    return Step(loaded, together(multiplied, loaded, HIDING), waited + STEP + more)


def together(one: float, other: float, power: int) -> float:
    """The seconds of two activities that overlap."""
    return (one ** power + other ** power) ** (1 / power)


def _words(product: Product) -> float:
    """How much longer loads take if windows allow only narrow loads of the rows' factor."""
    whole = product.run * product.width
    return 1 if product.run == product.depth else max(1.0, WORD / whole) ** 2


def _rate(product: Product, tile: ProductTile, machine: Machine) -> float:
    """The FLOP/s of a multiprocessor for such tiles."""
    if not product.narrow:
        loads = FMA_LOADS / (tile.sums / (32 * tile.warps)) ** 0.5
        full = FMA_EFFICIENCY * machine.fma_rate * 1e12 / machine.multiprocessors
        return full / (1 + loads)
    full = machine.tensor_rate * 1e12 / machine.multiprocessors * 2 / product.width
    groups_of_rows = max(1, tile.rows // GROUP_ROWS)  # more groups of warps share the columns
    columns = tile.columns // max(1, tile.warps // 4 // groups_of_rows)
    return EFFICIENCY * full * min(tile.rows / GROUP_ROWS, 1) * columns / (columns + HALF)
