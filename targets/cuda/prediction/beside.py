"""Launches beside exchanges with other ranks, which occupy some multiprocessors.

The library's kernels need whole multiprocessors. A persistent kernel that took all of them would
keep an exchange from starting until its end. So it leaves as many as an exchange occupies, if the
exchange of another launch is next; and if exchanges begin and end meanwhile, its programs have one
tile each, which the hardware gives to whichever multiprocessor is free.
"""

from __future__ import annotations

from dialects.block import KernelOp
from dialects.host import LaunchOp
from dialects.strata.schedule import Schedule
from passes.contract import Rates, Turns
from targets.cuda.machine import Machine
from targets.cuda.prediction.time import turns_of
from targets.cuda.scheduling.options import DESCEND, LIBRARY, SINGLE, SPARE, SPECIALIZE, WRITTEN


def rates_of(machine: Machine) -> Rates:
    """What decides which products are divided among ranks."""
    fitted = machine.fitted
    return Rates(
        products=machine.tensor_rate * 1e12 * fitted.products.efficiency,
        reads=machine.bandwidth * 1e9 * fitted.products.memory,
        exchanges=fitted.link.bandwidth, waits=fitted.link.wait, message=fitted.link.message,
        overlaps=fitted.graph_lanes > 1, occupied=fitted.link.occupied,
        multiprocessors=machine.multiprocessors, alike=fitted.products.alike)


def launch_turns(launch: LaunchOp, kernel: KernelOp, machine: Machine) -> Turns | None:
    """See `Rules.launch_turns`; None for a call of a library, and for a kernel of the user's."""
    schedule = kernel.schedule
    if schedule is None or schedule.data.option(LIBRARY) or schedule.data.option(WRITTEN):
        return None
    return Turns(*turns_of(launch, kernel, machine))


def before_exchange(schedule: Schedule, occupied: int) -> Schedule:
    """See `Rules.before_exchange`."""
    return schedule.with_option(SPARE.name, occupied) if _is_persistent(schedule) else schedule


def beside_exchange(schedule: Schedule) -> Schedule:
    """See `Rules.beside_exchange`."""
    return schedule.with_option(SINGLE.name, True) if _is_persistent(schedule) else schedule


def _is_persistent(schedule: Schedule) -> bool:
    return bool(schedule.option(SPECIALIZE)) and not schedule.option(DESCEND)
