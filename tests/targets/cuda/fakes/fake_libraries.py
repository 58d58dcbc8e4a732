"""cuBLAS and cuDNN for tests: what they are asked for, computed by NumPy on a fake device."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dialects.strata.types import Array
from targets.cuda.libraries import cublas
from targets.cuda.libraries.cublas import Matrix
from targets.cuda.libraries.cudnn import Convolution, Tensor

if TYPE_CHECKING:
    from tests.targets.cuda.fakes.fake_driver import FakeDriver

DTYPES = {"f16": np.float16, "f32": np.float32}


@dataclass
class FakeCall:
    """A call of a library, on memory of the device."""

    device: FakeDriver
    workspace: ClassVar[int] = 0

    def __call__(self, addresses: Sequence[int], stream: int, workspace: int = 0) -> None:
        assert bool(workspace) == bool(self.workspace)
        self.device.later(partial(self.now, list(addresses)), stream)

    def now(self, addresses: Sequence[int]) -> None:
        raise NotImplementedError

    def view(
        self, address: int, sizes: Sequence[int], steps: Sequence[int], element: str
    ) -> Array:
        """An array in the device's memory; steps are of elements."""
        dtype = np.dtype(DTYPES[element])
        last = sum((n - 1) * s for n, s in zip(sizes, steps, strict=True))
        size = (last + 1) * dtype.itemsize
        raw = (ctypes.c_uint8 * size).from_address(self.device._checked(address, size))
        return np.lib.stride_tricks.as_strided(
            np.frombuffer(raw, dtype), sizes, [s * dtype.itemsize for s in steps], writeable=True)


@dataclass
class FakeProduct(FakeCall):
    """A call of cuBLAS: its matrices lie by rows."""

    product: cublas.Product

    def now(self, addresses: Sequence[int]) -> None:
        asked = self.product
        left, right, *behind, result = addresses
        a, b = self.matrix(left, asked.left), self.matrix(right, asked.right)
        sums = ((a.swapaxes(-1, -2) if asked.left_transposed else a).astype(np.float64)
                @ (b.swapaxes(-1, -2) if asked.right_transposed else b).astype(np.float64))
        if asked.bias is not None:
            sums = sums + self.matrix(behind.pop(0), Matrix(1, asked.result.columns, asked.bias))[0]
        if asked.added:
            sums = sums + self.matrix(behind.pop(0), asked.result)
        self.matrix(result, asked.result)[...] = np.maximum(sums, 0) if asked.relu else sums
        self.device.log.append("run cublas")

    def matrix(self, address: int, matrix: Matrix) -> Array:
        steps = [matrix.rows * matrix.columns, matrix.columns, 1]
        sizes = [matrix.batch, matrix.rows, matrix.columns]
        first = int(matrix.batch == 1)
        return self.view(address, sizes[first:], steps[first:], matrix.element)


@dataclass
class FakeConvolution(FakeCall):
    """A call of cuDNN, which needs some memory besides."""

    convolution: Convolution
    workspace: ClassVar[int] = 4096

    def now(self, addresses: Sequence[int]) -> None:
        asked = self.convolution
        data, filter_, *behind, result = addresses
        x = self.tensor(data, asked.data).astype(np.float64)
        w = self.tensor(filter_, asked.filter).astype(np.float64)
        x = np.pad(x, [(0, 0), (0, 0), *zip(asked.before, asked.after, strict=True)])
        sums = np.zeros(asked.result.sizes)
        groups = asked.data.sizes[1] // asked.filter.sizes[1]
        for place in product(*map(range, asked.filter.sizes[2:])):
            at = [slice(p * d, p * d + (n - 1) * s + 1, s) for p, d, n, s in zip(
                place, asked.dilations, asked.result.sizes[2:], asked.strides, strict=True)]
            read = x[:, :, *at]
            for g, (part, outs) in enumerate(zip(
                    np.split(read, groups, 1), np.split(sums, groups, 1), strict=True)):
                ours = np.split(w[:, :, *place], groups)[g]
                outs += np.moveaxis(np.tensordot(ours, part, (1, 1)), 0, 1)
        if asked.scale is not None:
            sums *= self.channels(behind.pop(0), asked.scale)
        if asked.bias is not None:
            sums += self.channels(behind.pop(0), asked.bias)
        if asked.added is not None:
            sums += self.tensor(behind.pop(0), asked.added)
        self.tensor(result, asked.result)[...] = np.maximum(sums, 0) if asked.relu else sums
        self.device.log.append("run cudnn")

    def channels(self, address: int, element: str) -> Array:
        result = self.convolution.result
        numbers = self.view(address, [result.sizes[1]], [1], element)
        return numbers.reshape(1, -1, *[1] * (len(result.sizes) - 2))

    def tensor(self, address: int, tensor: Tensor) -> Array:
        return self.view(address, tensor.sizes, tensor.steps, tensor.element)
