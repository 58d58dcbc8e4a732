"""Facts about the processor: vector width, registers, caches, cores, and LLVM's names for them.

They are detected from the hardware or the system. A user may instead name a feature set ("avx2" or
"avx512"). Then no instruction outside that set is emitted, whatever the machine supports. Code for
a set that this machine lacks can be made here, but not run; so can code for another architecture or
system, whose facts are data (`architectures.py`).

$STRATA_CPU_FEATURES names the set that this machine counts as having, so that the compiler, and
what it refuses to run, is that of such a machine.
"""

# llvmlite has no types.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import llvmlite.binding as llvm
from xdsl.ir import Attribute

from dialects.records import dataclass
from dialects.strata import types as t
from targets.cpu.architectures import (
    ARCHITECTURES,
    AVX512,
    OTHER,
    Architecture,
    FeatureSet,
    Platform,
    platform_of,
)
from targets.cpu.facts import SERVERS, Costs
from targets.cpu.runtime.processors import (
    FEATURES_VARIABLE,
    assumed_features,
    cache_sizes,
    permits_matrices,
    usable_cores,
)

_ALWAYS_FLUSHING = frozenset(("avx512bf16", "amx-bf16"))
"""Instructions on bf16 that count denormal floats as zeros, however the processor is set."""
FEATURE_SETS = ARCHITECTURES["x86_64"].sets
"""The feature sets of x86-64 that a user may name, from the least to the most."""


@dataclass(frozen=True)
class MatrixUnit:
    """Matrix registers: their number, and the rows and bytes per row of each."""

    registers: int = 8
    rows: int = 16
    row_bytes: int = 64
    latency: int = 52
    """Cycles until another product can be added to a result; one row starts every cycle."""
    instructions: str = "llvm.x86"
    """What LLVM's names of its instructions start with."""


