"""The numbers by which schedules are chosen and that no manual of a device states.

Each field says its unit. A device whose numbers nobody has fitted has them from its data sheet.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProductTimes:
    """The model of time in `scheduling/products/time.py`: tiles whose factors all threads load."""

    efficiency: float
    """Part of the rate of tensor cores that large products reach."""
    fma_efficiency: float
    """Likewise of FMA units."""
    half_columns: float
    """Columns of a tile that multiplies at half of that rate on tensor cores: instructions read all
    rows of the other factor again for each group of columns."""
    group_rows: int
    """Rows that the warps of a group multiply at once."""
    group_warps: int
    """Warps of such a group."""
    short_rows: float
    """Seconds that 256 bytes of the sum take longer in a tile of fewer rows than a group's: every
    warp then loads its operands into registers."""
    fma_loads: float
    """What loads of factors cost on FMA units for n sums of a thread, in parts of the time of their
    products, times the root of n."""
    latency: float
    """Seconds until data of the device's memory are there."""
    step: float
    """Seconds of a step of the sum besides its products and loads."""
    start: float
    """Seconds before the first step and after the last: the launch, addresses."""
    filled: float
    """Part of the loads of each stage before the first step that nothing hides."""
    stored: float
    """Bytes per second that the epilogue of a multiprocessor reads and writes, in a program that is
    alone there."""
    stored_among_others: float
    """Likewise in one among others."""
    memory: float
    """Part of the memory's bandwidth that is reached."""
    beside_memory: float
    """Part of the shorter of computing and what memory takes that the longer one does not hide."""
    hiding: int
    """How well multiplying and loading hide each other: a power, of which the sum's root lies
    between the sum of both times (1) and the longer one (infinity)."""
    waiting: int
    """Likewise of both and a step's latency."""
    registers: int
    """Registers that a thread needs besides its sums."""
    spilled: float
    """Seconds that programs take longer whose threads spill registers. A guess."""
    column_threads: int
    """Threads that share a row of sums on tensor cores."""
    alike: float
    """Times that differ by less than such a part are alike; then larger tiles are better."""


@dataclass(frozen=True)
class CopiedTimes:
    """The model in `scheduling/specialized_tiles.py`: tiles whose factors a warp of their own
    copies."""

    start: float
    """Seconds before the first step and after the last: the launch, the first loads."""
    efficiency: float
    """Part of the rate of tensor cores."""
    half_columns: float
    """Columns of a tile that multiplies at half of that."""
    loads: float
    """How many times as fast tiles are loaded at once as by threads."""
    latency: float
    """Seconds after which a stage that is free again is full."""
    stored: float
    """Bytes per second that a multiprocessor reads and writes after the sums."""
    hiding: int
    """As in `ProductTimes`."""
    waiting: int
    """As in `ProductTimes`."""
    reach: int
    """Elements of the shortest rows that reach to a diagonal and are walked so, in attention."""
    caution: float
    """How many times as long other tiles must take by the models, which err."""


@dataclass(frozen=True)
class PartTimes:
    """When sums and walks are cut into parts: `products/parts.py`, `attention_parts.py`."""

    gain: float
    """Part of the time of the whole that parts must stay below."""
    adding: float
    """Seconds that another kernel of a graph takes, however little it does."""
    adding_online: float
    """Likewise one that adds the parts of attention."""
    programs: int
    """Programs for each multiprocessor that keep its loads coming: of a vector and a matrix."""
    sharing: int
    """Programs of attention that a multiprocessor holds at a time."""
    alike: float
    """How many times as slow fewer parts may be, and are taken."""
    alone: float
    """GB/s that a program of one row asks for, which loads nothing ahead of a step."""


@dataclass(frozen=True)
class RowTiles:
    """Tiles of kernels that memory bounds: `scheduling/memory_bound.py`."""

    elements: int
    """Elements of a program of an elementwise kernel."""
    side: int
    """Bytes of a side of its tile, where memory runs in two directions."""
    longest_whole: int
    """Elements of the longest axis that one program holds whole."""
    held: int
    """Elements of held rows in each thread, where there are many rows: enough words on their way,
    and no registers spill."""
    least_held: int
    """Elements that a thread has at least, where rows are short."""
    alone: int
    """Elements of the longest row of words that one warp holds, where it is a program's only one.
    """
    read_words: int
    """Words of a row in each thread, where a row is summed up once, and little is written."""
    shared: tuple[int, int]
    """Bytes of operands that all rows read, from and up to which rows share a program that loads
    them once."""
    held_sharing: int
    """Elements of held rows in each thread of such a program."""
    sharing_warps: int
    """Warps of such a program, at most."""
    step: int
    """Elements of a longer row that one trip of a reduction takes, in words."""
    step_apart: int
    """Likewise one by one."""
    step_once: int
    """Likewise where the row is walked only once."""
    step_open: int
    """Likewise where its length is not known."""
    step_warps: int
    """Warps for `step`."""
    step_apart_warps: int
    """Warps for `step_apart`."""
    other_step_warps: int
    """Warps for other steps."""
    step_online: int
    """Elements of a trip through a row that begins between words, where one walk finds a maximum
    and its sums."""
    online_warps: int
    """Warps for `step_online`."""
    step_scan: int
    """Elements of a trip through a row that is scanned."""
    scan_warps: int
    """Warps for `step_scan`."""
    short: int
    """Elements of a row that a few programs walk in less time than another kernel takes to begin.
    """
    height: int
    """Rows that one program computes, at most, except for very short ones."""
    open_height: int
    """Likewise where the number of rows is not known."""
    beside: int
    """Results side by side, of sums across memory."""
    across: int
    """Rows that one trip of such a sum takes."""
    across_warps: int
    """Warps for it."""
    programs: int
    """Programs for each multiprocessor that short rows are to be divided into."""


@dataclass(frozen=True)
class GuessedCycles:
    """The guess that orders candidates of tuning: `scheduling/search.py`. All are of one
    multiprocessor."""

    narrow_rate: float
    """Multiply-adds per cycle of factors of 2 bytes and less."""
    wide_rate: float
    """Likewise of others."""
    ungrouped: float
    """Part of these rates in tiles that no group of warps multiplies, where there are groups."""
    near_bytes: float
    """Bytes per cycle from the shared cache."""
    latency: float
    """Cycles until they are there."""
    step: float
    """Cycles of a step besides its products and loads."""
    start: float
    """Cycles of a program besides its steps."""


@dataclass(frozen=True)
class EarlyLaunches:
    """What a kernel loads before the one that it follows is done: `emit/specialized/early.py`."""

    held: int
    """Bytes of a thread up to which constants are held while it waits."""
    trips: int
    """Trips of the longest loop that is written out for that."""


@dataclass(frozen=True)
class Fitted:
    """All numbers of a device. `on`: the device on which they were fitted; empty for a data sheet.

    `copied`: None where no warp copies tiles for others.
    """

    on: str
    products: ProductTimes
    copied: CopiedTimes | None
    parts: PartTimes
    rows: RowTiles
    guess: GuessedCycles
    early: EarlyLaunches
    graph_lanes: int
    """Chains of a graph's kernels that run side by side, at most."""
    joined_channels: int
    """Channels that groups of a convolution are joined to, where tensor cores multiply them."""
    strip_programs: float
    """Programs for each multiprocessor that strips of depthwise convolutions are cut into."""
    read_once: float
    """Part of the shared cache from which on it need not keep a matrix that is read once."""
