"""NonMaxSuppression: of overlapping boxes, only the one with the highest score is kept.

One loop visits the boxes of all batches and classes in descending order of their scores. Each box
that is kept removes the later ones that overlap it too much. The indices of the boxes that remain
are found as in NonZero.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.loops import Loop, Turn
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.peeling import repeat
from compiler.frontend.places import chosen_places, coordinates
from compiler.frontend.values import Value
from dialects.graph.ordering import TopKOp
from dialects.strata import types as t
from dialects.symbolic.expr import Expr


class Corners(NamedTuple):
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
    """The indices (batch, class, box) of the boxes that are kept: i64[kept, 3]."""
    size = scores.shape[2]
    ranked, order = n.build.results(TopKOp, scores, axis=2, k=size, largest=True)
    corners = _corners(n, _ranked_boxes(boxes, order))
    limit = n.scalar(0, ranked) if overlap is None else overlap.reshape(())
    room = n.constant(np.array(0)) if most is None else most.cast(t.i64).reshape(())
    alive = (n.constant(np.array(True)).broadcast(scores.shape) if threshold is None
             else ranked > threshold.reshape(()))
    kept = _suppress(n, corners, alive, limit, room)
    return _rows(n, kept, order)


def _ranked_boxes(boxes: Value, order: Value) -> Value:
    """The boxes of every class in the order of its scores: [batch, classes, boxes, 4]."""
    batch, classes, size = order.shape
    places = order.reshape([batch, classes * size, 1])
    found = f.gather_nd(boxes, places, batch_dims=1)
    return found.reshape([batch, classes, size, 4])


def _corners(n: Node, boxes: Value) -> Corners:
    """The corners of boxes that have two opposite corners (y, x), or a center, width and height."""
    a, b, c, d = (boxes.part(3, k, 1).reshape(boxes.shape[:3]) for k in range(4))
    if n.flag("center_point_box"):
        half = n.scalar(0.5, a)
        wide, high = c * half, d * half
        return Corners(b - high, a - wide, b + high, a + wide)
    return Corners(f.minimum(a, c), f.minimum(b, d), f.maximum(a, c), f.maximum(b, d))


def _suppress(n: Node, boxes: Corners, alive: Value, limit: Value, room: Value) -> Value:
    """Which boxes are kept, at most `room` of each class. The boxes are sorted by their scores."""
    batch, classes, size = alive.shape
    places = n.range(size)
    none = n.constant(np.array(0)).broadcast([batch, classes, 1])

    def body(step: Expr, carried: list[Value]) -> Turn:
        alive, count = carried
        here = n.of_size(step)
        kept = alive.part(2, step, 1) & (count < room)
        near = _overlap(n, boxes, step) > limit
        gone = near & kept & (places > here)
        alive = alive & ~gone
        alive = f.where(f.equal(places, here), kept, alive)
        return Turn(None, [alive, count + kept.cast(t.i64)], [])

    return repeat(n.build, Loop(f"{n.name}_box", size, None, [alive, none]), body)[0][0]


def _overlap(n: Node, boxes: Corners, step: Expr) -> Value:
    """Intersection over union of one box with all boxes; 0 if they do not intersect."""
    one = Corners(*(v.part(2, step, 1) for v in (boxes.low_y, boxes.low_x, boxes.high_y,
                                                 boxes.high_x)))
    zero = n.scalar(0, boxes.low_y)
    height, width = (f.maximum(f.minimum(a, b) - f.maximum(c, d), zero) for a, b, c,
                     d in ((one.high_y, boxes.high_y, one.low_y, boxes.low_y),
                           (one.high_x, boxes.high_x, one.low_x, boxes.low_x)))
    common = height * width
    union = _area(one) + _area(boxes) - common
    meets = common > zero
    return f.where(meets, common / f.where(meets, union, 1), zero)


def _area(boxes: Corners) -> Value:
    return (boxes.high_y - boxes.low_y) * (boxes.high_x - boxes.low_x)


def _rows(n: Node, kept: Value, order: Value) -> Value:
    places = chosen_places(n, kept.reshape([kept.type.count]))
    columns = [c.reshape([c.shape[0], 1]) for c in coordinates(n, places, kept.shape)]
    box = f.gather_nd(order, f.concat(columns, axis=1), batch_dims=0)
    return f.concat([*columns[:2], box.reshape([box.shape[0], 1])], axis=1)
