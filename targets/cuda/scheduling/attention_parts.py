"""Into which parts attention with few rows splits its keys (split-KV), by a model of time.

Equal parts need no comparison with the end, so others must promise a gain. Where only a run knows
how many keys there are, their parts are those of OPEN_KEYS, and a run has as many of them as its
keys need.

A program reads at the rate of its share of a multiprocessor, or at the rate that latency allows if
it has no software pipelining. All programs together read at most at the bandwidth of the device's
memory. Another kernel combines the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from dialects.loop import KernelOp, NestOp
from dialects.strata.types import TensorType
from dialects.symbolic.expr import Expr
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.private import block_axis
from passes.rewrites.loop.nests import reads_of
from targets.cuda.machine import Machine, machine_of
from targets.cuda.scheduling.attention import program_count, walked_axis
from targets.cuda.scheduling.tiles import width_of
from targets.options import TargetOptions

LEAST = 64
"""The fewest keys of one part."""
MOST = 128
"""The most parts: with more, combining them costs as much as they save."""
OPEN_KEYS = 4096
"""The number of keys for which parts are chosen if it is known only at run time."""


def online_part(kernel: KernelOp, options: TargetOptions) -> int:
    """The number of keys of a part, of which the last may have fewer; 0: do not split."""
    machine = machine_of(options.features)
    facts = machine.fitted.parts
    extent = kernel.axes[walked_axis(kernel)]
    assumed = dict.fromkeys(extent.symbols, OPEN_KEYS)
    length = extent.substitute(assumed).constant
    programs, walked = program_count(kernel, options), _walked_bytes(kernel, assumed)
    alone = block_axis(kernel) is None
    enough = machine.multiprocessors * (facts.sharing if alone else 1)
    if not length or not programs or walked is None or programs >= enough:
        return 0
    rate = facts.alone if alone else machine.cache_rate / facts.sharing

    def seconds(part: int) -> float:
        count = -(-length // part)
        walked_all = _Walked(walked.stored, walked.read * part * count // length)
        return _seconds(walked_all, programs * count, rate, machine) + (
            facts.adding_online if count > 1 else 0)

    counts = range(1, min(length // LEAST, MOST) + 1) if not assumed else (1,)
    even = [length // n for n in counts if length % n == 0]
    best = _longest(even or [length], seconds, facts.alike)
    multiples = [n for n in range(LEAST, length, LEAST) if -(-length // n) <= MOST]
    if multiples:
        other = _longest(multiples, seconds, facts.alike)
        best = other if facts.alike * seconds(other) < seconds(best) else best
    return best if seconds(best) < facts.gain * seconds(length) else 0


def _longest(lengths: Sequence[int], seconds: Callable[[int], float], alike: float) -> int:
    """The longest part that takes no more time than is alike the least."""
    times = {n: seconds(n) for n in lengths}
    return max(n for n in lengths if times[n] <= alike * min(times.values()))


@dataclass(frozen=True)
class _Walked:
    """Bytes along the keys' axis: those stored, and those that all programs together read."""

    stored: int
    read: int


def _seconds(walked: _Walked, programs: int, rate: float, machine: Machine) -> float:
    """The seconds that `programs` programs take, each of which reads at `rate` GB/s."""
    together = machine.fitted.parts.sharing * machine.multiprocessors
    rounds = -(-programs // together)
    idle = rounds * together / programs if rounds > 1 else 1
    all_read = walked.read / (rate * min(programs, together))
    return max(walked.stored / machine.bandwidth, all_read) * idle / 1e9


def _walked_bytes(kernel: KernelOp, assumed: Mapping[Symbol, int]) -> _Walked | None:
    """The bytes of the kernel at some sizes; None if they depend on others."""
    axis, stored, read = walked_axis(kernel), dict[SSAValue, Expr](), Expr.of(0)
    for nest in kernel.nests:
        for one in reads_of(nest):
            names = {s for e in one.map for s in e.symbols}
            if axis in names and not isinstance(one.value.owner, NestOp):
                assert isinstance(one.value.type, TensorType)
                stored[one.value] = one.value.type.byte_size
                places = product(e for a, e in kernel.axes.items() if a in names)
                read = read + places * width_of(one.value)
    total = sum(stored.values(), Expr.of(0)).substitute(assumed).constant
    count = read.substitute(assumed).constant
    return None if total is None or count is None else _Walked(total, count)
