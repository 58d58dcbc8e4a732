"""The target's code in the ring, compared bit by bit with what its blocks mean there.

The whole program runs first. If its bits differ, the program is interpreted launch by launch, and
the code of each kernel runs alone, on the buffers that the interpreter has at its launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from xdsl.ir import Operation

from compiler.instrument.launches import program_of, written_buffers
from dialects import block
from dialects.block.interpret import interpret_kernel
from dialects.host.interpret import interpret_host
from dialects.semantics.ring import Ring
from dialects.strata.types import Array
from dialects.strata.weights import WeightStore
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import location_names

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from targets.base import Executable
    from targets.parts import Running

SHOWN = 5
"""How many nodes of a kernel are named."""


class _Found(Exception):
    """The first kernel whose code computes other bits."""


def fault_of_code(
    module: ModuleOp, weights: WeightStore, running: Running, ring: Ring, inputs: Sequence[Array],
    expected: Sequence[Array],
) -> str | None:
    """What is wrong with the target's code; empty if nothing is. None: it has no code in the ring.

    Raises TargetError for a module that cannot be executed there.
    """
    program = running.load_in_ring(module, weights, ring)
    if program is None:
        return None
    found = program.run(inputs)
    if all(map(_same, found, expected)):
        return ""
    where = first_wrong_kernel(module, weights, running, ring, inputs)
    return f"its code computes other bits{f': {where}' if where else ''}"


def first_wrong_kernel(
    module: ModuleOp, weights: WeightStore, running: Running, ring: Ring, inputs: Sequence[Array]
) -> str:
    """The first kernel whose code differs alone, with what it stores; empty if none does."""
    launches = _Launches(running, ring)
    try:
        interpret_host(module, [x.copy() for x in inputs], weights, launches, ring.view)
    except _Found as found:
        return str(found)
    return ""


@dataclass
class _Launches:
    """Runs each launch in the interpreter and as code. Raises _Found."""

    running: Running
    ring: Ring
    loaded: dict[tuple[str, str], Executable] = field(
        default_factory=dict[tuple[str, str], "Executable"])

    def __call__(
        self, kernel: Operation, buffers: Sequence[Array], sizes: dict[Symbol, int]
    ) -> None:
        assert isinstance(kernel, block.KernelOp)
        before = [np.asarray(self.ring.wrap(np.array(b))) for b in buffers]
        interpret_kernel(kernel, buffers, sizes)
        written = written_buffers(kernel)
        key = kernel.sym_name.data, str([(a.shape, *sizes.values()) for a in before])
        if key not in self.loaded:
            module = program_of(kernel, before, written, sizes)
            program = self.running.load_in_ring(module, WeightStore(), self.ring)
            assert program is not None
            self.loaded[key] = program
        for k, got in zip(written, self.loaded[key].run(before), strict=True):
            want = self.ring.wrap(np.array(buffers[k]))
            kept = _bits(want) == _bits(before[k])
            wrong = ~_alike(got, want) & ~kept
            if np.any(wrong):
                raise _Found(_told(kernel, k, wrong))


def _told(kernel: block.KernelOp, number: int, wrong: Array) -> str:
    """The kernel, the store, and the first wrong element."""
    buffer = kernel.buffers[number]
    store = next(use.operation for use in buffer.uses
                 if isinstance(use.operation, block.StoreOp) and use.operation.buffer is buffer)
    nodes = location_names(store) or location_names(kernel)
    place = ", ".join(map(str, np.argwhere(wrong)[0]))
    named = f" (node {', '.join(nodes[:SHOWN])})" if nodes else ""
    return (f"kernel @{kernel.sym_name.data}, {store.name} to %{buffer.name_hint or number}"
            f"{named}: {np.count_nonzero(wrong)} of {wrong.size} elements, the first at [{place}]")


def _same(got: Array, want: Array) -> bool:
    return got.shape == want.shape and bool(_alike(got, want).all())


def _alike(got: Array, want: Array) -> Array:
    a, b = (np.asarray(x).view(np.ndarray) for x in (got, want))
    return (a == b) | ((a != a) & (b != b))


def _bits(array: Array) -> Array:
    plain = np.asarray(array).view(np.ndarray)
    return plain.view(f"u{plain.dtype.itemsize}")
