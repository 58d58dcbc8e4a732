"""Executables of the CUDA target in parts, to be stored in a file and loaded again.

The code is cubins. Kernels of models with open sizes have a variant for sizes that 16 divides, and
for buffers of about 2^31 elements and more. Those that were compiled by then are in the file, and
the source of all others: it is compiled when it is first needed, or found in the cache of kernels.
Loading imports neither xDSL, nor passes, nor Triton.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dialects.strata.weights import WeightStore
from dialects.symbolic.expr_syntax import symbol_of
from targets.cuda.build.compile import Binary, CompileOptions
from targets.cuda.build.source import KernelSource
from targets.cuda.errors import CudaError
from targets.cuda.machine import machine_of
from targets.cuda.runtime import driver
from targets.cuda.runtime.constants import PlannedConstant
from targets.cuda.runtime.control import ControlPlan
from targets.cuda.runtime.executable import CudaExecutable
from targets.cuda.runtime.planned import HostPlan, PlannedKernel
from targets.cuda.runtime.program import CudaProgram, ReadSources, Signature
from targets.cuda.runtime.variants.variant import Compiled, Sources, Variant
from targets.interface import TargetError
from targets.stored_code import Loading, checksum

if TYPE_CHECKING:
    from dialects.strata.types import Array
    from targets.interface import Executable

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_AGREED = ("runtime", "build/source.py", "build/compile.py", "libraries", "stored.py")
"""The files that define how programs are read and launched, in this folder."""
_PLANS: Mapping[str, type[HostPlan | ControlPlan]] = {
    "graph": HostPlan, "functions": ControlPlan}


def identity() -> str | None:
    """What programs for this device depend on: all that rules read of it, and the driver. None
    without a device."""
    if not driver.is_available():
        return None
    machine = machine_of()
    return (f"{machine.name} {machine.arch} {machine.multiprocessors} {machine.shared} "
            f"{machine.cache} driver {driver.version()}")


def needs(features: str | None) -> list[str]:
    """The architecture of code for a named one, or for this machine's device."""
    return [features or machine_of().arch]


def lacking(needs: Sequence[str]) -> list[str]:
    """The architectures that the device does not have."""
    there = [driver.capability()] if driver.is_available() else []
    return sorted(set(needs) - set(there))


def refusal(lacking: Sequence[str]) -> tuple[str, str]:
    """What keeps a program from running here, and what to do."""
    there = f"the device is {driver.capability()}" if driver.is_available() else "there is no GPU"
    return (f"it was compiled for GPUs of the architecture {', '.join(lacking)}, and {there}",
            "compile the model on this machine, and save that")


def convention() -> str:
    """A checksum of the sources that define how programs are read and launched."""
    return checksum(_FOLDER, _AGREED)


# ---------------------------------------------------------------------- writing
def parts(
    executable: Executable, open_: Collection[str] = ()
) -> tuple[dict[str, Any], list[Array]] | None:
    """Facts and blobs: all cubins, then the constants but for those of `open_` weights. None for a
    program that does not run on a device."""
    if not isinstance(executable, CudaExecutable):
        return None
    executable.kernels.wait()  # so that all that is expected is in the file
    program, options = executable.program, executable.kernels.options
    host, kernels = program.host, executable.kernels
    code, blobs = _Code(), list["Array"]()
    numbers = {kernel: number for number, kernel in enumerate(host.kernels)}
    compiled = [[numbers[variant[0]], sorted(s.text for s in variant[1]), variant[2],
                 *code.facts(found)] for variant, found in kernels.compiled.items()]
    sources = [[numbers[kernel], wide, source.facts()]
               for kernel, wide, source in _needed(host.kernels, kernels.sources, kernels.compiled)]
    facts = {"kind": next(kind for kind, type_ in _PLANS.items() if isinstance(host, type_)),
             "signature": program.signature.facts(), "host": host.facts(),
             "arch": options.arch, "fp_fusion": options.fp_fusion, "compiled": compiled,
             "sources": sources, "constants": list(_contents(executable, open_, blobs))}
    return facts, [code.blob, *blobs]


