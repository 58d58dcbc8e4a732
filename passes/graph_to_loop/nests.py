"""How lowerings build nests: domains, reads, and the nest with its body.

    domain = Domain()
    i, j = domain.parallel(m, n)
    k = domain.reduce(depth)
    product = make_nest(at, domain, [Read(a, (i, k)), Read(b, (k, j))], result,
                        lambda body, read: read[0] * read[1], combiner="add")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Attribute, SSAValue

from dialects.graph.base import Build
from dialects.graph.constant import ConstantOp, array_of_literal
from dialects.loop import Axis, NestOp, YieldOp
from dialects.records import dataclass
from dialects.strata import types as t
from dialects.strata.sizes import AssumeOp
from dialects.strata.types import LiteralAttr, TensorType, tensor
from dialects.symbolic.expr import Expr, Size
from dialects.symbolic.ranges import is_at_most
from dialects.symbolic.symbol import Symbol
from passes.graph_to_loop.scalars import Body, Number, Scalar, number_of

Formula = Callable[[Body, Sequence[Scalar]], Scalar]
"""`formula(body, read)` computes the value of a point from the elements that it reads."""


@dataclass
class Domain:
    """The axes of a nest, named i0, i1 ... in order of creation."""

    axes: list[Axis] = field(default_factory=list[Axis])
    made: int = 0
    """The number of names in use."""

    def dims(self, shape: Sequence[Expr]) -> list[Expr]:
        """The index of a point of a tensor: 0 for a dim of size 1, and a new parallel axis for any
        other dim."""
        return [self._add(size, False) if size.constant != 1 else self._none() for size in shape]

    def parallel(self, *extents: Size) -> list[Expr]:
        """New parallel axes, as index expressions."""
        return [self._add(e, False) for e in extents]

    def reduce(self, *extents: Size) -> list[Expr]:
        """New reduce axes, as index expressions."""
        return [self._add(e, True) for e in extents]

    @property
    def point(self) -> list[Expr]:
        """The parallel axes as an index into the result."""
        return [Expr.symbol(a.name) for a in self.axes if not a.reduce]

    def _add(self, extent: Size, reduce: bool) -> Expr:
        axis = Axis(Symbol.axis(f"i{self.made}"), Expr.of(extent), reduce)
        self.axes.append(axis)
        self.made += 1
        return Expr.symbol(axis.name)

    def _none(self) -> Expr:
        """The index 0 for a dim without an axis; it uses up a name, so that others keep theirs."""
        self.made += 1
        return Expr.of(0)


@dataclass(frozen=True)
class Read:
    """A tensor, one index expression per dim, and the value of out-of-bounds reads (None: none)."""

    value: SSAValue
    index: Sequence[Size]
    pad: Number | None = None


def make_nest(
    at: Build, domain: Domain, reads: Sequence[Read], result: TensorType, formula: Formula, *,
    index: Sequence[Size] | None = None, combiner: str = "none",
    into: SSAValue | None = None, unordered: bool = False, total: bool = False,
) -> SSAValue:
    """Insert a nest with one result, indexed by the parallel axes unless `index` is given.

    The formula receives the elements as they are stored; its result is converted to the result
    type.
    """
    nest = NestOp.of(
        domain.axes, [r.value for r in reads], [r.index for r in reads], [result],
        [domain.point if index is None else index], combiners=[combiner],
        pads=[r.pad for r in reads], into=[] if into is None else [into])
    nest.unordered = UnitAttr() if unordered else None
    nest.total = UnitAttr() if total else None
    body = Body(nest.body.block)
    scalars = [Scalar(body, argument, type_of(r.value).element)
               for argument, r in zip(nest.body.block.args, reads, strict=True)]
    point = formula(body, scalars).to(result.element)
    nest.body.block.add_op(YieldOp.of(point.value))
    return at.insert(nest).results[0]


def copy(body: Body, read: Sequence[Scalar]) -> Scalar:
    """The formula of nests that move elements: the last read; other reads only index it."""
    return read[-1]


def same(x: Scalar) -> Scalar:
    """The formula of pointwise nests that only broadcast or convert."""
    return x


def pointwise(at: Build, operands: Sequence[SSAValue], result: TensorType,
              formula: Callable[..., Scalar]) -> SSAValue:
    """A nest over the dims of the result, to which the operands broadcast.

    `formula` takes one scalar per operand. Constants of one element become constants in the body.
    """
    domain = Domain()
    point = domain.dims(result.shape)
    numbers = [literal_number(v) for v in operands]
    reads = [Read(v, broadcast_index(type_of(v), result.shape, point))
             for v, number in zip(operands, numbers, strict=True) if number is None]

    def compute(body: Body, read: Sequence[Scalar]) -> Scalar:
        following = iter(read)
        scalars = [next(following) if number is None
                   else body.constant(number, t.wide_element(type_of(v).element))
                   for v, number in zip(operands, numbers, strict=True)]
        return formula(*scalars)

    return make_nest(at, domain, reads, result, compute, index=point)


def broadcast_index(
    type_: TensorType, shape: Sequence[Expr], point: Sequence[Expr]
) -> list[Expr]:
    """The index at which an operand that broadcasts to `shape` is read for a point of it."""
    skipped = len(shape) - type_.rank
    rows = zip(type_.shape, shape[skipped:], point[skipped:], strict=True)
    zero = Expr.of(0)
    return [zero if own.constant == 1 and size.constant != 1 else i for own, size, i in rows]


def converted(at: Build, value: SSAValue, element: Attribute) -> SSAValue:
    """The value converted to an element type, if it does not have it already."""
    type_ = type_of(value)
    if type_.element == element:
        return value
    return pointwise(at, [value], tensor(element, type_.shape), same)


def assume_equal(at: Build, left: Expr, right: Expr) -> None:
    """Assume that two sizes are equal, unless the program says so already."""
    if left != right:
        at.insert(AssumeOp.of(left, "==", right))


def assume_at_most(at: Build, low: Expr, high: Expr) -> None:
    """Assume that a size is at most another, unless that is certain for all sizes."""
    if not is_at_most(low, high, frozenset()):
        at.insert(AssumeOp.of(low, "<=", high))


# ---------------------------------------------------------------------- questions about values
def type_of(value: SSAValue) -> TensorType:
    assert isinstance(value.type, TensorType)
    return value.type


def literal_number(value: SSAValue) -> Number | None:
    """The value of a one-element constant that is written out in the IR; None for other values."""
    op = value.owner
    if not isinstance(op, ConstantOp) or not isinstance(op.value, LiteralAttr):
        return None
    if len(op.value.data) != 1:
        return None
    return number_of(array_of_literal(op.value, op.type))
