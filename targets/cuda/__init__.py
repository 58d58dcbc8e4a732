"""The CUDA target: block kernels become Triton source, and then cubins that we launch.

    machine.py    what data sheets tell of GPUs; in `facts/` what was fitted on a device
    scheduling/   schedules of kernels: memory-bound ones, convolutions, attention; in `products/`
                  matrix products, with a model of their time
    emit/         a kernel as Triton source; in `specialized/` with warp specialization
    build/        source to PTX and cubins, in worker processes; Triton's interpreter
    runtime/      the driver's functions, memory, CUDA graphs, control flow, calls
    libraries/    cuBLASLt and cuDNN, where the user allows them as candidates

Only `build/workers/` imports Triton, in processes of its own. Nothing needs torch, and compiling
needs no GPU.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute

from dialects.block import KernelOp
from dialects.host import host_functions
from dialects.loop import KernelOp as LoopKernelOp
from dialects.loop import NestOp
from dialects.strata.schedule import Schedule
from dialects.strata.schedule_options import AnyOption
from dialects.strata.types import Array, bf16, f8E4M3FN, f16, i8
from dialects.strata.weights import WeightStore
from dialects.symbolic.symbol import Symbol
from passes.contract import Packing
from targets.base import Build, Executable, Target, TargetOptions
from targets.cuda.build.ahead import Builder
from targets.cuda.build.compile import CompileOptions, Job, compile_kernels, triton_version
from targets.cuda.build.interpreter import InterpretedExecutable
from targets.cuda.build.worker import foresee
from targets.cuda.emit import EmitOptions, emit_kernel, module_text
from targets.cuda.emit.scalar import NATIVE_FLOATS
from targets.cuda.errors import CudaError
from targets.cuda.libraries.calls import library_versions
from targets.cuda.libraries.forms import library_form, library_notes, library_of
from targets.cuda.machine import is_nvidia, machine_of, nvidia_machine
from targets.cuda.runtime import driver
from targets.cuda.runtime.executable import CudaExecutable
from targets.cuda.runtime.plan import host_notes
from targets.cuda.runtime.stopwatch import NEAR
from targets.cuda.scheduling.options import OPTIONS
from targets.interface import Timer


@dataclass(frozen=True)
class CudaTarget(Target):
    """NVIDIA GPUs, Ampere and newer."""

    def check(self, options: TargetOptions) -> None:
        if options.features is not None:
            nvidia_machine(options.features)

    def narrow_factors(self, options: TargetOptions) -> Attribute | None:
        """f16 or bf16 for tensor cores. None for tf32, because the instructions round by
        themselves.
        """
        return {"bf16": bf16, "fp16": f16, "fast": bf16, "fp8": bf16}.get(options.precision)

    def scaled_factors(self, options: TargetOptions) -> Attribute | None:
        """Available from compute capability 8.9 on."""
        fits = options.precision == "fp8" and self.multiplies(f8E4M3FN, options)
        return f8E4M3FN if fits else None

    def begin(self, options: TargetOptions) -> None:
        """Start a process that imports Triton while the passes run."""
        if not options.interpret and find_spec("triton") is not None:
            foresee()

    def byte_factors(self) -> tuple[Attribute, Attribute]:
        """Signed bytes, which `tl.dot` multiplies."""
        return i8, i8

    def shortens_constants(self) -> bool:
        """True: they take half the bytes, and fewer registers."""
        return True

    def checks_indices(self, options: TargetOptions) -> bool:
        """Only on request, because the host would wait for the device."""
        return options.check is True

    def scans(self) -> bool:
        """True: each thread scans its own elements, then threads exchange their sums."""
        return True

    def programs(self, options: TargetOptions) -> int:
        """A few programs per multiprocessor."""
        return 4 * machine_of(options.features).multiprocessors

    def short_rows(self, options: TargetOptions) -> int:
        """The elements that a program can hold in registers."""
        return machine_of(options.features).fitted.rows.short

    def multiplies(self, element: Attribute, options: TargetOptions) -> bool:
        """Tensor cores multiply 16-bit floats, and the 8-bit floats that the machine decodes."""
        return element in (f16, bf16) or self.decodes(element, options)

    def joined_groups(
        self, inputs: int, outputs: int, count: int, element: Attribute, options: TargetOptions
    ) -> int:
        from targets.cuda.scheduling.convolutions import joined_groups

        return joined_groups(inputs, outputs, count, element, options)

    def product_parts(self, nest: NestOp, options: TargetOptions) -> tuple[Symbol, int] | None:
        from targets.cuda.scheduling.rules import sum_parts

        return sum_parts(nest, options)

    def joins_online(self, kernel: LoopKernelOp, options: TargetOptions) -> bool:
        from targets.cuda.scheduling.attention import joins

        return joins(kernel, options)

    def online_parts(self, kernel: LoopKernelOp, options: TargetOptions) -> int:
        from targets.cuda.scheduling.attention_parts import online_parts

        return online_parts(kernel, options)

    def group_rows(self, rows: int | None, groups: int | None, options: TargetOptions) -> int:
        from targets.cuda.scheduling.products.tiles import group_rows

        return group_rows(rows, groups)

    def gathers(self, options: TargetOptions) -> bool:
        """True for rows and matrices: every thread computes its own addresses anyway."""
        del options
        return True

    def prepare(self, kernel: LoopKernelOp, options: TargetOptions) -> None:
        from targets.cuda.scheduling.rules import prepare_kernel

        prepare_kernel(kernel, options)

    def panels(
        self, kernel: LoopKernelOp, nest: NestOp, constants: Collection[int],
        options: TargetOptions,
    ) -> Mapping[int, Packing] | None:
        from targets.cuda.scheduling.rules import operand_panels

        return operand_panels(kernel, nest, constants, options)

    def decodes(self, element: Attribute, options: TargetOptions) -> bool:
        """None in Triton's interpreter, which treats NaN and infinities as numbers."""
        known = not options.interpret and element in NATIVE_FLOATS
        return known and machine_of(options.features).has_float8

    def encodes(self, element: Attribute, options: TargetOptions) -> bool:
        """Only f8E4M3FN: its instruction saturates at the largest number, and the emitter turns
        larger ones into NaN."""
        return element == f8E4M3FN and self.decodes(element, options)

    def schedule_options(self) -> Sequence[AnyOption]:
        return OPTIONS

    def schedule(self, kernel: LoopKernelOp, options: TargetOptions) -> Schedule:
        from targets.cuda.scheduling.rules import schedule_kernel

        return schedule_kernel(kernel, options)

    def candidates(
        self, kernel: LoopKernelOp, around: Schedule, options: TargetOptions
    ) -> Sequence[Schedule]:
        from targets.cuda.scheduling.search import candidates

        return candidates(kernel, around, options)

    def tuning_key(self, options: TargetOptions) -> str | None:
        """None without Triton, on whose version schedules depend, and for its interpreter."""
        from targets.cuda.scheduling.search import VERSION

        if options.interpret or find_spec("triton") is None:
            return None
        machine = machine_of(options.features)
        return (f"{self.name} {VERSION} {machine.arch} {machine.name} "
                f"{machine.multiprocessors} Triton {triton_version()}")

    def library_keys(self, options: TargetOptions) -> Sequence[str]:
        wanted = options.library and not options.interpret and is_nvidia(
            machine_of(options.features).arch)
        return [*_library_keys().values()] if wanted else ()

    def library_of(self, kernel: LoopKernelOp, options: TargetOptions) -> str | None:
        form = library_form(kernel, options) if self.library_keys(options) else None
        return None if form is None else _library_keys().get(library_of(form))

    def builder(self, options: TargetOptions) -> Build:
        return Builder(compile_options(options))

    def measures_apart(self) -> bool:
        return True

    def timer(
        self, executable: Executable, inputs: Sequence[Array], footprint: int,
        options: TargetOptions,
    ) -> Timer:
        assert isinstance(executable, CudaExecutable)
        cache = driver.cache_size()
        return executable.stopwatch(2 * cache if NEAR * footprint > cache else 0)

    def emit(self, module: ModuleOp, level: str, options: TargetOptions) -> str:
        """The Triton source of all kernels, with the host function as comments; or their assembly.

        Raises CudaError for a kernel without a form in Triton, and for an unknown level.
        """
        if level not in self.levels:
            raise CudaError(f"target {self.name} has no level {level!r}; it has "
                            f"{' and '.join(self.levels)}")
        text = _triton_text if level == "triton" else _assembly_text
        return text(module, options)

    def load(
        self, module: ModuleOp, weights: WeightStore, options: TargetOptions
    ) -> Executable:
        """Load on the device, or in Triton's interpreter. Raises CudaError without a GPU."""
        if options.interpret:
            return InterpretedExecutable(module, weights, options.exact)
        return CudaExecutable(module, weights, compile_options(options))

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


