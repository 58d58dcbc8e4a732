"""The weight store: it holds the bytes of weights that the IR refers to by key.

Arrays are kept as they are, often as views of a memory-mapped file. They are never copied, nor
printed with the IR. The key of a model's weight is a hash of its contents: two arrays with equal
bytes, dtype and shape share it. The key of an array that a pass computes from one weight may be a
hash of that weight's key and of the computation, since hashing takes as long as packing does.

Parameters are weights whose contents may be others when the program runs than they were when it was
compiled. Their key is that of their name. What passes compute from a parameter, such as a packed
copy, is kept with its recipe, so that `with_values` computes it anew. If a pass looks at the
contents instead and decides by them, the code is for these contents only: `get` writes that down in
`read`. To compute something from them, or to load them, is no such decision: `contents`.

Several programs of a process may have the same parameters, such as two for different sizes. What is
computed from a parameter is the same array in all of them, as long as one of them uses it: it is
found by the computation and by what `version_of` says of the parameter.

The system keeps the pages of a mapped file in memory once they have been read. `release` drops
these pages, so that compiling a model does not also hold in memory everything it has read.

A store of a program from a file is used without any IR: xDSL is imported only to make handles.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast
from weakref import WeakValueDictionary

import numpy as np

from dialects.records import dataclass
from dialects.strata.mapped import release
from dialects.strata.parallel import Arrays, Begun, in_threads

if TYPE_CHECKING:
    from dialects.strata.types import Array, WeightAttr

ALIGNMENT = 64
"""In bytes: the size of a cache line and of the widest vector register."""
PIECE = 2 << 20
"""The number of bytes that one thread hashes at a time."""

DERIVED, PARAMETER = "x", "p"
"""The first characters of the keys of computed arrays and of parameters; a hash of contents has hex
digits only."""


class Form(NamedTuple):
    """What the IR knows of an array."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class Recipe(NamedTuple):
    """How an array is computed from the contents of others, given by their keys.

    `computation`: the same as a text, completely; empty if the array is not shared.
    """

    sources: tuple[str, ...]
    compute: Callable[..., Array]
    computation: str = ""


_SHARED: WeakValueDictionary[Hashable, Array] = WeakValueDictionary()
"""The arrays that stores of this process have computed from parameters."""


def _unknown(name: str) -> Hashable | None:
    return None


