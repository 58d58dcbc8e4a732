"""Numbers that the schedule rules need and that no device's manual states.

Each field gives its unit. A device without fitted numbers gets estimates from its data sheet
(`data_sheet.py`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProductTimes:
    """The cost model of ordinary product tiles, whose factors are loaded by all threads of the
    program (`scheduling/products/time.py`)."""

    efficiency: float
    """The share of the tensor cores' peak rate that large products reach."""
    fma_efficiency: float
    """The same for FMA units."""
    half_columns: float
    """The number of columns at which a tile reaches half of that rate on tensor cores. Narrow tiles
    are slower because each instruction reads all rows of the other factor again."""
    group_rows: int
    """Rows that a warp group multiplies with one instruction."""
    group_warps: int
    """Warps in a warp group."""
    short_rows: float
    """Extra seconds per 256 bytes of the summed dim in a tile with fewer rows than a warp group
    multiplies. Each warp then loads its operands into registers."""
    fma_loads: float
    """The cost c of loading factors on FMA units. With n sums per thread, loads take c / sqrt(n) of
    the time of the multiply-adds."""
    latency: float
    """Seconds from a load's issue until its data arrive from device memory."""
    step: float
    """Overhead of one loop iteration in seconds, without its products and loads."""
    start: float
    """Seconds spent outside the loop: the launch and the computation of addresses."""
    filled: float
    """The share of the loads in each prologue stage that nothing hides."""
    stored: float
    """Bytes per second that the epilogue on one multiprocessor reads and writes if only one program
    runs there."""
    stored_among_others: float
    """The same if several programs share the multiprocessor."""
    memory: float
    """The share of the memory bandwidth that is reached."""
    beside_memory: float
    """Computation and memory traffic overlap imperfectly: this share of the shorter of the two adds
    to the longer."""
    hiding: int
    """How well products and loads overlap: the exponent p of the p-norm of both times. With p = 1
    they add up; with p = infinity the longer one counts."""
    waiting: int
    """The same for the overlap of both with the latency of an iteration."""
    registers: int
    """Registers that a thread needs besides its sums."""
    spilled: float
    """Extra seconds of a program whose threads spill registers. A guess."""
    column_threads: int
    """Threads that share a row of the accumulator on tensor cores."""
    alike: float
    """Two predictions within this relative difference count as equal. The larger tile then wins."""
    skewed: tuple[float, float, float]
    """How much longer loads take of rows that do not all begin at cache lines (`Skew`): at
    multiples of 32 bytes, of 16, or of less."""


@dataclass(frozen=True)
class CopiedTimes:
    """The cost model of warp-specialized tiles, whose factors a producer warp copies
    (`scheduling/specialized_tiles.py`)."""

    start: float
    """Seconds spent outside the loop: the launch and the first loads."""
    efficiency: float
    """The share of the tensor cores' peak rate that large products reach."""
    half_columns: float
    """The number of columns at which a tile reaches half of that rate."""
    loads: float
    """The speed of bulk copies of tiles relative to loads by threads."""
    latency: float
    """Seconds from the release of a stage until it is full again."""
    stored: float
    """Bytes per second that the epilogue on one multiprocessor reads and writes."""
    stored_apart: float
    """How much longer it takes where rows do not begin at addresses that bulk copies allow."""
    full: float
    """The share of that rate where two groups have the most sums."""
    skewed: tuple[float, float, float]
    """As in `ProductTimes`."""
    hiding: int
    """As in `ProductTimes`."""
    waiting: int
    """As in `ProductTimes`."""
    empty: float
    """Seconds that a bulk copy takes for a cache line of a row behind the end of a matrix."""
    reach: int
    """The shortest causal rows, in elements, for which attention uses warp specialization."""


@dataclass(frozen=True)
class PartTimes:
    """When to split reductions (`products/parts.py`: split-K; `attention_parts.py`: split-KV)."""

    gain: float
    """A split must be predicted to take less than this share of the unsplit time."""
    adding: float
    """Seconds that one more small kernel takes in a CUDA graph."""
    adding_online: float
    """The same for the kernel that combines the parts of attention."""
    programs: int
    """Programs per multiprocessor that keep enough loads in flight, for products of a vector and a
    matrix."""
    sharing: int
    """Programs of attention that are resident on a multiprocessor at the same time."""
    alike: float
    """A smaller number of parts is preferred if it takes at most this many times as long."""
    alone: float
    """GB/s that a program of one row requests if it prefetches nothing."""


