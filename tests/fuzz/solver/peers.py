"""What onnxruntime computes of a model, as it is; or in f32, where it has no kernels for halves.

It takes and gives no arrays of bfloat16 and of 8-bit floats, so that such inputs and outputs are
f32 next to conversions, which are exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from compiler.reduction.inlining import inlined
from tests.fuzz.solver.draft import BF16, F8, F16, F32, Array

NO_SUCH_TYPE = ("NOT_IMPLEMENTED", "Type Error")
"""How it says that an operator is not there for a type."""
HALVES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
FOREIGN = {helper.np_dtype_to_tensor_dtype(t): t for t in (BF16, *F8)}
"""Types of which it exchanges no arrays."""
SUFFIX = "_f32"
TYPES = ("to", "dtype", "output_dtype", "precision")
"""Attributes that say an element type."""


@dataclass(frozen=True)
class Peer:
    """A session. `wide`: it computes f32 in the place of halves."""

    session: Any
    wide: bool = False

    def run(self, feed: Mapping[str, Array], like: Sequence[Array]) -> list[Array] | None:
        """Its outputs, of the types of `like`; None where it does not run."""
        found = self.raw(feed)
        if found is None:
            return None
        return [a.astype(b.dtype) if self._converts(b.dtype) else a
                for a, b in zip(found, like, strict=True)]

    def raw(self, feed: Mapping[str, Array]) -> list[Array] | None:
        """Its outputs, of its types; None where it does not run."""
        return run_peer(self.session, {
            f"{name}{SUFFIX}" if a.dtype in FOREIGN.values() else name:
            a.astype(F32) if self._converts(a.dtype) else a for name, a in feed.items()})

    def _converts(self, dtype: np.dtype[Any]) -> bool:
        return dtype in FOREIGN.values() or (self.wide and dtype == F16)


def peer_of(proto: onnx.ModelProto) -> Peer | str | None:
    """None where it has not the types, even in f32, or is not there; a text where it says that the
    model is invalid.
    """
    proto = with_f32_outside(proto)
    session = session_of(proto)
    if isinstance(session, str) and proto.functions:  # of some operators it infers nothing there
        proto = inlined(proto)
        session = session_of(proto)
    wide = session is None and any(True for _ in _halves(proto))
    if wide:
        proto = widened(proto)
        session = session_of(proto)
    if session is None or isinstance(session, str):
        return session
    return Peer(session, wide)


def session_of(proto: onnx.ModelProto) -> Any:
    """A session without optimizations; None and texts as above."""
    try:
        import onnxruntime
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return onnxruntime.InferenceSession(proto.SerializeToString(), options,
                                            providers=["CPUExecutionProvider"])
    except Exception as error:
        return None if any(t in str(error) for t in NO_SUCH_TYPE) else str(error)


def run_peer(session: Any, feed: Mapping[str, Array]) -> list[Array] | None:
    """Its outputs; None where it does not take or give the arrays."""
    try:
        return session.run(None, dict(feed))
    except Exception:
        return None


# ---------------------------------------------------------------------- changes of the model
def with_f32_outside(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with f32 for inputs and outputs that onnxruntime does not exchange."""
    given, wanted = ([v for v in values if v.type.tensor_type.elem_type in FOREIGN]
                     for values in (proto.graph.input, proto.graph.output))
    if not given and not wanted:
        return proto
    result = onnx.ModelProto()
    result.CopyFrom(proto)
    before = [_cast(f"{v.name}{SUFFIX}", v.name, v.type.tensor_type.elem_type) for v in given]
    after = [_cast(v.name, f"{v.name}{SUFFIX}", TensorProto.FLOAT) for v in wanted]
    nodes = [*before, *result.graph.node, *after]
    del result.graph.node[:]
    result.graph.node.extend(nodes)
    for value in (*result.graph.input, *result.graph.output):
        if value.type.tensor_type.elem_type in FOREIGN:
            value.name = f"{value.name}{SUFFIX}"
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    return result


def _cast(x: str, y: str, to: int) -> onnx.NodeProto:
    return helper.make_node("Cast", [x], [y], to=to)


def widened(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with f32 in the place of f16 and bf16."""
    result = onnx.ModelProto()
    result.CopyFrom(proto)
    for message in list(_halves(result)):
        if isinstance(message, onnx.TensorProto):
            message.CopyFrom(numpy_helper.from_array(
                numpy_helper.to_array(message).astype(F32), message.name))
        elif isinstance(message, onnx.TypeProto.Tensor):
            message.elem_type = TensorProto.FLOAT
        else:
            message.i = TensorProto.FLOAT
    return result


def _halves(message: Any) -> Iterator[Any]:
    """The parts of a model that say f16 or bf16: tensors, types and attributes."""
    if isinstance(message, onnx.TensorProto):
        if message.data_type in HALVES:
            yield message
        return
    if isinstance(message, onnx.TypeProto.Tensor) and message.elem_type in HALVES:
        yield message
    if isinstance(message, onnx.AttributeProto) and message.name in TYPES and message.i in HALVES:
        yield message
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for part in value if field.is_repeated else [value]:
                yield from _halves(part)
