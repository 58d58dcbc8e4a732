"""Launches that a library carries out, where a kernel's schedule says so: products by cuBLAS,
convolutions by cuDNN.

In a CUDA graph such a launch is a graph of its own, which is captured from a stream; with other
buffers it is captured again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ctypes import byref, c_int, c_void_p
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Protocol

from dialects.strata.types import BufferType
from dialects.symbolic.symbol import Symbol
from targets.cuda.errors import CudaError
from targets.cuda.libraries import cublas, cudnn
from targets.cuda.libraries.forms import CUBLAS, CUDNN, form_of
from targets.cuda.libraries.shapes import Order, convolution_of, product_of
from targets.cuda.runtime import driver
from targets.cuda.runtime.driver_graph import CallNode
from targets.cuda.runtime.memory import Memory
from targets.cuda.runtime.plan import KernelCall
from targets.locks import Turns

_KEPT = 256
"""So many calls stay ready for further launches."""
_RELAXED = 2  # CUstreamCaptureMode: a library may load its code meanwhile


class Call(Protocol):
    """What a library does, on buffers at addresses. `workspace`: bytes that it needs besides."""

    workspace: int

    def __call__(self, addresses: Sequence[int], stream: int, workspace: int = 0) -> None: ...


@dataclass
class LibraryLaunch(CallNode):
    """A call on buffers."""

    call: Call
    order: Order
    """Which of the kernel's buffers the call's are."""
    addresses: list[int]
    workspace: Memory | None = None
    """Of this launch alone, so that any number may run at a time."""

    def __call__(self, stream: int) -> None:
        self.call([self.addresses[k] for k in self.order], stream,
                  0 if self.workspace is None else self.workspace.address)

    def point(self, place: int, address: int) -> None:
        """Let later launches have another buffer at a place."""
        self.addresses[place] = address

    def point_at(self, addresses: Sequence[int]) -> None:
        """Let later launches work on other buffers."""
        self.addresses[:] = addresses

    def captured(self) -> c_void_p:
        """See `CallNode`. Raises CudaError."""
        graph = c_void_p()
        with _turn:
            stream = _capturing()
            driver.call("cuStreamBeginCapture_v2", c_void_p(stream), c_int(_RELAXED))
            try:
                self(stream)
            finally:
                driver.call("cuStreamEndCapture", c_void_p(stream), byref(graph))
        return graph


_turn = Turns("capturing a launch of a library", CudaError)
"""Whose turn it is to capture: models that run in several threads have one stream for it."""


@cache
def _capturing() -> int:
    """A stream on which nothing runs."""
    return driver.make_stream()


def library_versions() -> Mapping[str, int]:
    """The libraries that there are, by name."""
    found = {CUBLAS: cublas.version(), CUDNN: cudnn.version()}
    return {name: version for name, version in found.items() if version is not None}


def library_launch(
    call: KernelCall, sizes: Mapping[Symbol, int], addresses: Sequence[int]
) -> LibraryLaunch | None:
    """A launch by the library that the kernel's schedule names; None without it, or if it refuses.

    `sizes`: of the kernel.
    """
    form = form_of(call.kernel)
    if form is None:
        return None
    name, _, rest = form.partition(".")
    if name not in library_versions():
        return None
    shapes = [tuple(int(e.evaluate(sizes)) for e in b.type.shape)
              for b in call.kernel.buffers if isinstance(b.type, BufferType)]
    elements = [str(b.type.element) for b in call.kernel.buffers
                if isinstance(b.type, BufferType)]
    made, order = _made(name, rest, tuple(shapes), tuple(elements))
    if made is None:
        return None
    return LibraryLaunch(made, order, list(addresses),
                         Memory(made.workspace) if made.workspace else None)


@lru_cache(_KEPT)
def _made(
    name: str, form: str, shapes: Sequence[Sequence[int]], elements: Sequence[str]
) -> tuple[Call | None, Order]:
    """Equal kernels share a call: what it was called with does not stay in it. None: refused."""
    try:
        if name == CUBLAS:
            product, order = product_of(form, shapes, elements)
            return cublas.Call(product), order
        convolution, order = convolution_of(form, shapes, elements)
        return cudnn.Call(convolution), order
    except CudaError:
        return None, ()