@dataclass(frozen=True)
class RowTiles:
    """Tiles of memory-bound kernels (`scheduling/memory_bound.py`).

    A word is an aligned vector load. A row is held if its program keeps all of it in registers.
    """

    elements: int
    """Elements per program of an elementwise kernel."""
    least_elements: int
    """The same if there are few: each thread of four warps has a word of 4 bytes of halves."""
    side: int
    """The side of its tile in bytes if operands are contiguous along different axes."""
    longest_whole: int
    """The longest axis, in elements, that one program holds."""
    held: int
    """Elements of held rows per thread if there are many rows. It keeps enough loads in flight
    without spilling registers."""
    least_held: int
    """The smallest number of elements per thread, for short rows."""
    alone: int
    """The longest row, in elements, that a program of a single warp holds."""
    read_words: int
    """Words of a row per thread if each row is reduced once and little is written."""
    shared: tuple[int, int]
    """The smallest and largest size, in bytes, of operands common to all rows for which several
    rows share a program, so that it loads these operands once."""
    held_sharing: int
    """Elements of held rows per thread of such a program."""
    sharing_warps: int
    """The largest number of warps of such a program."""
    step: int
    """Elements per iteration of the reduction of a row that is too long to hold, loaded as words.
    """
    step_apart: int
    """The same if elements are loaded one by one."""
    step_once: int
    """The same if the row is read only once."""
    step_open: int
    """The same if the row's length is known only at run time."""
    step_warps: int
    """Warps for `step`."""
    step_apart_warps: int
    """Warps for `step_apart`."""
    other_step_warps: int
    """Warps for the other steps."""
    step_online: int
    """Elements per iteration of an online softmax; half as many where there are many rows, which
    are aligned to words and walked once."""
    online_warps: int
    """Warps for `step_online` in other rows."""
    step_scan: int
    """Elements per iteration of a scan."""
    scan_warps: int
    """Warps for `step_scan`."""
    short: int
    """The longest row, in elements, that a few programs reduce in less time than the launch of
    another kernel takes."""
    height: int
    """The largest number of rows per program, except for very short rows."""
    open_height: int
    """The same if the number of rows is known only at run time."""
    beside: int
    """Adjacent results per program of a column sum."""
    across: int
    """Rows per iteration of a column sum."""
    across_warps: int
    """Warps of a column sum."""
    programs: int
    """The number of programs per multiprocessor that a kernel of short rows should have."""


@dataclass(frozen=True)
class GuessedCycles:
    """The rough cost model that orders the tuner's candidates (`scheduling/search.py`). All numbers
    are for one multiprocessor."""

    narrow_rate: float
    """Multiply-adds per cycle for factors of at most 2 bytes."""
    wide_rate: float
    """The same for wider factors."""
    ungrouped: float
    """The share of these rates that tiles reach without warp-group instructions, on devices that
    have such instructions."""
    near_bytes: float
    """Bytes per cycle from the L2 cache."""
    latency: float
    """The latency of such a load in cycles."""
    step: float
    """Overhead of an iteration in cycles, without its products and loads."""
    start: float
    """Overhead of a program in cycles, without its iterations."""


@dataclass(frozen=True)
class EarlyLaunches:
    """What a kernel loads before the preceding kernel has finished, with programmatic dependent
    launch (`emit/specialized/early.py`)."""

    held: int
    """The largest size, in bytes per thread, of constants that are loaded before the wait."""
    trips: int
    """The largest trip count of a loop that is unrolled for this purpose."""


@dataclass(frozen=True)
class LinkTimes:
    """The links between devices of one host."""

    wait: float
    """Seconds of an all-reduce of two devices that has next to nothing to send."""
    bandwidth: float
    """Bytes per second that a device sends in a large all-reduce while it receives as many."""
    message: float
    """Seconds until a word that a kernel sends has arrived in the memory of another device."""
    occupied: int
    """The multiprocessors that a large all-reduce of the library occupies: one for each of its
    channels, of which `NCCL_DEBUG=INFO` tells the number."""


@dataclass(frozen=True)
class Fitted:
    """All numbers of a device.

    `on` names the device on which they were fitted. It is empty if they come from a data sheet.
    `copied` is None if the device has no warp specialization.
    """

    on: str
    products: ProductTimes
    copied: CopiedTimes | None
    parts: PartTimes
    rows: RowTiles
    guess: GuessedCycles
    early: EarlyLaunches
    link: LinkTimes
    graph_lanes: int
    """The largest number of chains of kernels in a CUDA graph that run concurrently."""
    joined_channels: int
    """Groups of a convolution are joined until they have this many channels, if tensor cores
    multiply them."""
    strip_programs: float
    """The number of programs per multiprocessor into which depthwise convolutions are cut."""
    read_once: float
    """A matrix that is read once uses streaming loads if it is larger than this share of the L2
    cache."""
