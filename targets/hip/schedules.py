"""The CUDA target's schedules, adapted to AMD GPUs."""

from __future__ import annotations

from dataclasses import replace

from dialects.strata.schedule import Schedule
from targets.cuda.machine import Machine
from targets.cuda.scheduling.options import STAGES, WARPS

_THREADS = 32
"""Threads of a warp, as the rules count them."""
_STAGES = 2
"""One tile of each factor in shared memory, and the next one in registers."""


def fitted(schedule: Schedule, machine: Machine) -> Schedule:
    """The schedule with the same number of threads in wider warps, and at most two stages."""
    warps, stages = schedule.option(WARPS), schedule.option(STAGES)
    fitting = {"warps": max(1, warps * _THREADS // machine.warp), "stages": min(stages, _STAGES)}
    return replace(schedule, options=tuple(
        (name, fitting.get(name, value)) for name, value in schedule.options))
