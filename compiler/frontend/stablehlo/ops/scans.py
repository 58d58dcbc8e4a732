"""Scans along one axis: running sums, products and extrema, and loops for any other region."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.loops import Loop, Turn
from compiler.frontend.peeling import repeat
from compiler.frontend.stablehlo.node import Node
from compiler.frontend.stablehlo.operations import Region
from compiler.frontend.stablehlo.ops import hlo_op
from compiler.frontend.stablehlo.ops.reductions import combined_pair, kind_of, with_start
from compiler.frontend.stablehlo.ops.shapes import turned
from compiler.frontend.values import Value
from dialects.graph.base import GraphOp
from dialects.graph.cumulative import CumulativeProdOp, CumulativeSumOp
from dialects.strata import types as t
from dialects.symbolic.expr import Expr

_SUMS: dict[str, type[GraphOp]] = {"add": CumulativeSumOp, "mul": CumulativeProdOp}


@hlo_op("chlo.scan")
def scan(n: Node, *operands: Value) -> list[Value]:
    """`region(entries of the inputs, carried)` returns entries of the outputs, and what is carried.

    Results are the outputs, stacked along the axis, and what was carried last.
    """
    count, states = n.ints("operandSegmentSizes")
    if count + states != len(operands) or not count:
        raise Fault(f"it has {len(operands)} operands, not {count} inputs and {states} starts")
    axis, region = n.number("dimension"), n.op.regions[0]
    if not all(axis < x.rank for x in operands[:count]):
        raise Fault(f"its inputs have no dimension {axis}")
    backward = bool(n.op.attributes.get("is_reverse", False))
    inputs, starts = operands[:count], operands[count:]
    kind = _running_kind(region) if count == states == 1 else ""
    if kind:
        return _running(n, kind, inputs[0], starts[0], axis, backward)
    return _general(n, region, inputs, starts, axis, backward)


def _running_kind(region: Region) -> str:
    """How a region combines a number and what is carried, if it returns that twice."""
    returned = region.operations[-1].operands
    return kind_of(region) if len(returned) == 2 and len({*returned}) == 1 else ""


def _running(
    n: Node, kind: str, x: Value, start: Value, axis: int, backward: bool
) -> list[Value]:
    size = x.shape[axis]
    if kind in _SUMS and x.element != t.i1:
        found = n(_SUMS[kind], x, axis=axis, exclusive=False, reverse=backward)
    elif size.constant is None:
        return _general(n, n.op.regions[0], [x], [start], axis, backward)
    else:
        found = _doubled(n, kind, turned(n, x, [axis]) if backward else x, axis, size.constant)
        found = turned(n, found, [axis]) if backward else found
    first = start.reshape([*x.shape[:axis], 1, *x.shape[axis + 1:]]).broadcast(x.shape)
    found = with_start(kind, found, first)
    if size.constant == 0:
        return [found, start]
    last = found.part(axis, 0 if backward else size - 1, 1)
    return [found, last.reshape(start.shape)]


def _doubled(n: Node, kind: str, x: Value, axis: int, size: int) -> Value:
    """Blocks of 1, 2, 4 ... elements are combined with those before them."""
    step = 1
    while step < size:
        both = combined_pair(kind, x.part(axis, 0, size - step), x.part(axis, step, size - step))
        x = f.concat([x.part(axis, 0, step), both], axis=axis)
        step *= 2
    return x


def _entry(n: Node, x: Value, at: Expr) -> Value:
    """The entry of the first dim at a step; of none, zeros of its type."""
    if x.shape[0].constant == 0:
        return n.scalar(0, x).broadcast(x.shape[1:])
    return x.part(0, at, 1).reshape(x.shape[1:])


def _general(
    n: Node, region: Region, inputs: Sequence[Value], starts: Sequence[Value], axis: int,
    backward: bool,
) -> list[Value]:
    """A loop over the entries; the first dim of what it scans and stacks is the step."""
    outputs, node = len(n.op.types) - len(starts), n.build.node
    moved = [x.transpose([axis, *(k for k in range(x.rank) if k != axis)]) for x in inputs]
    count = moved[0].shape[0]
    for x in moved[1:]:
        n.build.assume(x.shape[0], "==", count)

    def turn(step: Expr, carried: list[Value]) -> Turn:
        at = count - 1 - step if backward else step
        made = n.run(region, [*(_entry(n, x, at) for x in moved), *carried])
        return Turn(None, made[outputs:], made[:outputs])

    last, stacked = repeat(n.build, Loop(f"{n.name}_body", count, None, list(starts)), turn)
    n.build.node = node
    if backward:
        stacked = [turned(n, v, [0]) for v in stacked]
    return [*(v.transpose([*range(1, axis + 1), 0, *range(axis + 1, v.rank)]) for v in stacked),
            *last]
