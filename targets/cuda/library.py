"""Launches that a library carries out: products by cuBLAS, where a kernel's schedule says so.

In a CUDA graph such a launch is a graph of its own, which is captured from a stream; with other
buffers it is captured again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ctypes import byref, c_int, c_void_p
from dataclasses import dataclass
from functools import cache

from dialects.types import BufferType
from targets.cuda import cublas, driver
from targets.cuda.cuda_graph import CallNode
from targets.cuda.errors import CudaError
from targets.cuda.library_forms import form_of
from targets.cuda.plan import KernelCall

_RELAXED = 2  # CUstreamCaptureMode: a library may load its code meanwhile


@dataclass
class LibraryLaunch(CallNode):
    """A product on buffers: of its factors, its bias if it has one, and its result."""

    product: cublas.Call
    order: Sequence[int]
    """Which of the kernel's buffers the product's are."""
    addresses: list[int]

    def __call__(self, stream: int) -> None:
        self.product([self.addresses[k] for k in self.order], stream)

    def point(self, place: int, address: int) -> None:
        """Let later launches have another buffer at a place."""
        self.addresses[place] = address

    def point_at(self, addresses: Sequence[int]) -> None:
        """Let later launches work on other buffers."""
        self.addresses[:] = addresses

    def captured(self) -> c_void_p:
        """See `CallNode`. Raises CudaError."""
        stream, graph = _capturing(), c_void_p()
        driver.call("cuStreamBeginCapture_v2", c_void_p(stream), c_int(_RELAXED))
        try:
            self(stream)
        finally:
            driver.call("cuStreamEndCapture", c_void_p(stream), byref(graph))
        return graph


@cache
def _capturing() -> int:
    """A stream on which nothing runs."""
    return driver.make_stream()


def library_launch(
    call: KernelCall, sizes: Mapping[str, int], addresses: Sequence[int]
) -> LibraryLaunch | None:
    """A launch by the library that the kernel's schedule names; None without it, or if it refuses.

    `sizes`: of the kernel.
    """
    form = form_of(call.kernel)
    if form is None or cublas.version() is None:
        return None
    shapes = [tuple(int(e.evaluate(sizes)) for e in b.type.shape)
              for b in call.kernel.buffers if isinstance(b.type, BufferType)]
    elements = [str(b.type.element) for b in call.kernel.buffers
                if isinstance(b.type, BufferType)]
    product, order = described(form, shapes, elements)
    try:
        return LibraryLaunch(_made(product), order, list(addresses))
    except CudaError:
        return None


@cache
def _made(product: cublas.Product) -> cublas.Call:
    """Raises CudaError. Equal products share it: what it was called with does not stay in it."""
    return cublas.Call(product)


def described(
    form: str, shapes: Sequence[Sequence[int]], elements: Sequence[str]
) -> tuple[cublas.Product, Sequence[int]]:
    """The product of a form on such buffers, and which buffers are its factors, bias and result."""
    dims = form.split(".")
    right = next(k for k in (0, 1) if "n" in dims[k])
    order = [1 - right, right, *range(2, len(dims))]
    left_matrix, right_matrix, result = (
        _matrix(shapes[k], elements[k]) for k in (1 - right, right, -1))
    return cublas.Product(
        left_matrix, right_matrix, result, dims[1 - right].endswith("km"),
        dims[right].endswith("nk"), elements[2] if len(dims) == 4 else None), order


def _matrix(shape: Sequence[int], element: str) -> cublas.Matrix:
    *batch, rows, columns = shape
    return cublas.Matrix(rows, columns, element, *batch)
