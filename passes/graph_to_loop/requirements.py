"""Lower requirements on indices to a comparison of the index that is farthest out of range.

    strata.require -n <= %ids < n
    -->
    %worst = nest (reduce i0: m) ins(%ids[i0]) outs(max i64[]) { (ids + n) with its sign inverted }
    strata.require -n <= farthest %worst < n

The comparisons then move down, to where the function branches on data, calls another function or
returns. That is safe because reads and writes by an index stay inside their tensors anyway, and
comparing in one place makes threads wait only once. Targets that check no indices
(`Facts.checks_indices`) drop requirements instead.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Operation, SSAValue

from dialects.strata import types as t
from dialects.strata.control import ControlOp
from dialects.strata.func import FuncOp, ReturnOp
from dialects.strata.requirements import RequireOp
from dialects.strata.sizes import SizeOp
from dialects.strata.types import tensor
from passes.base import StrataContext
from passes.graph_to_loop.nests import Domain, Read, make_nest, type_of
from passes.graph_to_loop.scalars import Body, Scalar
from passes.rewriting import Rewriter, erase


def lower_requirements(func: FuncOp, context: StrataContext) -> None:
    """Lower the requirements of a function; its other operations may not be lowered yet."""
    wanted = context.facts.checks_indices
    seen: set[Hashable] = set()
    for op in [op for op in func.body.block.ops if isinstance(op, RequireOp)]:
        key = (op.values, op.low, op.high, op.divisors)
        if wanted and key not in seen:
            _lower(op, Rewriter(op, context, []))
        else:
            erase(op)
        seen.add(key)


def _lower(op: RequireOp, at: Rewriter) -> None:
    type_ = type_of(op.values)
    if op.farthest is None and (type_.element, type_.count.constant) != (t.i64, 1):
        op.operands = [_farthest(op, at)]
        op.farthest = UnitAttr()


def _farthest(op: RequireOp, at: Rewriter) -> SSAValue:
    """The index farthest above the lower bound, in the form that `strata.require` expects."""
    domain, low = Domain(), op.low.data
    read = Read(op.values, domain.reduce(*type_of(op.values).shape))

    def key(body: Body, read: Sequence[Scalar]) -> Scalar:
        distance = read[0].to(t.i64)
        if low.constant is None:
            distance = distance - body.index(low)
        elif low.constant:
            distance = distance - low.constant
        return distance.flipped(t.i64)

    combiner = "max" if domain.axes else "none"  # a single index of another type is the farthest
    return make_nest(at, domain, [read], tensor(t.i64, ()), key, combiner=combiner)


def move_requirements(func: FuncOp) -> None:
    """Move each to where the function reads data on the host, calls or returns anyway."""
    waiting: list[RequireOp] = []
    for op in list(func.body.block.ops):
        if isinstance(op, RequireOp):
            waiting.append(op)
        elif isinstance(op, SizeOp | ControlOp | ReturnOp):
            _place(waiting, op)
            waiting.clear()


def _place(waiting: list[RequireOp], before: Operation) -> None:
    block = before.parent
    assert block is not None
    for op in waiting:
        op.detach()
        block.insert_op_before(op, before)
