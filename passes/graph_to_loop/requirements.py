"""Requirements on indices become comparisons of their extrema.

    strata.require -n <= %ids < n
    -->
    %low  = nest (reduce i0: m) ins(%ids[i0]) outs(min i64[])
    %high = nest (reduce i0: m) ins(%ids[i0]) outs(max i64[])
    strata.require -n <= %low, %high < n

They then move down, to where the function decides by data, calls another function, or returns:
reads and writes by an index stay inside their tensors anyway, and what is compared in one place
makes threads wait once. Targets that check nothing (`Target.checks_indices`) lose them instead.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from xdsl.ir import Attribute, Operation, SSAValue

from dialects import types as t
from dialects.control import ControlOp
from dialects.func import FuncOp, ReturnOp
from dialects.graph.base import Build
from dialects.requirements import RequireOp
from dialects.sizes import SizeOp
from dialects.types import tensor
from passes.base import StrataContext
from passes.graph_to_loop.nests import Domain, Read, make_nest, same, type_of
from passes.rewriting import erase


def lower_requirements(func: FuncOp, context: StrataContext) -> None:
    """Lower those of a function, whose other operations may be graph operations still."""
    wanted = context.target is None or context.target.checks_indices(context.options)
    extrema = _Extrema()
    seen: set[Hashable] = set()
    for op in [op for op in func.body.block.ops if isinstance(op, RequireOp)]:
        key = (op.lowest, op.highest, op.low, op.high)
        if wanted and key not in seen:
            _lower(op, extrema)
        else:
            erase(op)
        seen.add(key)


def _lower(op: RequireOp, extrema: _Extrema) -> None:
    build = Build(op)
    op.operands = [extrema.of(op.lowest, "min", build), extrema.of(op.highest, "max", build)]


@dataclass
class _Extrema:
    """The extrema of a function's tensors that are computed already."""

    known: dict[tuple[SSAValue, str], SSAValue] = field(
        default_factory=dict[tuple[SSAValue, str], SSAValue])

    def of(self, value: SSAValue, combiner: str, build: Build) -> SSAValue:
        """The least or greatest element, as i32 or i64."""
        type_ = type_of(value)
        element = _held(type_.element)
        if type_.count.constant == 1 and type_.element == element:
            return value
        if (value, combiner) not in self.known:
            domain = Domain()
            read = Read(value, domain.reduce(*type_.shape))
            self.known[value, combiner] = make_nest(
                build, domain, [read], tensor(element, ()),
                lambda body, read: read[0].to(element), combiner=combiner)
        return self.known[value, combiner]


def _held(element: Attribute) -> Attribute:
    """The type in which extrema are computed: one that has the values, and that hosts compare."""
    if element == t.i64 or (t.is_unsigned(element) and t.bit_width(element) >= 32):
        return t.i64
    return t.i32


def move_requirements(func: FuncOp) -> None:
    """Let each stand where the function would look at data, or end, anyway."""
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
