"""Reductions, windows, orders and control flow: operations with regions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.branches import Branch, join
from compiler.frontend.faults import Fault
from compiler.frontend.loops import Loop, Turn
from compiler.frontend.peeling import repeat
from compiler.frontend.stablehlo.node import Node
from compiler.frontend.stablehlo.operations import Region
from compiler.frontend.stablehlo.ops import hlo_op
from compiler.frontend.stablehlo.ops.products import padded
from compiler.frontend.values import Value
from dialects.graph.base import GraphOp
from dialects.graph.cumulative import CumulativeProdOp, CumulativeSumOp
from dialects.graph.gather import GatherElementsOp
from dialects.graph.ordering import ArgMaxOp, ArgMinOp, TopKOp
from dialects.graph.reduce import ReduceMaxOp, ReduceMinOp, ReduceProdOp, ReduceSumOp
from dialects.graph.shape import FramesOp
from dialects.semantics.numerics import highest, lowest
from dialects.strata import types as t
from dialects.strata.types import Array
from dialects.symbolic.expr import Expr

_COMBINERS = {"stablehlo.add": "add", "stablehlo.multiply": "mul", "stablehlo.maximum": "max",
              "stablehlo.minimum": "min", "stablehlo.and": "min", "stablehlo.or": "max"}
_REDUCTIONS: dict[str, type[GraphOp]] = {
    "add": ReduceSumOp, "mul": ReduceProdOp, "max": ReduceMaxOp, "min": ReduceMinOp}


def combiner_of(region: Region) -> str:
    """What a region of two arguments computes, by its only operation. Raises Fault for others."""
    inner = [op for op in region.operations if "return" not in op.name]
    names = {name for name, _ in region.arguments}
    if len(inner) == 1 and inner[0].name in _COMBINERS and set(inner[0].operands) == names:
        return _COMBINERS[inner[0].name]
    raise Fault("it combines by more than one operation")


@hlo_op("stablehlo.reduce")
def reduce(n: Node, *operands: Value) -> list[Value]:
    half = len(operands) // 2
    axes = sorted(n.ints("dimensions"))
    applied = n.op.attributes.get("applies")
    if half == 1:
        kind = _COMBINERS[applied] if applied in _COMBINERS else combiner_of(n.op.regions[0])
        return [_reduced(n, operands[0], operands[1], kind, axes)]
    if half == 2 and len(axes) == 1:
        return _positions(n, operands[0], operands[1], axes[0])
    raise Fault("it reduces several tensors at once")


def _reduced(n: Node, x: Value, start: Value, kind: str, axes: Sequence[int]) -> Value:
    """The reduction, combined with a start that is not neutral."""
    found = _of_elements(n, x, kind, axes) if axes else x
    neutral = {"add": 0, "mul": 1, "max": lowest(x.type.dtype), "min": highest(x.type.dtype)}[kind]
    if start.array is not None and np.all(start.array == neutral):
        return found
    return _combined(kind, found, start)


def _of_elements(n: Node, x: Value, kind: str, axes: Sequence[int]) -> Value:
    """Truth values are positive numbers meanwhile: the maximum of none is the least of all."""
    if x.element != t.i1:
        return n(_REDUCTIONS[kind], x, axes=list(axes), keepdims=False)
    found = n(_REDUCTIONS[kind], x.cast(t.i32), axes=list(axes), keepdims=False)
    return n.scalar(0, found) < found


def _combined(kind: str, a: Value, b: Value) -> Value:
    if a.element == t.i1:
        return a | b if kind in ("add", "max") else a & b
    return {"add": a + b if kind == "add" else a, "mul": a * b if kind == "mul" else a,
            "max": f.maximum(a, b), "min": f.minimum(a, b)}[kind]


def _positions(n: Node, x: Value, places: Value, axis: int) -> list[Value]:
    """The extremum and its first place, if that is what the region computes of two pairs.

    The region runs on pairs of numbers, among them equal ones and NaN.
    """
    pairs = [(1.0, 2.0), (2.0, 1.0), (1.0, 1.0)]
    pairs += [(np.nan, 1.0), (1.0, np.nan)] if t.is_float(x.element) else []
    both: Array = np.array(pairs).T.astype(x.type.dtype)
    a: Array = both[0]
    b: Array = both[1]
    own, other = (np.array(k, places.type.dtype) for k in (3, 5))
    made = [n.run(n.op.regions[0], [n.constant(v) for v in (first, own, second, other)])
            for first, second in zip(a, b, strict=True)]
    if any(v.array is None for pair in made for v in pair):
        raise Fault("what it combines by is not known")
    values: Array = np.array([pair[0].array for pair in made])
    at: Array = np.array([pair[1].array for pair in made])
    for largest, find in ((True, ArgMaxOp), (False, ArgMinOp)):
        ahead = np.isnan(a) | ((a >= b if largest else a <= b) & ~np.isnan(b))
        chosen: Array = np.choose(ahead, (b, a))
        taken: Array = np.where(ahead, own, other)
        if np.array_equal(values, chosen, equal_nan=t.is_float(x.element)) and np.array_equal(
                at, taken):
            op = ReduceMaxOp if largest else ReduceMinOp
            found = n(find, x, axis=axis, keepdims=False, last=False)
            return [n(op, x, axes=[axis], keepdims=False), found.cast(places.element)]
    raise Fault("it reduces two tensors, and not to an extremum and its first place")


@hlo_op("stablehlo.reduce_window")
def reduce_window(n: Node, x: Value, start: Value) -> Value:
    """Each axis with a window is cut into frames and reduced; running sums are recognized."""
    kind, rank = combiner_of(n.op.regions[0]), x.rank
    kernel = n.ints("window_dimensions")
    strides, gaps, spread = (n.ints(name, [1] * rank) for name in (
        "window_strides", "window_dilations", "base_dilations"))
    given = n.op.attributes.get("padding")
    pads = np.zeros((rank, 2), np.int64) if given is None else np.asarray(given).reshape(rank, 2)
    if start.array is None or set(spread) != {1}:
        raise Fault("its start must be a constant, and its operand is not spread apart")
    first = start.array.reshape(-1)[0].item()
    for axis in range(rank):
        if kernel[axis] == x.shape[axis].constant == pads[axis][0] + 1 and kind in _RUNNING and (
                pads[axis][1] == 0 and strides[axis] == gaps[axis] == 1):
            x = n(_RUNNING[kind], x, axis=axis, exclusive=False, reverse=False)
        elif kernel[axis] > 1 or strides[axis] > 1 or pads[axis].any():
            x = _window(n, x, axis, (kernel[axis], strides[axis], gaps[axis]),
                        tuple(pads[axis].tolist()), kind, first)
    return x


_RUNNING: dict[str, type[GraphOp]] = {"add": CumulativeSumOp, "mul": CumulativeProdOp}


def _window(
    n: Node, x: Value, axis: int, form: tuple[int, int, int], pads: tuple[int, ...], kind: str,
    first: float,
) -> Value:
    size, step, gap = form
    low, high = ([p if k == axis else 0 for k in range(x.rank)] for p in pads)
    frames = n(FramesOp, padded(n, x, low, high, first), axis=axis, size=(size - 1) * gap + 1,
               step=step)
    if gap > 1:
        frames = f.gather(frames, n.range(size, step=gap), axis=axis + 1)
    wide = frames.cast(t.i32) if frames.element == t.i1 else frames
    return n(_REDUCTIONS[kind], wide, axes=[axis + 1], keepdims=False).cast(x.element)


# ---------------------------------------------------------------------- orders
@hlo_op("stablehlo.sort")
def sort(n: Node, *operands: Value) -> list[Value]:
    """By the first operand; the others follow it. The comparator is LT or GT of that."""
    region, axis = n.op.regions[0], n.number("dimension", -1) % operands[0].rank
    descending = _is_descending(n, region, operands)
    keys = operands[0].cast(t.ui8) if operands[0].element == t.i1 else operands[0]
    sorted_, places = n.build.results(TopKOp, keys, axis=axis, k=keys.shape[axis],
                                      largest=descending)
    return [sorted_.cast(operands[0].element),
            *(n(GatherElementsOp, v, places, axis=axis) for v in operands[1:])]


def _is_descending(n: Node, region: Region, operands: Sequence[Value]) -> bool:
    """Whether a comparator of pairs orders by the first operand from the largest on.

    It runs on two pairs. Raises Fault for one that depends on other operands.
    """
    found: list[bool] = []
    for a, b in ((1, 2), (2, 1)):
        given = [n.constant(np.array(v if k < 2 else 0).astype(operands[k // 2].type.dtype))
                 for k in range(2 * len(operands)) for v in [a if k == 0 else b]]
        [answer] = n.run(region, given)
        if answer.array is None:
            raise Fault("its comparator is not known")
        found.append(bool(answer.array))
    if found not in ([True, False], [False, True]):
        raise Fault("its comparator orders by more than the first operand")
    return found[1]


@hlo_op("chlo.top_k")
def top_k(n: Node, x: Value) -> list[Value]:
    values, places = n.build.results(TopKOp, x, axis=x.rank - 1, k=n.number("k"), largest=True)
    return [values, places.cast(t.i32)]


# ---------------------------------------------------------------------- control flow
@hlo_op("stablehlo.while")
def while_loop(n: Node, *initial: Value) -> list[Value]:
    test, body = n.op.regions
    node = n.build.node

    def goes_on(values: Sequence[Value]) -> Value:
        [found] = n.run(test, values)
        return found.reshape([])

    def turn(step: Expr, values: list[Value]) -> Turn:
        made = n.run(body, values)
        return Turn(goes_on(made), made, [])

    last, _ = repeat(n.build, Loop(f"{n.name}_body", None, goes_on(initial), list(initial)), turn)
    n.build.node = node
    return list(last)


@hlo_op("stablehlo.if")
def conditional(n: Node, condition: Value) -> list[Value]:
    first, second = n.op.regions
    return _branched(n, condition.reshape([]), lambda: n.run(first, []), lambda: n.run(second, []))


@hlo_op("stablehlo.case")
def case(n: Node, index: Value) -> list[Value]:
    """The branch of this number; the last one for any other number."""
    return _chosen(n, index.reshape([]), 0)


def _chosen(n: Node, index: Value, number: int) -> list[Value]:
    """The branch of this number if the index is that, else one of those after it."""
    regions = n.op.regions
    if number == len(regions) - 1:
        return n.run(regions[number], [])
    return _branched(n, f.equal(index, number), lambda: n.run(regions[number], []),
                     lambda: _chosen(n, index, number + 1))


def _branched(
    n: Node, condition: Value, first: Callable[[], list[Value]],
    second: Callable[[], list[Value]],
) -> list[Value]:
    mark, node = n.build.mark(), n.build.node

    def branch(results: Callable[[], list[Value]], label: str) -> Branch:
        with n.build.function(f"{n.name}_{label}") as frame:
            return Branch(frame, results())

    then, otherwise = branch(first, "then"), branch(second, "else")
    n.build.node = node
    return join(n.build, condition, then, otherwise, mark)