def compile_options(options: TargetOptions) -> CompileOptions:
    """The compile options that follow from the target's options."""
    cache = None if options.cache is None else options.cache / "cuda"
    return CompileOptions(machine_of(options.features).arch, cache, options.threads,
                          fp_fusion=not options.exact, tell=options.tell)


def _library_keys() -> Mapping[str, str]:
    """The key of each installed library, by its name."""
    return {name: f"{name} {version}" for name, version in library_versions().items()}


def _emit_options(options: TargetOptions) -> EmitOptions:
    """The emission options for source that is printed or compiled ahead."""
    return EmitOptions(exact=options.exact, ptx=is_nvidia(machine_of(options.features).arch))


def _kernels(module: ModuleOp) -> list[KernelOp]:
    return [op for op in module.body.block.ops if isinstance(op, KernelOp)]


def _triton_text(module: ModuleOp, options: TargetOptions) -> str:
    plan = [f"# {line}".rstrip() for op in host_functions(module) for line in str(op).splitlines()]
    text = module_text([emit_kernel(k, _emit_options(options)) for k in _kernels(module)])
    notes = [f"# {note}" for note in (*host_notes(module), *library_notes(_kernels(module)))]
    return "\n".join([text, "", *notes, "# How the kernels are launched:", *plan, ""]
                     ) if plan else text


def _assembly_text(module: ModuleOp, options: TargetOptions) -> str:
    kernels = _kernels(module)
    jobs = [Job(emit_kernel(k, _emit_options(options)), tuple(range(len(k.buffers))))
            for k in kernels]
    binaries = compile_kernels(jobs, compile_options(options))
    notes = [f"// {note}" for note in (*host_notes(module), *library_notes(kernels))]
    return "\n".join([*notes, *(f"// kernel @{k.sym_name.data}\n{b.assembly}"
                                for k, b in zip(kernels, binaries, strict=True))])


TARGET = CudaTarget(
    "cuda", ("triton", "ptx"), "NVIDIA GPUs (sm_80 and newer), through Triton")
