"""The CUDA target: its facts, and its parts, which the rooms of this folder implement."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute

from dialects.block import KernelOp
from dialects.graph.filter_gradient import ConvFilterGradientOp
from dialects.host import LaunchOp, host_functions
from dialects.loop import KernelOp as LoopKernelOp
from dialects.loop import NestOp
from dialects.strata.schedule import Schedule
from dialects.strata.types import Array, bf16, f8E4M3FN, f16, f32, f64, i8, i32, i64
from dialects.strata.weights import WeightStore
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from passes.contract import Facts, Packing, Parts, Rates
from targets.base import Target
from targets.cuda.build.ahead import Builder, jobs_of
from targets.cuda.build.compile import (
    Binary,
    CompileOptions,
    Job,
    compile_kernels,
    name_of,
    triton_version,
)
from targets.cuda.build.interpreter import InterpretedExecutable
from targets.cuda.build.sass import disassembled
from targets.cuda.build.source import KernelSource
from targets.cuda.build.worker import foresee
from targets.cuda.emit import EmitOptions, emit_kernel, module_text
from targets.cuda.emit.scalar import NATIVE_FLOATS
from targets.cuda.errors import CudaError
from targets.cuda.libraries.calls import library_versions
from targets.cuda.libraries.forms import library_form, library_notes, library_of
from targets.cuda.libraries.symmetric import PROGRAMS, WORDS, shares_memory
from targets.cuda.machine import Machine, is_nvidia, machine_of, nvidia_machine
from targets.cuda.planning.foreign import foreign_sources
from targets.cuda.planning.plan import host_notes
from targets.cuda.planning.program import load_module
from targets.cuda.planning.shipping import shipped
from targets.cuda.prediction.beside import schedule_beside, seconds_beside
from targets.cuda.profiling.profile import profile_module
from targets.cuda.runtime import driver
from targets.cuda.runtime.executable import CudaExecutable
from targets.cuda.runtime.stopwatch import NEAR
from targets.cuda.scheduling import attention, convolutions, recomputed, rules, search
from targets.cuda.scheduling.attention_parts import online_part
from targets.cuda.scheduling.options import LIBRARY, OPTIONS, SPECIALIZE
from targets.cuda.scheduling.products.by_size import schedules_by_size
from targets.cuda.scheduling.products.rules import MIN_DOT
from targets.cuda.scheduling.products.tiles import group_rows
from targets.cuda.scheduling.sorts import sorted_bytes
from targets.interface import Executable, Timer
from targets.options import TargetOptions
from targets.origins import annotated_ptx, annotated_sass
from targets.parts import (
    Building,
    Emission,
    ReportProgress,
    Running,
    Scheduling,
    Tuning,
    ignore_progress,
)
from targets.profiles import Probe, Profile
from targets.shipping import Cargo
from targets.walking import kernels_of

UNROLLED = 2048
"""The most launches of one loop in a graph: making its nodes takes about as long as compiling a
kernel, once for each set of sizes."""

ENCLOSED = 32
"""The most programs that one program computes before the host would have read a condition: one of
them takes about a microsecond, while it loads, computes and stores a tile, and the host some tens.
"""


# ---------------------------------------------------------------------- what passes ask
def facts_of(options: TargetOptions, default: Facts) -> Facts:
    """The facts of the GPU that the options name, or of the device."""
    machine = machine_of(options.features)
    decoded = _decoded(options, machine)
    precision = options.precision
    return replace(
        default,
        launches_foreign=True,
        unrolled_launches=UNROLLED,
        enclosed_programs=ENCLOSED,
        claims=(ConvFilterGradientOp.name,),  # one product, which reads its windows in place
        checks_indices=options.check is True,  # otherwise the host would wait for the device
        narrow_factors={"bf16": bf16, "fp16": f16, "fast": bf16, "fp8": bf16}.get(precision),
        scaled_factors=f8E4M3FN if precision == "fp8" and f8E4M3FN in decoded else None,
        byte_factors=(i8, i8),  # which `tl.dot` multiplies
        shortens_constants=True,  # they take half the bytes, and fewer registers
        multiplies=decoded | {f16, bf16},  # on tensor cores
        decodes=decoded,
        encodes=decoded & {f8E4M3FN},  # saturates; the emitter turns what is larger into NaN
        bounds_walks=True,  # all heads share what each program would wait for
        power_tiles=True,
        rates=_rates(machine),
        programs=4 * machine.multiprocessors,
        paired_rows=MIN_DOT,  # memory bandwidth bounds them, and each launch counts
        coded_rows=4 * MIN_DOT,  # likewise; a program converts a tile once for all of its rows
        blocked_rows=1,  # of more rows, conversions take longer than halves take to read
        packs_codes=True,  # more rows are multiplied on tensor cores, by whole tiles of weights
        short_rows=machine.fitted.rows.short,  # what a program can hold in registers
        held_row=machine.fitted.rows.longest_whole,
        exchanged_elements=WORDS if not options.interpret and is_nvidia(machine.arch) and (
            shares_memory()) else 0,
        exchanged_programs=PROGRAMS,
        sorted_bytes=sorted_bytes(),
        scans=f32,  # each thread scans its own elements, then threads exchange their sums
        phases=True,  # so that each step of a product reads one tap, in wide loads
        atomics=frozenset((f32, f64, i32, i64)),
        selects=True, gathers=True)  # every thread computes its own addresses anyway


def _rates(machine: Machine) -> Rates:
    """What decides which products are divided among ranks."""
    fitted = machine.fitted
    return Rates(
        products=machine.tensor_rate * 1e12 * fitted.products.efficiency,
        reads=machine.bandwidth * 1e9 * fitted.products.memory,
        exchanges=fitted.link.bandwidth, waits=fitted.link.wait, message=fitted.link.message,
        overlaps=fitted.graph_lanes > 1, occupied=fitted.link.occupied)


def _decoded(options: TargetOptions, machine: Machine) -> frozenset[Attribute]:
    """The 8-bit floats that instructions convert. Triton's interpreter has none: it treats NaN and
    infinities as numbers."""
    known = not options.interpret and machine.has_float8
    return frozenset(NATIVE_FLOATS) if known else frozenset()


class CudaScheduling(Scheduling):
    """Tiles for tensor cores and threads, warps, stages; see `scheduling/`."""

    def schedule(self, kernel: LoopKernelOp) -> Schedule:
        return rules.schedule_kernel(kernel, self.options)

    def schedules_by_size(self, kernel: LoopKernelOp) -> Sequence[tuple[Expr, Schedule]]:
        return schedules_by_size(kernel, self.options)

    def candidates(self, kernel: LoopKernelOp, around: Schedule) -> Sequence[Schedule]:
        return search.candidates(kernel, around, self.options)

    def prepare(self, kernel: LoopKernelOp) -> None:
        rules.prepare_kernel(kernel, self.options)

    def panels(
        self, kernel: LoopKernelOp, nest: NestOp, constants: Collection[int]
    ) -> Mapping[int, Packing] | None:
        return rules.operand_panels(kernel, nest, constants, self.options)

    def row_multiples(self, kernel: LoopKernelOp) -> Mapping[int, int]:
        return attention.row_multiples(kernel) if attention.is_attention(kernel) else {}

    def joined_groups(
        self, inputs: int, outputs: int, count: int, element: Attribute, is_constant: bool
    ) -> int:
        return convolutions.joined_groups(
            inputs, outputs, count, element, is_constant, self.options)

    def joins_phases(self, zeros: int | None, kernels: int, element: Attribute) -> bool:
        return convolutions.joins_phases(zeros, kernels, element, self.options)

    def group_rows(self, rows: int | None, groups: int | None) -> int:
        return group_rows(rows, groups)

    def product_parts(self, nest: NestOp) -> Parts | None:
        return rules.sum_parts(nest, self.options)

    def joins_online(self, kernel: LoopKernelOp) -> bool:
        return attention.joins(kernel, self.options)

    def selects_factors(self, kernel: LoopKernelOp) -> bool:
        return attention.selects(kernel, self.options)

    def joins_recomputed(self, kernel: LoopKernelOp) -> bool:
        return recomputed.joins(kernel, self.options)

    def joins_launches(self, schedule: Schedule) -> bool:
        return rules.joins_launches(schedule)

    def exchanges_tiles(self, schedule: Schedule) -> bool:
        return not (schedule.option(SPECIALIZE) or schedule.option(LIBRARY))

    def launch_seconds(self, launch: LaunchOp, kernel: KernelOp, occupied: int) -> float | None:
        return seconds_beside(launch, kernel, occupied, machine_of(self.options.features))

    def beside_exchange(self, schedule: Schedule, occupied: int) -> Schedule:
        return schedule_beside(schedule, occupied)

    def online_part(self, kernel: LoopKernelOp) -> int:
        return online_part(kernel, self.options)


# ---------------------------------------------------------------------- code
class CudaEmission(Emission):
    """Triton source, and the assembly that Triton makes of it."""

    def emit(self, module: ModuleOp, level: str) -> str:
        """The Triton source of all kernels, with the host function as comments; or their assembly,
        or their instructions (SASS).

        Raises CudaError for a kernel without a form in Triton, and for an unknown level.
        """
        if level not in self.levels:
            raise CudaError(f"target {self.name} has no level {level!r}; it has "
                            f"{' and '.join(self.levels)}")
        if level == "triton":
            return _triton_text(module, self.options)
        return _assembly_text(module, self.options, _sass if level == "sass" else _ptx)


class CudaBuilding(Building):
    """Cubins, made without a device."""

    def begin(self) -> None:
        """Start a process that imports Triton while the passes run."""
        if not self.options.interpret and find_spec("triton") is not None:
            foresee()

    @cached_property
    def builder(self) -> Builder:
        return Builder(compile_options(self.options), self.options.one_launch)

    def build(
        self, module: ModuleOp, weights: WeightStore, sizes: Mapping[Symbol, int]
    ) -> Sequence[str]:
        return self.builder.build(module, sizes)

    def jobs(self, module: ModuleOp, sizes: Mapping[Symbol, int]) -> Mapping[str, Job]:
        if self.options.interpret or self.options.cache is None:
            return {}
        options = self.builder.options  # which starts Triton's process before threads ask for it
        return {name_of(job, options): job
                for job in jobs_of(module, sizes, options, self.options.one_launch)}

    def compile_ahead(self, jobs: Sequence[Any]) -> None:
        self.builder.keep(jobs)

    def ship(
        self, module: ModuleOp, weights: WeightStore, report: ReportProgress = ignore_progress
    ) -> Cargo:
        """The cubins of all kernels, and the launches; without a device."""
        if not is_nvidia(machine_of(self.options.features).arch):
            return super().ship(module, weights, report)
        return shipped(module, weights, compile_options(self.options, report), self.name)


# ---------------------------------------------------------------------- running
class CudaRunning(Running):
    """Models on the device, or in Triton's interpreter."""

    measures_apart = True
    probe = Probe((8192,), 1 << 27, "f16")

    def load(
        self, module: ModuleOp, weights: WeightStore, report: ReportProgress = ignore_progress
    ) -> Executable:
        """Load on the device, or in Triton's interpreter. Raises CudaError without a GPU."""
        if self.options.interpret:
            return InterpretedExecutable(module, weights, self.options.exact)
        return load_module(module, weights, compile_options(self.options, report),
                           self.options.one_launch)

    def profile(self, module: ModuleOp, weights: WeightStore) -> Profile:
        """Launches one after another. Raises CudaError without a GPU, and for the interpreter."""
        if self.options.interpret:
            raise CudaError("Triton's interpreter has no times that say anything about a GPU")
        driver.use_device()
        return profile_module(module, weights, compile_options(self.options),
                              self.options.one_launch)

    def seconds(self, executable: Executable, inputs: Sequence[Array]) -> float:
        """Those of the device alone."""
        assert isinstance(executable, CudaExecutable)
        executable.run(inputs)
        watch = executable.stopwatch(0)
        return min(watch(1) for _ in range(5))

    def timer(self, executable: Executable, inputs: Sequence[Array], footprint: int) -> Timer:
        assert isinstance(executable, CudaExecutable)
        cache = driver.cache_size()
        return executable.stopwatch(2 * cache if NEAR * footprint > cache else 0)


