"""NonMaxSuppression: of overlapping boxes the one with the highest score is kept.

All batches and classes go through one loop over the boxes in the order of their scores. Each box
that is kept removes those after it that it overlaps too much. What is kept in the end is found as
NonZero finds it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.frontend.loops import Loop, Turn, repeat
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.onnx.ops.data_dependent import chosen_places, coordinates
from compiler.frontend.values import Value
from dialects.graph.constant import RangeOp
from dialects.graph.elementwise import AddOp, DivOp, MaxOp, MinOp, MulOp, SubOp
from dialects.graph.gather import GatherNdOp
from dialects.graph.logic import AndOp, EqualOp, GreaterOp, LessOp, WhereOp
from dialects.graph.ordering import TopKOp
from dialects.graph.shape import ConcatOp
from dialects.graph.unary import NotOp
from dialects.strata import types as t
from dialects.symbolic.expr import Expr


@dataclass(frozen=True)
class Corners:
    """Boxes as four tensors of equal shape, with low <= high."""

    low_y: Value
    low_x: Value
    high_y: Value
    high_x: Value


@onnx_op("NonMaxSuppression", since=10)
def non_max_suppression(
    n: Node, boxes: Value, scores: Value, most: Value | None = None, overlap: Value | None = None,
    threshold: Value | None = None,
) -> Value:
    """Rows of (batch, class, box): [kept, 3]."""
    size = scores.shape[2]
    ranked, order = n.build.results(TopKOp, scores, axis=2, k=size, largest=True)
    corners = _corners(n, _ranked_boxes(n, boxes, order))
    limit = n.scalar(0, ranked) if overlap is None else n.reshape(overlap, ())
    room = n.constant(np.array(0)) if most is None else n.reshape(n.cast(most, t.i64), ())
    alive = n.broadcast(n.constant(np.array(True)), scores.shape) if threshold is None else (
        n(GreaterOp, ranked, n.reshape(threshold, ())))
    kept = _suppress(n, corners, alive, limit, room)
    return _rows(n, kept, order)


def _ranked_boxes(n: Node, boxes: Value, order: Value) -> Value:
    """The boxes of every class in the order of its scores: [batch, classes, boxes, 4]."""
    batch, classes, size = order.shape
    places = n.reshape(order, [batch, classes * size, 1])
    found = n(GatherNdOp, boxes, places, batch_dims=1)
    return n.reshape(found, [batch, classes, size, 4])


def _corners(n: Node, boxes: Value) -> Corners:
    """Given are two opposite corners, (y, x) each, or the center and (width, height)."""
    a, b, c, d = (n.reshape(n.part(boxes, 3, k, 1), boxes.shape[:3]) for k in range(4))
    if n.flag("center_point_box"):
        half = n.scalar(0.5, a)
        wide, high = n(MulOp, c, half), n(MulOp, d, half)
        return Corners(n(SubOp, b, high), n(SubOp, a, wide), n(AddOp, b, high), n(AddOp, a, wide))
    return Corners(n(MinOp, a, c), n(MinOp, b, d), n(MaxOp, a, c), n(MaxOp, b, d))


def _suppress(n: Node, boxes: Corners, alive: Value, limit: Value, room: Value) -> Value:
    """Which boxes are kept, at most `room` of each class; they stand in the order of scores."""
    batch, classes, size = alive.shape
    places = n(RangeOp, start=0, step=1, count=size, to=t.i64)
    none = n.broadcast(n.constant(np.array(0)), [batch, classes, 1])

    def body(step: Expr, carried: list[Value]) -> Turn:
        alive, count = carried
        here = n.of_size(step)
        kept = n(AndOp, n.part(alive, 2, step, 1), n(LessOp, count, room))
        near = n(GreaterOp, _overlap(n, boxes, step), limit)
        gone = n(AndOp, n(AndOp, near, kept), n(GreaterOp, places, here))
        alive = n(AndOp, alive, n(NotOp, gone))
        alive = n(WhereOp, n(EqualOp, places, here), kept, alive)
        return Turn(None, [alive, n(AddOp, count, n.cast(kept, t.i64))], [])

    return repeat(n.build, Loop(f"{n.name}_box", size, None, [alive, none]), body)[0][0]


def _overlap(n: Node, boxes: Corners, step: Expr) -> Value:
    """Intersection over union of one box with all; 0 where they do not meet."""
    one = Corners(*(n.part(v, 2, step, 1) for v in (
        boxes.low_y, boxes.low_x, boxes.high_y, boxes.high_x)))
    zero = n.scalar(0, boxes.low_y)
    height, width = (
        n(MaxOp, n(SubOp, n(MinOp, a, b), n(MaxOp, c, d)), zero) for a, b, c, d in (
            (one.high_y, boxes.high_y, one.low_y, boxes.low_y),
            (one.high_x, boxes.high_x, one.low_x, boxes.low_x)))
    common = n(MulOp, height, width)
    union = n(SubOp, n(AddOp, _area(n, one), _area(n, boxes)), common)
    meets = n(GreaterOp, common, zero)
    return n(WhereOp, meets, n(DivOp, common, n(WhereOp, meets, union, n.scalar(1, union))), zero)


def _area(n: Node, boxes: Corners) -> Value:
    return n(MulOp, n(SubOp, boxes.high_y, boxes.low_y), n(SubOp, boxes.high_x, boxes.low_x))


def _rows(n: Node, kept: Value, order: Value) -> Value:
    places = chosen_places(n, n.reshape(kept, [kept.type.count]))
    columns = [n.reshape(c, [c.shape[0], 1]) for c in coordinates(n, places, kept.shape)]
    box = n(GatherNdOp, order, n(ConcatOp, *columns, axis=1), batch_dims=0)
    return n(ConcatOp, *columns[:2], n.reshape(box, [box.shape[0], 1]), axis=1)
