"""The CUDA target's schedules on AMD's GPUs."""

from __future__ import annotations

from dataclasses import replace

from dialects.strata.schedule import Schedule
from targets.cuda.machine import Machine
from targets.cuda.scheduling.options import STAGES, WARPS

_THREADS = 32
"""Of a warp, as rules count them."""
_STAGES = 2
"""One tile of each factor in shared memory, the next one on its way in registers."""


def fitted(schedule: Schedule, machine: Machine) -> Schedule:
    """As many threads as the rules want, in wider warps, and no deeper pipeline than pays."""
    warps, stages = schedule.option(WARPS), schedule.option(STAGES)
    fitting = {"warps": max(1, warps * _THREADS // machine.warp), "stages": min(stages, _STAGES)}
    return replace(schedule, options=tuple(
        (name, fitting.get(name, value)) for name, value in schedule.options))
