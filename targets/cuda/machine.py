"""Facts about GPUs that schedules depend on: read from the device, or from a table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from targets.cuda import driver
from targets.cuda.errors import CudaError

DEFAULT_ARCH = "sm_90"
_KIB = 1024


@dataclass(frozen=True)
class Machine:
    """What a kernel can use.

    `shared`: bytes of shared memory that one program may have. `registers`: 32-bit registers of a
    multiprocessor. `threads`: the most threads that a multiprocessor holds at a time. `warp`: how
    many of them run in step. On AMD GPUs a multiprocessor is a compute unit, shared memory its LDS,
    and a warp a wavefront.
    """

    arch: str
    multiprocessors: int
    shared: int
    threads: int
    registers: int = 65536
    name: str = ""
    warp: int = 32

    @property
    def has_wgmma(self) -> bool:
        """Whether matrix products run on whole groups of 4 warps, from shared memory."""
        return self.arch == "sm_90"

    @property
    def has_float8(self) -> bool:
        """Whether there are instructions that convert f8E4M3FN and f8E5M2."""
        return is_nvidia(self.arch) and int(self.arch.removeprefix("sm_")) >= 89


def is_nvidia(arch: str) -> bool:
    """Whether an architecture is one of NVIDIA's, by its name."""
    return arch.startswith("sm_")


MACHINES = {m.arch: m for m in (
    Machine("sm_80", 108, 163 * _KIB, 2048, name="A100"),
    Machine("sm_86", 84, 99 * _KIB, 1536, name="RTX 30 series"),
    Machine("sm_89", 128, 99 * _KIB, 1536, name="L40, RTX 40 series"),
    Machine("sm_90", 132, 227 * _KIB, 2048, name="H100, H200"),
    Machine("sm_100", 148, 227 * _KIB, 2048, name="B200"),
    Machine("sm_120", 170, 99 * _KIB, 1536, name="RTX 50 series"),
)}
"""Machines by architecture, for compiling without a device. Source: CUDA C++ Programming Guide."""

AMD_MACHINES = {m.arch: m for m in (
    Machine("gfx942", 304, 64 * _KIB, 2048, 131072, "MI300X", warp=64),
)}
"""AMD's. Source: AMD Instinct MI300 Instruction Set Architecture, CDNA 3 white paper."""


@cache
def machine_of(arch: str | None = None) -> Machine:
    """The machine of an architecture; without one the device here, or else an H100.

    Raises CudaError for an architecture that is in no table.
    """
    if arch is None:
        return device_machine() if driver.is_available() else MACHINES[DEFAULT_ARCH]
    return AMD_MACHINES.get(arch) or nvidia_machine(arch)


def nvidia_machine(arch: str) -> Machine:
    """Raises CudaError for an architecture that is none of NVIDIA's."""
    if arch not in MACHINES:
        raise CudaError(f"no CUDA architecture {arch!r}; there are: {', '.join(MACHINES)}")
    return MACHINES[arch]


def device_machine() -> Machine:
    """The first device. Raises CudaError for one that is too old, or where there is none."""
    arch = driver.capability()
    if int(arch.removeprefix("sm_")) < 80:
        raise CudaError(f"{driver.device_name()} ({arch}) is too old: kernels need an Ampere GPU "
                        "(sm_80) or newer; `--interpret` runs them on the CPU")
    known = MACHINES.get(arch)
    return Machine(arch, driver.multiprocessors(), driver.shared_memory(),
                   known.threads if known is not None else 1536, name=driver.device_name())
