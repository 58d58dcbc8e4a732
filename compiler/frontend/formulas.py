"""Functions of values, with which importers write formulas as papers do.

    from compiler.frontend import formulas as f

    f.where(x > 0, x, alpha * f.expm1(x / alpha))

Each function builds one operation of the `graph` dialect, whose docstring is its specification.
`total`, `product` and `any_of` build one for each operand after the first, and `floored_quotient`
several. Arithmetic, comparisons,
casts and reshapes are operators and methods of Value (values.py). Numbers get the element type of
the value beside them. All functions raise ShapeError if their operands do not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce

from compiler.frontend.values import Operand, Value, combined, operand, value_among
from dialects.graph.activation import ReluOp, SiluOp, SoftplusOp
from dialects.graph.base import GraphOp
from dialects.graph.cumulative import CumulativeProdOp
from dialects.graph.elementwise import FmodOp, MaxOp, MinOp
from dialects.graph.exponential import Expm1Op, Log1pOp
from dialects.graph.gather import GatherNdOp, GatherOp
from dialects.graph.logic import EqualOp, WhereOp
from dialects.graph.normalization import SoftmaxOp
from dialects.graph.reduce import ReduceMaxOp, ReduceMeanOp, ReduceSumOp
from dialects.graph.shape import ConcatOp
from dialects.graph.unary import (
    CeilOp,
    CosOp,
    ExpOp,
    FloorOp,
    IsinfOp,
    IsnanOp,
    LogOp,
    ReciprocalOp,
    RoundOp,
    SigmoidOp,
    SinOp,
    SqrtOp,
    TanhOp,
)

_Unary = Callable[[Value], Value]
_Binary = Callable[[Operand, Operand], Value]


def _unary(op_type: type[GraphOp]) -> _Unary:
    return lambda x: x.build(op_type, x)


def _binary(op_type: type[GraphOp]) -> _Binary:
    return lambda x, y: combined(op_type, x, y)


# ---------------------------------------------------------------------- of one value
exp, expm1, log, log1p = map(_unary, (ExpOp, Expm1Op, LogOp, Log1pOp))
sqrt, reciprocal, sin, cos = map(_unary, (SqrtOp, ReciprocalOp, SinOp, CosOp))
floor, ceil, nearest = map(_unary, (FloorOp, CeilOp, RoundOp))
is_nan, is_inf = map(_unary, (IsnanOp, IsinfOp))
sigmoid, tanh, relu = map(_unary, (SigmoidOp, TanhOp, ReluOp))
silu, softplus = map(_unary, (SiluOp, SoftplusOp))


def softmax(x: Value, axis: int) -> Value:
    return x.build(SoftmaxOp, x, axis=axis)


# ---------------------------------------------------------------------- of several values
maximum, minimum, equal = map(_binary, (MaxOp, MinOp, EqualOp))


def where(condition: Value, x: Operand, y: Operand) -> Value:
    """x where the condition holds, else y. Raises TypeError if both are numbers."""
    like = value_among(WhereOp, x, y)
    return like.build(WhereOp, condition, operand(x, like), operand(y, like))


def total(terms: Iterable[Value]) -> Value:
    """The sum of one or more values, added from the left."""
    return reduce(lambda a, b: a + b, list(terms))


def product(factors: Iterable[Value]) -> Value:
    """The product of one or more values, multiplied from the left."""
    return reduce(lambda a, b: a * b, list(factors))


def any_of(tests: Iterable[Value]) -> Value:
    """Whether one or more truth values hold anywhere, combined from the left."""
    return reduce(lambda a, b: a | b, list(tests))


def all_of(tests: Iterable[Value]) -> Value:
    """Whether one or more truth values hold everywhere, combined from the left."""
    return reduce(lambda a, b: a & b, list(tests))


def concat(parts: Iterable[Value], axis: int) -> Value:
    """One or more values, one after the other along an axis."""
    first, *others = parts
    return first.build(ConcatOp, first, *others, axis=axis)


def floored_quotient(x: Value, y: Value) -> Value:
    """The exact quotient of two floats rounded down: 1.0 // 0.1 is 9.0, although 1.0 / 0.1 is 10.0.

    As in Python and PyTorch; x / y where y is 0.
    """
    rest = combined(FmodOp, x, y)
    whole = (x - rest) / y
    below = ~equal(rest, 0) & ((rest < 0) ^ (y < 0))
    whole = where(below, whole - 1, whole)
    down = floor(whole)
    down = where(whole - down > 0.5, down + 1, down)
    quotient = x / y
    down = where(equal(whole, 0), quotient * 0.0, down)  # 0 with the sign of the quotient
    return where(equal(y, 0), quotient, down)


# ---------------------------------------------------------------------- reductions
def reduce_sum(x: Value, axes: Sequence[int], *, keepdims: bool = False) -> Value:
    return x.build(ReduceSumOp, x, axes=list(axes), keepdims=keepdims)


def reduce_mean(x: Value, axes: Sequence[int], *, keepdims: bool = False) -> Value:
    return x.build(ReduceMeanOp, x, axes=list(axes), keepdims=keepdims)


def reduce_max(x: Value, axes: Sequence[int], *, keepdims: bool = False) -> Value:
    return x.build(ReduceMaxOp, x, axes=list(axes), keepdims=keepdims)


def running_product(x: Value, axis: int) -> Value:
    """The products of the elements up to each one along an axis."""
    return x.build(CumulativeProdOp, x, axis=axis, exclusive=False, reverse=False)


# ---------------------------------------------------------------------- gathering
def gather(x: Value, indices: Value, axis: int) -> Value:
    """Entries of one axis; the indices' dims take the place of that axis."""
    return x.build(GatherOp, x, indices, axis=axis)


def gather_nd(x: Value, indices: Value, batch_dims: int) -> Value:
    """What the vectors in the last dim of `indices` point at."""
    return x.build(GatherNdOp, x, indices, batch_dims=batch_dims)
