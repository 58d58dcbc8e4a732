"""CUDA graphs through the driver: launches and copies as nodes, replayed with one call.

A node's addresses can be changed between replays; replays in flight keep the old ones.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_ulonglong, c_void_p
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeGuard

from targets.cuda.runtime.driver import Event, call, check, free_with, library, primary_context

_DEVICE_MEMORY = 2  # CU_MEMORYTYPE_DEVICE
_PROGRAMMATIC = 1  # CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
_ADD_EDGES = "cuGraphAddDependencies_v2"  # drivers for CUDA 12.3 and later have it


class _Edge(ctypes.Structure):
    """CUgraphEdgeData."""

    _fields_ = [("source_port", c_ubyte), ("target_port", c_ubyte), ("kind", c_ubyte),
                ("reserved", c_ubyte * 5)]


class _LaunchParameters(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS, in its second version; the first one ends before `kernel`."""

    _fields_ = [("function", c_void_p), ("grid", c_uint * 3), ("block", c_uint * 3),
                ("shared", c_uint), ("parameters", c_void_p), ("extra", c_void_p),
                ("kernel", c_void_p), ("context", c_void_p)]


class _End(ctypes.Structure):
    """The source or the target of a CUDA_MEMCPY3D."""

    _fields_ = [("x", c_size_t), ("y", c_size_t), ("z", c_size_t), ("level", c_size_t),
                ("kind", c_int), ("host", c_void_p), ("device", c_uint64), ("array", c_void_p),
                ("reserved", c_void_p), ("pitch", c_size_t), ("height", c_size_t)]


class _CopyParameters(ctypes.Structure):
    """CUDA_MEMCPY3D."""

    _fields_ = [("source", _End), ("target", _End), ("width", c_size_t), ("height", c_size_t),
                ("depth", c_size_t)]


class Launch(Protocol):
    """A launch. `parameters`: the addresses of its parameters, read when the node is set."""

    @property
    def function(self) -> Any: ...
    @property
    def blocks(self) -> tuple[int, int, int]: ...
    @property
    def threads(self) -> int: ...
    @property
    def shared(self) -> int: ...
    @property
    def parameters(self) -> Any: ...
    @property
    def waits(self) -> bool: ...


@dataclass
class CopyNode:
    """A copy of `size` bytes, at least one."""

    source: int
    target: int
    size: int

    def point(self, place: int, address: int) -> None:
        """Set the address that it copies from (place 0) or to (place 1)."""
        if place:
            self.target = address
        else:
            self.source = address


@dataclass(frozen=True)
class RecordNode:
    """Records an event, which then tells when the nodes before it have ended."""

    event: Event


class CallNode(ABC):
    """A library call."""

    @abstractmethod
    def captured(self) -> c_void_p:
        """The call captured as a graph, which the caller destroys."""


Node = Launch | CopyNode | CallNode | RecordNode
Packed = _LaunchParameters | _CopyParameters | CallNode | RecordNode


class Graph:
    """A CUDA graph: nodes, and for each node the earlier ones that it depends on."""

    def __init__(
        self, nodes: Sequence[Node], waits: Sequence[Sequence[int]], overlap: bool = False
    ) -> None:
        """`overlap`: use programmatic dependent launch for launches that wait in the kernel."""
        self._graph, self._executable = c_void_p(), c_void_p()
        self._nodes = list(nodes)
        self._packed = [_packed(node) for node in nodes]
        call("cuGraphCreate", byref(self._graph), c_uint(0))
        self._freed = [free_with(self, "cuGraphDestroy", self._graph)]
        self._handles: list[c_void_p] = []
        for node, packed, earlier in zip(nodes, self._packed, waits, strict=True):
            handle = c_void_p()
            early = [k for k in earlier if overlap and _may_overlap(nodes[k], node)]
            _add(packed, handle, self._graph, self._handles_of([
                k for k in earlier if k not in early]))
            self._handles.append(handle)
            for k in early:
                _wait_early(self._graph, self._handles[k], handle)
        call("cuGraphInstantiateWithFlags", byref(self._executable), self._graph, c_ulonglong(0))
        self._freed += [free_with(self, "cuGraphExecDestroy", self._executable)]
        self._launch = library().cuGraphLaunch

    def _handles_of(self, nodes: Sequence[int]) -> ctypes.Array[c_void_p]:
        return (c_void_p * len(nodes))(*(self._handles[k].value for k in nodes))

    def update(self, number: int) -> None:
        """Make later replays use the node's current parameters."""
        node, packed = self._nodes[number], self._packed[number]
        if isinstance(node, CopyNode):
            packed = self._packed[number] = _packed(node)
        _set(packed, self._handles[number], self._executable)

    def launch(self, stream: int) -> None:
        check(self._launch(self._executable, stream), "cuGraphLaunch")

    def close(self) -> None:
        """Destroy the graph, as garbage collection would; no replay may be in flight."""
        for free in self._freed:
            free()


