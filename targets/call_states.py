"""A bounded pool of what calls write: so threads call a model at once.

Machine code, kernels and constants are only read. All that a call writes is a state, of which a
target says what it holds. A call takes a state out of the pool and puts it back. The pool is a
deque, whose operations are atomic: there is no lock that a signal handler could meet, or a child
made by `fork` could inherit from a thread that it does not have. Only who makes a new state has
one, which is safe from both.

There is a most of states, since each may hold gigabytes. Who finds none left waits until another
call ends; a call inside a call of the same thread (a signal handler, a finalizer) never waits, for
that would be for itself. States that come back go to whoever is there first, which is fastest,
until somebody has waited for a millisecond: then to them, as in Go's `sync.Mutex`, so that nobody
starves.
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
"""How often a caller looks for an idle state, and the seconds between, before others hand it one.
"""
_PATIENCE = 0.05
"""Seconds to wait for that. A state may be lost, when an exception comes just as it is taken."""


class Owned(Protocol):
    """`owner`: the thread whose call has the state, 0 while it is in the pool."""

    owner: int


State = TypeVar("State", bound=Owned)


class _Waiter(Generic[State]):
    """Who waits for a state. Nobody else knows the lock, which tells that there is one."""

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
        """`limit`: how many there may be; asked where threads overlap for the first time."""
        self._make, self._limit = make, limit
        self.idle: deque[State] = deque()
        self._made, self._growing = set[Any](), SafeLock()
        self._forget_all()

    def _forget_all(self) -> None:
        """Of the states that others hold, none will come back."""
        self._process = os.getpid()
        self._made = {weakref.ref(state, self._made.discard) for state in tuple(self.idle)}
        self._starving: deque[_Waiter[State]] = deque()

    @cached_property
    def most(self) -> int:
        """How many there may be."""
        return self._limit()

    @property
    def made(self) -> int:
        """How many there are."""
        return len(self._made)

    @property
    def busy(self) -> int:
        """How many calls are under way."""
        return self.made - len(self.idle)

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
        """A state that was taken, if it suits, else an idle one that does; where none does, the one
        that was idle for longest."""
        idle = tuple(self.idle)
        if suits(state) or not idle:
            return state
        other = next(filter(suits, idle), idle[0])
        try:
            self.idle.remove(other)
        except ValueError:  # somebody else has it by now
            return state
        other.owner = get_ident()
        self.give(state)
        return other

    # ------------------------------------------------------------------ where memory is short
    def take_idle(self) -> State | None:
        """A state that no call has, if there is one: for giving it up."""
        with suppress(IndexError):
            return self.idle.pop()
        return None

    def drop(self, state: State) -> None:
        """A state that was taken will not come back; another one may be made for it."""
        self._made.discard(weakref.ref(state))

    def others_are_busy(self) -> bool:
        """Whether other threads are in calls."""
        return any(state.owner not in (0, get_ident()) for state in self._there())

    # ------------------------------------------------------------------ where none is idle
    def _another(self) -> State:
        """A new one where there may be more, else one that another thread gives back."""
        if self._process != os.getpid():
            self._forget_all()
        state = None
        while state is None:
            state = self._new() or self._awaited()
        return state

    def _new(self) -> State | None:
        """A new one, if there may be one more."""
        with self._growing:
            if len(self._made) >= self.most and not self._is_in_call():
                return None
            state = self._make()
            self._made.add(weakref.ref(state, self._made.discard))
        return state

    def _is_in_call(self) -> bool:
        """Whether this thread is in a call already, and must not wait for its end."""
        return any(state.owner == get_ident() for state in self._there())

    def _there(self) -> list[State]:
        return [state for ref in tuple(self._made) if (state := ref()) is not None]

    def _awaited(self) -> State | None:
        """A state, if there is one soon."""
        for _ in range(_LOOKS):
            sleep(_PAUSE)
            with suppress(IndexError):
                return self.idle.pop()
        waiter = _Waiter[State]()
        self._starving.append(waiter)
        if not waiter.bell.acquire(timeout=_PATIENCE):
            try:
                self._starving.remove(waiter)
            except ValueError:  # somebody is just handing one over
                waiter.bell.acquire(timeout=_PATIENCE)
        return waiter.state