@dataclass(frozen=True)
class Machine:
    """A processor as the emitter and the schedule rules see it.

    `cpu` and `attributes` are passed to LLVM; `features` are the features that may be used.
    """

    cpu: str
    attributes: str
    features: frozenset[str]
    triple: str
    caches: tuple[int, int, int]
    """Bytes of the L1 data cache, the L2 cache, and the shared L3 cache."""
    cores: int
    """How many processors this process may use, by its affinity and its control group's quota."""
    flushes: bool = True
    """Whether code treats subnormal floats as zeros, as far as the processor does so itself."""
    contracts: bool = True
    """Whether products may be added without rounding them first (fused multiply-add)."""
    abi: str = ""
    """LLVM's name of the calling convention, where there are several."""
    is_foreign: bool = False
    """Whether it was made from a triple, so that this process cannot run its code."""
    packed_for: Machine | None = None
    """The machine for whose tiles constants are packed; None: this one."""

    @property
    def architecture(self) -> str:
        """The name of the architecture, as `ARCHITECTURES` has it."""
        first = self.triple.partition("-")[0]
        found = ARCHITECTURES.get(first)
        return first if found is None else found.name

    @property
    def _kind(self) -> Architecture:
        return ARCHITECTURES.get(self.architecture, OTHER)

    @property
    def vector_bytes(self) -> int:
        """Bytes of the widest vector register that is fast for all element types."""
        if self.features >= AVX512:
            return 64
        return 32 if self.features & {"avx2", "sve256"} else 16

    @property
    def function_attributes(self) -> str:
        """What LLVM must know of each function: scalable vectors have at least 2 x 128 bits, so
        that those of 256 bits are registers."""
        return " vscale_range(2,16)" if "sve256" in self.features else ""

    @property
    def lanes(self) -> int:
        """How many f32 fit in one vector; other element types use the same number of lanes."""
        return self.vector_bytes // 4

    @property
    def streamed_bytes(self) -> int | None:
        """The size in bytes from which a result is written past the caches; None: never.

        It is half of what one core may count on. On servers, where all cores share the L3 cache,
        that is at most sixteen times the L2 cache. From this size on, later readers of the result
        are faster, too.
        """
        _, second, third = self.caches
        return min(third, 16 * second) // 2 if self.streams else None

    @property
    def streams(self) -> bool:
        """Whether stores past the caches pay."""
        return self.is_x86

    @property
    def costs(self) -> Costs:
        """What was fitted by measuring; the same for all processors so far."""
        return SERVERS

    @property
    def far_rows(self) -> int:
        """How many long rows can be read from memory in parallel without a loss.

        Chosen by measurements on one Intel and one AMD processor. Two rows cost little on Intel's,
        and are much slower on AMD's.
        """
        return 1 if self.cpu.startswith("znver") else 2

    @property
    def vector_registers(self) -> int:
        return 32 if self.vector_bytes == 64 else self._kind.vector_registers

    @property
    def spare_registers(self) -> int:
        """Vector registers for operands and broadcasts besides a tile's sums."""
        return self._kind.spare_registers

    @property
    def unrolled(self) -> int:
        """How many steps of a sum are one loop's body."""
        return self._kind.unrolled

    @property
    def line_bytes(self) -> int:
        """Bytes of a cache line, the same on all processors that we know."""
        return 64

    @property
    def doubles_bf16(self) -> bool:
        """Whether products of bf16 take less time than those of f32.

        They do with matrix registers. They also do on AMD processors, whose dot instruction does
        twice the work of a multiply-add at the same rate. Intel's is four times slower than a
        multiply-add.
        """
        return self.multiplies_matrices(t.bf16) or (
            self.multiplies_groups(t.bf16) and self.cpu.startswith("znver"))

    def narrow_factors(self, precision: str) -> Attribute | None:
        """bf16: on request if the machine multiplies it; for `fast` and `fp8` if it is faster."""
        faster = self.doubles_bf16
        allowed = {"bf16": self.multiplies_groups(t.bf16), "fast": faster, "fp8": faster}
        return t.bf16 if allowed.get(precision) else None

    def multiplies_groups(self, element: Attribute) -> bool:
        """Whether an instruction adds the products of several elements to each lane.

        For bytes, one factor is unsigned.
        """
        if not self.is_x86:
            return element == t.i8 and "i8mm" in self.features
        if element == t.bf16:
            return self.features >= AVX512 | {"avx512bf16"}
        short = element in (t.i8, t.i16)
        return short and (self.features >= AVX512 | {"avx512vnni"} or "avxvnni" in self.features)

    def multiplies_blocks(self, element: Attribute) -> bool:
        """Whether an instruction multiplies two rows by two columns, of eight elements each."""
        return element == t.i8 and not self.is_x86 and "i8mm" in self.features

    @property
    def matrix_unit(self) -> MatrixUnit | None:
        """The matrix registers (AMX), if the processor has them besides wide vectors; else None."""
        return MatrixUnit() if self.features >= AVX512 | {"amx-tile"} else None

    def multiplies_matrices(self, element: Attribute) -> bool:
        """Whether an instruction multiplies matrices of an element type."""
        wanted = {t.bf16: "amx-bf16", t.i8: "amx-int8"}.get(element)  # type: ignore[call-overload]
        return self.matrix_unit is not None and wanted in self.features

    @property
    def keeping_denormals(self) -> Machine:
        """The machine without the instructions that always count denormal floats as zeros."""
        best = self.packed_for
        return replace(self, features=self.features - _ALWAYS_FLUSHING,
                       packed_for=None if best is None else best.keeping_denormals)

    @property
    def is_x86(self) -> bool:
        return self.architecture == "x86_64"

    def packs_groups(self, element: Attribute) -> bool:
        """Whether few instructions add the products of several elements to each lane, so that
        factors are better packed in groups than widened."""
        if "simd128" in self.features:
            return element in (t.i8, t.i16)
        return self.is_x86 or (
            element == t.i8 and bool(self.features & {"dotprod", "i8mm"}))

    def widens_groups(self, element: Attribute, wide: Attribute) -> bool:
        """Whether groups of an element are loaded as groups of a wider one at little cost, so that
        the factor in lanes may be stored narrow. SIMD128, and x86-64 without VNNI, have such loads
        and no exact product of bytes."""
        return self.multiplies_shorts and (element, wide) == (t.i8, t.i16)

    @property
    def multiplies_shorts(self) -> bool:
        """Whether bytes are multiplied fastest as 16-bit integers, and constants are not packed for
        a machine that multiplies bytes."""
        return "simd128" in self.features or (
            self.is_x86 and not (self.packed_for or self).multiplies_groups(t.i8))

    @property
    def byte_factors(self) -> tuple[Attribute, Attribute]:
        """The types as which bytes are multiplied fastest. ARM's first dot products are for factors
        of equal signs. Where 16-bit integers are multiplied, data is widened once, not for each
        product, and weights as they are loaded."""
        if self.multiplies_shorts:
            return t.i16, t.i8
        has_equal_signs = "dotprod" in self.features and "i8mm" not in self.features
        return (t.i8 if has_equal_signs else t.ui8), t.i8

    @property
    def name(self) -> str:
        """A short name for reports: the processor, its vectors and cores."""
        return f"{self.cpu}, {8 * self.vector_bytes}-bit vectors, {self.cores} cores"

    @property
    def key(self) -> str:
        """What compiled code depends on: equal keys may share object code."""
        return f"{self.triple} {self.cpu} {self.attributes}"

    @property
    def code_generator(self) -> tuple[str, str, str, str]:
        """What LLVM is told: processor, features, triple ("" of this machine), convention."""
        return self.cpu, self.attributes, self.triple if self.is_foreign else "", self.abi


