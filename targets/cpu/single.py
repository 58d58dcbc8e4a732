"""Single kernels as functions of this process, for targets that leave them to the processor."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from xdsl.ir import Operation

from dialects.block import KernelOp
from dialects.strata.types import Array
from dialects.symbolic.symbol import Symbol
from targets.cpu.build.address import address_of
from targets.cpu.build.cache import ObjectCache
from targets.cpu.build.jit import compile_texts, link
from targets.cpu.emit import emit_kernel
from targets.cpu.emit.kernel import private_bytes
from targets.cpu.machine import Machine
from targets.memory import aligned_bytes

if TYPE_CHECKING:
    from dialects.host.interpret import RunKernel

_NAME = "strata_kernel"


def native_kernel(kernel: KernelOp, machine: Machine, cache: ObjectCache) -> RunKernel:
    """A function that runs all programs of a kernel in the thread that calls it."""
    library = link(compile_texts([emit_kernel(kernel, machine, _NAME)], machine, cache), _NAME)
    private, names, grid = private_bytes(kernel), kernel.size_names, kernel.grid.data
    pointers: list[Any] = [ctypes.c_void_p] * len(kernel.buffers)
    integers: list[Any] = [ctypes.c_int64] * (len(names) + 2)
    memory: list[Any] = [] if private is None else [ctypes.c_void_p]
    function = ctypes.CFUNCTYPE(None, *pointers, *integers, *memory)(library.address)

    def run(called: Operation, buffers: Sequence[Array], sizes: dict[Symbol, int]) -> None:
        own = [] if private is None else [aligned_bytes(int(private.evaluate(sizes)))]
        programs = prod(int(extent.evaluate(sizes)) for extent in grid)
        function(*map(address_of, buffers), *(sizes[name] for name in names), 0, programs,
                 *map(address_of, own))

    run.library = library  # type: ignore[attr-defined]  # the code lives as long as the function
    return run
