"""Where the stores of a kernel of static sizes write: a range per dim of each buffer.

    block.store %v, %x[8*%p + t0, 2, t1]  of 256 programs  ->  0..2047, 2..2, 0..63

What other launches write to the same buffer, such as the other parts of a concatenation, is apart
if the ranges are disjoint in one dim. A tile's positions beyond the end of a part are moved behind
the buffer, where a checked store writes nothing, so they are left out:

    block.store %v, %x[8*%p + t0 + 500*min(max(8*%p + t0 - 300, 0), 1)]  of f32[500]  ->  0..300
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import TypeAlias

from xdsl.ir import SSAValue

from dialects.block import KernelOp, StoreOp
from dialects.block.accesses import Access
from dialects.records import dataclass
from dialects.symbolic.expr import Call, Expr, Monomial
from dialects.symbolic.intervals import Interval
from passes.analyses.block.bounds import Numbers
from passes.analyses.block.contents import Kernel

Box: TypeAlias = Sequence[Interval | None]
"""A range per dim; None where it is not known."""


@dataclass
class Boxes:
    """The boxes of all stores to a buffer, per kernel and buffer, computed when asked for."""

    found: dict[KernelOp, dict[SSAValue, Box]] = field(
        default_factory=dict[KernelOp, "dict[SSAValue, Box]"])

    def of(self, kernel: KernelOp, buffer: SSAValue) -> Box:
        """The box of the stores to one of the kernel's buffers; empty if nothing stores to it."""
        if kernel not in self.found:
            self.found[kernel] = _boxes(kernel)
        return self.found[kernel].get(buffer, ())


def are_apart(a: Box, b: Box) -> bool:
    """Whether two boxes of one buffer share no element."""
    return any(x is not None and y is not None and (x[1] < y[0] or y[1] < x[0])
               for x, y in zip(a, b, strict=False))


def _boxes(op: KernelOp) -> dict[SSAValue, Box]:
    kernel = Kernel.of(op)
    numbers = Numbers(kernel)
    found: dict[SSAValue, list[Interval | None]] = {}
    for access in kernel.accesses:
        if isinstance(access.op, StoreOp):
            span = _span(numbers, access)
            dims = found.setdefault(access.op.buffer, [])
            if access.dim == len(dims):
                dims.append(span)
            else:
                dims[access.dim] = _hull(dims[access.dim], span)
    return {**found}


def _span(numbers: Numbers, access: Access) -> Interval | None:
    """The positions of an access inside its buffer."""
    expr, size, passed = access.expr, access.size.constant, list[Expr]()
    for monomial, factor in access.expr.terms:
        beyond = _beyond(monomial) if factor == size else None
        if beyond is not None:
            expr = expr - Expr(((monomial, factor),))
            passed.append(beyond)
    found = numbers.span(replace(access, expr=expr))
    if found is None:
        return None
    ends = [end for beyond in passed if (end := (expr - beyond).constant) is not None]
    return found[0], min(found[1], *ends) if ends else found[1]


def _beyond(monomial: Monomial) -> Expr | None:
    """What min(max(x, 0), 1) is 1 for from x = 1 on."""
    inner = _other(monomial, "min", 1)
    return None if inner is None or len(inner.terms) != 1 else _other(inner.terms[0][0], "max", 0)


def _other(monomial: Monomial, op: str, number: int) -> Expr | None:
    """The other argument of a call whose first or second argument is a number."""
    call = monomial[0] if len(monomial) == 1 else None
    if not isinstance(call, Call) or call.op != op:
        return None
    return next((a for a, b in (call.args, call.args[::-1]) if b.constant == number), None)


def _hull(a: Interval | None, b: Interval | None) -> Interval | None:
    return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))
