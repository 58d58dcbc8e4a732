"""The CPU target: block kernels as LLVM IR with explicit vectors, run in this process."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute

from dialects.block import KernelOp as BlockKernel
from dialects.host import host_function, host_functions
from dialects.loop import KernelOp as LoopKernel
from dialects.loop import NestOp, scalar_type
from dialects.strata.mapped import MappedFiles
from dialects.strata.schedule import Schedule
from dialects.strata.schedule_options import AnyOption
from dialects.strata.types import Array, bf16, byte_width, f16, i8, ui8
from dialects.strata.weights import WeightStore
from passes.analyses.loop.kinds import is_contraction
from passes.analyses.loop.private import private_values
from passes.analyses.loop.windows import Window
from passes.contract import Caches, Panel
from targets.base import Target, TargetError, TargetOptions
from targets.cpu.build import worker
from targets.cpu.build.cache import ObjectCache
from targets.cpu.build.jit import compile_texts, link
from targets.cpu.driver.frame import ENTRY
from targets.cpu.driver.module import DriverText, KernelInfo, emit_driver
from targets.cpu.emit import emit_kernel_text
from targets.cpu.machine import Machine, is_supported, machine_of
from targets.cpu.runtime.executable import CpuExecutable, placed
from targets.cpu.runtime.plan import RunPlan
from targets.cpu.runtime.processors import thread_count
from targets.cpu.runtime.stopwatch import CacheTimer
from targets.cpu.runtime.threads import thread_pool
from targets.cpu.scheduling.options import OPTIONS
from targets.interface import Executable, Timer

MOST_APART = 64 << 20
"""The most bytes of intermediate values, such as scores, between two products of bf16 factors that
stay separate kernels."""


@dataclass(frozen=True)
class CpuTarget(Target):
    """x86-64 with AVX2 or AVX-512 (and, without tuning, 64-bit ARM), threads through libgomp."""

    def check(self, options: TargetOptions) -> None:
        try:
            machine_of(options.features)
        except ValueError as error:
            raise TargetError(str(error)) from None

    def narrow_factors(self, options: TargetOptions) -> Attribute | None:
        """bf16: on request if the machine multiplies it; for `fast` and `fp8` if it is faster."""
        machine = machine_of(options.features)
        faster = machine.doubles_bf16
        allowed = {"bf16": machine.multiplies_groups(bf16), "fast": faster, "fp8": faster}
        return bf16 if allowed.get(options.precision) else None

    def narrow_channels(self, options: TargetOptions) -> int:
        """The number of bf16 that fill a vector."""
        return machine_of(options.features).vector_bytes // byte_width(bf16)

    def widens(self, options: TargetOptions) -> Collection[Attribute]:
        """The 16-bit floats that no instruction multiplies."""
        machine = machine_of(options.features)
        return [t for t in (f16, bf16)
                if not machine.multiplies_groups(t) and not machine.multiplies_matrices(t)]

    def byte_factors(self) -> tuple[Attribute, Attribute]:
        return ui8, i8

    def panels(
        self, kernel: LoopKernel, nest: NestOp, constants: Collection[int],
        options: TargetOptions,
    ) -> Mapping[int, Panel | None]:
        from targets.cpu.scheduling.panels import panels

        if private_values(kernel):  # operands keep their layouts
            return {}
        return panels(nest, constants, machine_of(options.features), kernel.schedule)

    def shorten(
        self, nest: NestOp, data: int, windows: Sequence[Window], options: TargetOptions
    ) -> Sequence[Window]:
        from targets.cpu.scheduling.windows import shorten

        return shorten(nest, data, windows, options)

    def row_memory(self, options: TargetOptions) -> int:
        """Rows stay in the L2 cache, or in a share of the L3 cache."""
        _, second, third = machine_of(options.features).caches
        return max(second, third // 4)

    def prefetches(self, options: TargetOptions) -> Caches:
        machine = machine_of(options.features)
        return Caches(machine.line_bytes, machine.caches[1])

    def apart_memory(self, kernel: LoopKernel, options: TargetOptions) -> int:
        """Fused kernels multiply plain f32 vectors, so separate kernels pay if they are faster.
        With matrix registers the intermediate values may fill a share of the L3 cache. With dot
        instructions, which do twice the work, they may be in memory."""
        machine = machine_of(options.features)
        factors = {scalar_type(nest.inputs[0]) for nest in kernel.nests if is_contraction(nest)}
        if factors and all(map(machine.multiplies_matrices, factors)):
            return machine.caches[2] // 4
        return MOST_APART if factors == {bf16} and machine.doubles_bf16 else 0

    def prepare(self, kernel: LoopKernel, options: TargetOptions) -> None:
        from targets.cpu.scheduling.row_blocks import copy_rows

        copy_rows(kernel)

    def schedule_options(self) -> Sequence[AnyOption]:
        return OPTIONS

    def schedule(self, kernel: LoopKernel, options: TargetOptions) -> Schedule:
        from targets.cpu.scheduling.partial_sums import add_partial_levels
        from targets.cpu.scheduling.row_blocks import schedule_rows
        from targets.cpu.scheduling.rules import schedule_kernel

        rule = schedule_rows if private_values(kernel) else schedule_kernel
        return add_partial_levels(kernel, rule(kernel, machine_of(options.features)))

    def candidates(
        self, kernel: LoopKernel, around: Schedule, options: TargetOptions
    ) -> Sequence[Schedule]:
        from targets.cpu.scheduling.search import candidates

        return candidates(kernel, around, machine_of(options.features))

    def tuning_key(self, options: TargetOptions) -> str:
        from targets.cpu.scheduling.search import VERSION

        return f"cpu {VERSION} {machine_of(options.features).key}"

    def timer(
        self, executable: Executable, inputs: Sequence[Array], footprint: int,
        options: TargetOptions,
    ) -> Timer:
        assert isinstance(executable, CpuExecutable)
        second = machine_of(options.features).caches[1]
        return CacheTimer(executable, inputs, 2 * second if footprint > second else 0)

    def emit(self, module: ModuleOp, level: str, options: TargetOptions) -> str:
        """One module with all kernels and the driver, as LLVM IR or as assembly."""
        machine = _machine(options)
        text = module_text(module, machine)
        if level == "asm":
            return worker.assembly_text(text, machine.cpu, machine.attributes)
        return text

    def load(
        self, module: ModuleOp, weights: WeightStore, options: TargetOptions
    ) -> CpuExecutable:
        """Compile each distinct kernel and the driver, or read them from the cache; link them."""
        machine = _machine(options)
        func, infos = host_function(module), dict[str, KernelInfo]()
        driver: list[DriverText] = []

        def texts() -> Iterator[str]:
            for kernel in _kernels(module):
                text = emit_kernel_text(kernel, machine, "strata.kernel")
                text = text.renamed(text.content_name)
                infos[kernel.sym_name.data] = KernelInfo.of(text.name, kernel, machine)
                yield text.module
            driver.append(emit_driver(func, host_functions(module), infos, machine))
            yield driver[0].module

        total = len(_kernels(module)) + 1

        def tell(done: int) -> None:
            if options.tell is not None:
                options.tell(done, total)

        objects = compile_texts(texts(), machine, ObjectCache(options.cache), tell)
        files = MappedFiles.now()
        constants = [placed(op.array(weights), op.type.dtype, files)
                     for op in driver[0].constants]
        return CpuExecutable(RunPlan.of(func, driver[0].checks), link(objects, ENTRY), constants,
                             thread_count(options.threads))

    def report(self) -> list[str]:
        if not is_supported():
            return ["the CPU target needs an x86-64 or 64-bit ARM processor"]
        machine = machine_of()
        return [f"processor: {machine.name}", f"threads: {thread_count(None)}",
                f"thread pool: {thread_pool().source}"]


def _machine(options: TargetOptions) -> Machine:
    """The machine for which code is generated, with the options that affect it."""
    return replace(machine_of(options.features), contracts=not options.exact,
                   flushes=options.denormals == "flush")


def module_text(module: ModuleOp, machine: Machine) -> str:
    """The LLVM IR of a whole module at block level, with kernels under their own names."""
    kernels = {op.sym_name.data: op for op in _kernels(module)}
    names = {name: re.sub(r"[^\w.$]", "_", name) for name in kernels}
    texts = [emit_kernel_text(op, machine, names[name]) for name, op in kernels.items()]
    driver = emit_driver(host_function(module), host_functions(module), {
        name: KernelInfo.of(names[name], op, machine) for name, op in kernels.items()}, machine)
    defined = [f"declare void @{name}(" for name in names.values()]
    lines = [line for line in driver.module.splitlines()
             if not any(line.startswith(d) for d in defined)]
    declarations = dict.fromkeys(d for text in texts for d in text.declarations)
    parts = [part for text in texts for part in (*text.constants, text.function)]
    rest = [d for d in declarations if d not in lines]
    return "\n".join([*parts, *lines, *rest, ""])


def _kernels(module: ModuleOp) -> list[BlockKernel]:
    return [op for op in module.body.block.ops if isinstance(op, BlockKernel)]