def chain(nodes: Sequence[Node]) -> Graph:
    """A graph in which each node waits for the one before it."""
    return Graph(nodes, [[k - 1] if k else [] for k in range(len(nodes))])


def _packed(node: Node) -> Packed:
    """A node's parameters for the driver. Those of a launch stay valid when its values change."""
    if isinstance(node, CopyNode):
        source, target = (_End(kind=_DEVICE_MEMORY, device=address, pitch=node.size, height=1)
                          for address in (node.source, node.target))
        return _CopyParameters(source, target, node.size, 1, 1)
    if isinstance(node, CallNode | RecordNode):
        return node
    return _LaunchParameters(node.function, node.blocks, (node.threads, 1, 1),
                             node.shared, ctypes.cast(node.parameters, c_void_p))


def _add(
    packed: Packed, handle: c_void_p, graph: c_void_p, before: ctypes.Array[c_void_p],
) -> None:
    """Add a node after the nodes in `before`; its handle is written to `handle`."""
    first = byref(handle), graph, before, c_size_t(len(before))
    if isinstance(packed, CallNode):
        with _captured(packed) as child:
            call("cuGraphAddChildGraphNode", *first, child)
        return
    if isinstance(packed, RecordNode):
        call("cuGraphAddEventRecordNode", *first, packed.event.handle)
        return
    place = *first, byref(packed)
    if isinstance(packed, _CopyParameters):
        call("cuGraphAddMemcpyNode", *place, primary_context())
    else:
        call(_versioned("cuGraphAddKernelNode"), *place)


def _set(packed: Packed, handle: c_void_p, executable: c_void_p) -> None:
    """Set new parameters of a node of an executable graph."""
    if isinstance(packed, CallNode):
        with _captured(packed) as child:
            call("cuGraphExecChildGraphNodeSetParams", executable, handle, child)
    elif isinstance(packed, RecordNode):
        call("cuGraphExecEventRecordNodeSetEvent", executable, handle, packed.event.handle)
    elif isinstance(packed, _CopyParameters):
        call("cuGraphExecMemcpyNodeSetParams", executable, handle, byref(packed),
             primary_context())
    else:
        call(_versioned("cuGraphExecKernelNodeSetParams"), executable, handle, byref(packed))


def _may_overlap(earlier: Node, node: Node) -> bool:
    """Whether a node may start before an earlier one ends: both must be launches, and the later
    kernel must wait for the earlier one itself.
    """
    return _is_launch(earlier) and _is_launch(node) and node.waits and hasattr(
        library(), _ADD_EDGES)


def _is_launch(node: Node) -> TypeGuard[Launch]:
    return not isinstance(node, (CopyNode, CallNode, RecordNode))


def _wait_early(graph: c_void_p, earlier: c_void_p, node: c_void_p) -> None:
    """Make a launch depend on an earlier one by programmatic dependent launch."""
    edge = _Edge(_PROGRAMMATIC, 0, _PROGRAMMATIC)
    call(_ADD_EDGES, graph, byref(earlier), byref(node), byref(edge), c_size_t(1))


@contextmanager
def _captured(node: CallNode) -> Generator[c_void_p]:
    """A library call captured as a graph, for functions of the driver that copy the graph."""
    graph = node.captured()
    try:
        yield graph
    finally:
        call("cuGraphDestroy", graph)


@cache
def _versioned(function: str) -> str:
    """The name of a function's second version if the driver has it, as all new drivers do."""
    second = f"{function}_v2"
    return second if hasattr(library(), second) else function
