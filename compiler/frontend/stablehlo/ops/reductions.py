"""Reductions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.ir import Attribute

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.stablehlo.node import Node
from compiler.frontend.stablehlo.operations import Op, Region
from compiler.frontend.stablehlo.ops import hlo_op
from compiler.frontend.values import Value
from dialects.graph.base import GraphOp
from dialects.graph.ordering import ArgMaxOp, ArgMinOp
from dialects.graph.reduce import ReduceMaxOp, ReduceMinOp, ReduceProdOp, ReduceSumOp
from dialects.semantics.numerics import highest, lowest
from dialects.strata import types as t
from dialects.strata.types import Array
from dialects.symbolic.size_products import product

COMBINERS = {"stablehlo.add": "add", "stablehlo.multiply": "mul", "stablehlo.maximum": "max",
              "stablehlo.minimum": "min", "stablehlo.and": "min", "stablehlo.or": "max"}
REDUCTIONS: dict[str, type[GraphOp]] = {
    "add": ReduceSumOp, "mul": ReduceProdOp, "max": ReduceMaxOp, "min": ReduceMinOp}


def kind_of(region: Region) -> str:
    """What a region of two numbers computes, by its only operation; empty for others."""
    inner = [op for op in region.operations if "return" not in op.name]
    names = {name for name, _ in region.arguments}
    if len(inner) != 1 or set(inner[0].operands) != names:
        return ""
    of_truth = region.arguments[0][1].element == t.i1
    of_bits = inner[0].name in ("stablehlo.and", "stablehlo.or") and not of_truth
    return "" if of_bits else COMBINERS.get(inner[0].name, "")


def combiner_of(region: Region) -> str:
    """The same. Raises Fault for others."""
    kind = kind_of(region)
    if not kind:
        raise Fault("it combines by more than one operation")
    return kind


def applied(n: Node, element: Attribute) -> Region:
    """The region of a reduction that only names an operation."""
    types, line = t.tensor(element, []), n.op.line
    made = Op(str(n.op.attributes["applies"]), ["%a", "%b"], {}, [], ["%c"], [types], line)
    last = Op("stablehlo.return", ["%c"], {}, [], [], [], line)
    return Region([("%a", types), ("%b", types)], [made, last])


@hlo_op("stablehlo.reduce")
def reduce(n: Node, *operands: Value) -> list[Value]:
    half = len(operands) // 2
    values, starts = operands[:half], operands[half:]
    axes = sorted(n.ints("dimensions"))
    region = applied(n, operands[0].element) if "applies" in n.op.attributes else n.op.regions[0]
    kind = kind_of(region) if half == 1 else ""
    if kind:
        return [_reduced(n, values[0], starts[0], kind, axes)]
    found = _positions(n, region, values[0], values[1], axes[0]) if half == 2 and len(
        axes) == 1 else None
    return found or combined(n, region, values, starts, axes)


def combined(
    n: Node, region: Region, values: Sequence[Value], starts: Sequence[Value],
    axes: Sequence[int],
) -> list[Value]:
    """A reduction by any associative region: neighbours are combined, then pairs of them, and so
    on, as whole tensors. The order of the elements is kept."""
    others = [k for k in range(values[0].rank) if k not in axes]
    shape, count = [values[0].shape[k] for k in others], product(
        values[0].shape[k] for k in axes).constant
    if count is None:
        raise Fault("it combines by a region of its own, along an open size")
    rows = [v.transpose([*axes, *others]).reshape([count, *shape]) for v in values]
    first = [s.reshape([]).broadcast(shape) for s in starts]
    if count == 0:
        return first
    while (count := rows[0].shape[0].constant or 1) > 1:
        rows = _halved(n, region, rows, count)
    made = n.each(region, [*first, *(r.reshape(shape) for r in rows)])
    return [v.broadcast(shape) for v in made]


def _halved(n: Node, region: Region, rows: Sequence[Value], count: int) -> list[Value]:
    half = count // 2
    shape = [half, *rows[0].shape[1:]]
    sides = [r.part(0, side, half, 2) for side in (0, 1) for r in rows]
    made = [v.broadcast(shape) for v in n.each(region, sides)]
    if count % 2 == 0:
        return made
    return [f.concat([v, r.part(0, count - 1, 1)], axis=0)
            for v, r in zip(made, rows, strict=True)]


def _reduced(n: Node, x: Value, start: Value, kind: str, axes: Sequence[int]) -> Value:
    """The reduction, combined with a start that is not neutral."""
    return with_start(kind, _of_elements(n, x, kind, axes) if axes else x, start)


def with_start(kind: str, found: Value, start: Value) -> Value:
    """What was found, combined with a start, unless that is known to be neutral."""
    dtype = found.type.dtype
    neutral = {"add": 0, "mul": 1, "max": lowest(dtype), "min": highest(dtype)}[kind]
    if start.array is not None and np.all(start.array == neutral):
        return found
    return combined_pair(kind, found, start)


def _of_elements(n: Node, x: Value, kind: str, axes: Sequence[int]) -> Value:
    """Truth values are positive numbers meanwhile: the maximum of none is the least of all."""
    if x.element != t.i1:
        return n(REDUCTIONS[kind], x, axes=list(axes), keepdims=False)
    found = n(REDUCTIONS[kind], x.cast(t.i32), axes=list(axes), keepdims=False)
    return n.scalar(0, found) < found


def combined_pair(kind: str, a: Value, b: Value) -> Value:
    """Two values, element by element."""
    if a.element == t.i1:
        return a | b if kind in ("add", "max") else a & b
    return {"add": a + b if kind == "add" else a, "mul": a * b if kind == "mul" else a,
            "max": f.maximum(a, b), "min": f.minimum(a, b)}[kind]


def _positions(
    n: Node, region: Region, x: Value, places: Value, axis: int
) -> list[Value] | None:
    """The extremum and its first place, if that is what the region computes of two pairs.

    The region runs on pairs of numbers, among them equal ones and NaN.
    """
    pairs = [(1.0, 2.0), (2.0, 1.0), (1.0, 1.0)]
    pairs += [(np.nan, 1.0), (1.0, np.nan)] if t.is_float(x.element) else []
    both: Array = np.array(pairs).T.astype(x.type.dtype)
    a: Array = both[0]
    b: Array = both[1]
    own, other = (np.array(k, places.type.dtype) for k in (3, 5))
    made = [n.run(region, [n.constant(v) for v in (first, own, second, other)])
            for first, second in zip(a, b, strict=True)]
    if any(v.array is None for pair in made for v in pair):
        return None
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
    return None