def machine_of(features: str | None = None, triple: str | None = None) -> Machine:
    """This machine, or the same machine with exactly the features of a named set.

    With a triple, a machine of that architecture and system, of which nothing else is known.
    Raises ValueError for an unknown set or triple, and if $STRATA_CPU_FEATURES names a set that is
    unknown or that this processor lacks.
    """
    if triple is not None:
        return _foreign(platform_of(triple), features)
    machine = _counted_as(_host(), assumed_features())
    return machine if features is None else _restricted(machine, features)


def best_of(sets: Sequence[str], triple: str | None = None) -> Machine:
    """The machine of the set that needs most."""
    machine = machine_of(triple=triple)
    order = [*ARCHITECTURES[machine.architecture].sets]
    return machine_of(max(sets, key=order.index), triple)


def lacking(features: str | None) -> frozenset[str]:
    """The features of a named set that this machine has not, so that it cannot run such code."""
    if features is None:
        return frozenset()
    return _set_of(features).features - machine_of().features


def features_here() -> list[str]:
    """The feature sets whose code this machine can run."""
    return [name for name in FEATURE_SETS if not lacking(name)]


@cache
def _counted_as(host: Machine, features: str | None) -> Machine:
    """The host if it counts as a machine of that feature set."""
    if features is None:
        return host
    try:
        missing = _set_of(features).features - host.features
    except ValueError as error:
        raise ValueError(f"{FEATURES_VARIABLE}: {error}") from None
    if missing:
        raise ValueError(f"{FEATURES_VARIABLE} is {features}, and this processor ({host.cpu}) lacks"
                         f" {', '.join(sorted(missing))}")
    return _restricted(host, features)


@cache
def _restricted(machine: Machine, features: str) -> Machine:
    chosen = _set_of(features)
    if not machine.is_x86:
        raise ValueError(f"{features!r} is a feature set of x86-64 processors, and this one is "
                         f"{machine.cpu}; with --triple, its own sets can be named")
    return replace(machine, cpu=chosen.cpu, attributes=chosen.attributes, features=chosen.features)


@cache
def _foreign(platform: Platform, features: str | None) -> Machine:
    """A machine of a platform, with the features of a set of its architecture."""
    known = platform.architecture
    chosen = _set_of(features or known.default, known)
    return Machine(
        cpu=chosen.cpu, attributes=chosen.attributes, features=chosen.features,
        triple=platform.triple, caches=known.caches, cores=1, flushes=known.flushes,
        abi=known.abi, is_foreign=True)


def _set_of(features: str, known: Architecture = ARCHITECTURES["x86_64"]) -> FeatureSet:
    if features not in known.sets:
        raise ValueError(f"the CPU target has no feature set {features!r}; there are: "
                         f"{', '.join(known.sets)}")
    return known.sets[features]


@cache
def _host() -> Machine:
    flags = llvm.get_host_cpu_features()
    features = frozenset(name for name, present in flags.items() if present)
    if "amx-tile" in features and not permits_matrices():
        features -= {name for name in features if name.startswith("amx-")}
    return Machine(
        cpu=llvm.get_host_cpu_name(), attributes=flags.flatten(), features=features,
        triple=llvm.get_default_triple(), caches=cache_sizes(), cores=usable_cores())


def is_supported() -> bool:
    """Whether the CPU target can run here."""
    return platform.machine().lower() in ("x86_64", "amd64", "aarch64", "arm64")
