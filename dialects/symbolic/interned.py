"""Objects that exist once for each key, for as long as anything uses them.

Equal ones are then the same object. They compare and hash by identity, without running any Python
code, and what is computed of one is kept on it.
"""

from __future__ import annotations

import weakref
from _weakref import _remove_dead_weakref  # type: ignore[attr-defined]
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class _Reference(weakref.ref[T]):
    """A weak reference that knows its key."""

    __slots__ = ("key",)
    key: Hashable


class Interned(Generic[T]):
    """Weak references by key. Several threads may use it at once."""

    def __init__(self) -> None:
        self.references: dict[Hashable, _Reference[T]] = {}

    def find(self, key: Hashable) -> T | None:
        """The object of a key, if it exists."""
        reference = self.references.get(key)
        return None if reference is None else reference()

    def keep(self, key: Hashable, made: T) -> T:
        """The object of a key: the given one, unless another thread was faster."""
        reference = _Reference(made, self._forget)
        reference.key = key
        while (found := self.references.setdefault(key, reference)()) is None:
            _remove_dead_weakref(self.references, key)
        return found

    def _forget(self, reference: weakref.ref[T]) -> None:
        """Remove a dead reference at once, as `weakref.WeakValueDictionary` does: never another
        thread's new one."""
        assert isinstance(reference, _Reference)
        _remove_dead_weakref(self.references, reference.key)
