"""The CPU target: block kernels as LLVM IR with explicit vectors, run in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from platform import machine as architecture
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Operation

from dialects.block import KernelOp
from dialects.host import contents_of, host_function, host_functions
from dialects.records import dataclass
from dialects.strata.mapped import MappedFiles
from dialects.strata.types import Array, WeightAttr
from dialects.strata.weights import WeightStore
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import location_names
from dialects.walking import walked
from passes.contract import Facts
from targets.base import Target
from targets.cpu.architectures import ARCHITECTURES, platform_of
from targets.cpu.build import worker
from targets.cpu.build.cache import ObjectCache, llvm_text
from targets.cpu.build.jit import compile_fixed, compile_quickly, compile_texts, foresee_texts, link
from targets.cpu.driver.clock import HEAD, LAUNCHES, WORDS
from targets.cpu.driver.frame import ENTRY
from targets.cpu.driver.module import DriverText, KernelInfo, emit_driver
from targets.cpu.emit import emit_kernel_text
from targets.cpu.llvm.modules import ModuleText, joined
from targets.cpu.llvm.operands import kernel_names
from targets.cpu.llvm.places import Places
from targets.cpu.machine import Machine, is_supported, lacking, machine_of
from targets.cpu.runtime.executable import CpuExecutable, Source, placed
from targets.cpu.runtime.plan import RunPlan
from targets.cpu.runtime.processors import FEATURES_VARIABLE, assumed_features, thread_count
from targets.cpu.runtime.threads import thread_pool
from targets.cpu.scheduled import CpuScheduling
from targets.cpu.scheduling import search
from targets.cpu.scheduling.options import OPTIONS
from targets.cpu.stated import facts_of, machine_allowed
from targets.cpu.stored import needs as needed_sets
from targets.interface import Executable, TargetError, Timer
from targets.naming import one_line
from targets.options import TargetOptions
from targets.parts import (
    Building,
    Emission,
    ReportProgress,
    Running,
    Tuning,
    ignore_progress,
)
from targets.profiles import CounterProfile
from targets.walking import kernels_by_name, kernels_of

if TYPE_CHECKING:
    from dialects.host.interpret import RunKernel
    from dialects.semantics.ring import Ring
    from targets.cpu.artifact.pieces import Parts

# ---------------------------------------------------------------------- code
class CpuEmission(Emission):
    """LLVM IR, and assembly."""

    def emit(self, module: ModuleOp, level: str) -> str:
        """One module with all kernels and the driver, as LLVM IR or as assembly."""
        machine = _machine(self.options)
        text = module_text(module, machine, self.options.one_launch)
        if level == "asm":
            from targets.origins import annotated_assembly

            return annotated_assembly(worker.assembly_text(text, *machine.code_generator))
        return text


class Code(NamedTuple):
    """A module's driver, and the object code of its kernels and of the driver."""

    driver: DriverText
    objects: Sequence[bytes]


def _code(
    module: ModuleOp, options: TargetOptions, report: ReportProgress, profiled: bool = False
) -> Code:
    """Compile each distinct kernel and the driver, or read them from the cache.

    The driver is compiled here while other processes still compile kernels.
    """
    machine, kernels = _machine(options), kernels_of(module)
    func, infos = host_function(module), dict[str, KernelInfo]()
    cache, made = ObjectCache(options.cache), list[Code]()

    def texts() -> Iterator[str]:
        for kernel in kernels:
            text = emit_kernel_text(kernel, machine, "strata.kernel")
            text = text.renamed(text.content_name)
            infos[kernel.sym_name.data] = KernelInfo.of(text.name, kernel, machine)
            yield text.module.text
        driver = emit_driver(func, host_functions(module), infos, machine,
                             options.one_launch, profiled)
        made.append(Code(driver, [compile_quickly(driver.own.text, machine, cache),
                                  compile_fixed(driver.fixed.text, machine, cache)]))

    objects = compile_texts(texts(), machine, cache, lambda done: report(done, len(kernels)))
    return Code(made[0].driver, [*objects, *made[0].objects])


