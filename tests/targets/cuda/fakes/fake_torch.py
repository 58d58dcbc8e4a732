"""As much of torch as the CUDA target uses, on the memory of a `FakeDriver`."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dialects.strata.types import Array
from tests.targets.cuda.fakes.fake_driver import FakeDriver, FakePool

STREAM = 42


class OutOfMemoryError(RuntimeError):
    """torch.cuda.OutOfMemoryError."""


class FakeTensor:
    """A tensor on the device; with `shift`, one that begins so many bytes into its memory."""

    is_cuda, device = True, "cuda:0"

    def __init__(
        self, fake: FakeDriver, shape: Sequence[int], dtype: np.dtype[Any], shift: int = 0
    ) -> None:
        self.fake, self.shape, self.dtype = fake, tuple(shape), dtype
        self.ndim, self.nbytes = len(self.shape), prod(shape) * dtype.itemsize
        self.address = fake.allocate(self.nbytes + shift) + shift

    def data_ptr(self) -> int:
        return self.address

    def is_contiguous(self) -> bool:
        return True

    def contiguous(self) -> FakeTensor:
        return self

    def clone(self) -> FakeTensor:
        """A copy in memory of its own, in the order of the stream."""
        copy = FakeTensor(self.fake, self.shape, self.dtype)
        self.fake.copy(copy.address, self.address, self.nbytes, STREAM)
        return copy

    def numpy(self) -> Array:
        """The contents, when all work is done."""
        self.fake.synchronize(STREAM)
        content = ctypes.string_at(self.address, self.nbytes)
        return np.frombuffer(content, self.dtype).reshape(self.shape)


@dataclass
class FakeTorch:
    """The module. Its allocator is a pool whose blocks belong to streams."""

    fake: FakeDriver
    streams: list[int] = field(default_factory=list[int])
    owners: dict[int, int] = field(default_factory=dict[int, int])
    """The streams of blocks."""

    def __post_init__(self) -> None:
        self.pool = FakePool(self.fake, 0)
        self.cuda = SimpleNamespace(
            is_available=lambda: True, is_initialized=lambda: False,
            OutOfMemoryError=OutOfMemoryError,
            is_current_stream_capturing=lambda: False,
            caching_allocator_alloc=self._allocate,
            caching_allocator_delete=lambda address: self.pool.free(
                address, self.owners.pop(address)))
        self._C = SimpleNamespace(_cuda_getCurrentRawStream=lambda device: STREAM)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        patch.setitem(sys.modules, "torch", self)

    def _allocate(self, size: int, device: int, stream: int) -> int:
        self.streams.append(stream)
        try:
            address = self.pool.allocate(size, stream)
            self.owners[address] = stream
            return address
        except ValueError as error:
            raise OutOfMemoryError(f"{error}\nTried to allocate more.") from None

    def __getattr__(self, name: str) -> np.dtype[Any]:
        """torch.float32 and so on."""
        return np.dtype(name)

    def device(self, name: str) -> str:
        return name

    def empty_strided(
        self, shape: Sequence[int], strides: Sequence[int], dtype: np.dtype[Any], device: str
    ) -> FakeTensor:
        assert device == FakeTensor.device
        assert all(s == prod(max(n, 1) for n in shape[k + 1:]) for k, s in enumerate(strides))
        return FakeTensor(self.fake, shape, dtype)

    def tensor(self, array: Array, shift: int = 0) -> FakeTensor:
        """A tensor on the device with an array's contents."""
        tensor = FakeTensor(self.fake, array.shape, array.dtype, shift)
        ctypes.memmove(tensor.address, array.ctypes.data, array.nbytes)
        return tensor
