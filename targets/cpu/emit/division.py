"""Division of vectors by what is the same for all lanes, without a division per vector.

A vector division takes as long as a dozen multiplications. With r = 1/y rounded, q = x*r is off by
little more than an ulp, x - q*y is exact as a fused operation, and q + (x - q*y)*r is x/y rounded
correctly (Markstein). Huge divisors, whose reciprocals would be denormal, are scaled first. Where
q or y is not finite, so is the remainder not, and q is the quotient already. Below 2^-94 the
remainder of x may itself be denormal: q, then, which can be off by an ulp.

A divisor that is made of a sum has been rounded as often as the sum has terms. Then q is as good.
"""

from __future__ import annotations

from xdsl.ir import Block, Operation, SSAValue

from dialects.block import MapOp, ReduceOp
from dialects.strata import types as t
from targets.cpu.emit.build import Builder
from targets.cpu.emit.values import Reg

_HUGE, _SMALLER = 2.0 ** 120, 2.0 ** -8
_NOT_FINITE = 0x99
"""vfpclass: quiet and signalling NaN, both infinities."""


def divide(b: Builder, x: Reg, y: Reg, summed: bool = False) -> Reg:
    """x / y; several lanes by one value through its reciprocal, where the machine makes that pay.

    Where denormals count, each vector is divided: a denormal divisor has no reciprocal.
    `summed`: whether y is made of a sum. The quotient is then off by 1.5 ulp at most.
    """
    if not x.width or y.width or x.element != t.f32 or not (b.contracts and b.flushes):
        return b.div(x, y)
    if summed:
        return _times_reciprocal(b, x, y)[0]
    return _by_reciprocal(b, x, y) if _pays(b, x.width) else b.div(x, y)


def is_summed(value: SSAValue) -> bool:
    """Whether a number is made of a sum along lanes or unrolled dims of the same kernel."""
    owner = value.owner
    if isinstance(owner, Block):
        around = owner.parent_op()
        return isinstance(around, MapOp) and is_summed(around.inputs[owner.args.index(value)])
    if isinstance(owner, ReduceOp):
        return owner.combiner.data == "add"
    return _is_scalar(owner) and any(is_summed(v) for v in owner.operands)


def _is_scalar(op: Operation) -> bool:
    """Whether an operation computes one number of others: in a body, or a body for each place."""
    return isinstance(op, MapOp) or op.name.startswith(("arith.", "math."))


def _pays(b: Builder, width: int) -> bool:
    """Whether an instruction tells what is not finite."""
    return width in (4, 8, 16) and {"avx512dq", "avx512vl"} <= b.features


def _times_reciprocal(b: Builder, x: Reg, y: Reg) -> tuple[Reg, Reg, Reg, Reg]:
    """The quotient, off by a little more than an ulp; x and y as scaled, and the reciprocal."""
    scale, y, reciprocal = _once(b, y)
    x = b.binary("fmul", x, scale)
    return b.binary("fmul", x, reciprocal), x, y, reciprocal


def _by_reciprocal(b: Builder, x: Reg, y: Reg) -> Reg:
    quotient, x, y, reciprocal = _times_reciprocal(b, x, y)
    rest = b.intrinsic("fma", b.negative(quotient), y, x)
    better = b.intrinsic("fma", rest, reciprocal, quotient)
    return b.select(_is_not_finite(b, rest), quotient, better)


def _once(b: Builder, y: Reg) -> tuple[Reg, Reg, Reg]:
    """A power of two, the divisor times that, and the reciprocal: outside the loop, if y is."""
    huge, smaller, one = (b.constant(v, y).name for v in (_HUGE, _SMALLER, 1.0))
    hoist = b.writer.hoist
    size = hoist(b.writer.call("llvm.fabs.f32", y.type, [(y.type, y.name)]), y.name)
    test = hoist(f"fcmp ogt {y.type} {size}, {huge}", size)
    scale = hoist(f"select i1 {test}, {y.type} {smaller}, {y.type} {one}", test)
    scaled = hoist(f"fmul {y.typed}, {scale}", y.name, scale)
    reciprocal = hoist(f"fdiv {y.type} {one}, {scaled}", scaled)
    return y.named(scale), y.named(scaled), y.named(reciprocal)


def _is_not_finite(b: Builder, x: Reg) -> Reg:
    text = b.writer.call(f"llvm.x86.avx512.fpclass.ps.{32 * x.width}", f"<{x.width} x i1>",
                         [(x.type, x.name), ("i32", str(_NOT_FINITE))])
    return Reg.of(b.writer.local(text), t.i1, x.width)
