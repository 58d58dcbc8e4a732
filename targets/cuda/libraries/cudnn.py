"""Convolutions by the cuDNN of PyTorch's packages, with the epilogues that it can compute.

A convolution, factors per channel, a bias, an added tensor and a ReLU form an operation graph. For
a graph, cuDNN's heuristics name engines, the most promising first. We use the first engine whose
sums are in f32 and in a fixed order, and whose factors are not rounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ctypes import byref, c_void_p
from dataclasses import dataclass
from functools import cache

from targets.cuda.errors import CudaError
from targets.cuda.libraries import cudnn_descriptors as d
from targets.cuda.libraries.cudnn_descriptors import Descriptor, call, version
from targets.locks import Turns

__all__ = ["Call", "Convolution", "Tensor", "version"]

_TYPES = {"f32": 0, "f16": 2, "bf16": 9}  # cudnnDataType_t
_CROSS_CORRELATION = 1  # cudnnConvolutionMode_t
_ADD, _MULTIPLY, _RELU = 0, 1, 100  # cudnnPointwiseMode_t
_PROPAGATE = 1  # cudnnNanPropagation_t
_MODES = (3, 2)  # cudnnBackendHeurMode_t: A, and the fallback
_TENSOR_CORE, _OTHERS = 0, {1, 2, 4}
"""cudnnBackendNumericalNote_t: tensor cores; and the notes that we refuse, which are rounded
factors, sums with fewer bits, and sums in no fixed order."""
_COMPILED = 0  # cudnnBackendBehaviorNote_t
_ENGINES, _NOTES = 64, 10
MOST_WORKSPACE = 1 << 20
"""The most bytes of workspace of a call. The first engines for channels-last data need none, or a
few hundred."""
_DATA, _FILTER, _SCALE, _BIAS, _ADDED, _RESULT, _SUMS = range(1, 8)


@dataclass(frozen=True)
class Tensor:
    """Sizes in cuDNN's order: batch, channels, spatial dims (of a filter: result channels,
    channels, spatial dims); the strides in elements, and the name of the element type."""

    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    element: str


@dataclass(frozen=True)
class Convolution:
    """`before` and `after`: the padding with zeros. `rounded`: whether f32 may be rounded to tf32.

    `compiled`: use an engine that is compiled at run time, which takes half a second, rather than a
    prebuilt one.
    """

    data: Tensor
    filter: Tensor
    result: Tensor
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    scale: str | None = None
    """The element type of the factors per channel."""
    bias: str | None = None
    """The element type of the bias per channel."""
    added: Tensor | None = None
    relu: bool = False
    rounded: bool = False
    compiled: bool = False


@cache
def _handle() -> c_void_p:
    """The handle, for the context that is current at the first call; we use no other."""
    handle = c_void_p()
    call("cudnnCreate", byref(handle))
    return handle


_turn = Turns("a call of cuDNN", CudaError)
"""Serializes the use of the handle's stream."""


class Call:
    """A prepared convolution. Raises CudaError if cuDNN does not support it."""

    def __init__(self, convolution: Convolution) -> None:
        graph = Descriptor.of(d.OPERATION_GRAPH, (d.GRAPH_HANDLE, _handle().value),
                              (d.GRAPH_OPERATIONS, list(operations(convolution))))
        self._plan, self.workspace = _first_plan(graph, convolution)
        self._names = [_DATA, _FILTER, *sorted(_epilogue(convolution)), _RESULT]

    def __call__(self, addresses: Sequence[int], stream: int, workspace: int = 0) -> None:
        """`addresses`: the data, the filter, the factors, the bias and the added tensor, if any,
        and the result."""
        pack = Descriptor.of(
            d.VARIANT_PACK, (d.PACK_NAMES, self._names), (d.PACK_POINTERS, list(addresses)),
            (d.PACK_WORKSPACE, workspace))
        with _turn:
            call("cudnnSetStream", _handle(), c_void_p(stream))
            call("cudnnBackendExecute", _handle(), self._plan.handle, pack.handle)


