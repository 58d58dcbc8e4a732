"""What one call needs for itself, and a bounded pool of it: so threads call a model at once.

Machine code and constants are only read. All that a call writes is a `CallState`: the table of
addresses, the sizes, the arena, the heap and the results. A call takes a state out of the pool and
puts it back. The pool is a deque, whose operations are atomic: there is no lock that a signal
handler could meet, or a child made by `fork` could inherit from a thread that it does not have.

There are at most as many states as processors (at least two), since each may hold gigabytes. Who
finds none left waits until another call ends; a call inside a call of the same thread (a signal
handler, a finalizer) never waits, for that would be for itself. States that come back go to whoever
is there first, which is fastest, until somebody has waited for a millisecond: then to them, as in
Go's `sync.Mutex`, so that nobody starves.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from threading import Lock, get_ident
from time import sleep
from typing import TYPE_CHECKING, Any, NamedTuple

from targets.cpu.heap import Heap
from targets.cpu.processors import usable_cores
from targets.cpu.results import Result
from targets.cpu.threads import FUNCTIONS, ThreadPool, scheduler_addresses

if TYPE_CHECKING:
    import numpy as np

    from dialects.types import Array
    from targets.cpu.plan import RunPlan

_LOOKS, _PAUSE = 5, 0.0002
"""How often a caller looks for an idle state, and the seconds between, before others hand it one.
"""
_PATIENCE = 0.05
"""Seconds to wait for that. A state may be lost, when an exception comes just as it is taken."""

Kind = tuple[type, tuple[int, ...], "np.dtype[Any]", bool]
"""Class, shape and dtype of an input, and that it is C-contiguous."""


class Binding(NamedTuple):
    """What depends on the shapes of the inputs: kept while they stay the same."""

    inputs: list[Kind]
    sizes: Any
    outputs: tuple[Result, ...]
    arena: Array

    def fits(self, arrays: Sequence[Array]) -> bool:
        """Whether these are arrays like those that it is for."""
        return kinds(arrays) == self.inputs


def kinds(arrays: Sequence[Array]) -> list[Kind]:
    return [(type(a), a.shape, a.dtype, a.flags.c_contiguous) for a in arrays]


class CallState:
    """What one call writes. `owner`: the thread that is in it, 0 while it is in the pool."""

    def __init__(self, plan: RunPlan, constants: Sequence[Array], pool: ThreadPool):
        self.heap = Heap([r for r in plan.returned if r is not None])
        arguments = [0] * (len(plan.inputs) + len(plan.outputs))
        entries = [*pool.addresses, self.heap.address, 0, *scheduler_addresses(), *arguments,
                   *(c.ctypes.data for c in constants)]
        self.table = (ctypes.c_void_p * len(entries))(*entries)
        self.call = (ctypes.c_void_p * 4)(0, ctypes.addressof(self.table), 0, 1)
        self.address = ctypes.c_void_p(ctypes.addressof(self.call))
        self.pool, self.owner = pool, 0
        self.binding: Binding | None = None

    def bind(self, binding: Binding) -> None:
        """Use these sizes and this arena from now on."""
        self.binding = binding
        self.call[0] = binding.arena.ctypes.data
        self.call[2] = ctypes.addressof(binding.sizes)

    def share(self, pool: ThreadPool, threads: int) -> None:
        """Let this many threads of a pool do the work."""
        if self.pool is not pool:
            self.pool = pool
            self.table[: len(FUNCTIONS)] = pool.addresses
        self.call[3] = threads


class _Waiter:
    """Who waits for a state. Nobody else knows the lock, which tells that there is one."""

    def __init__(self) -> None:
        self.bell = Lock()
        self.bell.acquire()
        self.state: CallState | None = None

    def be_given(self, state: CallState) -> None:
        self.state = state
        self.bell.release()


class CallStates:
    """The states of one compiled model: `take` one, and `give` it back."""

    def __init__(self, make: Callable[[], CallState]):
        self._make = make
        self.idle: deque[CallState] = deque()
        self._made = set[Any]()
        self._forget_all()

    def _forget_all(self) -> None:
        """Of the states that others hold, none will come back."""
        self._process = os.getpid()
        self._made = {weakref.ref(state, self._made.discard) for state in tuple(self.idle)}
        self._starving: deque[_Waiter] = deque()

    @cached_property
    def most(self) -> int:
        """How many there may be."""
        return max(2, usable_cores())

    @property
    def busy(self) -> int:
        """How many calls are under way."""
        return len(self._made) - len(self.idle)

    def take(self) -> CallState:
        """A state for a call of this thread."""
        try:
            state = self.idle.pop()
        except IndexError:
            state = self._another()
        state.owner = get_ident()
        return state

    def give(self, state: CallState) -> None:
        """Put a state back."""
        state.owner = 0
        if self._starving:
            with suppress(IndexError):
                return self._starving.popleft().be_given(state)
        self.idle.append(state)
        return None

    # ------------------------------------------------------------------ where none is idle
    def _another(self) -> CallState:
        """A new one where there may be more, else one that another thread gives back."""
        if self._process != os.getpid():
            self._forget_all()
        state = None
        while state is None:
            may = len(self._made) < self.most or self._is_in_call()
            state = self._new() if may else self._awaited()
        return state

    def _new(self) -> CallState:
        state = self._make()
        self._made.add(weakref.ref(state, self._made.discard))
        return state

    def _is_in_call(self) -> bool:
        """Whether this thread is in a call already, and must not wait for its end."""
        states = [ref() for ref in tuple(self._made)]
        return any(state is not None and state.owner == get_ident() for state in states)

    def _awaited(self) -> CallState | None:
        """A state, if there is one soon."""
        for _ in range(_LOOKS):
            sleep(_PAUSE)
            with suppress(IndexError):
                return self.idle.pop()
        waiter = _Waiter()
        self._starving.append(waiter)
        if not waiter.bell.acquire(timeout=_PATIENCE):
            try:
                self._starving.remove(waiter)
            except ValueError:  # somebody is just handing one over
                waiter.bell.acquire(timeout=_PATIENCE)
        return waiter.state
