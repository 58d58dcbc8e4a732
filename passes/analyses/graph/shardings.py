"""How shardings propagate through graph operations, in the manner of GSPMD.

A sharding has an entry for each dim of a tensor: the axis of the mesh among whose ranks the dim is
divided, or an empty text. For the shardings that operands have, a rule answers which ones the
operation needs, which one its result then has, and how its result must be reduced among ranks.
What no rule knows is computed from whole operands on every rank. Sizes are divided that certainly
are multiples of the number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from xdsl.ir import Attribute, Operation

from dialects.graph import (
    AvgPoolOp,
    BroadcastOp,
    CastOp,
    ConcatOp,
    ConvFilterGradientOp,
    ConvOp,
    GatherOp,
    LayerNormOp,
    LogSoftmaxOp,
    MatmulOp,
    MaxPoolOp,
    ReduceMaxOp,
    ReduceMeanOp,
    ReduceMinOp,
    ReduceProdOp,
    ReduceSumOp,
    ReshapeOp,
    SliceOp,
    SoftmaxOp,
    TransposeOp,
)
from dialects.graph.activation import ActivationOp, ClipOp
from dialects.graph.base import GraphOp, flag_of, int_of, ints_of
from dialects.graph.collective import ShardAsOp
from dialects.records import dataclass
from dialects.strata.types import SizesAttr, TensorType, byte_width, i1, is_float
from dialects.symbolic.expr import Expr

Sharding = tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """What an operation does with shardings. `reduced`: the axes among whose ranks the result is
    to be combined, each with the reduction. `sizes`: the name of an attribute with the result's
    shape."""

    operands: tuple[Sharding, ...]
    result: Sharding
    reduced: Mapping[str, str] = field(default_factory=dict[str, str])
    sizes: str = ""


@dataclass(frozen=True)
class Asked:
    """An operation, the shardings that its operands have, and the sizes of the mesh's axes."""

    op: GraphOp
    given: tuple[Sharding, ...]
    axes: Mapping[str, int]

    @property
    def types(self) -> list[TensorType]:
        return self.op.operand_tensors

    @property
    def result(self) -> TensorType:
        return self.op.result_tensors[0]

    def divides(self, axis: str, size: Expr) -> bool:
        """Whether a dim can be divided along an axis."""
        return divides(size, self.axes[axis])


def divides(size: Expr, count: int) -> bool:
    """Whether a size certainly is a multiple of a number, as 4*n is of 2."""
    return (size % count).constant == 0


def whole(type_: TensorType) -> Sharding:
    """The sharding of a tensor that every rank has."""
    return ("",) * type_.rank


def answer(asked: Asked) -> Answer | None:
    """The rule's answer; None if the operation needs whole operands."""
    if len(asked.op.results) != 1 or not asked.given:
        return None
    rule = _rule_of(type(asked.op))
    return None if rule is None else rule(asked)


# ---------------------------------------------------------------------- elementwise
def _elementwise(asked: Asked) -> Answer:
    """Each dim of the result is divided as the first operand that divides it."""
    shape, merged = asked.result.shape, list(whole(asked.result))
    for type_, sharding in zip(asked.types, asked.given, strict=True):
        first = len(shape) - type_.rank
        for dim, axis in enumerate(sharding, first):
            if axis and not merged[dim] and axis not in merged:
                merged[dim] = axis
    return Answer(tuple(_aligned(t, shape, merged) for t in asked.types), tuple(merged))


def _aligned(type_: TensorType, shape: Sequence[Expr], sharding: Sequence[str]) -> Sharding:
    """A sharding of the result for an operand that broadcasts to it."""
    first = len(shape) - type_.rank
    return tuple("" if size != shape[first + k] else sharding[first + k]
                 for k, size in enumerate(type_.shape))


def _broadcast(asked: Asked) -> Answer:
    found = _elementwise(asked)
    return Answer(found.operands, found.result, sizes="shape")


def _same(asked: Asked) -> Answer:
    return Answer(asked.given, asked.given[0])


def _as_annotated(asked: Asked) -> Answer | None:
    assert isinstance(asked.op, ShardAsOp)
    wanted = tuple(axis if axis in asked.axes else "" for axis in asked.op.sharding)
    fits = all(not axis or asked.divides(axis, size)
               for axis, size in zip(wanted, asked.result.shape, strict=True))
    return Answer((wanted,), wanted) if fits else None


