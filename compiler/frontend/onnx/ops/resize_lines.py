"""The dims that Resize resamples, and the coordinates in x of the elements of the result.

    asymmetric, 8 elements made 3:    0, 8/3, 16/3          half_pixel: 5/6, 3.5, 37/6

Sizes, factors and regions may be known only at run time; the coordinates are then computed there.
"""

from __future__ import annotations

from xdsl.ir import Attribute

from compiler.frontend import formulas as f
from compiler.frontend.onnx.node import Node
from compiler.frontend.values import Operand, Value
from dialects.records import dataclass
from dialects.strata import types as t
from dialects.symbolic.expr import Expr

COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel",
               "half_pixel_symmetric", "tf_crop_and_resize")


@dataclass(frozen=True)
class Line:
    """A dim: its sizes in x and in the result, its factor, and the region that is taken.

    The factor is None where it is that of the sizes. The region is None for all of the dim; its
    start and end are floats, in parts of the distance between the first and the last element.
    """

    axis: int
    size: Expr
    wanted: Expr
    scale: float | Value | None
    region: tuple[Value, Value] | None = None

    @property
    def changes(self) -> bool:
        return self.size != self.wanted or self.scale not in (None, 1.0) or self.region is not None

    def factor(self, n: Node, element: Attribute) -> Operand:
        """The factor, a number if it is known."""
        if self.scale is None:
            return n.of_size(self.wanted).cast(element) / n.of_size(self.size).cast(element)
        return self.scale.cast(element) if isinstance(self.scale, Value) else self.scale

    def last(self, n: Node, element: Attribute) -> Value:
        """The index of the last element."""
        return n.of_size(self.size - 1).cast(element)


def coordinates(
    n: Node, line: Line, rule: str, element: Attribute = t.f64, *, whole: bool = False
) -> Value:
    """The coordinates [wanted] in x of a line's results.

    `whole`: align_corners takes the last result to the last element, even if a factor gives the
    line a width that is no whole number.
    """
    if rule == "tf_crop_and_resize":
        return _cropped(n, line, element)
    p = n.range(line.wanted, element)
    size, count = (n.of_size(e).cast(element) for e in (line.size, line.wanted))
    match rule:
        case "align_corners":
            width = count if whole or line.scale is None else size * line.factor(n, element)
            return p * (size - 1) / f.where(f.equal(width, 1), 1, width - 1)
        case "asymmetric":
            return _inverse(n, line, p, size, count)
        case _:
            return _half_pixel(n, line, rule, p, size, count)


def _inverse(n: Node, line: Line, place: Value, size: Value, count: Value) -> Value:
    """place / factor. In f32, as onnxruntime, the factor of sizes is rounded."""
    if line.scale is None and place.element != t.f32:
        return place * size / count
    return place / line.factor(n, place.element)


def _half_pixel(n: Node, line: Line, rule: str, p: Value, size: Value, count: Value) -> Value:
    """In f64, the middle of a symmetric line is exact."""
    if rule == "half_pixel_symmetric" and line.scale is not None and p.element != t.f32:
        return (size - 1) / 2 + (p - (count - 1) / 2) / line.factor(n, p.element)
    where = _inverse(n, line, p + 0.5, size, count)
    if rule == "half_pixel_symmetric" and p.element == t.f32:
        width = size * line.factor(n, p.element)
        where = size / 2 * (1 - count / width) + where
    where = where - 0.5
    return f.where(f.equal(count, 1), 0, where) if rule == "pytorch_half_pixel" else where


def _cropped(n: Node, line: Line, element: Attribute) -> Value:
    """From `start` to `end` of the region; a single result is in the middle of both.

    As in ONNX's reference implementation, what is computed of the region alone is rounded to its
    type, so that coordinates beside a tie or beside the border are the same there.
    """
    p = n.range(line.wanted, element)
    one = n.scalar(1, p)
    start, end = line.region or (one - one, one)
    first, length = start * line.last(n, start.element), end - start
    last, count = line.last(n, element), n.of_size(line.wanted).cast(element)
    steps = p * length.cast(element) * last / f.maximum(count - 1, 1)
    middle = (length * line.last(n, start.element) / 2).cast(element)
    return f.where(f.equal(count, 1), middle, steps) + first.cast(element)
