"""Facts about the processor: vector width, registers, caches, cores, and LLVM's names for them.

All are asked from the hardware or the system. A user may name a feature set instead ("avx2" or
"avx512"); then no instruction outside that set is emitted, whatever the machine offers.
"""

# llvmlite has no types.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm
from xdsl.ir import Attribute

from dialects.strata import types as t
from targets.cpu.facts import SERVERS, Costs
from targets.cpu.runtime.processors import cache_sizes, permits_matrices, usable_cores

FEATURE_SETS = {"avx2": "x86-64-v3", "avx512": "x86-64-v4"}
"""The feature sets that a user may name, and LLVM's processor of exactly these features."""

AVX512 = frozenset(("avx512f", "avx512bw", "avx512dq", "avx512vl"))
_NAMED_FEATURES = {
    "avx2": frozenset(("avx", "avx2", "fma", "f16c", "bmi", "bmi2")),
    "avx512": AVX512 | {"avx", "avx2", "fma", "f16c", "bmi", "bmi2"},
}


@dataclass(frozen=True)
class MatrixUnit:
    """Registers that hold matrices: how many, their rows and the bytes of each."""

    registers: int = 8
    rows: int = 16
    row_bytes: int = 64
    latency: int = 52
    """Cycles until a product can be added to; a row of it begins every cycle."""


@dataclass(frozen=True)
class Machine:
    """A processor as the emitter and the schedule rules see it.

    `cpu` and `attributes` are what LLVM is told; `features` is what it may use.
    """

    cpu: str
    attributes: str
    features: frozenset[str]
    triple: str
    caches: tuple[int, int, int]
    """Bytes of the data cache of level 1, of level 2, and of level 3 (shared)."""
    cores: int
    """How many processors this process may use: affinity, and the control group's share."""
    flushes: bool = True
    """Whether code takes denormal floats for zeros, as far as the processor does that by itself."""
    contracts: bool = True
    """Whether products may be added without being rounded before."""

    @property
    def vector_bytes(self) -> int:
        """Bytes of the widest vector register that is fast for all element types."""
        if self.features >= AVX512:
            return 64
        return 32 if "avx2" in self.features else 16

    @property
    def lanes(self) -> int:
        """How many f32 lie in one vector; other element types use as many lanes."""
        return self.vector_bytes // 4

    @property
    def streamed_bytes(self) -> int | None:
        """Bytes of a result from which on it is written past the caches; None: never.

        Half of what one core may count on: of the level 3 that all cores of a server share, sixteen
        times its level 2 at most. What reads the result later is faster for it, too, from here on.
        """
        _, second, third = self.caches
        return min(third, 16 * second) // 2 if self.is_x86 else None

    @property
    def costs(self) -> Costs:
        """What was fitted by measuring; the same for all processors so far."""
        return SERVERS

    @property
    def far_rows(self) -> int:
        """How many long rows are read from far memory side by side at no loss.

        Measured on one of each: on Intel's, two are within a tenth of one, faster for 1024 f32 and
        slower for 512; on AMD's, two take up to 1.6 times as long.
        """
        return 1 if self.cpu.startswith("znver") else 2

    @property
    def vector_registers(self) -> int:
        return 32 if self.vector_bytes == 64 or not self.is_x86 else 16

    @property
    def line_bytes(self) -> int:
        """Bytes that caches hold together: the same on all processors that we know."""
        return 64

    @property
    def doubles_bf16(self) -> bool:
        """Whether products of bf16 take less time than those of f32.

        With matrix registers, and on AMD's processors, whose dot instruction is issued as often as
        a multiply-add and does twice the work. Intel's takes four times as long as a multiply-add.
        """
        return self.multiplies_matrices(t.bf16) or (
            self.multiplies_groups(t.bf16) and self.cpu.startswith("znver"))

    def multiplies_groups(self, element: Attribute) -> bool:
        """Whether an instruction adds the products of several elements to each lane.

        Of bytes, one factor has no sign.
        """
        if element == t.bf16:
            return self.features >= AVX512 | {"avx512bf16"}
        short = element in (t.i8, t.i16)
        return short and (self.features >= AVX512 | {"avx512vnni"} or "avxvnni" in self.features)

    @property
    def matrix_unit(self) -> MatrixUnit | None:
        """Its registers for matrices, where it has such (AMX) beside wide vectors."""
        return MatrixUnit() if self.features >= AVX512 | {"amx-tile"} else None

    def multiplies_matrices(self, element: Attribute) -> bool:
        """Whether an instruction multiplies matrices of an element type."""
        wanted = {t.bf16: "amx-bf16", t.i8: "amx-int8"}.get(element)  # type: ignore[call-overload]
        return self.matrix_unit is not None and wanted in self.features

    @property
    def is_x86(self) -> bool:
        return self.triple.startswith("x86_64")

    @property
    def name(self) -> str:
        """A short name for reports: the processor and its vectors."""
        return f"{self.cpu}, {8 * self.vector_bytes}-bit vectors, {self.cores} cores"

    @property
    def key(self) -> str:
        """What compiled code depends on: equal keys may share object code."""
        return f"{self.triple} {self.cpu} {self.attributes}"


@cache
def machine_of(features: str | None = None) -> Machine:
    """This machine, or it restricted to a named feature set.

    Raises ValueError for an unknown set, or one that this processor lacks.
    """
    host = _host()
    if features is None:
        return host
    if features not in FEATURE_SETS:
        known = ", ".join(sorted(FEATURE_SETS))
        raise ValueError(f"the CPU target has no feature set {features!r}; there are: {known}")
    missing = _NAMED_FEATURES[features] - host.features
    if missing:
        raise ValueError(f"this processor ({host.cpu}) lacks {', '.join(sorted(missing))}, "
                         f"which the feature set {features!r} needs")
    return Machine(FEATURE_SETS[features], "", _NAMED_FEATURES[features], host.triple,
                   host.caches, host.cores)


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
