"""Division of a vector by a value that all lanes share, without one division per vector.

A vector division takes as long as a dozen multiplications. Let r be 1/y, rounded. Then q = x*r is
off by little more than one ulp, x - q*y is exact as a fused operation, and q + (x - q*y)*r is the
correctly rounded x/y (Markstein). Huge divisors, whose reciprocals would be subnormal, are scaled
first. If q or y is not finite, neither is the remainder, and q is already the quotient. So it is if
the remainder is 0; adding that would take the sign from a negative zero. For x below 2^-94 the
remainder may itself be subnormal; the result is then q, which can be off by one ulp.

A divisor computed from a sum has as many roundings as the sum has terms. Then q is accurate enough.
Most divisors known at compile time need less (`known.py`).
"""

from __future__ import annotations

from xdsl.ir import Block, Operation, SSAValue

from dialects.block import MapOp, ReduceOp
from dialects.strata import types as t
from targets.cpu.emit.build import Builder
from targets.cpu.emit.division.known import reciprocal_of
from targets.cpu.emit.values import Reg
from targets.cpu.llvm.operands import number_of

_HUGE, _SMALLER = 2.0 ** 120, 2.0 ** -8


def divide(b: Builder, x: Reg, y: Reg, summed: bool = False) -> Reg:
    """x / y; several lanes divided by one value use its reciprocal, where that pays.

    If subnormals are kept, each vector is divided, because a subnormal divisor has no reciprocal.
    `summed`: whether y is computed from a sum. The quotient is then off by at most 1.5 ulp.
    """
    if not x.width or y.width or x.element != t.f32 or not (b.contracts and b.flushes):
        return b.div(x, y)
    number = number_of(y.name)
    known = None if number is None or not b.rounds_once else reciprocal_of(number)
    if known is not None:
        return _by_parts(b, x, *known)
    if summed:
        return _times_reciprocal(b, x, y)[0]
    return _by_reciprocal(b, x, y)


def is_summed(value: SSAValue) -> bool:
    """Whether a number is computed from a sum along lanes or unrolled dims of the same kernel."""
    owner = value.owner
    if isinstance(owner, Block):
        around = owner.parent_op()
        return isinstance(around, MapOp) and is_summed(around.inputs[owner.args.index(value)])
    if isinstance(owner, ReduceOp):
        return owner.combiner.data == "add"
    return _is_scalar(owner) and any(is_summed(v) for v in owner.operands)


def _is_scalar(op: Operation) -> bool:
    """Whether an operation computes a number from others, in a body or by a body per element."""
    return isinstance(op, MapOp) or op.dialect_name() in ("arith", "math")


def _by_parts(b: Builder, x: Reg, high: float, low: float) -> Reg:
    """The correctly rounded quotient, by the two parts of a reciprocal."""
    first = b.constant(high, x)
    if not low:
        return b.binary("fmul", x, first)
    return b.intrinsic("fma", x, first, b.binary("fmul", x, b.constant(low, x)))


def _times_reciprocal(b: Builder, x: Reg, y: Reg) -> tuple[Reg, Reg, Reg, Reg]:
    """The quotient, off by a little more than one ulp; the scaled x and y, and the reciprocal."""
    scale, y, reciprocal = _once(b, y)
    x = b.binary("fmul", x, scale)
    return b.binary("fmul", x, reciprocal), x, y, reciprocal


def _by_reciprocal(b: Builder, x: Reg, y: Reg) -> Reg:
    """The correctly rounded quotient. `has_classes`: without that, a division takes less time."""
    if not b.has_classes(x.width):
        return b.div(x, y)
    quotient, x, y, reciprocal = _times_reciprocal(b, x, y)
    rest = b.intrinsic("fma", b.negative(quotient), y, x)
    better = b.intrinsic("fma", rest, reciprocal, quotient)
    return b.select(b.is_final(rest), quotient, better)


def _once(b: Builder, y: Reg) -> tuple[Reg, Reg, Reg]:
    """A power of two, the divisor times that, and its reciprocal; hoisted as far as y is."""
    huge, smaller, one = (b.constant(v, y).name for v in (_HUGE, _SMALLER, 1.0))
    hoist = b.writer.hoist
    size = hoist(b.writer.call("llvm.fabs.f32", y.type, [(y.type, y.name)]), y.name)
    test = hoist(f"fcmp ogt {y.type} {size}, {huge}", size)
    scale = hoist(f"select i1 {test}, {y.type} {smaller}, {y.type} {one}", test)
    scaled = hoist(f"fmul {y.typed}, {scale}", y.name, scale)
    reciprocal = hoist(f"fdiv {y.type} {one}, {scaled}", scaled)
    return y.named(scale), y.named(scaled), y.named(reciprocal)