class CudaTuning(Tuning):
    """Tuned schedules depend on the device, on Triton, and on the libraries that kernels call."""

    def key(self) -> str | None:
        """None without Triton, on whose version schedules depend, and for its interpreter."""
        if self.options.interpret or find_spec("triton") is None:
            return None
        machine = machine_of(self.options.features)
        return (f"{self.name} {search.VERSION} {machine.arch} {machine.name} "
                f"{machine.multiprocessors} Triton {triton_version()}")

    def library_keys(self) -> Sequence[str]:
        wanted = self.options.library and not self.options.interpret and is_nvidia(
            machine_of(self.options.features).arch)
        return [*_library_keys().values()] if wanted else ()

    def library_of(self, kernel: LoopKernelOp) -> str | None:
        form = library_form(kernel, self.options) if self.library_keys() else None
        return None if form is None else _library_keys().get(library_of(form))


@dataclass(frozen=True)
class CudaTarget(Target):
    """NVIDIA GPUs, Ampere and newer."""

    scheduling, emission = CudaScheduling, CudaEmission
    building, running, tuning = CudaBuilding, CudaRunning, CudaTuning
    schedule_options = OPTIONS

    def check(self, options: TargetOptions) -> None:
        if options.features is not None:
            nvidia_machine(options.features)

    def facts(self, options: TargetOptions) -> Facts:
        return facts_of(options, super().facts(options))

    def report(self) -> list[str]:
        try:
            lines = [f"Triton {triton_version()}: kernels compile, and run with --interpret"]
        except CudaError as error:
            lines = [str(error)]
        if not driver.is_available():
            return [*lines, "no NVIDIA GPU here: models compile but do not run"]
        machine = machine_of()
        return [*lines, f"{machine.name}: {machine.arch}, {machine.multiprocessors} "
                        f"multiprocessors, {machine.shared // 1024} KB of shared memory"]


