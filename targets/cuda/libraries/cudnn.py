"""Convolutions by cuDNN, as PyTorch's packages bring it, with what it computes behind them.

A convolution, factors of channels, a bias, a sum with other values and a ReLU are a graph of
operations, for which cuDNN's heuristics name engines, the most promising first: the first one
counts whose sums are of f32 in an order that is always the same, of factors that are not rounded.
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
_MODES = (3, 2)  # cudnnBackendHeurMode_t: A, and what always works
_TENSOR_CORE, _OTHERS = 0, {1, 2, 4}
"""cudnnBackendNumericalNote_t: tensor cores; factors that are rounded, sums that are shorter, or
in any order."""
_COMPILED = 0  # cudnnBackendBehaviorNote_t
_ENGINES, _NOTES = 64, 10
MOST_WORKSPACE = 1 << 20
"""Bytes of memory that a call may use besides. The first engines for channels last need none or a
few hundred."""
_DATA, _FILTER, _SCALE, _BIAS, _ADDED, _RESULT, _SUMS = range(1, 8)


@dataclass(frozen=True)
class Tensor:
    """Sizes in cuDNN's order, batch, channels and places (of a filter: results, channels, places),
    how far apart they lie in elements, and the element as types print."""

    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    element: str


@dataclass(frozen=True)
class Convolution:
    """`before` and `after`: zeros around the data. `rounded`: f32 may be, to tf32.

    `compiled`: by an engine that is compiled for it, in half a second, not by one that is there.
    """

    data: Tensor
    filter: Tensor
    result: Tensor
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    scale: str | None = None
    """The element of what each channel of the sums is multiplied by."""
    bias: str | None = None
    """The element of what is added to each channel."""
    added: Tensor | None = None
    relu: bool = False
    rounded: bool = False
    compiled: bool = False


@cache
def _handle() -> c_void_p:
    """For the context that is current when it is first asked for, the only one we use."""
    handle = c_void_p()
    call("cudnnCreate", byref(handle))
    return handle


_turn = Turns("a call of cuDNN", CudaError)
"""Whose turn it is to have work put on the handle's stream."""


class Call:
    """A convolution that can be called. Raises CudaError where cuDNN has none for it."""

    def __init__(self, convolution: Convolution) -> None:
        graph = Descriptor.of(d.OPERATION_GRAPH, (d.GRAPH_HANDLE, _handle().value),
                              (d.GRAPH_OPERATIONS, list(operations(convolution))))
        self._plan, self.workspace = _first_plan(graph, convolution)
        self._names = [_DATA, _FILTER, *sorted(_behind(convolution)), _RESULT]

    def __call__(self, addresses: Sequence[int], stream: int, workspace: int = 0) -> None:
        """`addresses`: of the data, the filter, the factors, the bias and what is added, if there
        are any, and the result."""
        pack = Descriptor.of(
            d.VARIANT_PACK, (d.PACK_NAMES, self._names), (d.PACK_POINTERS, list(addresses)),
            (d.PACK_WORKSPACE, workspace))
        with _turn:
            call("cudnnSetStream", _handle(), c_void_p(stream))
            call("cudnnBackendExecute", _handle(), self._plan.handle, pack.handle)


