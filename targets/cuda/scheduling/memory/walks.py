"""Rows that are too long to hold: the steps and warps of the programs that walk them.

Where sums follow a running maximum, one walk finds both (online). A thread then keeps a maximum for
each word that it has loaded, if rows are aligned and walked once, so that threads wait for each
other only at the end of a row.
"""

from __future__ import annotations

from dialects.loop import KernelOp, NestOp
from dialects.strata.schedule import Schedule
from dialects.strata.types import TensorType, byte_width
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.online import running_maximum
from passes.analyses.loop.runs import common_rows
from passes.rewrites.kernels.neighbours import grouped_axis
from targets.cuda.facts.fitted import RowTiles
from targets.cuda.machine import WARP, machine_of
from targets.options import TargetOptions

WORD = 16
"""The bytes of a thread's widest vector load."""

MOST_WARPS, FEWEST_WARPS = 16, 4
"""The most warps of a program that has a row of its own, and those of one among many."""

FEW, DEEPER = 4, 4
"""Up to how many programs of a multiprocessor wait for memory in each step of a loop, and how many
times as much they therefore load at a time."""


def _facts(options: TargetOptions) -> RowTiles:
    return machine_of(options.features).fitted.rows


def with_online(kernel: KernelOp, walked: Schedule, options: TargetOptions) -> Schedule:
    """The schedule, with a maximum and the sums that follow it in one pass (online), if it pays."""
    if not is_online(kernel, options):
        return walked
    walked = walked.with_option("online", 1)
    size = _neighbours(kernel, options)
    return walked.with_option("neighbours", size) if size > 1 and grouped_axis(
        kernel, walked, size) else walked


def _neighbours(kernel: KernelOp, options: TargetOptions) -> int:
    """How many neighbours share a running maximum: a word, which a thread has loaded alone, where
    rows are walked once; else 1."""
    if not is_online(kernel, options) or not _is_walked_once(kernel):
        return 1
    word = WORD // min(byte_width(type_.element) for type_ in types_of(kernel) if type_.rank > 1)
    sizes = [a.extent for n in kernel.nests if running_maximum(n) for a in n.reduce_axes]
    return word if all(not (size % word).terms for size in sizes) else 1


def is_online(kernel: KernelOp, options: TargetOptions) -> bool:
    """Whether sums follow a running maximum in the same pass."""
    return not options.exact and any(running_maximum(n) for n in kernel.nests) and (
        is_unaligned(kernel) or _is_walked_once(kernel))


def _is_walked_once(kernel: KernelOp) -> bool:
    """Whether rows are aligned, and read a single time if their sums are online. Any number of them
    may then be in turn: none has to stay in the cache. Rows that are walked again, to be written,
    are faster in steps of a program that has most of a multiprocessor, unless each load has a
    single element."""
    return not is_unaligned(kernel) and all(n.is_reduction for n in kernel.nests)


def in_words(kernel: KernelOp, walked: Schedule) -> Schedule:
    """The schedule, with loops that start at aligned addresses for the narrowest elements."""
    word = WORD // min(byte_width(type_.element) for type_ in types_of(kernel) if type_.rank > 1)
    return walked.with_option("words", word)


def is_unaligned(kernel: KernelOp) -> bool:
    """Whether rows of a static size do not start at addresses aligned for vector loads."""
    sizes = [(type_.shape[-1].constant, byte_width(type_.element)) for type_ in types_of(kernel)
             if type_.rank > 1]
    return any(size is not None and size > 1 and size * width % WORD for size, width in sizes)


def types_of(kernel: KernelOp) -> list[TensorType]:
    values = [*kernel.body.block.args, *kernel.yielded]
    return [v.type for v in values if isinstance(v.type, TensorType)]


def step_along(kernel: KernelOp, axis: Symbol, options: TargetOptions) -> int:
    """How many elements of a long row one iteration takes."""
    facts = _facts(options)
    if any(n.is_scan for n in kernel.nests):
        return facts.step_scan
    if (size := _neighbours(kernel, options)) > 1:
        return _grouped_warps(kernel, options) * WARP * facts.read_words * size
    if is_online(kernel, options):
        many = _is_walked_once(kernel) and not _has_few_rows(kernel, options)
        return facts.step_online // (2 if many else 1)  # rows hide each other's latency
    if _is_read_once(kernel, axis):
        return facts.step_once * _depth_along(kernel, options)
    if is_unaligned(kernel):
        return facts.step_apart
    return facts.step_open if kernel.axes[axis].constant is None else facts.step


def _is_read_once(kernel: KernelOp, axis: Symbol) -> bool:
    """Whether one pass over a row is enough: nothing that walks it waits for another's result."""
    nests = [n for n in kernel.nests if walks(n, axis)]
    return len(nests) == 1 or all(n.is_reduction and not any(
        isinstance(v.owner, NestOp) for v in n.inputs) for n in nests)


def _depth_along(kernel: KernelOp, options: TargetOptions) -> int:
    """How many times as much a step along memory loads: more where each multiprocessor has few
    rows."""
    return DEEPER if _has_few_rows(kernel, options) else 1


def _has_few_rows(kernel: KernelOp, options: TargetOptions) -> bool:
    count = product(kernel.axes[a] for a in common_rows(kernel)).constant
    return count is not None and count <= FEW * machine_of(options.features).multiprocessors


def walking_warps(kernel: KernelOp, width: int, options: TargetOptions) -> int:
    facts = _facts(options)
    if any(n.is_scan for n in kernel.nests):
        return facts.scan_warps
    if _neighbours(kernel, options) > 1:
        return _grouped_warps(kernel, options)
    if is_online(kernel, options):
        return width // (facts.held * WARP) if _is_walked_once(kernel) else facts.online_warps
    if width == DEEPER * facts.step_once and _depth_along(kernel, options) == DEEPER:
        return MOST_WARPS
    warps = {facts.step_apart: facts.step_apart_warps, facts.step: facts.step_warps}
    return warps.get(width, facts.other_step_warps)


def _grouped_warps(kernel: KernelOp, options: TargetOptions) -> int:
    """Warps where threads wait for each other only after the loop: many where rows are few."""
    return MOST_WARPS if _has_few_rows(kernel, options) else FEWEST_WARPS


def walks(nest: NestOp, name: Symbol) -> bool:
    return any(a.name == name for a in nest.axes)
