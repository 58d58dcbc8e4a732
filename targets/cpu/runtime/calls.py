"""The state of one call, so that several threads can call one model at once.

Machine code and constants are only read. All that a call writes is in a `CallState`: the table of
addresses, the sizes, the arena, the heap and the results. `targets/call_states.py` pools them. A
pool has at most as many states as there are processors, but at least two.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from targets.cpu.runtime.arenas import ARENAS, Arena, Need
from targets.cpu.runtime.exchanges import Exchanger
from targets.cpu.runtime.heap import Heap
from targets.cpu.runtime.processors import usable_cores
from targets.cpu.runtime.results import Result
from targets.cpu.runtime.threads import FUNCTIONS, ThreadPool, scheduler_addresses

if TYPE_CHECKING:
    import numpy as np

    from dialects.strata.types import Array
    from targets.cpu.runtime.plan import RunPlan

Kind = tuple[type, tuple[int, ...], "np.dtype[Any]", bool]
"""Class, shape and dtype of an input, and whether it is C-contiguous."""


class Binding(NamedTuple):
    """Everything that depends on the inputs' shapes, kept as long as they stay the same."""

    inputs: list[Kind]
    sizes: Any
    outputs: tuple[Result, ...]
    arena: Arena | Need
    """A small arena, or how much of a shared one calls need."""

    def fits(self, arrays: Sequence[Array]) -> bool:
        """Whether these arrays have the kinds that the binding was made for."""
        return kinds(arrays) == self.inputs


class Bound(NamedTuple):
    """What a function made by `Executable.caller` needs besides a binding: what makes new outputs,
    made by `by`, and the sizes of the inputs."""

    by: Callable[..., Any]
    sizes: Sequence[Any]
    make: Callable[[Sequence[Any]], Iterable[Any]]


def kinds(arrays: Sequence[Array]) -> list[Kind]:
    return [(type(a), a.shape, a.dtype, a.flags.c_contiguous) for a in arrays]


class CallState:
    """What one call writes. `owner`: the thread of the call, 0 while the state is in the pool."""

    def __init__(self, plan: RunPlan, constants: Sequence[Array], pool: ThreadPool):
        self.heap = Heap([r for r in plan.returned if r is not None])
        arguments = [0] * (len(plan.inputs) + len(plan.outputs))
        entries = [*pool.addresses, self.heap.address, 0, *scheduler_addresses(), *arguments,
                   *(c.ctypes.data for c in constants)]
        self.exchanger = Exchanger(plan.exchanges) if plan.exchanges else None
        if self.exchanger is not None:
            self.heap.exchange_by(self.exchanger.address)
        self.table = (ctypes.c_void_p * len(entries))(*entries)
        self.call = (ctypes.c_void_p * 4)(0, ctypes.addressof(self.table), 0, 1)
        self.address = ctypes.c_void_p(ctypes.addressof(self.call))
        self.pool, self.owner, self.threads = pool, 0, 1
        self.binding: Binding | None = None
        self.bound: Bound | None = None
        self.need: Need | None = None
        self.borrowed: Arena | None = None

    def bind(self, binding: Binding) -> None:
        """Use these sizes and this arena from now on."""
        self.binding, self.bound, arena = binding, None, binding.arena
        self.need = arena if isinstance(arena, Need) else None
        self.call[0] = 0 if isinstance(arena, Need) else arena.address
        self.call[2] = ctypes.addressof(binding.sizes)

    def borrow(self, need: Need) -> None:
        """Use a shared arena until `give_back`."""
        self.borrowed = arena = need.take()
        self.call[0] = arena.address

    def give_back(self, arena: Arena) -> None:
        """Let other calls use what was borrowed."""
        self.borrowed = None
        ARENAS.give(arena)

    @property
    def arena(self) -> Array:
        """The memory for intermediate values of the call in progress."""
        assert self.binding is not None
        own = self.binding.arena
        found = self.borrowed if isinstance(own, Need) else own
        assert found is not None
        return found.memory

    def share(self, pool: ThreadPool, threads: int) -> None:
        """Use this many threads of a pool."""
        if self.pool is not pool:
            self.pool = pool
            self.table[: len(FUNCTIONS)] = pool.addresses
        if self.threads != threads:
            self.call[3] = self.threads = threads


def most_states() -> int:
    """How many calls of a model may be in progress at once."""
    return max(2, usable_cores())
