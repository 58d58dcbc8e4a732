"""The store of model weights: the IR holds names and content hashes, this holds the bytes.

Arrays are kept as they come (often views of a memory-mapped file) and are never copied or printed
with the IR. Two arrays of equal bytes, dtype and shape share one key.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import StringAttr

from dialects.types import Array, WeightAttr


@dataclass
class WeightStore:
    """Arrays by content hash."""

    arrays: dict[str, Array] = field(default_factory=dict[str, Array])

    def add(self, label: str, array: Array) -> WeightAttr:
        """Keep an array; its handle for the IR. `label` is what people see in dumps."""
        key = content_key(array)
        self.arrays.setdefault(key, array)
        return WeightAttr(StringAttr(label), StringAttr(key))

    def get(self, handle: WeightAttr) -> Array:
        """The array of a handle. Raises KeyError naming the weight when the store lacks it."""
        assert isinstance(handle.key, StringAttr) and isinstance(handle.label, StringAttr)
        if handle.key.data not in self.arrays:
            raise KeyError(
                f"weight {handle.label.data!r} ({handle.key.data}) is not in the weight store"
            )
        return self.arrays[handle.key.data]

    def save(self, path: Path) -> None:
        """Write all arrays to one `.npz`, uncompressed, readable by `load`.

        Types that NumPy lacks (bfloat16) are stored as raw bytes with their name in the key.
        """
        plain = {f"{key}|{a.dtype.name}": a.view(np.uint8 if a.dtype.itemsize == 1 else np.uint16)
                 if a.dtype.kind == "V" else a for key, a in self.arrays.items()}
        np.savez(path, **plain)  # type: ignore[arg-type]

    @staticmethod
    def load(path: Path) -> WeightStore:
        """Read what `save` wrote. Never unpickles. Raises ValueError for other archives."""
        import ml_dtypes

        store = WeightStore()
        archive: Any = np.load(path, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("it is no .npz archive")
        with archive:
            for entry in archive.files:
                key, _, name = entry.partition("|")
                array = cast(Array, archive[entry])
                if array.dtype.name != name:
                    array = array.view(getattr(ml_dtypes, name))
                store.arrays[key] = array
        return store


def content_key(array: Array) -> str:
    """A hash of dtype, shape and bytes."""
    digest = hashlib.sha256(f"{array.dtype.name}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()[:24]