@dataclass
class WeightStore:
    """Arrays, looked up by key."""

    arrays: Arrays = field(default_factory=Arrays)
    residents: list[Any] = field(default_factory=list[Any])
    """Tensors on a device that hold weights. The owner of the model does not change them while the
    model is in use, so compiled code may read them in place.
    """
    tensors: dict[str, Any] = field(default_factory=dict[str, Any])
    """Key -> the tensor on a device that holds a parameter, as its owner knows them. `arrays` need
    not have the contents of such a parameter.
    """
    held: set[str] = field(default_factory=set[str])
    """Keys of the weights among `residents`. Repacking one of them would store it twice."""
    parameters: dict[str, str] = field(default_factory=dict[str, str])
    """Key -> name, of the weights that may change."""
    recipes: dict[str, Recipe] = field(default_factory=dict[str, Recipe])
    """Key -> how it is computed, of all arrays that depend on parameters."""
    history: dict[str, Recipe] | None = None
    """The same of all arrays that passes derive, if somebody computes in another arithmetic."""
    read: dict[str, str] = field(default_factory=dict[str, str])
    """Name -> the hash of the contents, of parameters on whose contents the code depends."""
    finite: set[str] = field(default_factory=set[str])
    """The keys of arrays that the code takes for finite."""
    version_of: Callable[[str], Hashable | None] = _unknown
    """Name -> what tells the contents of a parameter from all others in this process, or None."""

    def add(self, label: str, array: Array) -> WeightAttr:
        """Store an array and return its handle for the IR. `label` is its name in dumps."""
        key = content_key(array)
        self.arrays.setdefault(key, array)
        return _handle(label, key)

    def add_parameter(self, name: str, array: Array) -> WeightAttr:
        """Store a weight that may change, and return its handle."""
        key = PARAMETER + _hash(name)
        self.arrays[key], self.parameters[key] = array, name
        return _handle(name, key)

    def hold(self, tensors: Mapping[str, Any]) -> None:
        """Note the caller's tensors on a device, by the names of weights."""
        self.residents = list(tensors.values())
        self.tensors = {key: tensors[name] for key, name in self.parameters.items()
                        if name in tensors}

    def derive(
        self, label: str, sources: Sequence[WeightAttr], computation: str,
        compute: Callable[..., Array],
    ) -> tuple[WeightAttr, Form]:
        """The handle and the form of an array that is computed from weights.

        `computation` says how, completely: with the same text, the array is not computed again. A
        `compute` with the method `begin`, which takes the same and returns `Begun`, fills the array
        in the background; `begin` only looks at types and shapes.
        """
        keys = tuple(map(_key_of, sources))
        key = DERIVED + _hash("\0".join([*keys, computation]))
        if any(map(self.is_open, sources)):
            self.recipes[key] = Recipe(keys, compute, computation)
        if self.history is not None:
            self.history[key] = Recipe(keys, compute, computation)
        if key not in self.arrays:
            if (found := self._found(key)) is not None:
                self.arrays[key] = found
            else:
                self._begin(key, compute, sources)
        array = self.arrays.unfilled(key)
        return _handle(label, key), Form(array.dtype, array.shape)

    def _begin(
        self, key: str, compute: Callable[..., Array], sources: Sequence[WeightAttr]
    ) -> None:
        """Compute an array, or begin to."""
        begin: Callable[..., Begun] | None = getattr(compute, "begin", None)
        if begin is None:
            self.arrays[key] = compute(*map(self.contents, sources))
            return
        keys = [self._present(handle) for handle in sources]
        self.arrays.begin(key, begin(*map(self.arrays.unfilled, keys)), keys)

    def is_open(self, handle: WeightAttr) -> bool:
        """Whether a weight is a parameter, or is computed from one."""
        return self.is_open_key(_key_of(handle))

    def is_open_key(self, key: str) -> bool:
        """The same for the key of a weight."""
        return key in self.parameters or key in self.recipes

    def get(self, handle: WeightAttr) -> Array:
        """The contents of a handle, on which the code depends from now on.

        Raises KeyError, naming the weight, if the store lacks it.
        """
        for name in self.roots(_key_of(handle)) - self.read.keys():
            self.read[name] = content_key(self.arrays[PARAMETER + _hash(name)])
        return self.contents(handle)

    def contents(self, handle: WeightAttr) -> Array:
        """The contents of a handle, from which something is computed or which a program loads.

        Raises KeyError as `get`.
        """
        return self.arrays[self._present(handle)]

    def _present(self, handle: WeightAttr) -> str:
        """The key of a handle. Raises KeyError as `get`."""
        key = _key_of(handle)
        if key not in self.arrays:
            raise KeyError(f"weight {_data(handle.label)!r} ({key}) is not in the weight store")
        return key

    def is_finite(self, handle: WeightAttr) -> bool:
        """Whether all elements are finite. If so, the code depends on that from now on."""
        finite = bool(np.isfinite(self.contents(handle)).all())
        if finite and self.is_open(handle):
            self.finite.add(_key_of(handle))
        return finite

    def roots(self, key: str) -> set[str]:
        """The names of the parameters on which an array depends."""
        if key in self.parameters:
            return {self.parameters[key]}
        recipe = self.recipes.get(key)
        return set[str]().union(*map(self.roots, recipe.sources)) if recipe else set()

    # ------------------------------------------------------------------ shared arrays
    def share(self, keys: Iterable[str]) -> None:
        """Let other stores find what is computed from parameters, of these keys."""
        for key in self.recipes.keys() & self.arrays.keys() & set(keys):
            if (version := self._version(key)) is not None:
                _SHARED.setdefault(version, self.arrays[key])

    def _found(self, key: str) -> Array | None:
        """An array that another store has computed in the same way from the same contents."""
        version = self._version(key) if key in self.recipes else None
        return None if version is None else _SHARED.get(version)

    def _version(self, key: str) -> Hashable | None:
        """What tells the contents of an array from all others; None if that is unknown."""
        if key in self.parameters:
            return self.version_of(self.parameters[key])
        if key not in self.recipes:
            return key
        recipe = self.recipes[key]
        versions = [self._version(source) for source in recipe.sources]
        if not recipe.computation or None in versions:
            return None
        return (recipe.computation, *versions)

    # ------------------------------------------------------------------ other values
    def with_values(
        self, values: Mapping[str, Array], keys: Collection[str],
        tensors: Mapping[str, Any] | None = None,
    ) -> WeightStore | None:
        """A store for the same code, in which parameters have other values, given by name.

        `keys`: what the code loads. Of that, arrays that do not depend on these parameters are
        shared with this store; all others are computed. None if the code is for other values.
        `values` may have a method `version_of`. `tensors`: see `hold`. Of parameters among them,
        only the values that something is computed from are asked for. Raises KeyError for a
        parameter that has no value here or there.
        """
        held = tensors or {}
        if any(content_key(values[n]) != known for n, known in self.read.items() if n in values):
            return None
        made = {key: values[name] for key, name in self.parameters.items()
                if name in values and name not in held}
        if not all(self._stays_finite(key, values, made, held) for key in self.finite):
            return None
        store = replace(self, version_of=getattr(values, "version_of", _unknown))
        for key in keys:
            if self.parameters.get(key) not in held:
                store._compute(key, values, made)
        wanted = {*keys, *self.parameters, *(self.arrays.keys() - self.recipes.keys())}
        self.arrays.settle()
        arrays = {k: a for k, a in {**self.arrays, **made}.items() if k in wanted}
        store = replace(store, arrays=Arrays(arrays))
        store.hold(held)
        store.share(keys)
        return store

    def _stays_finite(
        self, key: str, values: Mapping[str, Array], made: dict[str, Array],
        held: Mapping[str, Any],
    ) -> bool:
        """Whether an array is finite with other values; a tensor on a device is looked at there."""
        tensor = held.get(self.parameters.get(key, ""))
        if tensor is not None and tensor.dtype.itemsize > 1:
            return bool(tensor.isfinite().all())
        return bool(np.isfinite(self._compute(key, values, made)).all())

    def _compute(
        self, key: str, values: Mapping[str, Array], made: dict[str, Array]
    ) -> Array:
        """The array of a key, which goes to `made` with all that is computed for it."""
        if key not in made:
            made[key] = self._computed(key, values, made)
        return made[key]

    def _computed(
        self, key: str, values: Mapping[str, Array], made: dict[str, Array]
    ) -> Array:
        recipe, name = self.recipes.get(key), self.parameters.get(key)
        if name is not None and name in values:
            return values[name]
        if recipe is None or (key in self.arrays and self.roots(key).isdisjoint(values)):
            return self.arrays[key]
        if (found := self._found(key)) is not None:
            return found
        return recipe.compute(*[self._compute(s, values, made) for s in recipe.sources])

    def forget(self, keys: Collection[str]) -> None:
        """Keep only what the code loads, by its keys, and what `with_values` needs beside it."""
        needed = self._needed({*keys, *self.finite})
        recipes = [self.recipes[k] for k in needed if k in self.recipes]
        self.keep_only({*keys, *self.parameters, *(s for r in recipes for s in r.sources
                                                   if s not in self.recipes)})

    def _needed(self, keys: Collection[str]) -> set[str]:
        """The keys with all that they are computed from."""
        found, left = set[str](), list(keys)
        while left:
            key = left.pop()
            if key not in found:
                found.add(key)
                left += self.recipes[key].sources if key in self.recipes else ()
        return found

    def copy(self) -> WeightStore:
        """A store of the same arrays, to which others can be added."""
        self.arrays.settle()
        return replace(self, arrays=Arrays(self.arrays), recipes={**self.recipes},
                       read={**self.read}, finite={*self.finite})

    def keep_only(self, keys: Collection[str]) -> None:
        """Remove all other arrays. IR text that refers to them can no longer be run."""
        for key in self.arrays.keys() - keys:
            del self.arrays[key]

    def save(self, file: Path | BinaryIO) -> None:
        """Write all arrays to one `.npz`, uncompressed, readable by `load`.

        Types that NumPy lacks, such as bfloat16 and i4, are stored as raw integers with the
        dtype's name in the key. The hash of a computed array's contents is added to its key.
        """
        plain = {_entry(key, a): a.view(np.uint8 if a.dtype.itemsize == 1 else np.uint16)
                 if a.dtype.isbuiltin == 2 else a for key, a in self.arrays.items()}
        np.savez(file, **plain)  # type: ignore[arg-type]

    @staticmethod
    def load(path: Path) -> WeightStore:
        """Read what `save` wrote. Never unpickles.

        Raises ValueError for other archives, and for an array that does not match its key.
        """
        import ml_dtypes

        store = WeightStore()
        archive: Any = np.load(path, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("it is not an .npz archive")
        with archive:
            for entry in archive.files:
                key, name, contents = [*entry.split("|"), "", ""][:3]
                array = cast("Array", archive[entry])
                if array.dtype.name != name:
                    array = array.view(getattr(ml_dtypes, name))
                if content_key(array) != (contents or key):
                    raise ValueError(f"'{entry}' holds other contents than when it was written")
                store.arrays[key] = array
        return store


def _handle(label: str, key: str) -> WeightAttr:
    from xdsl.dialects.builtin import StringAttr

    from dialects.strata.types import WeightAttr

    return WeightAttr(StringAttr(label), StringAttr(key))


def _key_of(handle: WeightAttr) -> str:
    return _data(handle.key)


def _data(text: Any) -> str:
    return text.data


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:23]


def _entry(key: str, array: Array) -> str:
    """The name of an array in an archive: from it, `load` knows the array's type and contents."""
    contents = f"|{content_key(array)}" if key.startswith((DERIVED, PARAMETER)) else ""
    return f"{key}|{array.dtype.name}{contents}"


def content_key(array: Array) -> str:
    """A hash of dtype, shape and the hashes of all pieces of the bytes."""
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    pieces = [data[start: start + PIECE] for start in range(0, data.size, PIECE)]
    digest = hashlib.sha256(f"{array.dtype.name}{array.shape}".encode())
    digest.update(b"".join(in_threads(_digest, pieces)))
    return digest.hexdigest()[:24]


def _digest(piece: Array) -> bytes:
    found = hashlib.sha256(piece.data).digest()
    release(piece)
    return found


# ---------------------------------------------------------------------- memory
def aligned_zeros(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """An array of zeros aligned to a cache line, so that no copy is needed for alignment."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.zeros(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start: start + size].view(dtype).reshape(shape)
