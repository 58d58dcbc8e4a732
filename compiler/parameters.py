"""The parameters of a compiled model: weights whose values are replaced without compiling.

What the code loads is computed from the new values as it was from the old ones: folded, packed,
rounded (`dialects/strata/weights.py`). Code that depends on the values of a parameter cannot take
others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from dialects.strata.types import Array
    from dialects.strata.weights import WeightStore
    from targets.interface import Executable as Program


class Parameters(NamedTuple):
    """A program, and the weights with which it runs. `keys`: those that its code loads."""

    program: Program
    store: WeightStore
    keys: Collection[str]

    @staticmethod
    def of(program: Program, store: WeightStore, keys: Collection[str]) -> Parameters | None:
        """None for a program without parameters. Other programs of the same weights share what was
        computed from them."""
        if not store.parameters:
            return None
        store.share(keys)
        return Parameters(program, store, keys)

    def release(self) -> None:
        """Drop what can be computed again from weights that the caller holds on a device."""
        if self.store.residents:
            self.store.keep_only(self.store.arrays.keys() - self.store.parameters.keys()
                                 - self.store.recipes.keys())

    def with_values(
        self, values: Mapping[str, Array], tensors: Mapping[str, Any] | None = None
    ) -> Parameters | None:
        """The same program with other values of some parameters, by name.

        `tensors`: those on a device that hold weights, by name. None if the code is for other
        values, or if the target cannot load it again.
        """
        store = self.store.with_values(values, self.keys, tensors)
        program = None if store is None else self.program.with_weights(store)
        if store is None or program is None:
            return None
        found = Parameters(program, store, self.keys)
        found.release()
        return found
