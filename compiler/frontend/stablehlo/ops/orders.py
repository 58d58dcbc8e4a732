"""Orders."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.frontend.faults import Fault
from compiler.frontend.stablehlo.node import Node
from compiler.frontend.stablehlo.operations import Region
from compiler.frontend.stablehlo.ops import hlo_op
from compiler.frontend.values import Value
from dialects.graph.gather import GatherElementsOp
from dialects.graph.ordering import TopKOp
from dialects.strata import types as t


@hlo_op("stablehlo.sort")
def sort(n: Node, *operands: Value) -> list[Value]:
    """By some of the operands, one after the other: the last one first, as each order is stable.
    """
    axis = n.number("dimension", -1) % operands[0].rank
    values = list(operands)
    for key, descending in reversed(_keys(n, n.op.regions[0], operands)):
        order = values[key].cast(t.ui8) if values[key].element == t.i1 else values[key]
        found, places = n.build.results(TopKOp, order, axis=axis, k=order.shape[axis],
                                        largest=descending)
        values = [found.cast(v.element) if k == key else n(GatherElementsOp, v, places, axis=axis)
                  for k, v in enumerate(values)]
    return values


def _keys(n: Node, region: Region, operands: Sequence[Value]) -> list[tuple[int, bool]]:
    """The operands by which a comparator orders, the first to decide first, and whether from the
    largest on. It runs on pairs. Raises Fault for a comparator that does not order."""
    count = len(operands)
    answers = {k: (_ahead(n, region, operands, {k: (0, 1)}),
                   _ahead(n, region, operands, {k: (1, 0)})) for k in range(count)}
    keys = {k: answer[1] for k, answer in answers.items() if answer[0] != answer[1]}
    if not keys or any(all(answer) for answer in answers.values()):
        raise Fault("its comparator does not order by its operands")

    def decides(k: int, other: int) -> bool:
        """Whether an operand decides against another one."""
        def pair(key: int, wins: bool) -> tuple[int, int]:
            return (1, 0) if keys[key] == wins else (0, 1)
        return _ahead(n, region, operands, {k: pair(k, True), other: pair(other, False)})

    rank = {k: sum(decides(k, other) for other in keys if other != k) for k in keys}
    ordered = sorted(keys, key=lambda k: -rank[k])
    if sorted(rank.values()) != list(range(len(keys))):
        raise Fault("its comparator does not order by one operand after the other")
    return [(k, keys[k]) for k in ordered]


def _ahead(
    n: Node, region: Region, operands: Sequence[Value], given: dict[int, tuple[int, int]]
) -> bool:
    """Whether one element is ahead of another one; operands that are not given are equal."""
    pairs = [n.constant(np.array(v).astype(operand.type.dtype))
             for k, operand in enumerate(operands) for v in given.get(k, (0, 0))]
    [answer] = n.run(region, pairs)
    if answer.array is None:
        raise Fault("its comparator is not known")
    return bool(answer.array)


@hlo_op("chlo.top_k")
def top_k(n: Node, x: Value) -> list[Value]:
    values, places = n.build.results(TopKOp, x, axis=x.rank - 1, k=n.number("k"), largest=True)
    return [values, places.cast(t.i32)]
