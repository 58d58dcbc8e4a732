"""Operands that broadcast: which of their dims are repeated, where sizes are open.

    Add(x: [n, 4], z: [m, 4])    n == m    graph.add
                                 n == 1    x is reshaped to [1, 4]; then graph.add repeats it
                                 m == 1    the same for z

Which of these fits is a choice (`choices.py`). Where the sizes of one run need several outcomes, as
in a loop, the size of the result is computed, and operands are stretched to it: an index beyond the
end of a dim of size 1 reads its only entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from compiler.frontend.choices import Chooses, choose, equal
from compiler.frontend.values import Value, of_size
from dialects.graph.base import GraphOp
from dialects.graph.constant import RangeOp
from dialects.graph.elementwise import MinOp
from dialects.graph.gather import GatherOp
from dialects.graph.inference import agree_when_empty, certainly_differ
from dialects.graph.logic import EqualOp, WhereOp
from dialects.graph.shape import BroadcastOp
from dialects.strata import types as t
from dialects.strata.assumptions import Outcome
from dialects.symbolic.expr import Expr, Size

ONE = Expr.of(1)


def fitted(
    build: Chooses, op_type: type[GraphOp], operands: Sequence[Value], shape: Sequence[Size] = ()
) -> Sequence[Value]:
    """The operands of an operation, with dims that are repeated as dims of size 1.

    `shape`: that of a `graph.broadcast`.
    """
    if op_type is BroadcastOp:
        return [_to_shape(build, operands[0], list(map(Expr.of, shape)))]
    kept = op_type.KEPT_DIMS
    if kept is None or all(v.shape == operands[0].shape for v in operands[1:]):
        return operands
    count = 2 if kept else len(operands)
    return [*_aligned(build, list(operands[:count]), kept), *operands[count:]]


# ---------------------------------------------------------------------- two sizes
class Joint(NamedTuple):
    """Two sizes that broadcast to `size`, and whether each is repeated: `never`, `always`, or `run`
    if a run decides."""

    size: Expr
    left: str = "never"
    right: str = "never"


def joint(build: Chooses, left: Expr, right: Expr) -> Joint:
    """The broadcast of two sizes. If none fits the other, the operation refuses them."""
    if left == right or ONE in (left, right):
        return Joint(left if right == ONE else right)
    outcomes = _outcomes(left, right)
    if not outcomes:
        return Joint(left)
    name = "equal" if _is_settled(outcomes) else choose(build, outcomes)
    if name == "left":
        return Joint(right, left="always")
    if name == "right":
        return Joint(left, right="always")
    if name == "equal":
        return Joint(right if right.constant is not None else left)
    return Joint(_computed(build, left, right), "run", "run")


def _is_settled(outcomes: Sequence[Outcome]) -> bool:
    """Whether there is nothing to choose, because only equal sizes fit, which operations check."""
    return [o.name for o in outcomes] in ([], ["equal"])


def _outcomes(left: Expr, right: Expr) -> list[Outcome]:
    """The first is what most calls need: sizes that agree, unless only those of no elements do."""
    equals = [] if certainly_differ(left, right) else [equal(left, right)]
    ones = [equal(size, ONE, name) for name, size in (("left", left), ("right", right))
            if not certainly_differ(size, ONE)]
    return [*ones, *equals] if agree_when_empty(left, right) else [*equals, *ones]


def _computed(build: Chooses, left: Expr, right: Expr) -> Expr:
    """The size of the result, as a size that a run computes: `right` if `left` is 1, else `left`.
    """
    a, b, one = (of_size(build, s) for s in (left, right, ONE))
    chosen = build(WhereOp, build(EqualOp, a, one), b, a)
    sizes = build.bind(chosen, "size")
    assert sizes is not None
    size = Expr.of(sizes.reshape(-1)[0])
    for own in (left, right):
        build.assume((own - 1) * (own - size), "==", 0)
    return size


def stretched(build: Chooses, x: Value, axis: int, size: Expr) -> Value:
    """x with its entries along an axis, or else its only one, repeated to a size."""
    places = build(RangeOp, start=0, step=1, count=size, to=t.i64)
    last = of_size(build, x.shape[axis] - 1)
    return build(GatherOp, x, build(MinOp, places, last), axis=axis)


def single(x: Value, axis: int) -> Value:
    """x with a dim of size 1 that is known to be 1."""
    return x.reshape([*x.shape[:axis], ONE, *x.shape[axis + 1:]])


def _repeated(build: Chooses, x: Value, axis: int, how: str, size: Expr) -> Value:
    if how == "always":
        return single(x, axis)
    return stretched(build, x, axis, size) if how == "run" else x


# ---------------------------------------------------------------------- operands
def _aligned(build: Chooses, operands: list[Value], kept: int) -> list[Value]:
    """The operands, which broadcast except for their last `kept` dims."""
    deepest = max(v.rank for v in operands)
    for place in range(-1 - kept, -1 - deepest, -1):  # dims count from the last one
        own = [k for k, v in enumerate(operands)
               if v.rank >= -place and v.shape[place] != ONE]
        if len({operands[k].shape[place] for k in own}) > 1:
            _align(build, operands, own, place)
    return operands


def _align(build: Chooses, operands: list[Value], own: Sequence[int], place: int) -> None:
    """Repeat one dim of the operands `own` as needed, from the first to the last operand."""
    size, before = operands[own[0]].shape[place], [own[0]]
    for k in own[1:]:
        pair = joint(build, size, operands[k].shape[place])
        for j in [j for j in before if operands[j].shape[place] != ONE]:
            operands[j] = _repeated(build, operands[j], operands[j].rank + place, pair.left,
                                    pair.size)
        operands[k] = _repeated(build, operands[k], operands[k].rank + place, pair.right,
                                pair.size)
        size = pair.size
        before.append(k)


def _to_shape(build: Chooses, x: Value, shape: list[Expr]) -> Value:
    """x, which is broadcast to a shape, all of whose sizes stay."""
    first = len(shape) - x.rank
    for axis in range(x.rank if first >= 0 else 0):
        own, target = x.shape[axis], shape[first + axis]
        if own in (target, ONE):
            continue
        outcomes = [o for o in _outcomes(own, target) if o.name != "right"]
        if _is_settled(outcomes):
            continue
        name = choose(build, outcomes)
        x = _repeated(build, x, axis, {"left": "always", "": "run"}.get(name, "never"), target)
    return x


def one_way(build: Chooses, x: Value, shape: Sequence[Expr]) -> Value:
    """x, which is broadcast to a shape that stays, without the repetition itself.

    Its dims become 1, or equal to those of the shape.
    """
    x, first = _to_shape(build, x, list(shape)), len(shape) - x.rank
    if first < 0:
        return x
    return x.reshape([own if own == ONE or certainly_differ(own, target) else target
                      for own, target in zip(x.shape, shape[first:], strict=True)])


def expanded(build: Chooses, x: Value, wanted: Sequence[Expr]) -> Value:
    """x broadcast to a shape, in which a size of 1 keeps that of x."""
    rank = max(x.rank, len(wanted))
    wanted = [*[ONE] * (rank - len(wanted)), *wanted]
    x, sizes = x.reshape([*[ONE] * (rank - x.rank), *x.shape]), list[Expr]()
    for axis, size in enumerate(wanted):
        pair = joint(build, size, x.shape[axis])
        x = _repeated(build, x, axis, pair.right, pair.size)
        sizes.append(pair.size)
    return x.broadcast(sizes)