def compile_options(
    options: TargetOptions, report: ReportProgress = ignore_progress
) -> CompileOptions:
    """The compile options that follow from the target's options."""
    cache = None if options.cache is None else options.cache / "cuda"
    return CompileOptions(machine_of(options.features).arch, cache, options.threads,
                          fp_fusion=not options.exact, report=report)


def _library_keys() -> Mapping[str, str]:
    """The key of each installed library, by its name."""
    return {name: f"{name} {version}" for name, version in library_versions().items()}


def _emit_options(options: TargetOptions) -> EmitOptions:
    """The emission options for source that is printed or compiled ahead."""
    return EmitOptions(exact=options.exact, ptx=is_nvidia(machine_of(options.features).arch))


def _triton_text(module: ModuleOp, options: TargetOptions) -> str:
    plan = [f"# {line}".rstrip() for op in host_functions(module) for line in str(op).splitlines()]
    text = module_text([*(emit_kernel(k, _emit_options(options)) for k in kernels_of(module)),
                        *foreign_sources(module)])
    notes = [f"# {note}" for note in (*host_notes(module), *library_notes(kernels_of(module)))]
    return "\n".join([text, "", *notes, "# How the kernels are launched:", *plan, ""]
                     ) if plan else text


def _assembly_text(
    module: ModuleOp, options: TargetOptions, printed: Callable[[KernelSource, Binary], str]
) -> str:
    """All kernels, each as `printed`."""
    kernels = kernels_of(module)
    jobs = [Job(emit_kernel(k, _emit_options(options)), tuple(range(len(k.buffers))))
            for k in kernels]
    jobs += [Job(source, source.pointers) for source in foreign_sources(module)]
    binaries = compile_kernels(jobs, compile_options(options))
    notes = [f"// {note}" for note in (*host_notes(module), *library_notes(kernels))]
    texts = [printed(job.source, b) for job, b in zip(jobs, binaries, strict=True)]
    names = [*(k.sym_name.data for k in kernels), *(j.source.name for j in jobs[len(kernels):])]
    return "\n".join([*notes, *(f"// kernel @{name}\n{text}"
                                for name, text in zip(names, texts, strict=True))])


def _ptx(source: KernelSource, binary: Binary) -> str:
    """The assembly of a kernel."""
    return annotated_ptx(binary.assembly, source.text, source.name)


def _sass(source: KernelSource, binary: Binary) -> str:
    """The instructions of a kernel. Raises CudaError without a disassembler."""
    return annotated_sass(disassembled(binary), binary.ptx, source.text, source.name)
