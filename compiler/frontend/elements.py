"""The single elements of small integer tensors: known ones, and those of run-time tensors.

    Concat([batch], Unsqueeze(%count), [768])    ->    batch, element 0 of %count, 768
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from dialects.graph.constant import ConstantOp, SizesOp
from dialects.graph.shape import ConcatOp, ReshapeOp
from dialects.graph.unary import CastOp
from dialects.records import dataclass
from dialects.strata.types import TensorType
from dialects.symbolic.expr import Expr


@dataclass(frozen=True)
class Element:
    """An element of a tensor, in row-major order, that is only known at run time."""

    source: SSAValue
    index: int

    @property
    def source_type(self) -> TensorType:
        assert isinstance(self.source.type, TensorType)
        return self.source.type


def constant_of(element: Expr | Element) -> int | None:
    """The number that an element is, if it is known."""
    return element.constant if isinstance(element, Expr) else None


def elements_of(ssa: SSAValue) -> list[Expr | Element]:
    """The elements of a tensor of constant shape, as far as the operations that compute it show
    them.
    """
    op = ssa.owner
    if isinstance(op, ReshapeOp) and Element(op.x, 0).source_type.count.constant is not None:
        return elements_of(op.x)
    if isinstance(op, ConcatOp) and all(Element(x, 0).source_type.rank == 1 for x in op.xs):
        return [e for x in op.xs for e in elements_of(x)]
    if isinstance(op, SizesOp | ConstantOp) and (known := op.evaluate_sizes()) is not None:
        return [Expr.of(e) for e in known.reshape(-1)]
    count = Element(ssa, 0).source_type.count.constant
    assert count is not None
    return [Element(ssa, k) for k in range(count)]


def only_size(ssa: SSAValue) -> Expr | None:
    """The only element of a tensor that is computed from sizes alone."""
    while isinstance(ssa.owner, ReshapeOp | CastOp):
        ssa = ssa.owner.operands[0]
    if not isinstance(ssa.owner, SizesOp | ConstantOp):
        return None
    values = ssa.owner.evaluate_sizes()
    return None if values is None or values.size != 1 else Expr.of(values.reshape(-1)[0])