# ---------------------------------------------------------------------- products
def _product(asked: Asked) -> Answer | None:
    """Rows of the first operand and columns of the second stay divided; if the summed dim is, each
    rank sums its part."""
    a, b = asked.types
    if a.rank < 2 or b.rank < 2:
        return None
    left, right = asked.given
    batch_shape = asked.result.shape[:-2]
    merged = [""] * len(batch_shape)
    for type_, sharding in ((a, left), (b, right)):
        first = len(batch_shape) - (type_.rank - 2)
        for dim, axis in enumerate(sharding[:-2], first):
            if axis and not merged[dim] and axis not in merged:
                merged[dim] = axis
    used = {*merged}
    if right[-2] and right[-2] == left[-2] and not left[-1]:  # rows stay; all need all of b
        right = (*right[:-2], "", right[-1])
    summed = next((x for x in (left[-1], right[-2]) if x and x not in used), "")
    row = left[-2] if left[-2] not in used | {summed} else ""
    column = right[-1] if right[-1] not in used | {summed, row} else ""
    if summed and not (asked.divides(summed, a.shape[-1]) and asked.divides(summed, b.shape[-2])):
        summed = ""
    batches = [_aligned(TensorType(t.element, SizesAttr(t.shape[:-2])), batch_shape, merged)
               for t in (a, b)]
    return Answer(((*batches[0], row, summed), (*batches[1], summed, column)),
                  (*merged, row, column), {summed: "sum"} if summed else {})


# ---------------------------------------------------------------------- movement
def _transposed(asked: Asked) -> Answer:
    perm = ints_of(asked.op.properties, "perm")
    return Answer(asked.given, tuple(asked.given[0][k] for k in perm))


def _reshaped(asked: Asked) -> Answer:
    """A divided dim stays so if it is the outermost of the dims that are split or merged."""
    kept, result = list(whole(asked.types[0])), list(whole(asked.result))
    given = asked.given[0]
    for before, after in _groups(asked.types[0].shape, asked.result.shape):
        outer = [k for k in before if asked.types[0].shape[k].constant != 1][:1]
        target = [k for k in after if asked.result.shape[k].constant != 1][:1]
        axis = given[outer[0]] if outer else ""
        if axis and target and asked.divides(axis, asked.result.shape[target[0]]):
            kept[outer[0]], result[target[0]] = axis, axis
    return Answer((tuple(kept),), tuple(result), sizes="shape")


def _groups(
    before: Sequence[Expr], after: Sequence[Expr]
) -> list[tuple[list[int], list[int]]]:
    """The smallest runs of dims with equally many elements on both sides, from the left."""
    found: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(before) and j < len(after):
        left, right, a, b = [i], [j], before[i], after[j]
        i, j = i + 1, j + 1
        while a != b:
            if i == len(before) and j == len(after):
                return found
            if j == len(after) or (i < len(before) and _is_less(a, b)):
                a, i = a * before[i], i + 1
                left.append(i - 1)
            else:
                b, j = b * after[j], j + 1
                right.append(j - 1)
        found.append((left, right))
    return found


def _is_less(a: Expr, b: Expr) -> bool:
    if a.constant is None or b.constant is None:
        return a.constant is not None
    return a.constant < b.constant


def _sliced(asked: Asked) -> Answer:
    """Dims of which all is taken stay divided."""
    properties, shape = asked.op.properties, asked.types[0].shape
    starts, steps = (properties[name] for name in ("starts", "steps"))
    assert isinstance(starts, SizesAttr) and isinstance(steps, SizesAttr)
    kept = tuple(axis if (starts.data[k], asked.result.shape[k], steps.data[k]) == (
        Expr.of(0), shape[k], Expr.of(1)) else "" for k, axis in enumerate(asked.given[0]))
    return Answer((kept,), kept, sizes="sizes")


def _concatenated(asked: Asked) -> Answer:
    axis = int_of(asked.op.properties, "axis")
    merged = [""] * asked.result.rank
    for sharding in asked.given:
        for dim, name in enumerate(sharding):
            if name and dim != axis and not merged[dim] and name not in merged:
                merged[dim] = name
    return Answer((tuple(merged),) * len(asked.given), tuple(merged))


def _gathered(asked: Asked) -> Answer:
    """Dims of the indices, and those of the data that are not indexed, stay divided."""
    axis = int_of(asked.op.properties, "axis")
    data, indices = asked.given
    data = tuple("" if k == axis else name for k, name in enumerate(data))
    indices = tuple("" if name in data else name for name in indices)
    return Answer((data, indices), (*data[:axis], *indices, *data[axis + 1:]))


