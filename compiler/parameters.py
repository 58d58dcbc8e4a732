"""The parameters of a compiled model: weights whose values are replaced without compiling.

What the code loads is computed from the new values as it was from the old ones: folded, packed,
rounded (`dialects/strata/weights.py`). Code that depends on the values of a parameter cannot take
others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dialects.strata.types import Array
    from dialects.strata.weights import WeightStore
    from targets.interface import Executable as Program


@dataclass(frozen=True)
class Parameters:
    """A program, and the weights with which it runs. `keys`: those that its code loads."""

    program: Program
    store: WeightStore
    keys: Collection[str]

    @staticmethod
    def of(program: Program, store: WeightStore, keys: Collection[str]) -> Parameters | None:
        """None for a program without parameters.

        Weights that the caller holds on a device are not kept here as well.
        """
        if not store.parameters:
            return None
        if store.residents:
            store.keep_only(store.arrays.keys() - store.parameters.keys() - store.recipes.keys())
        return Parameters(program, store, keys)

    def with_values(
        self, values: Mapping[str, Array], residents: Sequence[Any] = ()
    ) -> Parameters | None:
        """The same program with other values of some parameters, by name.

        `residents`: tensors on a device that hold weights. None if the code is for other values,
        or if the target cannot load it again.
        """
        store = self.store.with_values(values, self.keys)
        if store is None:
            return None
        store.residents += residents
        program = self.program.with_weights(store)
        return None if program is None else Parameters.of(program, store, self.keys)