class _Code:
    """Cubins one after another, equal ones once."""

    def __init__(self) -> None:
        self._places: dict[bytes, int] = {}
        self._size = 0

    def facts(self, found: Compiled) -> list[Any]:
        """A compiled variant, as JSON can represent it."""
        code = found.binary.code
        if code not in self._places:
            self._places[code], self._size = self._size, self._size + len(code)
        return [self._places[code], len(code), found.binary.facts(),
                found.source.without_code.facts()]

    @property
    def blob(self) -> Array:
        return np.frombuffer(b"".join(self._places), np.uint8)


def _needed(
    kernels: Sequence[PlannedKernel], sources: Sources, compiled: Collection[Variant]
) -> Iterator[tuple[PlannedKernel, bool, KernelSource]]:
    """The sources of variants that may have to be compiled yet."""
    for kernel in kernels:
        is_whole = not kernel.strides and (kernel, frozenset[Any](), False) in compiled
        for wide in [*[False] * (not is_whole), *[True] * bool(kernel.counts)]:
            with suppress(CudaError):  # no such code: an error of calls with these sizes
                yield kernel, wide, sources.source(kernel, wide)


def _contents(
    executable: CudaExecutable, open_: Collection[str], blobs: list[Array]
) -> Iterator[list[Any]]:
    """Which blob, by number, holds the weight of a key; adds the blobs. Equal places have one."""
    known: dict[tuple[bool, int], int] = {}
    for constant in executable.program.host.constants:
        if not constant.key or constant.key in open_:
            continue
        place = executable.place(constant)
        if place not in known:
            known[place] = len(blobs)
            blobs.append(executable.read(constant))
        yield [constant.facts(), known[place]]


# ---------------------------------------------------------------------- reading
def load(
    facts: Mapping[str, Any], blobs: Sequence[Array], loading: Loading,
    weights: WeightStore | None = None,
) -> CudaExecutable:
    """The executable from its parts. Raises TargetError for positions outside of the code, and for
    weights that are missing."""
    code, *contents = blobs
    host = _PLANS[facts["kind"]].read(facts["host"])
    kernels = list[PlannedKernel](host.kernels)
    compiled = dict(_variant(found, kernels, code) for found in facts["compiled"])
    sources = {(kernels[int(number)], bool(wide)): KernelSource.read(source)
               for number, wide, source in facts["sources"]}
    store = WeightStore() if weights is None else weights
    for constant, blob in facts["constants"]:
        _add(store, constant, contents[int(blob)])
    missing = {c.key for c in host.constants if c.key} - store.arrays.keys() - store.tensors.keys()
    if missing:
        raise TargetError("it needs weights that its caller does not have")
    program = CudaProgram(Signature.read(facts["signature"]), host, ReadSources(sources), compiled)
    return CudaExecutable(program, store, CompileOptions(
        str(facts["arch"]), None if loading.cache is None else Path(loading.cache) / "cuda",
        loading.threads, fp_fusion=bool(facts["fp_fusion"])))


def _variant(
    facts: Sequence[Any], kernels: Sequence[PlannedKernel], code: Array
) -> tuple[Variant, Compiled]:
    """A compiled variant. Raises TargetError for one outside of the code."""
    number, divisible, wide, start, size, binary, source = facts
    if not 0 <= start < start + size <= code.size:
        raise TargetError("its code does not contain what it refers to")
    cubin = code[start: start + size].tobytes()
    variant = kernels[int(number)], frozenset(map(symbol_of, divisible)), bool(wide)
    return variant, Compiled(Binary.read(binary, cubin), KernelSource.read(source))


def _add(store: WeightStore, facts: Sequence[Any], content: Array) -> None:
    """Add the contents of a constant to a store. Raises ValueError for contents of another size."""
    constant = PlannedConstant.read(facts)
    array = content.view(constant.type.dtype).reshape(constant.shape)
    store.arrays.setdefault(constant.key, array)
