"""Architectures and systems for which code can be made on any machine: facts as data.

    arch-system    aarch64-linux-gnu, riscv64-linux, wasm32, arm64-apple-macos, x86_64-windows

An architecture has sets of features, of which one is used unless the user names another. Caches are
those of common processors; they only choose tile sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType

from dialects.records import dataclass

AVX512 = frozenset(("avx512f", "avx512bw", "avx512dq", "avx512vl"))
_AVX2 = frozenset(("avx", "avx2", "fma", "f16c", "bmi", "bmi2"))
MATRICES = frozenset(("avx512vnni", "avx512bf16", "amx-tile", "amx-int8", "amx-bf16"))
_DOTS = frozenset(("dotprod", "fullfp16"))
_GENERAL = frozenset("mafdc")
"""RISC-V's general extensions (RV64GC): products, atomics, floats, doubles, short instructions."""


@dataclass(frozen=True)
class FeatureSet:
    """LLVM's processor, the features that are added to it, and those that the compiler knows."""

    cpu: str
    features: frozenset[str]
    added: frozenset[str] = frozenset()

    @property
    def attributes(self) -> str:
        return ",".join(f"+{name}" for name in sorted(self.added))


@dataclass(frozen=True, eq=False)
class Architecture:
    """A kind of processor.

    `default`: the features of code for a machine of which only the triple is known. `flushes`:
    whether its processors can count subnormal floats as zeros. `abi`: LLVM's name of the calling
    convention, where there are several. `spare_registers`: vector registers that a tile's products
    need besides its sums; `unrolled`: how many steps of a sum are one loop's body.
    """

    name: str
    sets: Mapping[str, FeatureSet]
    default: str
    vector_registers: int
    caches: tuple[int, int, int]
    aliases: tuple[str, ...] = ()
    flushes: bool = False
    abi: str = ""
    spare_registers: int = 4
    unrolled: int = 4


_TABLE = (
    Architecture("x86_64", {
        "baseline": FeatureSet("x86-64", frozenset(("sse2",))),
        "avx2": FeatureSet("x86-64-v3", _AVX2 | {"sse2"}),
        "avx512": FeatureSet("x86-64-v4", AVX512 | _AVX2 | {"sse2"}),
        "amx": FeatureSet("x86-64-v4", AVX512 | _AVX2 | MATRICES | {"sse2"}, MATRICES),
    }, "avx2", 16, (32 << 10, 512 << 10, 8 << 20), ("amd64", "x64"), flushes=True),
    Architecture("aarch64", {
        "baseline": FeatureSet("generic", frozenset(("neon",))),
        "dotprod": FeatureSet("generic", _DOTS | {"neon"}, _DOTS),
        "i8mm": FeatureSet("generic", _DOTS | {"neon", "i8mm", "bf16"}, _DOTS | {"i8mm", "bf16"}),
        "sve256": FeatureSet("generic", _DOTS | {"neon", "i8mm", "bf16", "sve256"},
                             _DOTS | {"i8mm", "bf16", "sve"}),
    }, "baseline", 32, (64 << 10, 512 << 10, 4 << 20), ("arm64",), flushes=True),
    Architecture("riscv64", {
        "baseline": FeatureSet("generic-rv64", _GENERAL, _GENERAL),
        "v": FeatureSet("generic-rv64", _GENERAL | {"v"}, _GENERAL | {"v", "zvl128b"}),
    }, "baseline", 32, (32 << 10, 512 << 10, 2 << 20), abi="lp64d"),
    Architecture("wasm32", {
        "baseline": FeatureSet("generic", frozenset(())),
        "simd128": FeatureSet("generic", frozenset(("simd128",)), frozenset(("simd128",))),
    }, "simd128", 16, (32 << 10, 256 << 10, 2 << 20), ("wasm", "webassembly"),
        spare_registers=8, unrolled=1),
)
ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType({
    name: each for each in _TABLE for name in (each.name, *each.aliases)})
"""Architectures by their names and other names for them."""
OTHER = Architecture("other", {}, "", 32, (32 << 10, 256 << 10, 2 << 20))
"""What is assumed of a processor of none of these architectures, on which the compiler runs."""


@dataclass(frozen=True)
class System:
    """An operating system, or what stands for one. `triple`: of LLVM, after the architecture."""

    name: str
    triple: str
    format: str = "elf"
    words: frozenset[str] = field(default_factory=frozenset[str])
    """What its triples contain after the architecture."""


SYSTEMS = (
    System("linux", "unknown-linux-gnu", words=frozenset(("linux", "gnu", "unknown", "pc"))),
    System("linux-musl", "unknown-linux-musl",
           words=frozenset(("linux", "musl", "unknown", "pc"))),
    System("macos", "apple-macosx11.0.0", "macho",
           frozenset(("macos", "macosx", "darwin", "apple"))),
    System("windows", "pc-windows-gnu", "coff",
           frozenset(("windows", "win32", "gnu", "msvc", "mingw32", "w64", "pc",
                                        "unknown"))),
    System("wasi", "wasi", "wasm", frozenset(("wasi", "wasip1", "unknown"))),
)
_NAMING = frozenset(("musl", "macos", "macosx", "darwin", "windows", "win32", "mingw32"))
"""The words of triples that name a system other than Linux with the GNU C library."""


@dataclass(frozen=True)
class Platform:
    """An architecture and a system."""

    architecture: Architecture
    system: System

    @property
    def triple(self) -> str:
        """The triple as LLVM knows it."""
        return f"{self.architecture.name}-{self.system.triple}"

    @property
    def name(self) -> str:
        """A short name, as users write it."""
        return f"{self.architecture.name}-{self.system.name}"


def platform_of(triple: str) -> Platform:
    """The platform of a triple, in any of its spellings. Raises ValueError for one not known."""
    first, *words = triple.lower().split("-")
    found = ARCHITECTURES.get(first)
    if found is None:
        raise ValueError(f"the CPU target cannot make code for {triple!r}: {first!r} is none of "
                         f"{', '.join(a.name for a in _TABLE)}")
    system = _system_of(found, words)
    if system is None:
        raise ValueError(f"the CPU target cannot make code for {triple!r}; such as "
                         f"{found.name}-{'wasi' if found.name == 'wasm32' else 'linux-gnu'}")
    return Platform(found, system)


def _system_of(architecture: Architecture, words: list[str]) -> System | None:
    """WebAssembly has one system, and others have those of processors; Linux without a word."""
    *processors, wasi = SYSTEMS
    if architecture.name == "wasm32":
        return wasi if set(words) <= wasi.words else None
    plain = [word.rstrip("0123456789.") if word.startswith(("macos", "darwin")) else word
             for word in words]
    return next((s for s in processors if set(plain) <= s.words and (
        s.name == "linux" or set(plain) & _NAMING)), None)
