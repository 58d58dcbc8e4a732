"""The processors of this process: how many it may use, and their features.

Nothing here needs LLVM, so that a compiled model can be loaded without it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
from collections.abc import Iterator
from functools import cache

THREADS_VARIABLES = ("STRATA_NUM_THREADS", "OMP_NUM_THREADS")
"""Environment variables for the number of threads; the first number wins. `4,2` counts as 4."""
FEATURES_VARIABLE = "STRATA_CPU_FEATURES"
"""The environment variable that names the feature set that this machine counts as having."""

_FACTS = frozenset((
    "vendor_id", "cpu family", "model", "model name", "stepping", "flags", "Features",
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision"))
_SETS = re.compile(
    r"(?:sse|ssse|avx|amx|fma|f16c|bmi|abm|movbe|popcnt|aes|vaes|v?pclmulqdq|gfni|sha_ni|adx)\w*"
    r"|asimd\w*|sve\w*|fp|fphp|bf16|i8mm")
"""The flags in /proc/cpuinfo of instructions that a compiler may choose."""
_V3 = frozenset(("sse", "sse2", "ssse3", "sse4_1", "sse4_2", "popcnt", "avx", "avx2", "bmi1",
                 "bmi2", "f16c", "fma", "abm", "movbe"))
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
NAMED_SETS = {
    "baseline": frozenset(("sse", "sse2")), "avx2": _V3, "avx512": _V4,
    "amx": _V4 | {"avx512_vnni", "avx512_bf16", "amx_tile", "amx_int8", "amx_bf16"}}
"""The instruction sets of each feature set that users may name (x86-64, x86-64-v3 and v4)."""
_ARCH_PRCTL, _REQUEST_STATE, _MATRIX_STATE = 158, 0x1023, 18
"""Linux on x86-64: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)."""
_FIRST_PROCESSOR = 8192
"""Enough bytes of /proc/cpuinfo for the first processor; the system only generates what is read."""


def thread_count(wanted: int | None) -> int:
    """How many threads to run: `wanted`, else the environment's number, else all that are usable.

    The environment's number may exceed the number of processors.
    """
    if wanted is not None:
        return max(1, wanted)
    for name in THREADS_VARIABLES:
        first = os.environ.get(name, "").split(",")[0].strip()
        if first.isdigit() and int(first):
            return int(first)
    return usable_cores()


def assumed_features() -> str | None:
    """The feature set that the environment wants this machine to count as having, if any."""
    return os.environ.get(FEATURES_VARIABLE) or None


def usable_cores(root: str = "/") -> int:
    """Processors in the affinity mask, or the control groups' quota if that is less.

    A quota of 2.5 processors counts as 2: with 3 busy threads, all would wait whenever one of them
    is throttled. `root`: the folder of the system's files.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return min([cores, *(max(1, int(grant)) for grant in _grants(root))])


def _grants(root: str) -> Iterator[float]:
    """The processors granted by each control group around this process that has a limit.

    Inside a container its own group is mounted at the top, whatever name the system reports.
    """
    mounts = os.path.join(root, "sys/fs/cgroup")
    for line in _lines(os.path.join(root, "proc/self/cgroup")):
        _, controllers, name = line.split(":", 2)
        if not controllers:
            read, tops = _grant, ("", "unified")
        elif "cpu" in controllers.split(","):
            read, tops = _old_grant, (controllers, "cpu")
        else:
            continue
        for top in tops:
            yield from filter(None, map(read, _up(os.path.join(mounts, top), name)))


def _up(top: str, name: str) -> Iterator[str]:
    """The folder of a group, and those of all groups around it."""
    parts = [part for part in name.split("/") if part]
    for count in range(len(parts), -1, -1):
        yield os.path.join(top, *parts[:count])


def _grant(folder: str) -> float | None:
    """The processors that a group of version 2 grants; None without a limit."""
    found = _lines(os.path.join(folder, "cpu.max"))
    quota, _, period = found[0].partition(" ") if found else ("max", "", "")
    return int(quota) / int(period) if quota.isdigit() else None


def _old_grant(folder: str) -> float | None:
    """The processors that a group of version 1 grants; None without a limit (a quota of -1)."""
    quota, period = (_lines(os.path.join(folder, f"cpu.cfs_{n}_us")) for n in ("quota", "period"))
    return int(quota[0]) / int(period[0]) if quota and period and int(quota[0]) > 0 else None


def _lines(path: str) -> list[str]:
    """The lines of a file; empty if it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except OSError:
        return []


def processor_facts() -> str | None:
    """The facts code may depend on: processor, features, caches. None if the system hides them."""
    first = _first_processor()
    lines = [line for line in first.splitlines() if line.partition("\t")[0].strip(" :") in _FACTS]
    if " amx_tile" in first:
        lines.append(f"matrix registers: {permits_matrices()}")
    if assumed := assumed_features():
        lines.append(f"{FEATURES_VARIABLE}: {assumed}")
    return "\n".join([*lines, *map(str, cache_sizes())]) if lines else None


def instruction_sets() -> frozenset[str]:
    """The instruction sets of this processor, as Linux names them; empty if the system hides them.

    Only those of the feature set that it counts as having, if there is such.
    """
    words = [word for line in _first_processor().splitlines()
             if line.partition("\t")[0].strip(" :") in ("flags", "Features")
             for word in line.partition(":")[2].split()]
    found, assumed = frozenset(filter(_SETS.fullmatch, words)), assumed_features()
    return found & NAMED_SETS[assumed] if assumed in NAMED_SETS else found


def _first_processor() -> str:
    """What /proc/cpuinfo says of the first processor; empty if it cannot be read."""
    try:
        with open("/proc/cpuinfo", "rb", buffering=0) as file:
            return file.read(_FIRST_PROCESSOR).decode("utf-8", "replace").partition("\n\n")[0]
    except OSError:
        return ""


@cache
def permits_matrices() -> bool:
    """Whether this process may use the processor's matrix registers (AMX); asks the Linux kernel.

    The permission holds for all threads, including those already running.
    """
    if platform.machine().lower() not in ("x86_64", "amd64") or platform.system() != "Linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return libc.syscall(_ARCH_PRCTL, _REQUEST_STATE, _MATRIX_STATE) == 0


def cache_sizes() -> tuple[int, int, int]:
    """Bytes of the L1, L2 and L3 data caches; common sizes if the system does not report them."""
    found = {1: 32 << 10, 2: 1 << 20, 3: 16 << 20}
    folder = "/sys/devices/system/cpu/cpu0/cache"
    indices = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    for index in indices:
        level, kind, size = (_lines(os.path.join(folder, index, n))
                             for n in ("level", "type", "size"))
        if not (level and kind and size) or kind[0].startswith("Instruction"):
            continue
        number, unit = size[0][:-1], size[0][-1:]
        if number.isdigit() and level[0].isdigit() and int(level[0]) in found:
            found[int(level[0])] = int(number) * {"K": 1 << 10, "M": 1 << 20}.get(unit, 1)
    return found[1], found[2], found[3]
