"""The weight store: it holds the bytes of weights that the IR refers to by key.

Arrays are kept as they are, often as views of a memory-mapped file. They are never copied, nor
printed with the IR. The key of a model's weight is a hash of its contents: two arrays with equal
bytes, dtype and shape share it. The key of an array that a pass computes from one weight may be a
hash of that weight's key and of the computation, since hashing takes as long as packing does.

The system keeps the pages of a mapped file in memory once they have been read. `release` drops
these pages, so that compiling a model does not also hold in memory everything it has read.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from xdsl.dialects.builtin import StringAttr

from dialects.strata.mapped import release
from dialects.strata.parallel import in_threads
from dialects.strata.types import Array, WeightAttr

ALIGNMENT = 64
"""In bytes: the size of a cache line and of the widest vector register."""

PIECE = 2 << 20
"""The number of bytes that one thread hashes at a time."""


DERIVED = "x"
"""The first character of the keys of computed arrays; a hash of contents has only hex digits."""


@dataclass
class WeightStore:
    """Arrays, looked up by key."""

    arrays: dict[str, Array] = field(default_factory=dict[str, Array])
    residents: list[Any] = field(default_factory=list[Any])
    """Tensors on a device that hold weights. The owner of the model does not change them while the
    model is in use, so compiled code may read them in place.
    """
    held: set[str] = field(default_factory=set[str])
    """Keys of the weights among `residents`. Repacking one of them would store it twice."""

    def add(self, label: str, array: Array) -> WeightAttr:
        """Store an array and return its handle for the IR. `label` is its name in dumps."""
        key = content_key(array)
        self.arrays.setdefault(key, array)
        return WeightAttr(StringAttr(label), StringAttr(key))

    def derive(
        self, label: str, source: WeightAttr, computation: str, compute: Callable[[Array], Array]
    ) -> tuple[WeightAttr, Array]:
        """The handle and the contents of an array that is computed from one weight.

        `computation` says how, completely: with the same text, the array is not computed again.
        """
        text = f"{source.key}\0{computation}"
        key = DERIVED + hashlib.sha256(text.encode()).hexdigest()[:23]
        if key not in self.arrays:
            self.arrays[key] = compute(self.get(source))
        return WeightAttr(StringAttr(label), StringAttr(key)), self.arrays[key]

    def get(self, handle: WeightAttr) -> Array:
        """The array of a handle. Raises KeyError, naming the weight, if the store lacks it."""
        assert isinstance(handle.key, StringAttr) and isinstance(handle.label, StringAttr)
        if handle.key.data not in self.arrays:
            raise KeyError(
                f"weight {handle.label.data!r} ({handle.key.data}) is not in the weight store"
            )
        return self.arrays[handle.key.data]

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
                array = cast(Array, archive[entry])
                if array.dtype.name != name:
                    array = array.view(getattr(ml_dtypes, name))
                if content_key(array) != (contents if key.startswith(DERIVED) else key):
                    raise ValueError(f"'{entry}' holds other contents than when it was written")
                store.arrays[key] = array
        return store


def _entry(key: str, array: Array) -> str:
    """The name of an array in an archive: from it, `load` knows the array's type and contents."""
    contents = f"|{content_key(array)}" if key.startswith(DERIVED) else ""
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
