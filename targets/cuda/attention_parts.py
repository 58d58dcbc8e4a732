"""How many parts of its keys attention of few rows walks side by side: by a model of time.

Programs ask for what they walk at the rate of their share of a multiprocessor, all of them together
at most at that of the device's memory. Parts are added by another kernel.
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from dialects.loop import KernelOp, NestOp
from dialects.types import TensorType
from passes.loop.nests import reads_of
from targets.base import TargetOptions
from targets.cuda.attention import program_count, walked_axis
from targets.cuda.machine import Machine, machine_of
from targets.cuda.product_parts import ADDING, GAIN

SHARING = 4
"""How many programs a multiprocessor holds at a time, about."""
LEAST = 64
"""The least places that one part walks."""
MOST = 128
"""More parts take as long to add as they save."""


def online_parts(kernel: KernelOp, options: TargetOptions) -> int:
    """The number of parts; 1 to walk all in one go."""
    machine = machine_of(options.features)
    length = kernel.axes[walked_axis(kernel)].constant
    programs, total = program_count(kernel, options), _bytes(kernel)
    if not length or not programs or total is None or programs >= machine.multiprocessors:
        return 1
    choices = [n for n in range(1, min(length // LEAST, MOST) + 1) if length % n == 0] or [1]
    times = {n: _seconds(total, programs * n, machine) + (ADDING if n > 1 else 0)
             for n in choices}
    best = min(times, key=lambda n: times[n])
    return best if times[best] < GAIN * times[1] else 1


def _seconds(total: int, programs: int, machine: Machine) -> float:
    """How long so many programs take for all bytes."""
    together = SHARING * machine.multiprocessors
    rounds = -(-programs // together)
    rate = min(machine.bandwidth, machine.cache_rate * min(programs, together) / SHARING)
    idle = rounds * together / programs if rounds > 1 else 1
    return total * idle / (rate * 1e9)


def _bytes(kernel: KernelOp) -> int | None:
    """What is read along the walked axis, each element once; None if its size is open."""
    axis, found = walked_axis(kernel), dict[SSAValue, int | None]()
    for read in (read for nest in kernel.nests for read in reads_of(nest)):
        walks = any(axis in e.symbols for e in read.map)
        if walks and not isinstance(read.value.owner, NestOp):
            assert isinstance(read.value.type, TensorType)
            found[read.value] = read.value.type.byte_size.constant
    sizes = [size for size in found.values() if size is not None]
    return sum(sizes) if len(sizes) == len(found) else None
