"""Launches of a host function as data: kernels, numbers of programs, and whether threads share
them.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from dialects import block as bl
from dialects import host
from dialects.symbolic.expr import Expr
from targets.cpu.emit.kernel import private_bytes
from targets.cpu.machine import Machine
from targets.cpu.scheduling.cost import PARALLEL_PAYS, program_cost
from targets.cpu.scheduling.options import SERIAL


class KernelInfo(NamedTuple):
    """The facts about a kernel that the driver needs."""

    function: str
    op: bl.KernelOp
    cost: int
    private: Expr | None
    """The bytes of memory that a call needs, over the kernel's sizes; None if it needs none."""

    @staticmethod
    def of(function: str, op: bl.KernelOp, machine: Machine) -> KernelInfo:
        return KernelInfo(function, op, program_cost(op, machine.lanes), private_bytes(op))


class Step(NamedTuple):
    """One launch: its grid, and whether threads share it (None: known only at run time)."""

    op: host.LaunchOp
    kernel: KernelInfo
    grid: tuple[Expr, ...]
    sizes: tuple[Expr, ...]

    @property
    def programs(self) -> int | None:
        """How many programs there are; None if that is known only at run time."""
        counts = [extent.constant or 0 for extent in self.grid if extent.constant is not None]
        return None if len(counts) < len(self.grid) and 0 not in counts else prod(counts)

    @property
    def is_parallel(self) -> bool | None:
        schedule = self.kernel.op.schedule
        if schedule is not None and schedule.data.option(SERIAL):
            return False
        return None if self.programs is None else self.programs >= self.least_programs

    @property
    def least_programs(self) -> int:
        """The number of programs from which threads share the launch."""
        return max(2, PARALLEL_PAYS // self.kernel.cost)

    @property
    def least_turn(self) -> int:
        """The fewest programs that a thread takes at once."""
        return max(1, PARALLEL_PAYS // (4 * self.kernel.cost))