# ---------------------------------------------------------------------- the operation graph
def operations(convolution: Convolution) -> Iterator[Descriptor]:
    """The convolution and its epilogue; only the last operation's result is in memory."""
    epilogue: list[tuple[int, Tensor | None]] = [*_epilogue(convolution).items()]
    epilogue += [(_RESULT, None)] * convolution.relu
    result = convolution.result
    kind = Descriptor.of(
        d.CONVOLUTION, (d.COMPUTE_TYPE, _TYPES["f32"]), (d.CONVOLUTION_MODE, _CROSS_CORRELATION),
        (d.SPATIAL, len(convolution.strides)), (d.DILATIONS, convolution.dilations),
        (d.STRIDES, convolution.strides), (d.BEFORE, convolution.before),
        (d.AFTER, convolution.after))
    value = _tensor(result, _SUMS if epilogue else _RESULT, is_virtual=bool(epilogue))
    yield Descriptor.of(
        d.CONVOLUTION_FORWARD, (d.CONVOLUTION_OF, kind), (d.DATA, _tensor(convolution.data, _DATA)),
        (d.FILTER, _tensor(convolution.filter, _FILTER)), (d.RESULT, value), (d.ALPHA, 1.0),
        (d.BETA, 0.0))
    for number, (name, other) in enumerate(epilogue, 1):
        last = number == len(epilogue)
        source, value = value, _tensor(result, _RESULT if last else _SUMS + number, not last)
        right = [] if other is None else [(d.RIGHT, _tensor(other, name))]
        yield Descriptor.of(d.POINTWISE_OPERATION, (d.POINTWISE_OF, _pointwise(name)),
                            (d.LEFT, source), *right, (d.SUM, value))


def _epilogue(convolution: Convolution) -> dict[int, Tensor]:
    """The inputs of the epilogue, in order. Prebuilt engines, unlike those compiled at run time,
    require the bias last."""
    named = {_SCALE: _channels(convolution, convolution.scale),
             _ADDED: convolution.added, _BIAS: _channels(convolution, convolution.bias)}
    return {name: tensor for name, tensor in named.items() if tensor is not None}


def _channels(convolution: Convolution, element: str | None) -> Tensor | None:
    """A tensor with one number per channel of the result."""
    if element is None:
        return None
    channels, places = convolution.result.sizes[1], len(convolution.strides)
    return Tensor((1, channels, *[1] * places), (channels, 1, *[channels] * places), element)


def _pointwise(name: int) -> Descriptor:
    """The pointwise operation for an input of the epilogue, or for the ReLU."""
    mode = {_SCALE: _MULTIPLY, _RESULT: _RELU}.get(name, _ADD)
    return Descriptor.of(d.POINTWISE, (d.MODE, mode), (d.MATH_TYPE, _TYPES["f32"]),
                         *[(d.NAN_PROPAGATION, _PROPAGATE)] * (mode == _RELU))


def _tensor(tensor: Tensor, name: int, is_virtual: bool = False) -> Descriptor:
    """A tensor in memory; or a virtual one of f32, which has no memory."""
    return Descriptor.of(
        d.TENSOR, (d.ELEMENT, _TYPES["f32" if is_virtual else tensor.element]),
        (d.DIMS, tensor.sizes), (d.STEPS, tensor.steps), (d.NAME, name), (d.ALIGNMENT, 16),
        (d.IS_VIRTUAL, is_virtual))


# ---------------------------------------------------------------------- engines
def _first_plan(graph: Descriptor, convolution: Convolution) -> tuple[Descriptor, int]:
    """A plan with the first suitable engine, and the bytes of its workspace."""
    for configuration in _configurations(graph):
        if not _may_be(configuration, convolution):
            continue
        try:
            plan = Descriptor.of(d.PLAN, (d.PLAN_HANDLE, _handle().value),
                                 (d.PLAN_CONFIGURATION, configuration))
        except CudaError:
            continue
        [workspace] = plan.numbers(d.PLAN_WORKSPACE)
        if workspace <= MOST_WORKSPACE:
            return plan, workspace
    raise CudaError(f"cuDNN does not support {convolution}")


def _configurations(graph: Descriptor) -> Iterator[Descriptor]:
    """Engine configurations, the most promising first."""
    for mode in _MODES:
        try:
            found = Descriptor.of(d.HEURISTICS, (d.HEURISTIC_GRAPH, graph),
                                  (d.HEURISTIC_MODE, mode))
        except CudaError:
            continue
        yield from found.descriptors(d.HEURISTIC_RESULTS, d.CONFIGURATION, _ENGINES)


def _may_be(configuration: Descriptor, convolution: Convolution) -> bool:
    """Whether an engine is of the requested kind, as accurate as our kernels, and deterministic.
    """
    [engine] = configuration.descriptors(d.CONFIGURATION_ENGINE, d.ENGINE, 1)
    notes = {*engine.numbers(d.ENGINE_NOTES, _NOTES)}
    exact = convolution.data.element == "f32" and not convolution.rounded
    is_compiled = _COMPILED in engine.numbers(d.ENGINE_BEHAVIOR, _NOTES)
    return not notes & _OTHERS and not (exact and _TENSOR_CORE in notes) and (
        is_compiled or not convolution.compiled)
