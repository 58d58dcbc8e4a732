"""Into how many parts attention with few rows splits its keys (split-KV), by a model of time.

A program reads at the rate of its share of a multiprocessor, or at the rate that latency allows if
it has no software pipelining. All programs together read at most at the bandwidth of the device's
memory. Another kernel combines the parts.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import SSAValue

from dialects.loop import KernelOp, NestOp
from dialects.strata.types import TensorType
from dialects.symbolic.expr import Expr
from dialects.symbolic.size_products import product
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


def online_parts(kernel: KernelOp, options: TargetOptions) -> int:
    """The number of parts; 1: do not split."""
    machine = machine_of(options.features)
    facts = machine.fitted.parts
    length = kernel.axes[walked_axis(kernel)].constant
    programs, walked = program_count(kernel, options), _walked_bytes(kernel)
    alone = block_axis(kernel) is None
    enough = machine.multiprocessors * (facts.sharing if alone else 1)
    if not length or not programs or walked is None or programs >= enough:
        return 1
    rate = facts.alone if alone else machine.cache_rate / facts.sharing
    choices = [n for n in range(1, min(length // LEAST, MOST) + 1) if length % n == 0] or [1]
    times = {n: _seconds(walked, programs * n, rate, machine)
             + (facts.adding_online if n > 1 else 0) for n in choices}
    least = min(times.values())
    best = min(n for n in choices if times[n] <= facts.alike * least)
    return best if times[best] < facts.gain * times[1] else 1


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


def _walked_bytes(kernel: KernelOp) -> _Walked | None:
    """The bytes of the kernel; None if they are known only at run time."""
    axis, stored, read = walked_axis(kernel), dict[SSAValue, Expr](), Expr.of(0)
    for nest in kernel.nests:
        for one in reads_of(nest):
            names = {s for e in one.map for s in e.symbols}
            if axis in names and not isinstance(one.value.owner, NestOp):
                assert isinstance(one.value.type, TensorType)
                stored[one.value] = one.value.type.byte_size
                places = product(e for a, e in kernel.axes.items() if a in names)
                read = read + places * width_of(one.value)
    total = sum(stored.values(), Expr.of(0)).constant
    return None if total is None or read.constant is None else _Walked(total, read.constant)
