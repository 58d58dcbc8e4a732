"""Operators of which onnxruntime makes something else than ONNX says, and what comes of it.

A finding is explained by an operator where the output comes from it; where onnxruntime's result of
it, on the operands that it has, is wrong in the way that is known; where nothing else upstream is
another; and where the rest of the model, on that result, computes what onnxruntime does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.fuzz.solver.draft import Array
from tests.fuzz.solver.generate import Generated
from tests.fuzz.solver.judge import Finding, judge
from tests.fuzz.solver.peers import Peer, peer_of
from tests.fuzz.solver.traces import Trace, reference

WIDE = (TensorProto.DOUBLE, TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
Known = Callable[[Trace, onnx.NodeProto], bool]
CUT, TINY = -18.0, 2e-8
"""Below which number onnxruntime's sigmoid is 0; and what is above the sigmoid of that number."""


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


def comes_from(drawn: Generated, found: Finding, of: Sequence[Known]) -> bool:
    """Whether a finding comes from operators of which onnxruntime's results need not be the same,
    not even from run to run.
    """
    name = re.match(r"output (\S+) ", found.text)
    if found.kind != "peer" or name is None:
        return False
    feed = drawn.feeds[found.feed]
    trace = Trace.of(drawn.proto, feed)
    nodes = [] if trace is None else [
        n for n in trace.upstream(name[1]) if any(kind(trace, n) for kind in of)]
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
    """Whether onnxruntime leaves the dims of a reduction of nothing that are counted from the end:
    it reduces only the others.
    """
    if not node.op_type.startswith("Reduce"):
        return False
    x, axes = trace.theirs[node.input[0]], _axes(trace, node)
    if x.size or all(a >= 0 for a in axes):
        return False
    theirs, ours = trace.theirs[node.output[0]].shape, trace.ours[node.output[0]].shape
    return theirs == _reduced(node, x.shape, {a for a in axes if a >= 0}) and (
        ours == _reduced(node, x.shape, {a % x.ndim for a in axes}))


def _axes(trace: Trace, node: onnx.NodeProto) -> list[int]:
    if len(node.input) > 1 and node.input[1]:
        return trace.theirs[node.input[1]].tolist()
    return [a for attribute in node.attribute if attribute.name == "axes" for a in attribute.ints]


def _reduced(
    node: onnx.NodeProto, shape: tuple[int, ...], axes: Collection[int]
) -> tuple[int, ...]:
    """The shape of a reduction along dims that are counted from the front."""
    keep = next((a.i for a in node.attribute if a.name == "keepdims"), 1)
    return tuple(1 if a in axes else d for a, d in enumerate(shape) if keep or a not in axes)


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
    """Whether a test for zeros finds in onnxruntime also numbers that are tiny here, and 0 there
    since a sigmoid is.
    """
    test = _test_for_zeros(trace, node)
    if test is None:
        return False
    theirs, ours = trace.theirs[node.input[0]], trace.ours[node.input[0]]
    if theirs.shape != ours.shape or ours.dtype.kind in "iub" or not ours.ndim:
        return False
    gone = (theirs == 0) & (ours != 0)
    return bool(gone.any() and (np.abs(ours[gone]) < TINY).all()
                and all(np.array_equal(values[node.output[0]], test(x))
                        for values, x in ((trace.theirs, theirs), (trace.ours, ours)))
                and any(_ends_early(trace, n) for n in trace.upstream(node.input[0])))


def _test_for_zeros(trace: Trace, node: onnx.NodeProto) -> Callable[[Array], Array] | None:
    """What an operator computes that tells 0 from other numbers; None of any other operator."""
    if node.op_type == "NonZero":
        return lambda x: np.stack(np.nonzero(x))
    if node.op_type in ("Cast", "CastLike") and trace.ours[node.output[0]].dtype == bool:
        return lambda x: x != 0
    return None


def _ends_early(trace: Trace, node: onnx.NodeProto) -> bool:
    """Whether it is a sigmoid, or a layer with sigmoids as gates, that is 0 in onnxruntime where it
    is not here.
    """
    names = [n for n in node.output if n]
    if node.op_type not in ("Sigmoid", "LSTM") or any(map(trace.parts, names)):
        return False
    for name in names:
        theirs, ours = trace.theirs[name], trace.ours[name]
        gone = (theirs == 0) & (ours != 0) & (np.abs(ours) < TINY)
        cut = np.zeros(()) if node.op_type == "Sigmoid" else _with_cut_gates(trace, node).get(name)
        if gone.any() and cut is not None and not np.broadcast_to(cut, gone.shape)[gone].any():
            return True
    return False


