"""Facts about GPUs that schedules depend on: read from the device, or from a table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from targets.cuda.errors import CudaError
from targets.cuda.facts import Fitted, fitted_of
from targets.cuda.runtime import driver

DEFAULT_ARCH = "sm_90"
WARP = 32
"""The threads of a warp on NVIDIA GPUs."""
_KIB, _MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Machine:
    """What a kernel can use.

    `shared`: bytes of shared memory that one program may have. `registers`: 32-bit registers of a
    multiprocessor. `threads`: the most threads that a multiprocessor holds at a time.
    `tensor_rate`: TFLOP/s of products of halves with sums in f32, on the whole device; `fma_rate`:
    of single precision. `bandwidth`: GB/s of the device's memory; `cache_rate`: GB/s of its L2
    cache, for one multiprocessor; `cache`: bytes of that cache. `clock`: GHz at which `fma_rate` is
    reached; `lanes`: FMA units of a multiprocessor. `thread_registers`: the most that a thread can
    have; `column_threads`: threads that share a row of sums on tensor cores.
    """

    arch: str
    multiprocessors: int
    shared: int
    threads: int
    registers: int = 65536
    name: str = ""
    tensor_rate: float = 150
    bandwidth: float = 900
    cache_rate: float = 60
    fma_rate: float = 20
    cache: int = 6 * _MIB
    clock: float = 1.5
    lanes: int = 128
    thread_registers: int = 255
    column_threads: int = 4

    @property
    def fitted(self) -> Fitted:
        """Numbers that were fitted on this device, or that its data sheet implies."""
        return fitted_of(self.arch, self)

    @property
    def has_wgmma(self) -> bool:
        """Whether groups of 4 warps multiply matrices from shared memory (Hopper's wgmma)."""
        return self.arch == "sm_90"

    @property
    def has_early_launches(self) -> bool:
        """Whether the GPU supports programmatic dependent launch."""
        return is_nvidia(self.arch) and int(self.arch.removeprefix("sm_")) >= 90

    @property
    def has_float8(self) -> bool:
        """Whether there are instructions to convert f8E4M3FN and f8E5M2."""
        return is_nvidia(self.arch) and int(self.arch.removeprefix("sm_")) >= 89

    @property
    def warp(self) -> int:
        """The threads of a warp."""
        return WARP if is_nvidia(self.arch) else 64


def is_nvidia(arch: str) -> bool:
    """Whether an architecture's name is one of NVIDIA's."""
    return arch.startswith("sm_")


MACHINES = {m.arch: m for m in (
    Machine("sm_80", 108, 163 * _KIB, 2048, 65536, "A100", 312, 2000, 70, 19.5, 40 * _MIB,
            1.41, 64),
    Machine("sm_86", 84, 99 * _KIB, 1536, 65536, "RTX 30 series", 71, 900, 50, 36, 6 * _MIB,
            1.67),
    Machine("sm_89", 128, 99 * _KIB, 1536, 65536, "L40, RTX 40 series", 181, 900, 60, 85,
            96 * _MIB, 2.59),
    Machine("sm_90", 132, 227 * _KIB, 2048, 65536, "H100, H200", 989, 4000, 110, 67, 50 * _MIB,
            1.98),
    Machine("sm_100", 148, 227 * _KIB, 2048, 65536, "B200", 2250, 7700, 140, 80, 126 * _MIB,
            2.11),
    Machine("sm_120", 170, 99 * _KIB, 1536, 65536, "RTX 50 series", 209, 1700, 60, 105, 96 * _MIB,
            2.41),
)}
"""Machines by architecture, for compiling without a device.

Sources: CUDA C++ Programming Guide ("Compute Capabilities": shared memory, registers, threads,
lanes), and the data sheets of the devices named (rates, bandwidth, caches).
"""

AMD_MACHINES = {m.arch: m for m in (
    Machine("gfx942", 304, 64 * _KIB, 2048, 131072, "MI300X", 1307, 5300, 60, 163, 256 * _MIB,
            2.1, 128, 512, 16),
)}
"""AMD GPUs, where a multiprocessor is a compute unit, shared memory its LDS, a warp a wavefront.

Source: AMD Instinct MI300 Instruction Set Architecture, CDNA 3 white paper.
"""


@cache
def machine_of(arch: str | None = None) -> Machine:
    """The machine of an architecture; by default the device of this computer, or else an H100.

    Raises CudaError for an architecture that is in no table.
    """
    if arch is None:
        return device_machine() if driver.is_available() else MACHINES[DEFAULT_ARCH]
    return AMD_MACHINES.get(arch) or nvidia_machine(arch)


def nvidia_machine(arch: str) -> Machine:
    """The machine of an NVIDIA architecture. Raises CudaError for any other."""
    if arch not in MACHINES:
        raise CudaError(f"no CUDA architecture {arch!r}; there are: {', '.join(MACHINES)}")
    return MACHINES[arch]


def device_machine() -> Machine:
    """The first device. Raises CudaError if it is too old, or if there is none."""
    arch = driver.capability()
    if int(arch.removeprefix("sm_")) < 80:
        raise CudaError(f"{driver.device_name()} ({arch}) is too old: kernels need an Ampere GPU "
                        "(sm_80) or newer; `--interpret` runs them on the CPU")
    known = MACHINES.get(arch) or Machine(arch, 0, 0, 1536)
    return replace(known, multiprocessors=driver.multiprocessors(),
                   shared=driver.shared_memory(), name=driver.device_name(),
                   cache=driver.cache_size())
