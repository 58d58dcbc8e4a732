"""The OpenCL target: each kernel is OpenCL C, which the device's own driver compiles.

It is also the example of what the maker of a new accelerator writes: `kernel.py` and `scalar.py`
turn block kernels into the device's language, `device.py` compiles and launches, and the parts here
say what passes ask. Kernels that a derived target does not claim, or that the device cannot run,
are left to the processor. NumPy interprets the host program around the launches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from dialects.block import KernelOp
from dialects.host.interpret import RunKernel, execute_kernel
from dialects.loop import KernelOp as LoopKernel
from dialects.strata import types as t
from dialects.strata.schedule import Level, Schedule
from dialects.strata.types import Array
from dialects.strata.weights import WeightStore
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.kinds import is_contraction
from passes.analyses.loop.runs import common_rows, result_order
from passes.contract import Facts
from targets.base import Target
from targets.interface import TargetError
from targets.interpreted import LEFT, InterpretedHost, SharedScheduling, is_left, left_kernel
from targets.opencl.device import Device, Program, find_device
from targets.opencl.kernel import DIMS, function_names, kernel_text, module_text
from targets.opencl.scalar import head
from targets.options import TargetOptions
from targets.parts import Emission, ReportProgress, Running, ignore_progress
from targets.walking import kernels_of

TILE = 4
"""The rows and the columns of a product that a work-item computes, which it keeps in registers."""


class OpenclScheduling(SharedScheduling):
    """A work-item for each point of the axes that all nests share; loops over all others."""

    def claims(self, kernel: LoopKernel) -> bool:
        return True

    def claimed_schedule(self, kernel: LoopKernel) -> Schedule:
        """Neighbours write neighbouring elements, so axes are ordered as in the result's memory.
        Products have tiles of several rows and columns, to load a factor once for several of them.
        """
        order = result_order(kernel.nests[-1])
        rows = sorted(common_rows(kernel), key=lambda a: order.index(a) if a in order else -1)
        multiplies = any(is_contraction(nest) for nest in kernel.nests)
        tiled = rows[-2:] if multiplies else []
        return Schedule((
            *(Level("grid", axis, TILE if axis in tiled else 1) for axis in rows),
            *(Level("loop", axis) for axis in kernel.axes if axis not in rows)))


class OpenclEmission(Emission):
    """The source that the driver compiles."""

    def emit(self, module: ModuleOp, level: str) -> str:
        return module_text(module, self.options.exact)


@dataclass
class Launcher:
    """Runs the kernels of a module: those with a function in `program` there, those in `left` by
    another target, others in NumPy."""

    program: Program
    functions: Mapping[str, str]
    """The functions of kernels, by the kernels' names."""
    left: Mapping[str, RunKernel]

    def __call__(
        self, kernel: Operation, buffers: Sequence[Array], sizes: dict[Symbol, int]
    ) -> None:
        if not isinstance(kernel, KernelOp) or kernel.sym_name.data not in self.functions:
            name = kernel.sym_name.data if isinstance(kernel, KernelOp) else ""
            self.left.get(name, execute_kernel)(kernel, buffers, sizes)
            return
        extents = [int(e.evaluate(sizes)) for e in kernel.grid.data]
        outer, inner = extents[: 1 - DIMS], extents[1 - DIMS:]
        grid = [*([prod(outer)] if outer else []), *inner] or [1]
        self.program.launch(self.functions[kernel.sym_name.data], buffers,
                            [sizes[name] for name in kernel.size_names], grid)


class OpenclRunning(Running):
    """Programs on the first device that OpenCL has here."""

    def check_machine(self) -> None:
        find_device()

    def load(
        self, module: ModuleOp, weights: WeightStore, report: ReportProgress = ignore_progress
    ) -> InterpretedHost:
        device, notes, kernels = find_device(), list[str](), kernels_of(module)
        functions, texts, left = function_names(kernels), list[str](), dict[str, RunKernel]()
        for kernel in kernels:
            name = kernel.sym_name.data
            try:
                texts.append(_runnable(kernel, functions[name], device))
            except TargetError as error:
                del functions[name]
                notes.append(self._leave(kernel, error, left))
        program = device.build("\n".join([head(self.options.exact), *texts]))
        report(len(kernels), len(kernels))
        made = InterpretedHost(module, weights, Launcher(program, functions, left))
        made.notes = notes
        return made

    def _leave(self, kernel: KernelOp, reason: TargetError, left: dict[str, RunKernel]) -> str:
        """Leave a kernel to the target beside this one, or to NumPy; say to whom and why."""
        name, beside = kernel.sym_name.data, SharedScheduling.beside
        try:
            left[name] = left_kernel(kernel, self.options)
        except TargetError as error:
            return f"NumPy runs the kernel {name}: {reason}; {error}"
        return f"the target {beside} runs the kernel {name}: {reason}"


def _runnable(kernel: KernelOp, name: str, device: Device) -> str:
    """The text of a kernel. Raises TargetError if the device cannot run it."""
    if is_left(kernel):
        raise TargetError("this one does not claim it")
    text = kernel_text(kernel, name)
    if "double" in text and not device.has_f64:
        raise TargetError("the device has no f64")
    return text


@dataclass(frozen=True)
class OpenclTarget(Target):
    """Any device with OpenCL 1.2."""

    scheduling, emission, running = OpenclScheduling, OpenclEmission, OpenclRunning
    schedule_options = (LEFT,)

    def facts(self, options: TargetOptions) -> Facts:
        return replace(super().facts(options), widens=(t.f16, t.bf16), gathers=True, selects=True)

    def report(self) -> list[str]:
        try:
            device = find_device()
        except TargetError as error:
            return [str(error)]
        return [f"device: {device.name}", f"compute units: {device.compute_units}"]


TARGET = OpenclTarget("opencl", ("opencl",), "devices with OpenCL, one work-item per program")
