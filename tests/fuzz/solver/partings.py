"""Operators of which onnxruntime makes something else than ONNX says, and what comes of it.

A finding is explained by an operator where the output comes from it; where onnxruntime's result of
it, on the operands that it has, is wrong in the way that is known; where nothing else upstream is
another; and where the rest of the model, on that result, computes what onnxruntime does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import helper

from tests.fuzz.solver.generate import Generated
from tests.fuzz.solver.judge import Finding, judge
from tests.fuzz.solver.traces import Trace

Known = Callable[[Trace, onnx.NodeProto], bool]
TINY = 2e-8
"""Above the sigmoid of -18."""


def parts_at(drawn: Generated, found: Finding, of: Known) -> bool:
    """Whether operators of one kind explain a finding, perhaps among others that are known."""
    name = re.match(r"output (\S+) ", found.text)
    if found.kind != "peer" or name is None:
        return False
    feed = drawn.feeds[found.feed]
    trace = Trace.of(drawn.proto, feed)
    nodes = [] if trace is None else trace.parting(name[1])
    if trace is None or not any(of(trace, n) for n in nodes):
        return False
    known = all(any(kind(trace, n) for kind in KNOWN) for n in nodes)
    return known and not judge(after(drawn, trace, feed, nodes))


def imprecise_at(drawn: Generated, found: Finding) -> bool:
    """Whether a finding comes from operators that onnxruntime computes less exactly than others."""
    name = re.match(r"output (\S+) ", found.text)
    if found.kind != "peer" or name is None:
        return False
    feed = drawn.feeds[found.feed]
    trace = Trace.of(drawn.proto, feed)
    nodes = [] if trace is None else [
        n for n in trace.upstream(name[1]) if any(kind(trace, n) for kind in IMPRECISE)]
    return trace is not None and bool(nodes) and not judge(after(drawn, trace, feed, nodes))


def after(
    drawn: Generated, trace: Trace, feed: dict[str, np.ndarray], nodes: Sequence[onnx.NodeProto]
) -> Generated:
    """The model with onnxruntime's results of some nodes as inputs."""
    proto = onnx.ModelProto()
    proto.CopyFrom(drawn.proto)
    del proto.functions[:]
    proto.graph.CopyFrom(trace.graph)
    results = {n: trace.theirs[n] for node in nodes for n in node.output if n}
    rest = [node for node in proto.graph.node if not results.keys() & set(node.output)]
    outputs = [value for value in proto.graph.output if value.name not in results]
    del proto.graph.node[:], proto.graph.output[:]
    proto.graph.node.extend(rest)
    proto.graph.output.extend(outputs)
    proto.graph.input.extend(
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in results.items())
    if not outputs:  # a model has one
        proto.graph.output.extend(proto.graph.input)
    return Generated(drawn.number, proto, [{**feed, **results}], drawn.special)


# ---------------------------------------------------------------------- reductions
def leaves_dims(trace: Trace, node: onnx.NodeProto) -> bool:
    """Whether onnxruntime leaves the dims of a reduction, of nothing or of f16, along dims that
    are counted from the end.
    """
    if not node.op_type.startswith("Reduce"):
        return False
    x, axes = trace.theirs[node.input[0]], _axes(trace, node)
    if (x.size and x.dtype != np.float16) or not any(a < 0 for a in axes):
        return False
    kept = tuple(1 if a in axes or a - x.ndim in axes else d for a, d in enumerate(x.shape))
    return trace.theirs[node.output[0]].shape in (x.shape, kept) and (
        trace.ours[node.output[0]].shape == _reduced(node, kept, axes))


def _axes(trace: Trace, node: onnx.NodeProto) -> list[int]:
    if len(node.input) > 1 and node.input[1]:
        return trace.theirs[node.input[1]].tolist()
    return [a for attribute in node.attribute if attribute.name == "axes" for a in attribute.ints]


def _reduced(
    node: onnx.NodeProto, kept: tuple[int, ...], axes: Sequence[int]
) -> tuple[int, ...]:
    """The right shape. `kept`: with ones for the dims that are gone."""
    if next((a.i for a in node.attribute if a.name == "keepdims"), 1):
        return kept
    gone = {a % len(kept) for a in axes}
    return tuple(d for a, d in enumerate(kept) if a not in gone)