class CpuBuilding(Building):
    """Compilation in a process that runs nothing, and processes that help."""

    def expect(self, module: ModuleOp) -> None:
        foresee_texts(len(walked(module)), _machine(self.options))

    def build(
        self, module: ModuleOp, weights: WeightStore, sizes: Mapping[Symbol, int]
    ) -> Sequence[str]:
        _code(module, self.options, ignore_progress)
        return ()

    def ship(
        self, module: ModuleOp, weights: WeightStore, report: ReportProgress = ignore_progress
    ) -> Parts:
        """The objects that would be loaded here, and the constants."""
        from targets.cpu.artifact.instructions import unknown_sets
        from targets.cpu.artifact.pieces import Parts

        machine, features = _machine(self.options), self.options.features
        if machine.is_foreign:
            return _shipped_abroad(module, weights, self.options)
        code = _code(module, self.options, report)
        if code.driver.exchanges:
            raise TargetError("the model runs on several ranks, and a library has no "
                              "communication: compile it in the process of each rank")
        needs = needed_sets(features)
        if unknown := unknown_sets(needs) if machine.is_x86 else []:
            raise TargetError("a library cannot ask its processor for "
                              f"{', '.join(unknown)}; compile for a named feature set, such as "
                              "--features avx2")
        return Parts(_plan(module, code.driver), code.objects, _arrays(code.driver, weights),
                     needs if machine.is_x86 else (), machine.architecture,
                     _facts(machine, features))


def _shipped_abroad(module: ModuleOp, weights: WeightStore, options: TargetOptions) -> Parts:
    """A model for another machine: LLVM makes one object of all its code, under names of its own.
    """
    from targets.cpu.artifact.instructions import auxiliary_needs
    from targets.cpu.artifact.pieces import Abroad, Parts

    machine, driver, texts = _machine(options), *_texts(module, options)
    platform, architecture = platform_of(machine.triple), machine.architecture
    features = options.features or ARCHITECTURES[architecture].default
    needs = needed_sets(features) if machine.is_x86 else auxiliary_needs(
        machine.features, architecture)
    whole = partial(worker.compile_whole, [*texts, driver.module.text])
    return Parts(_plan(module, driver), (), _arrays(driver, weights), needs, architecture,
                 _facts(machine, features) | {"triple": machine.triple},
                 Abroad(platform, lambda names: whole(names, *machine.code_generator)))


def _texts(module: ModuleOp, options: TargetOptions) -> tuple[DriverText, list[str]]:
    """The text of the driver, and that of each distinct kernel, under a name of its contents."""
    machine, infos, texts = _machine(options), dict[str, KernelInfo](), dict[str, str]()
    for kernel in kernels_of(module):
        text = emit_kernel_text(kernel, machine, "strata.kernel")
        text = text.renamed(text.content_name)
        infos[kernel.sym_name.data] = KernelInfo.of(text.name, kernel, machine)
        texts[text.name] = text.module.text
    return emit_driver(host_function(module), host_functions(module), infos, machine,
                       options.one_launch), [*texts.values()]


def _plan(module: ModuleOp, driver: DriverText) -> RunPlan:
    return RunPlan.of(host_function(module), driver.checks, driver.steps, driver.exchanges,
                      driver.serial)


def _arrays(driver: DriverText, weights: WeightStore) -> list[Array]:
    """The constants, in table order."""
    return [np.ascontiguousarray(contents_of(op.value, op.type, weights), op.type.dtype)
            for op in driver.constants]


def _facts(machine: Machine, features: str | None) -> dict[str, str | None]:
    """What a library says of the code in it."""
    return {"features": features, "processor": machine.cpu, "llvm": llvm_text()}


