"""Parameters of a compiled program as plain data: how its constants follow from them.

A kept program holds no weight that its caller may replace. It holds the recipes by which the
caller's weights are folded and packed, and the arrays besides them that the recipes need. Weights
by whose contents the code was decided have their hashes there; with other contents, the program is
not for this caller.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dialects.semantics.computations import computation_facts, read_computation
from dialects.strata.array_type import dtype_named
from dialects.strata.parallel import Arrays
from dialects.strata.weights import Recipe, WeightStore, content_key

if TYPE_CHECKING:
    from compiler.parameters import Parameters
    from dialects.strata.types import Array


class Recipes(NamedTuple):
    """What a file holds of a program's parameters. `arrays`: the blobs that `facts` refer to.

    `open`: the keys of the constants that are computed when the program is loaded.
    """

    facts: Mapping[str, Any]
    arrays: Sequence[Array]
    open: frozenset[str]

    @property
    def read(self) -> Mapping[str, str]:
        """The parameters on whose contents the code depends, with the hashes of the contents."""
        return self.facts["read"]


def recipes_of(parameters: Parameters) -> Recipes | None:
    """The recipes of a program; None if it needs an array that is not kept any more.

    An array whose computation is no data is one of the program's constants, and the parameters
    behind it are among those that were read.
    """
    store = parameters.store
    fixed = {key for key, recipe in store.recipes.items()
             if computation_facts(recipe.compute) is None}
    wanted = {k for k in parameters.keys if k in store.parameters or k in store.recipes}
    open_ = frozenset(wanted - fixed)
    needed = _closure(store, [*open_, *(store.finite - fixed)], fixed)
    names = set[str]().union(*(store.roots(key) for key in (wanted | needed) & fixed))
    arrays = {k: store.arrays.get(k) for k in sorted(
        (needed & fixed) | (needed - store.recipes.keys() - store.parameters.keys()))}
    there = [array for array in arrays.values() if array is not None]
    if len(there) < len(arrays):
        return None
    facts = {
        "parameters": store.parameters, "finite": sorted(store.finite & needed),
        "recipes": {k: _facts(store.recipes[k])
                    for k in sorted(needed - fixed) if k in store.recipes},
        "read": {**store.read, **_hashes(store, names)}, "keys": sorted(open_),
        "arrays": [[key, array.dtype.name, array.shape]
                   for key, array in zip(arrays, there, strict=True)]}
    return Recipes(facts, there, open_)


def _facts(recipe: Recipe) -> list[Any]:
    return [recipe.sources, computation_facts(recipe.compute), recipe.computation]


def _closure(store: WeightStore, keys: Collection[str], fixed: Collection[str]) -> set[str]:
    """The keys with all that they are computed from, but for what `fixed` ones are."""
    found, left = set[str](), list(keys)
    while left:
        key = left.pop()
        if key not in found:
            found.add(key)
            left += store.recipes[key].sources if key in store.recipes and key not in fixed else ()
    return found


def _hashes(store: WeightStore, names: Collection[str]) -> dict[str, str]:
    """The hashes of the contents of parameters."""
    return {name: content_key(store.arrays[key]) for key, name in store.parameters.items()
            if name in names}


def read_recipes(
    facts: Mapping[str, Any], blobs: Sequence[Array], values: Mapping[str, Array],
    tensors: Mapping[str, Any] | None = None,
) -> WeightStore | None:
    """The store of a program with the caller's weights, by name; None if it is not for them.

    `tensors`: see `WeightStore.hold`.

    Raises ValueError, TypeError, LookupError or AttributeError for malformed facts.
    """
    arrays: dict[str, Array] = {
        str(key): blob.view(dtype_named(dtype)).reshape(shape)
        for (key, dtype, shape), blob in zip(facts["arrays"], blobs, strict=True)}
    recipes = {str(key): Recipe(tuple(map(str, sources)), read_computation(how), str(text))
               for key, (sources, how, text) in facts["recipes"].items()}
    store = WeightStore(Arrays(arrays), parameters=dict(facts["parameters"]), recipes=recipes,
                        read=dict(facts["read"]), finite=set(facts["finite"]))
    return store.with_values(values, [str(key) for key in facts["keys"]], tensors)