# ---------------------------------------------------------------------- what is asked for
def operations(convolution: Convolution) -> Iterator[Descriptor]:
    """The convolution, and what is behind it; only the last one's result is in memory."""
    behind: list[tuple[int, Tensor | None]] = [*_behind(convolution).items()]
    behind += [(_RESULT, None)] * convolution.relu
    result = convolution.result
    kind = Descriptor.of(
        d.CONVOLUTION, (d.COMPUTE_TYPE, _TYPES["f32"]), (d.CONVOLUTION_MODE, _CROSS_CORRELATION),
        (d.SPATIAL, len(convolution.strides)), (d.DILATIONS, convolution.dilations),
        (d.STRIDES, convolution.strides), (d.BEFORE, convolution.before),
        (d.AFTER, convolution.after))
    value = _tensor(result, _SUMS if behind else _RESULT, is_virtual=bool(behind))
    yield Descriptor.of(
        d.CONVOLUTION_FORWARD, (d.CONVOLUTION_OF, kind), (d.DATA, _tensor(convolution.data, _DATA)),
        (d.FILTER, _tensor(convolution.filter, _FILTER)), (d.RESULT, value), (d.ALPHA, 1.0),
        (d.BETA, 0.0))
    for number, (name, other) in enumerate(behind, 1):
        last = number == len(behind)
        source, value = value, _tensor(result, _RESULT if last else _SUMS + number, not last)
        right = [] if other is None else [(d.RIGHT, _tensor(other, name))]
        yield Descriptor.of(d.POINTWISE_OPERATION, (d.POINTWISE_OF, _pointwise(name)),
                            (d.LEFT, source), *right, (d.SUM, value))


def _behind(convolution: Convolution) -> dict[int, Tensor]:
    """What is read behind the sums, in order. Engines that are there, not compiled when they are
    called, take a bias last."""
    named = {_SCALE: _channels(convolution, convolution.scale),
             _ADDED: convolution.added, _BIAS: _channels(convolution, convolution.bias)}
    return {name: tensor for name, tensor in named.items() if tensor is not None}


def _channels(convolution: Convolution, element: str | None) -> Tensor | None:
    """A number for each channel of the result."""
    if element is None:
        return None
    channels, places = convolution.result.sizes[1], len(convolution.strides)
    return Tensor((1, channels, *[1] * places), (channels, 1, *[channels] * places), element)


def _pointwise(name: int) -> Descriptor:
    """What is done with what is read, or with nothing but the sums."""
    mode = {_SCALE: _MULTIPLY, _RESULT: _RELU}.get(name, _ADD)
    return Descriptor.of(d.POINTWISE, (d.MODE, mode), (d.MATH_TYPE, _TYPES["f32"]),
                         *[(d.NAN_PROPAGATION, _PROPAGATE)] * (mode == _RELU))


def _tensor(tensor: Tensor, name: int, is_virtual: bool = False) -> Descriptor:
    """A tensor in memory, or of f32 and in none."""
    return Descriptor.of(
        d.TENSOR, (d.ELEMENT, _TYPES["f32" if is_virtual else tensor.element]),
        (d.DIMS, tensor.sizes), (d.STEPS, tensor.steps), (d.NAME, name), (d.ALIGNMENT, 16),
        (d.IS_VIRTUAL, is_virtual))


# ---------------------------------------------------------------------- how it is computed
def _first_plan(graph: Descriptor, convolution: Convolution) -> tuple[Descriptor, int]:
    """The first engine that may be, ready, and the bytes that it needs."""
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
    raise CudaError(f"cuDNN has no {convolution}")


def _configurations(graph: Descriptor) -> Iterator[Descriptor]:
    """Engines with all their choices, the most promising first."""
    for mode in _MODES:
        try:
            found = Descriptor.of(d.HEURISTICS, (d.HEURISTIC_GRAPH, graph),
                                  (d.HEURISTIC_MODE, mode))
        except CudaError:
            continue
        yield from found.descriptors(d.HEURISTIC_RESULTS, d.CONFIGURATION, _ENGINES)


def _may_be(configuration: Descriptor, convolution: Convolution) -> bool:
    """Whether an engine is of the kind, and what it computes as exact as ours, and always the same.
    """
    [engine] = configuration.descriptors(d.CONFIGURATION_ENGINE, d.ENGINE, 1)
    notes = {*engine.numbers(d.ENGINE_NOTES, _NOTES)}
    exact = convolution.data.element == "f32" and not convolution.rounded
    is_compiled = _COMPILED in engine.numbers(d.ENGINE_BEHAVIOR, _NOTES)
    return not notes & _OTHERS and not (exact and _TENSOR_CORE in notes) and (
        is_compiled or not convolution.compiled)
