"""Launches by a library, if a kernel's schedule says so: products by cuBLAS, convolutions by cuDNN.

In a CUDA graph such a launch is a child graph, captured from a stream. When its buffers change, it
is captured again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from ctypes import byref, c_int, c_void_p
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Protocol

from dialects.symbolic.symbol import Symbol
from targets.cuda.errors import CudaError
from targets.cuda.libraries import cublas, cudnn
from targets.cuda.libraries.shapes import Order, convolution_of, product_of
from targets.cuda.libraries.words import CUBLAS, CUDNN
from targets.cuda.runtime import driver
from targets.cuda.runtime.driver_graph import CallNode
from targets.cuda.runtime.memory.device import Memory
from targets.cuda.runtime.planned import KernelCall
from targets.locks import Turns

_KEPT = 256
"""How many calls stay prepared for further launches."""
_RELAXED = 2  # CUstreamCaptureMode: a library may load its code meanwhile


class Call(Protocol):
    """A library call on buffers at addresses. `workspace`: the extra bytes that it needs."""

    workspace: int

    def __call__(self, addresses: Sequence[int], stream: int, workspace: int = 0) -> None: ...


@dataclass
class LibraryLaunch(CallNode):
    """A library call with its buffers."""

    call: Call
    order: Order
    """The kernel's buffers, in the order of the call."""
    addresses: list[int]
    workspace: Memory | None = None
    """A workspace of this launch alone, so that any number of launches may run at a time."""

    def __call__(self, stream: int) -> None:
        self.call([self.addresses[k] for k in self.order], stream,
                  0 if self.workspace is None else self.workspace.address)

    def point(self, place: int, address: int) -> None:
        """Set the address of one buffer for later launches."""
        self.addresses[place] = address

    def point_at(self, addresses: Sequence[int]) -> None:
        """Set the addresses of all buffers for later launches."""
        self.addresses[:] = addresses

    def captured(self) -> c_void_p:
        """See `CallNode`. Raises CudaError."""
        return captured(self)


def captured(run: Callable[[int], None], urgent: bool = False) -> c_void_p:
    """What a function enqueues on the stream that it is given, as a graph, which the caller
    destroys. `urgent`: the device starts its programs before those of other launches that are
    ready. Raises CudaError."""
    graph = c_void_p()
    with _turn:
        stream = _capturing(urgent)
        driver.call("cuStreamBeginCapture_v2", c_void_p(stream), c_int(_RELAXED))
        try:
            run(stream)
        finally:
            driver.call("cuStreamEndCapture", c_void_p(stream), byref(graph))
    return graph


_turn = Turns("capturing a launch of a library", CudaError)
"""Serializes captures: models that run in several threads share one stream for them."""


@cache
def _capturing(urgent: bool) -> int:
    """A stream that only captures use, whose priority captured launches keep."""
    return driver.make_stream(urgent=urgent)


def library_versions() -> Mapping[str, int]:
    """The versions of the installed libraries, by name."""
    found = {CUBLAS: cublas.version(), CUDNN: cudnn.version()}
    return {name: version for name, version in found.items() if version is not None}


def library_launch(
    call: KernelCall, sizes: Mapping[Symbol, int], addresses: Sequence[int]
) -> LibraryLaunch | None:
    """A launch by the library that the kernel's schedule names; None if the library is missing or
    does not support it.

    `sizes`: the kernel's sizes.
    """
    form = call.kernel.library
    if not form:
        return None
    name, _, rest = form.partition(".")
    if name not in library_versions():
        return None
    shapes = [tuple(int(e.evaluate(sizes)) for e in b.shape) for b in call.kernel.buffers]
    elements = [b.element for b in call.kernel.buffers]
    made, order = _made(name, rest, tuple(shapes), tuple(elements))
    if made is None:
        return None
    return LibraryLaunch(made, order, list(addresses),
                         Memory(made.workspace) if made.workspace else None)


@lru_cache(_KEPT)
def _made(
    name: str, form: str, shapes: Sequence[Sequence[int]], elements: Sequence[str]
) -> tuple[Call | None, Order]:
    """The call, which equal kernels share because it keeps no arguments. None: not supported."""
    try:
        if name == CUBLAS:
            product, order = product_of(form, shapes, elements)
            return cublas.Call(product), order
        convolution, order = convolution_of(form, shapes, elements)
        return cudnn.Call(convolution), order
    except CudaError:
        return None, ()
