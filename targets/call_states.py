"""A bounded pool of call states, so that several threads can call one model at once.

Machine code, kernels and constants are only read. All that a call writes belongs to a state, whose
contents the target defines. A call takes a state out of the pool and puts it back at its end. The
pool is a deque, whose operations are atomic. There is no lock on which a signal handler could hang,
or which a child made by `fork` could inherit from a thread that it does not have. Only the creation
of a new state takes a lock, and that lock is safe from both.

The number of states is bounded, since each may hold gigabytes. A call that finds none idle waits
until another call ends. A call inside a call of the same thread (in a signal handler or a
finalizer) never waits, because it would wait for itself. A returned state usually goes to whoever
asks first, which is fastest. Once somebody has waited for a millisecond, returned states go to the
waiting callers first, as in Go's `sync.Mutex`, so that no caller starves.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from threading import Lock, get_ident
from time import sleep
from typing import Any, Generic, Protocol, TypeVar

from targets.locks import SafeLock

_LOOKS, _PAUSE = 5, 0.0002
"""How often a caller looks for an idle state, and the seconds between, before it queues for one.
"""
_PATIENCE = 0.05
"""Seconds to wait in the queue. An exception just as a state is handed over may lose that state."""


class Owned(Protocol):
    """`owner`: the thread whose call has the state, 0 while it is in the pool."""

    owner: int


State = TypeVar("State", bound=Owned)


class _Waiter(Generic[State]):
    """A caller in the queue for a state. The lock, which only the two sides know, signals it."""

    def __init__(self) -> None:
        self.bell = Lock()
        self.bell.acquire()
        self.state: State | None = None

    def be_given(self, state: State) -> None:
        self.state = state
        self.bell.release()


class CallStates(Generic[State]):
    """The states of one compiled model: `take` one, and `give` it back."""

    def __init__(self, make: Callable[[], State], limit: Callable[[], int]):
        """`limit`: how many states there may be; asked when calls first overlap."""
        self._make, self._limit = make, limit
        self.idle: deque[State] = deque()
        self._made, self._growing = set[Any](), SafeLock()
        self.have_overlapped = False
        """Whether there have ever been two states: before that, every call is alone."""
        self._forget_all()

    def _forget_all(self) -> None:
        """Forget the states that other calls hold: after a fork, none of them will come back."""
        self._process = os.getpid()
        self._made = {weakref.ref(state, self._made.discard) for state in tuple(self.idle)}
        self._starving: deque[_Waiter[State]] = deque()

    @cached_property
    def most(self) -> int:
        """How many states there may be."""
        return self._limit()

    @property
    def made(self) -> int:
        """How many states there are."""
        return len(self._made)

    @property
    def busy(self) -> int:
        """How many calls are in progress."""
        return len(self._made) - len(self.idle)

    def take(self) -> State:
        """A state for a call of this thread."""
        try:
            state = self.idle.pop()
        except IndexError:
            state = self._another()
        state.owner = get_ident()
        return state

    def give(self, state: State) -> None:
        """Put a state back."""
        state.owner = 0
        if self._starving:
            with suppress(IndexError):
                return self._starving.popleft().be_given(state)
        self.idle.append(state)
        return None

    def suited(self, state: State, suits: Callable[[State], bool]) -> State:
        """The state that was taken, if it suits; else an idle one that suits; else the one that has
        been idle longest."""
        idle = tuple(self.idle)
        if suits(state) or not idle:
            return state
        other = next(filter(suits, idle), idle[0])
        try:
            self.idle.remove(other)
        except ValueError:  # another thread has taken it by now
            return state
        other.owner = get_ident()
        self.give(state)
        return other

    # ------------------------------------------------------------------ when memory is short
    def take_idle(self) -> State | None:
        """A state that no call uses, if there is one, so that its memory can be freed."""
        with suppress(IndexError):
            return self.idle.pop()
        return None

    def drop(self, state: State) -> None:
        """Forget a state that was taken: it will not come back, and another may replace it."""
        self._made.discard(weakref.ref(state))

    def others_are_busy(self) -> bool:
        """Whether other threads are in calls of this model."""
        return any(state.owner not in (0, get_ident()) for state in self._there())

    # ------------------------------------------------------------------ when none is idle
    def _another(self) -> State:
        """A new state if the limit allows one, else the next that another thread returns."""
        if self._process != os.getpid():
            self._forget_all()
        state = None
        while state is None:
            state = self._new() or self._awaited()
        return state

    def _new(self) -> State | None:
        """A new state, if the limit allows one more."""
        with self._growing:
            if len(self._made) >= self.most and not self._is_in_call():
                return None
            state = self._make()
            self.have_overlapped = self.have_overlapped or bool(self._made)
            self._made.add(weakref.ref(state, self._made.discard))
        return state

    def _is_in_call(self) -> bool:
        """Whether this thread is already in a call, and so must not wait for that call to end."""
        return any(state.owner == get_ident() for state in self._there())

    def _there(self) -> list[State]:
        return [state for ref in tuple(self._made) if (state := ref()) is not None]

    def _awaited(self) -> State | None:
        """A state that another call returns within a short wait; None if none does."""
        for _ in range(_LOOKS):
            sleep(_PAUSE)
            with suppress(IndexError):
                return self.idle.pop()
        waiter = _Waiter[State]()
        self._starving.append(waiter)
        if not waiter.bell.acquire(timeout=_PATIENCE):
            try:
                self._starving.remove(waiter)
            except ValueError:  # a state is being handed over right now
                waiter.bell.acquire(timeout=_PATIENCE)
        return waiter.state