# ---------------------------------------------------------------------- running
class CpuRunning(Running):
    """Machine code in this process, timed with cold caches where a model's constants fill them."""

    def check_machine(self) -> None:
        features, triple = self.options.features, self.options.triple
        if triple is not None:
            raise TargetError(f"code for {triple} can be shown and written here, but not run")
        if missing := lacking(features):
            raise TargetError(
                f"this processor ({machine_of().cpu}) lacks {', '.join(sorted(missing))}, which "
                f"the feature set '{features}' needs: its code can be shown here, but not run")

    def single(self, kernel: KernelOp) -> RunKernel:
        from targets.cpu.single import native_kernel

        self.check_machine()
        return native_kernel(kernel, _machine(self.options), ObjectCache(self.options.cache))

    def load(
        self, module: ModuleOp, weights: WeightStore, report: ReportProgress = ignore_progress
    ) -> CpuExecutable:
        """Compile each distinct kernel and the driver, or read them from the cache; link them."""
        self.check_machine()
        code = _code(module, self.options, report)
        constants = code.driver.constants
        files = MappedFiles.around(constants)
        arrays = [placed(contents_of(op.value, op.type, weights), op.type.dtype, files)
                  for op in constants]
        sources = [Source(op.value.key.data, op.type.dtype) if isinstance(op.value, WeightAttr)
                   and isinstance(op.value.key, StringAttr) else None for op in constants]
        return CpuExecutable(_plan(module, code.driver), link(code.objects, ENTRY), arrays,
                             thread_count(self.options.threads), sources)

    def load_in_ring(self, module: ModuleOp, weights: WeightStore, ring: Ring) -> Executable:
        """The same kernels and driver, with instructions on residues."""
        from targets.cpu.ring.program import load_in_ring

        self.check_machine()
        return load_in_ring(module, weights, _machine(self.options), ring)

    def profile(self, module: ModuleOp, weights: WeightStore) -> CounterProfile:
        """The same program with a driver that times each launch."""
        self.check_machine()
        if architecture() not in ("x86_64", "AMD64"):
            raise TargetError("kernels are timed with the counter of x86-64 processors, which "
                              f"{architecture()} lacks")
        code, files = _code(module, self.options, ignore_progress, True), MappedFiles.now()
        counts = np.zeros(HEAD + WORDS * (LAUNCHES + len(code.driver.launches)), np.int64)
        constants = [placed(contents_of(op.value, op.type, weights), op.type.dtype, files)
                     for op in code.driver.constants]
        plan = _plan(module, code.driver)
        threads = thread_count(self.options.threads)
        executable = CpuExecutable(
            plan, link(code.objects, ENTRY), [counts, *constants], threads)
        return CounterProfile(executable, self.load(module, weights), code.driver.launches, counts,
                              f"{threads} thread(s)")

    def timer(self, executable: Executable, inputs: Sequence[Array], footprint: int) -> Timer:
        from targets.cpu.runtime.stopwatch import CacheTimer

        assert isinstance(executable, CpuExecutable)
        second = machine_of(self.options.features).caches[1]
        return CacheTimer(executable, inputs, 2 * second if footprint > second else 0)


class CpuTuning(Tuning):
    """Tuned schedules depend on the processor."""

    def key(self) -> str:
        return f"cpu {search.VERSION} {machine_of(self.options.features, self.options.triple).key}"


@dataclass(frozen=True)
class CpuTarget(Target):
    """x86-64 of any vectors (and, without tuning, 64-bit ARM), threads through libgomp."""

    scheduling, emission = CpuScheduling, CpuEmission
    building, running, tuning = CpuBuilding, CpuRunning, CpuTuning
    schedule_options = OPTIONS

    def check(self, options: TargetOptions) -> None:
        try:
            for features in (options.features, *options.beside):
                machine_of(features, options.triple)
        except ValueError as error:
            raise TargetError(str(error)) from None

    def facts(self, options: TargetOptions) -> Facts:
        return facts_of(options, super().facts(options))

    def report(self) -> list[str]:
        if not is_supported():
            return ["the CPU target needs an x86-64 or 64-bit ARM processor"]
        try:
            machine = machine_of()
        except ValueError as error:
            return [str(error)]
        assumed = assumed_features()
        counts = f" (${FEATURES_VARIABLE} is {assumed})" if assumed else ""
        return [f"processor: {machine.name}{counts}", f"threads: {thread_count(None)}",
                f"thread pool: {thread_pool().source}"]


def _machine(options: TargetOptions) -> Machine:
    """The machine for which code is generated, with the options that affect it."""
    machine = machine_allowed(options)
    return replace(machine, contracts=not options.exact,
                   flushes=machine.flushes and options.denormals == "flush")


def module_text(module: ModuleOp, machine: Machine, one_launch: bool = True) -> str:
    """The LLVM IR of a whole module at block level, with kernels under their own names."""
    kernels = kernels_by_name(module)
    names = dict(zip(kernels, kernel_names(kernels), strict=True))
    places = Places()
    texts = [emit_kernel_text(op, machine, names[name], places) for name, op in kernels.items()]
    driver = emit_driver(host_function(module), host_functions(module), {
        name: KernelInfo.of(names[name], op, machine) for name, op in kernels.items()}, machine,
        one_launch)
    parts = [part for op, text in zip(kernels.values(), texts, strict=True)
             for part in (_origin_of(op), text.module)]
    metadata = ModuleText((), places.texts())
    return joined([*parts, driver.module, metadata], names.values()).text


def _origin_of(kernel: Operation) -> ModuleText:
    """A comment for readers: the model's nodes that a kernel computes."""
    text = one_line(name for op in walked(kernel) for name in location_names(op))
    return ModuleText((f"; from {text}",) if text else (), {})