# ---------------------------------------------------------------------- reductions
_REDUCTIONS: Mapping[type[Operation], str] = {
    ReduceSumOp: "sum", ReduceMaxOp: "max", ReduceMinOp: "min", ReduceProdOp: "product",
    ReduceMeanOp: "avg"}


def _reduced(asked: Asked) -> Answer:
    """Each rank reduces its part. What ranks cannot combine (means of integers, truth values) needs
    all of it."""
    properties, [given] = asked.op.properties, asked.given
    axes, keep = ints_of(properties, "axes"), flag_of(properties, "keepdims")
    element, reduction = asked.result.element, _REDUCTIONS[type(asked.op)]
    exact = not is_float(element) and element != i1 and reduction != "avg"
    if not exact and not (is_float(element) and byte_width(element) >= 2):
        given = tuple("" if k in axes else axis for k, axis in enumerate(given))
    result = ["" if k in axes else axis for k, axis in enumerate(given) if keep or k not in axes]
    parts = {given[k]: reduction for k in axes if given[k]}
    return Answer((given,), tuple(result), parts)


def _along_axis(asked: Asked) -> Answer:
    """Softmax and others that need whole rows along one axis."""
    axis = int_of(asked.op.properties, "axis")
    kept = tuple("" if k == axis else name for k, name in enumerate(asked.given[0]))
    return Answer((kept, *map(whole, asked.types[1:])), kept)


def _from_axis(asked: Asked) -> Answer:
    """Layer norm, which needs all dims from an axis on."""
    axis = int_of(asked.op.properties, "axis")
    kept = tuple("" if k >= axis else name for k, name in enumerate(asked.given[0]))
    return Answer((kept, *map(whole, asked.types[1:])), kept)


def _batched(asked: Asked) -> Answer:
    """The first dim of the first operand counts independent items."""
    first = asked.given[0][0]
    rest = ("",) * (asked.types[0].rank - 1)
    return Answer(((first, *rest), *map(whole, asked.types[1:])),
                  (first, *("",) * (asked.result.rank - 1)))


def _filter_gradient(asked: Asked) -> Answer:
    """Channels stay divided if they are one group; if the items are divided, each rank sums its
    part."""
    x, y = asked.given
    alone, rest = int_of(asked.op.properties, "group", 1) == 1, ("",) * (len(x) - 2)
    summed = x[0] or y[0]
    outer = y[1] if alone and y[1] != summed else ""
    inner = x[1] if alone and x[1] not in (summed, outer) else ""
    return Answer(((summed, inner, *rest), (summed, outer, *rest)), (outer, inner, *rest),
                  {summed: "sum"} if summed else {})


Rule = Callable[[Asked], Answer | None]

_RULES: Mapping[type[Operation], Rule] = {
    MatmulOp: _product, TransposeOp: _transposed, ReshapeOp: _reshaped, BroadcastOp: _broadcast,
    SliceOp: _sliced, ConcatOp: _concatenated, GatherOp: _gathered, SoftmaxOp: _along_axis,
    LogSoftmaxOp: _along_axis, LayerNormOp: _from_axis, ConvOp: _batched, MaxPoolOp: _batched,
    AvgPoolOp: _batched, ConvFilterGradientOp: _filter_gradient, CastOp: _same,
    ShardAsOp: _as_annotated,
    **dict.fromkeys(_REDUCTIONS, _reduced)}


def _rule_of(kind: type[GraphOp]) -> Rule | None:
    if kind in _RULES:
        return _RULES[kind]
    if issubclass(kind, ActivationOp | ClipOp):
        return _first_elementwise
    return _elementwise if kind.KEPT_DIMS == 0 else None


def _first_elementwise(asked: Asked) -> Answer:
    """Activations: elementwise in the first operand; others, such as limits, are whole."""
    return Answer((asked.given[0], *map(whole, asked.types[1:])), asked.given[0])


def local_shape(
    shape: Sequence[Expr], sharding: Sharding, axes: Mapping[str, int]
) -> tuple[Expr, ...]:
    """The sizes of a rank's part."""
    return tuple(size // axes[axis] if axis else size
                 for size, axis in zip(shape, sharding, strict=True))


def with_sizes(
    properties: Mapping[str, Attribute], name: str, shape: Sequence[Expr]
) -> dict[str, Attribute]:
    """Attributes with another shape of the result."""
    return {**properties, **({name: SizesAttr(tuple(shape))} if name else {})}
