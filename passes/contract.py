"""The types through which passes and targets exchange facts and decisions. Imports no pass.

`Facts` is what a target states once: data that passes read. `Rules` are the questions whose answer
depends on a kernel, a nest or a convolution. Both are bound to the options of one compilation. The
defaults of both are here and nowhere else: they describe a target of which nothing is known. So a
pass that reads facts need not ask whether there is a target.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from xdsl.ir import Attribute

from dialects.records import dataclass
from dialects.strata.schedule import Schedule
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol

if TYPE_CHECKING:
    from dialects.block import KernelOp as BlockKernelOp
    from dialects.host import LaunchOp
    from dialects.loop import KernelOp, NestOp
    from passes.analyses.loop.windows import Window


# ---------------------------------------------------------------------- what answers are made of
@dataclass(frozen=True)
class Panel:
    """How to pack an operand: panels of `tile` along `axis`, with reduce axes inside in this order.

    The last of these axes is cut into groups of `group` elements, which are innermost.
    """

    axis: Symbol
    tile: int
    inner: tuple[Symbol, ...]
    group: int = 1


@dataclass(frozen=True)
class Border:
    """How to copy an operand: the order of its dims, slowest first, whether with its padding, and
    of how many elements the last dim is to be a multiple; zeros fill it up.

    Without the padding, dims that are read at a constant may be left out of the order: one matrix
    of a stack is copied alone."""

    order: tuple[int, ...]
    padded: bool = True
    multiple: int = 1


@dataclass(frozen=True)
class Rates:
    """What a rank does in a second: operations of products, bytes that it reads from memory, and
    bytes that it sends to other ranks of the same host while it receives as many.

    `waits`: the seconds of an all-reduce of two ranks that has next to nothing to send.
    """

    products: float
    reads: float
    exchanges: float
    waits: float = 0.0
    message: float = math.inf
    """The seconds until what a kernel sends has arrived."""
    overlaps: bool = False
    """Whether steps that do not depend on each other, such as an exchange and a launch, run at a
    time."""
    occupied: int = 0
    """The multiprocessors that an exchange occupies, where it is a kernel of a library."""

    def all_reduce(self, size: float, ranks: int) -> float:
        """The seconds of an all-reduce of `size` bytes: in a ring, each rank sends all parts but
        one, twice; what is small takes a step per doubling of the ranks."""
        return self._seconds(2 * size, ranks)

    def all_gather(self, size: float, ranks: int) -> float:
        """The seconds until all ranks have `size` bytes of which each has a part; also those of a
        reduce-scatter of so many bytes."""
        return self._seconds(size, ranks)

    def _seconds(self, size: float, ranks: int) -> float:
        if ranks == 1:
            return 0.0
        return self.waits * math.log2(ranks) + size * (ranks - 1) / ranks / self.exchanges


Packing = Panel | Border | None


@dataclass(frozen=True)
class Caches:
    """The caches for prefetching: bytes of a line, and bytes of a core's private cache."""

    line: int
    capacity: int


@dataclass(frozen=True)
class Choice:
    """The fastest schedule, with canonical axis names; None if it is the rules' own schedule.

    `gain` is its speed relative to the rules' own schedule.
    """

    schedule: Schedule | None
    gain: float = 1.0


@dataclass(frozen=True)
class Parts:
    """Into how many parts to split a summed axis, and the size of each, of which the last may have
    less to sum; 0: equal parts."""

    axis: Symbol
    count: int
    size: int = 0


Choices = Mapping[str, Choice]
"""Choices by key. A mapping belongs to one target and machine."""


