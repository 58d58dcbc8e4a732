"""What passes ask the CPU target: schedules, layouts, and which kernels are faster joined."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from math import inf

from xdsl.ir import Attribute

from dialects.loop import KernelOp as LoopKernel
from dialects.loop import NestOp, scalar_type
from dialects.strata.schedule import Schedule
from dialects.strata.types import bf16
from passes.analyses.loop.kinds import is_contraction
from passes.analyses.loop.private import private_values
from passes.analyses.loop.windows import Window
from passes.contract import Packing
from targets.cpu.machine import Machine
from targets.cpu.scheduling import search
from targets.cpu.scheduling.few_rows import (
    is_few_rows,
    joins_few_rows,
    name_columns,
    schedule_few_rows,
)
from targets.cpu.scheduling.panels import panels
from targets.cpu.scheduling.partial_sums import add_partial_levels
from targets.cpu.scheduling.results import result_order
from targets.cpu.scheduling.row_blocks import copy_rows, schedule_rows
from targets.cpu.scheduling.rules import schedule_kernel
from targets.cpu.scheduling.windows import MAX_LOSS, shorten
from targets.cpu.stated import machine_allowed
from targets.parts import Scheduling

MOST_APART = 64 << 20
"""The most bytes of intermediate values, such as scores, between two products of bf16 factors that
stay separate kernels."""


class CpuScheduling(Scheduling):
    """Tiles for vectors, registers and caches; panels; Winograd's windows."""

    @cached_property
    def machine(self) -> Machine:
        return machine_allowed(self.options)

    def schedule(self, kernel: LoopKernel) -> Schedule:
        if is_few_rows(kernel):
            return schedule_few_rows(kernel, self.machine)
        rule = schedule_rows if private_values(kernel) else schedule_kernel
        return add_partial_levels(kernel, rule(kernel, self.machine))

    def candidates(self, kernel: LoopKernel, around: Schedule) -> Sequence[Schedule]:
        return search.candidates(kernel, around, self.machine)

    def prepare(self, kernel: LoopKernel) -> None:
        if is_few_rows(kernel):
            name_columns(kernel)
        copy_rows(kernel)

    def joins_online(self, kernel: LoopKernel) -> bool:
        return joins_few_rows(kernel, self.machine)

    def selects_factors(self, kernel: LoopKernel) -> bool:
        """Never: loads of vectors would branch or be masked."""
        return False

    def panels(
        self, kernel: LoopKernel, nest: NestOp, constants: Collection[int]
    ) -> Mapping[int, Packing]:
        if private_values(kernel) or is_few_rows(kernel):  # operands keep their layouts
            return {}
        return panels(nest, constants, self.machine, kernel.schedule)

    def result_order(self, kernel: LoopKernel) -> Sequence[int] | None:
        if kernel.schedule or private_values(kernel) or is_few_rows(kernel):
            return None
        return result_order(kernel, self.machine)

    def shorten(self, nest: NestOp, data: int, windows: Sequence[Window]) -> Sequence[Window]:
        """`--precision fast` may lose more digits."""
        most = inf if self.options.precision == "fast" else MAX_LOSS
        return shorten(nest, data, windows, self.machine.costs.windows, most)

    def joins_phases(self, zeros: int | None, kernels: int, element: Attribute) -> bool:
        """Never: neighbours in a vector would read distant elements, each phase its own."""
        return False

    def apart_memory(self, kernel: LoopKernel) -> int:
        """Fused kernels multiply plain f32 vectors, so separate kernels pay if they are faster.
        With matrix registers the intermediate values may fill a share of the L3 cache. With dot
        instructions, which do twice the work, they may be in memory."""
        machine = self.machine
        factors = {scalar_type(nest.inputs[0]) for nest in kernel.nests if is_contraction(nest)}
        if factors and all(map(machine.multiplies_matrices, factors)):
            return machine.caches[2] // 4
        return MOST_APART if factors == {bf16} and machine.doubles_bf16 else 0