def ends_at_last(trace: Trace, node: onnx.NodeProto) -> bool:
    """Whether a product of integers is another only where it leaves the range of its type: it
    wraps around here, and is the first or last number of the type in onnxruntime.
    """
    if node.op_type != "ReduceProd" or trace.ours[node.input[0]].dtype.kind not in "iu":
        return False
    theirs, ours = trace.theirs[node.output[0]], trace.ours[node.output[0]]
    if theirs.shape != ours.shape:
        return False
    x, info = trace.ours[node.input[0]].astype(object), np.iinfo(ours.dtype)
    axes = tuple(a % x.ndim for a in _axes(trace, node) or range(x.ndim))
    exact = np.asarray(np.multiply.reduce(x, axes), object).reshape(ours.shape)
    inside = np.asarray((exact >= info.min) & (exact <= info.max), bool)
    wrapped = np.asarray((exact - ours.astype(object)) % 2**info.bits == 0, bool)
    ends = (theirs == info.min) | (theirs == info.max)
    return bool((wrapped & ((theirs == ours) | (~inside & ends))).all())


# ---------------------------------------------------------------------- what is not 0
def counts_of_rounded(trace: Trace, node: onnx.NodeProto) -> bool:
    """Whether NonZero finds in onnxruntime all but numbers that are tiny here, and 0 there since
    a sigmoid is.
    """
    if node.op_type != "NonZero":
        return False
    theirs, ours = trace.theirs[node.input[0]], trace.ours[node.input[0]]
    if theirs.shape != ours.shape or ours.dtype.kind in "iub" or not ours.ndim:
        return False
    gone = (theirs == 0) & (ours != 0)
    return bool(gone.any() and (np.abs(ours[gone]) < TINY).all()
                and all(np.array_equal(values[node.output[0]], np.stack(np.nonzero(x)))
                        for values, x in ((trace.theirs, theirs), (trace.ours, ours)))
                and any(_ends_early(trace, n) for n in trace.upstream(node.input[0])))


def _ends_early(trace: Trace, node: onnx.NodeProto) -> bool:
    """Whether it is a sigmoid that is 0 in onnxruntime where it is not here."""
    if node.op_type != "Sigmoid" or trace.parts(node.output[0]):
        return False
    theirs, ours = trace.theirs[node.output[0]], trace.ours[node.output[0]]
    return bool(((theirs == 0) & (ours > 0) & (ours < TINY)).any())


# ---------------------------------------------------------------------- ties and lost digits
def rounds_with_zero_point(trace: Trace, node: onnx.NodeProto) -> bool:
    """Whether a product of quantized numbers is another one only at ties: onnxruntime adds the
    zero point before it rounds to an even number, QuantizeLinear after that.
    """
    if node.op_type != "QLinearMul":
        return False
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = (
        trace.ours[name].astype(np.float64) for name in node.input)
    exact = (a - a_zero) * (b - b_zero) * a_scale * b_scale / scale
    theirs, ours = trace.theirs[node.output[0]], trace.ours[node.output[0]]
    inside = np.iinfo(ours.dtype)
    return (theirs.shape == ours.shape
            and np.array_equal(ours, np.clip(np.rint(exact) + zero, inside.min, inside.max))
            and np.array_equal(theirs, np.clip(np.rint(exact + zero), inside.min, inside.max)))


def subtracts_squares(trace: Trace, node: onnx.NodeProto) -> bool:
    """Whether distances are less exact since they are made of x*x - 2*x*y + y*y."""
    if node.op_type != "CDist":
        return False
    x, y = (np.square(trace.ours[name].astype(np.float64)).sum(-1) for name in node.input)
    theirs, ours = (np.square(values[node.output[0]].astype(np.float64))
                    for values in (trace.theirs, trace.ours))
    if not any(a.name == "metric" and a.s == b"euclidean" for a in node.attribute):
        theirs, ours = np.sqrt(theirs), np.sqrt(ours)
    loss = 8 * np.finfo(np.float32).eps
    return theirs.shape == ours.shape and bool(
        (np.abs(theirs - ours) <= loss * (x[:, None] + y[None, :])).all())


def sums_while_channels_pass(trace: Trace, node: onnx.NodeProto) -> bool:
    """Whether a normalization across channels lost digits where a channel of large numbers left the
    window: onnxruntime adds the square of the next channel and subtracts that of the last one.
    """
    if node.op_type != "LRN" or not trace.agrees(node.input[0]):
        return False
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    x = trace.ours[node.input[0]].astype(np.float64)
    theirs, ours = (values[node.output[0]].astype(np.float64)
                    for values in (trace.theirs, trace.ours))
    squares = given.get("alpha", 1e-4) / given["size"] * np.square(x).sum(1, keepdims=True)
    with np.errstate(all="ignore"):
        loss = 4 * x.shape[1] * np.finfo(np.float32).eps * (1 + squares / given.get("bias", 1.0))
        close = np.abs(theirs - ours) <= loss * np.abs(ours)
    return bool((close | (theirs == ours) | (np.isnan(theirs) & np.isnan(ours))).all())


KNOWN: tuple[Known, ...] = (
    leaves_dims, ends_at_last, counts_of_rounded, rounds_with_zero_point)
IMPRECISE: tuple[Known, ...] = (subtracts_squares, sums_while_channels_pass)