# ---------------------------------------------------------------------- facts
@dataclasses.dataclass(frozen=True)  # refuses changes, since targets of others fill it in
class Facts:
    """What a target states about its machine, under the options of one compilation."""

    target: str = ""
    """The target's name, for messages."""

    rates: Rates = dataclasses.field(
        default=Rates(products=1e11, reads=2e10, exchanges=1e10))
    """Rates, whose ratios decide which products are divided among ranks."""
    claims: Collection[str] = ()
    """The names of composite graph operations for which the target provides its own nests."""
    claimed_channels: int = 1
    """The fewest channels of a group's results with which it claims the gradient of a filter."""
    unclaimed_elements: Collection[Attribute] = ()
    """The elements of operands with which it claims nothing, since it has matrix units for the
    products of which the operations are made."""
    unrolled_launches: int = 0
    """Up to how many launches of a loop whose trip count is known are launched one after another as
    a part of the program; 0: loops stay loops."""
    enclosed_programs: int = 0
    """Up to how many programs of small kernels one program computes, one after another, in less
    time than the host waits for the condition of a loop or a branch; 0: the host decides those."""
    launches_foreign: bool = False
    """Whether kernels that users write in a language of their own (Triton) are launched."""
    checks_indices: bool = True
    """Whether a run ends with an error if the data contain an index out of range."""
    checks_accesses: bool = False
    """Whether every access of a kernel is checked against its buffer's bounds."""
    shortens_constants: bool = False
    """Whether f32 constants whose values are exact in a 16-bit float are stored as such."""

    narrow_factors: Attribute | None = None
    """The type to which factors of f32 products are rounded; None: none."""
    narrow_channels: int = 2
    """From how many summed channels on a convolution is faster with rounded factors."""
    scaled_factors: Attribute | None = None
    """The 8-bit float to which factors of products with weights may be rounded, scaled by row and
    column; None: none."""
    byte_factors: tuple[Attribute, Attribute] | None = None
    """The 8-bit types, i8 or ui8, that are multiplied fastest (left, right); None: any will do."""
    multiplies: Collection[Attribute] = ()
    """The float types whose products, summed in f32, are faster than products of f32."""
    widens: Collection[Attribute] = ()
    """The float types whose values are better kept as f32 if they are read often as factors."""
    decodes: Collection[Attribute] = ()
    """The narrow float types with a native conversion to f32."""
    encodes: Collection[Attribute] = ()
    """The narrow float types with a native conversion from f32 that also treats values out of range
    as the type's definition says."""

    bounds_walks: bool = False
    """Whether a small kernel finds which keys blocks of rows may see, where tables hide the others.
    Otherwise programs search the mask for themselves, as they do if their schedule says so."""
    power_tiles: bool = False
    """Whether the sizes of tiles must be powers of two; others are cut (`block-split-tiles`)."""
    programs: int = 1
    """How many programs keep the machine busy; a full reduction is split among this many."""
    paired_rows: int = 0
    """Up to how many rows two products of the same rows share a kernel, if something reads their
    results together; 0: none."""
    coded_rows: int = 0
    """Up to how many rows a product reads weights as the integer codes that they are computed from,
    where these take fewer bytes; 0: none."""
    coded_growth: int = 2
    """From how many times the bits of a code on a weight stays codes: other instructions than loads
    bound products of narrower weights."""
    blocked_rows: int = 0
    """Up to how many rows likewise where scales belong to blocks of a weight's rows."""
    packs_codes: bool = False
    """Whether a product of one row reads codes of 4 bits two in a byte."""
    short_rows: int = 0
    """Up to how many elements of a row a few programs reduce in less time than it takes to launch
    another kernel; 0: none."""
    held_row: int = 0
    """The most elements of a row that a program holds at a time, in a tile that is a power of two;
    0: it walks rows of any length."""
    row_memory: int = 0
    """How many bytes of a row a program may keep between nests of a kernel; 0: none."""
    chained_bytes: int = 0
    """How many bytes of what launches hand on to each other a program may keep, in its core's
    cache; 0: launches stay apart."""
    exchanged_elements: int = 0
    """Up to how many elements the programs of a kernel exchange with other ranks; 0: none."""
    exchanged_programs: int = 0
    """Up to how many programs do."""
    sorted_bytes: int = 0
    """The bytes of a row of keys that a program sorts at once, in a tile; 0: none."""
    sorts_alone: bool = False
    """Whether a nest that sorts is a kernel of its own, from memory to memory, of 64-bit keys."""
    scans: Attribute | None = None
    """The type of the running result of floats in a sequential scan; None: a parallel scan in
    logarithmically many steps, whose rounding errors add up less, is faster."""
    phases: bool = False
    """Whether the phases of a transposed convolution are faster as products of their own than as
    columns of one product, which shares what it reads among them."""
    channels_last: bool = False
    """Whether the sums of an image with channels last are stored in its order, too, though only
    their kernel reads them."""
    atomics: Collection[Attribute] = ()
    """The element types to which many programs add values indivisibly, in less time than it takes
    to sort what is added."""
    gathers: bool = False
    """Whether products read gathered factors as fast as contiguous ones."""
    selects: bool = False
    """Whether a nest that reads a concatenation selects the part of each element in less time than
    it takes to store the parts."""
    prefetches: Caches | None = None
    """The caches that programs prefetch operands into; None: the target does not prefetch."""


