"""Launches beside an exchange with other ranks, which occupies some multiprocessors.

The library's kernels need whole multiprocessors. A persistent kernel that took all of them would
keep an exchange from starting until its end, so it leaves as many as an exchange occupies.
"""

from __future__ import annotations

from dataclasses import replace

from dialects.block import KernelOp
from dialects.host import LaunchOp
from dialects.strata.schedule import Schedule
from targets.cuda.machine import Machine
from targets.cuda.prediction.time import launch_seconds
from targets.cuda.scheduling.options import DESCEND, LIBRARY, SPARE, SPECIALIZE


def seconds_beside(
    launch: LaunchOp, kernel: KernelOp, occupied: int, machine: Machine
) -> float | None:
    """See `Rules.launch_seconds`; None for a call of a library."""
    if kernel.schedule is None or kernel.schedule.data.option(LIBRARY):
        return None
    left = max(1, machine.multiprocessors - occupied)
    return launch_seconds(launch, kernel, replace(machine, multiprocessors=left))


def schedule_beside(schedule: Schedule, occupied: int) -> Schedule:
    """See `Rules.beside_exchange`."""
    is_persistent = schedule.option(SPECIALIZE) and not schedule.option(DESCEND)
    return schedule.with_option(SPARE.name, occupied) if is_persistent else schedule
