"""`as_strided` in programs that are compiled as a whole: elements by their places in memory.

    as_strided(x, [n - 2, 3], [1, 1])   ->   element i + j of x's memory, for each i and j

A compiled program returns new memory, so that the result need not be a view. x must lie in memory
without gaps, as PyTorch traced it: then its elements in that order are its memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.torch.core.strided import order_of
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import aten_op
from compiler.frontend.values import Value
from dialects.strata import types as t
from dialects.symbolic.expr import Expr, Size


@aten_op("aten.as_strided.default")
def as_strided(
    n: Node, x: Value, size: Sequence[Size], stride: Sequence[Size], offset: Size | None
) -> Value:
    """Raises Fault for an operand with gaps, or at a place that is not known."""
    order, own = order_of(n.example), _place_of(n.example)
    if not n.example.permute(order).is_contiguous():
        raise Fault(f"its operand lies in memory with gaps, in strides of {_text(n.example)}")
    begin = Expr.of(0 if offset is None else offset) - (0 if offset is None else own)
    sizes, steps = list(map(Expr.of, size)), list(map(Expr.of, stride))
    last = begin
    for count, step in zip(sizes, steps, strict=True):
        last = last + (count - 1) * step
    n.build.assume(0, "<=", begin)
    n.build.assume(last, "<=", x.type.count - 1)
    places = n.scalar(begin, t.i64).broadcast(sizes)
    for dim, (count, step) in enumerate(zip(sizes, steps, strict=True)):
        along = n.range(count, step=step)
        places = places + along.reshape([count, *[1] * (len(sizes) - 1 - dim)])
    return f.gather(x.transpose(order).reshape([x.type.count]), places, 0)


def _place_of(tensor: Any) -> int:
    """Where a tensor begins in memory. Raises Fault if only a run can tell."""
    found = tensor.storage_offset()
    if type(found) is not int:
        raise Fault(f"its operand begins at {found} in memory", "let it begin at a constant place")
    return found


def _text(tensor: Any) -> str:
    return ", ".join(map(str, tensor.stride()))