# ---------------------------------------------------------------------- rules
class Rules(ABC):
    """What a target decides about single kernels, nests and convolutions."""

    @abstractmethod
    def schedule(self, kernel: KernelOp) -> Schedule:
        """Choose a schedule for a kernel: ordered rules plus a fallback."""

    def schedules_by_size(self, kernel: KernelOp) -> Sequence[tuple[Expr, Schedule]]:
        """The schedules of a kernel with open sizes, each with an expression over the kernel's
        sizes that is 1 where it is the fastest and 0 elsewhere; at all sizes, one of them is 1.
        Empty: one schedule suits all sizes."""
        return ()

    def prepare(self, kernel: KernelOp) -> None:
        """Rewrite a kernel's axes for this target (split, fuse) before scheduling."""
        return None

    def panels(
        self, kernel: KernelOp, nest: NestOp, constants: Collection[int]
    ) -> Mapping[int, Packing] | None:
        """Which inputs of a contraction to pack into panels; None: keep operands as they are.

        `constants`: the inputs that are constants. If the kernel already has a schedule, that
        decides; otherwise the target's rules do. A `Border` is a copy with its dims in another
        order. An input whose packing is None also stays as it is; other padded inputs get a border.
        """
        return None

    def result_order(self, kernel: KernelOp) -> Sequence[int] | None:
        """The order of dims, slowest first, in which a kernel of one contraction is to store its
        result, which is then copied; None: as it is."""
        return None

    def row_multiples(self, kernel: KernelOp) -> Mapping[int, int]:
        """Which operands of a kernel to copy, because their rows begin at addresses that allow no
        wide loads: each with the number of elements of which a row of the copy has a multiple.
        Nests read the copy where they read the operand."""
        return {}

    def joined_groups(
        self, inputs: int, outputs: int, count: int, element: Attribute, is_constant: bool
    ) -> int:
        """How many of a convolution's `count` groups to multiply as one, with zeros between them.
        The number divides `count`. `inputs`, `outputs`: the channels of one group. `is_constant`:
        whether the filter has its zeros before the program runs."""
        return 1

    def joins_phases(self, zeros: int | None, kernels: int, element: Attribute) -> bool:
        """Whether all phases of a transposed convolution are faster in one kernel, which multiplies
        `zeros` more elements because phases have fewer taps than the longest, than in `kernels`. A
        number of None is known only at run time."""
        return zeros == 0

    def group_rows(self, rows: int | None, groups: int | None) -> int:
        """How many rows of a group of a grouped product share one load of the group's matrix.
        1: each row loads its own. A size of None is known only at run time."""
        return 1

    def shorten(self, nest: NestOp, data: int, windows: Sequence[Window]) -> Sequence[Window]:
        """Along which windows of a convolution Winograd's minimal filtering pays, in this order: at
        most two.

        `data`: the input that the windows move over; the other input is a constant filter.
        """
        return ()

    def product_parts(self, nest: NestOp) -> Parts | None:
        """A summed axis of a contraction, and into how many parts to split it (split-K): the
        partial sums are computed in parallel, then added. The last part may be shorter if both
        factors read the axis, as 0 beyond the end. None: do not split.

        Asked again about one of the parts, it returns None.
        """
        return None

    def apart_memory(self, kernel: KernelOp) -> int:
        """Up to how many bytes of intermediate values a fused kernel is faster split; 0: never."""
        return 0

    def joins_online(self, kernel: KernelOp) -> bool:
        """Whether the fused kernel, with one pass over its data and sums that follow a running
        maximum (online softmax), is faster than the kernels from which it was fused."""
        return False

    def selects_factors(self, kernel: KernelOp) -> bool:
        """Whether such a kernel, whose products read each factor from the parts of a concatenation,
        is faster than one that reads a copy of all parts."""
        return True

    def joins_recomputed(self, kernel: KernelOp) -> bool:
        """Whether a kernel of products and of all products that compute their factors, which it
        computes for itself, is faster than kernels that write and read these factors."""
        return False

    def never(self, question: str) -> bool:
        """Whether the answer to a question is always the default, so that the kernel about which
        it is asked need not be built. `question`: the name of the method."""
        return getattr(type(self), question) is getattr(Rules, question)

    def joins_launches(self, schedule: Schedule) -> bool:
        """Whether a kernel with this schedule can be a part of another one, for some of its
        programs, beside kernels with the same options."""
        return True

    def exchanges_tiles(self, schedule: Schedule) -> bool:
        """Whether programs of a kernel with this schedule can exchange tiles with other ranks."""
        return False

    def launch_seconds(
        self, launch: LaunchOp, kernel: BlockKernelOp, occupied: int
    ) -> float | None:
        """The predicted seconds of a launch of a final kernel, instead of its own, while something
        else occupies so many multiprocessors; None if the target predicts none."""
        return None

    def beside_exchange(self, schedule: Schedule, occupied: int) -> Schedule:
        """The schedule for a launch while an exchange occupies so many multiprocessors."""
        return schedule

    def online_part(self, kernel: KernelOp) -> int:
        """The length of the parts into which to split the reduction of such a kernel, of which the
        last may be shorter; 0: do not split."""
        return 0
