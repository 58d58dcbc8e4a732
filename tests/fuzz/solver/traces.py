"""What each value of a model is in onnxruntime and in our reference, and what computed it.

The graph is followed from an output back to the operators that it comes from, with the functions of
the model inlined. The inside of a body is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from compiler.diagnostics import StrataError
from compiler.frontend import ImportOptions, MemoryModel, load_model
from compiler.reduction.inlining import inlined
from compiler.reduction.recording import with_all_outputs
from dialects.strata.binding import EvaluationError
from targets.reference.interpret import interpret, model_function
from tests.fuzz.solver.draft import Array
from tests.fuzz.solver.outline import body_reads
from tests.fuzz.solver.peers import peer_of

Values = Mapping[str, Array]


@dataclass(frozen=True)
class Trace:
    """`theirs`, `ours`: the values that onnxruntime and the reference compute, by name."""

    graph: onnx.GraphProto
    theirs: Values
    ours: Values

    @staticmethod
    def of(proto: onnx.ModelProto, feed: Values) -> Trace | None:
        """None where either does not run it with all of its values as outputs."""
        model = inlined(proto)
        told = with_all_outputs(model)
        ours = reference(told, feed)
        if ours is None:
            return None
        names = _only_tensors(told.graph, ours)
        peer = peer_of(told)
        theirs = None if peer is None or isinstance(peer, str) else (
            peer.run(feed, [ours[n] for n in names]))
        if theirs is None:
            return None
        given = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer} | dict(feed)
        return Trace(model.graph, given | dict(zip(names, theirs, strict=True)), given | ours)

    def producer(self, name: str) -> onnx.NodeProto | None:
        return next((node for node in self.graph.node if name in node.output), None)

    def upstream(self, name: str) -> list[onnx.NodeProto]:
        """The nodes that a value comes from, the one that computes it first."""
        found: list[onnx.NodeProto] = []
        waiting = [name]
        while waiting:
            node = self.producer(waiting.pop(0))
            if node is not None and not any(node is other for other in found):
                found.append(node)
                waiting.extend(_reads(node))
        return found

    def parting(self, name: str) -> list[onnx.NodeProto]:
        """The nodes upstream of a value that make different shapes, or different integers, of what
        is the same.
        """
        return [node for node in self.upstream(name)
                if all(self.agrees(n) for n in _reads(node))
                and any(self.parts(n) for n in node.output if n)]

    def agrees(self, name: str) -> bool:
        """Whether both have the same value, as far as floats can be."""
        if name not in self.theirs or name not in self.ours:
            return False
        a, b = self.theirs[name], self.ours[name]
        if a.shape != b.shape or a.dtype.kind in "iub":
            return np.array_equal(a, b)
        close = np.isclose(a.astype(np.float64), b.astype(np.float64), 1e-2, 1e-2, equal_nan=True)
        return bool(close.all())

    def parts(self, name: str) -> bool:
        """Whether its shapes or its integers are different."""
        if name not in self.theirs or name not in self.ours:
            return True
        a, b = self.theirs[name], self.ours[name]
        return a.shape != b.shape or (a.dtype.kind in "iub" and not np.array_equal(a, b))


def _only_tensors(graph: onnx.GraphProto, ours: Values) -> list[str]:
    """Keep the outputs that are tensors, and return their names. They get their element types, as
    onnxruntime gives no arrays of some.
    """
    kept = [info for info in graph.output if info.name in ours]
    for info in kept:
        info.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(ours[info.name].dtype)
    del graph.output[:]
    graph.output.extend(kept)
    return [info.name for info in kept]


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    yield from (n for n in node.input if n)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield from body_reads(attribute.g)


def reference(told: onnx.ModelProto, feed: Values) -> dict[str, Array] | None:
    """The outputs by name, as the reference computes them; None where it does not run. Sequences
    have other names here.
    """
    try:
        model = load_model(MemoryModel("all.onnx", told.SerializeToString()), ImportOptions())
        function = model_function(model.module)
        found = interpret(model.module, model.weights, [feed[n] for n in function.input_names])
        return dict(zip(function.output_names, found, strict=True))
    except (StrataError, EvaluationError, ValueError, KeyError):
        return None
