"""The store of model weights: the IR holds names and content hashes, this holds the bytes.

Arrays are kept as they come (often views of a memory-mapped file) and are never copied or printed
with the IR. Two arrays of equal bytes, dtype and shape share one key.

Of a mapped file, the system holds in memory what has been read. `release` gives that back, so that
compiling a model takes the memory of what it makes, not also that of all it has looked at.
"""

from __future__ import annotations

import hashlib
import math
import mmap
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from xdsl.dialects.builtin import StringAttr

from dialects.strata.mapped import mapping_of
from dialects.strata.parallel import in_threads
from dialects.strata.types import Array, WeightAttr

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector register."""

WORTH_RELEASING = 64 << 10
"""Bytes from which on an array is worth a call to the system."""

PIECE = 2 << 20
"""Bytes that are hashed at a time: what a thread is worth."""


@dataclass
class WeightStore:
    """Arrays by content hash."""

    arrays: dict[str, Array] = field(default_factory=dict[str, Array])
    residents: list[Any] = field(default_factory=list[Any])
    """Tensors on a device with contents of weights. Whoever brings the model leaves them as they
    are while it is used, so that what is compiled may read them there."""
    held: set[str] = field(default_factory=set[str])
    """Keys of weights that are among the residents: in another order they would be there twice."""

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

    def keep_only(self, keys: Collection[str]) -> None:
        """Forget all other arrays. Texts that name them cannot be run any more."""
        for key in self.arrays.keys() - keys:
            del self.arrays[key]

    def save(self, file: Path | BinaryIO) -> None:
        """Write all arrays to one `.npz`, uncompressed, readable by `load`.

        Types that NumPy lacks (bfloat16, i4) are stored as raw bytes with their name in the key.
        """
        plain = {f"{key}|{a.dtype.name}": a.view(np.uint8 if a.dtype.itemsize == 1 else np.uint16)
                 if a.dtype.isbuiltin == 2 else a for key, a in self.arrays.items()}
        np.savez(file, **plain)  # type: ignore[arg-type]

    @staticmethod
    def load(path: Path) -> WeightStore:
        """Read what `save` wrote. Never unpickles.

        Raises ValueError for other archives, and for an array that is not what its key says.
        """
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
                if content_key(array) != key:
                    raise ValueError(f"'{entry}' holds other contents than when it was written")
                store.arrays[key] = array
        return store


def content_key(array: Array) -> str:
    """A hash of dtype, shape and bytes: that of the hashes of all pieces."""
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
def release(array: Array) -> None:
    """Tell the system that an array of a mapped file is not needed in memory for now.

    Its elements stay as they are: they are read from the file again. Small arrays, and those of
    other memory, are left alone.
    """
    base = mapping_of(array)
    if base is None or array.nbytes < WORTH_RELEASING:
        return
    if array.flags.c_contiguous and hasattr(mmap, "MADV_DONTNEED"):
        first = array.ctypes.data - np.frombuffer(base, np.uint8, 1).ctypes.data
        start = first // mmap.PAGESIZE * mmap.PAGESIZE
        base.madvise(mmap.MADV_DONTNEED, start, first + array.nbytes - start)


def aligned_zeros(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """An array of zeros that starts on a cache line's boundary, so that nobody has to move it."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.zeros(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start: start + size].view(dtype).reshape(shape)