def _with_cut_gates(trace: Trace, node: onnx.NodeProto) -> dict[str, Array]:
    """The results, by name, of an LSTM whose gates are 0 below -18, as in onnxruntime; nothing
    where it has states, lengths, or functions of its own.
    """
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if any(node.input[4:]) or given.keys() - {"direction", "hidden_size"}:
        return {}
    x, w, r, *b = (trace.ours[n].astype(np.float64) for n in node.input if n)
    bias = b[0].reshape(len(w), 2, 1, -1).sum(1) if b else np.zeros((len(w), 1, 1))
    found = [_cut_steps(x[::-1] if d or given.get("direction") == b"reverse" else x, w[d], r[d],
                        bias[d]) for d in range(len(w))]
    states = [h[::-1] if d or given.get("direction") == b"reverse" else h
              for d, (h, _) in enumerate(found)]
    results = (np.stack(states, 1), np.stack([h[-1] for h, _ in found]),
               np.stack([c for _, c in found]))
    return dict(zip(node.output, results, strict=False))


def _cut_steps(x: Array, w: Array, r: Array, bias: Array) -> tuple[Array, Array]:
    """The states after each step, and the last cells."""
    h = c = np.zeros((x.shape[1], r.shape[1]))
    states: list[Array] = []
    for step in x:
        gates = np.split(step @ w.T + h @ r.T + bias, 4, 1)
        i, o, f = (np.where(g < CUT, 0.0, 1 / (1 + np.exp(-g))) for g in gates[:3])
        c = f * c + i * np.tanh(gates[3])
        h = o * np.tanh(c)
        states.append(h)
    return np.stack(states), c


# ---------------------------------------------------------------------- ties and lost digits
def rounds_with_zero_point(trace: Trace, node: onnx.NodeProto) -> bool:
    """Whether a product or a sum of quantized numbers is another one only at ties: onnxruntime adds
    the zero point before it rounds to an even number, QuantizeLinear after that.
    """
    if node.op_type not in ("QLinearMul", "QLinearAdd") or len(node.input) < 8:
        return False
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = (
        trace.ours[name].astype(np.float64) if name else np.zeros(()) for name in node.input)
    left, right = (a - a_zero) * a_scale, (b - b_zero) * b_scale
    exact = (left * right if node.op_type == "QLinearMul" else left + right) / scale
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


# ---------------------------------------------------------------------- nothing to add
def leaves_memory(trace: Trace, node: onnx.NodeProto) -> bool:
    """Whether a product of integers has no terms, so that each number is 0, or the zero point.
    onnxruntime writes none of them, so that they are what was in memory.
    """
    if node.op_type not in ("MatMulInteger", "QLinearMatMul"):
        return False
    second, zero = (1, None) if node.op_type == "MatMulInteger" else (3, node.input[7])
    shapes = [trace.ours[node.input[k]].shape for k in (0, second)]
    ours = trace.ours[node.output[0]]
    wanted = np.matmul(*(np.zeros(s, np.int8) for s in shapes)) + (
        trace.ours[zero] if zero else np.int8(0))
    return shapes[0][-1] == 0 and np.array_equal(ours, wanted)


# ---------------------------------------------------------------------- halves
def folds_halves(drawn: Generated, found: Finding) -> bool:
    """Whether a finding comes from what is computed of constants alone, in halves: it is rounded to
    halves, and is in the module as it is, so that no run moves it. onnxruntime computes it in f32,
    where it has no kernels for halves. As inputs, the same numbers must be right, and the results
    must be the same.
    """
    peer = peer_of(drawn.proto) if found.kind == "peer" else None
    if not isinstance(peer, Peer) or not peer.wide:
        return False
    opened, feed = with_open_floats(drawn.proto), drawn.feeds[found.feed]
    constants = {t.name: numpy_helper.to_array(t) for t in drawn.proto.graph.initializer}
    full = {v.name: feed[v.name] if v.name in feed else constants[v.name]
            for v in opened.graph.input}
    ours, again = reference(drawn.proto, feed), reference(opened, full)
    return ours is not None and again is not None and all(
        _alike(ours[name], again[name]) for name in ours) and not judge(
            Generated(drawn.number, opened, [full], drawn.special))


def with_open_floats(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its constants of f64, f32, f16 and bf16 as inputs."""
    opened = onnx.ModelProto()
    opened.CopyFrom(proto)
    kept = [t for t in proto.graph.initializer if t.data_type not in WIDE]
    del opened.graph.initializer[:]
    opened.graph.initializer.extend(kept)
    opened.graph.input.extend(
        helper.make_tensor_value_info(t.name, t.data_type, t.dims)
        for t in proto.graph.initializer if t.data_type in WIDE)
    return opened


def _alike(a: Array, b: Array) -> bool:
    """Whether two results have the same bits. f32 and f64 may be sums in another order."""
    if a.dtype != b.dtype or a.shape != b.shape or a.tobytes() == b.tobytes():
        return a.dtype == b.dtype and a.shape == b.shape
    if a.dtype.name not in ("float32", "float64"):
        return False
    largest = np.abs(a[np.isfinite(a)]).max(initial=0.0)
    return np.allclose(a, b, 0.0, 16 * float(np.finfo(a.dtype).eps) * largest, equal_nan=True)


KNOWN: tuple[Known, ...] = (
    leaves_dims, ends_at_last, counts_of_rounded, rounds_with_zero_point)
IMPRECISE: tuple[Known, ...] = (subtracts_squares, sums_while_channels_pass)
