"""Division of vectors by what is the same for all lanes, without a division per vector.

A vector division takes as long as a dozen multiplications. With r = 1/y rounded, q = x*r is off by
little more than an ulp, x - q*y is exact as a fused operation, and q + (x - q*y)*r is x/y rounded
correctly (Markstein). Huge divisors, whose reciprocals would be denormal, are scaled first. Where
q or y is not finite, so is the remainder not, and q is the quotient already. Below 2^-94 the
remainder of x may itself be denormal: q, then, which can be off by an ulp.
"""

from __future__ import annotations

from dialects import types as t
from targets.cpu.emit.build import Builder
from targets.cpu.emit.values import Reg

_HUGE, _SMALLER = 2.0 ** 120, 2.0 ** -8
_NOT_FINITE = 0x99
"""vfpclass: quiet and signalling NaN, both infinities."""


def divide(b: Builder, x: Reg, y: Reg) -> Reg:
    """x / y; several lanes by one value through its reciprocal, where the machine makes that pay.
    """
    if x.width and not y.width and x.element == t.f32 and b.contracts and _pays(b, x.width):
        return _by_reciprocal(b, x, y)
    return b.div(x, y)


def _pays(b: Builder, width: int) -> bool:
    """Whether an instruction tells what is not finite."""
    return width in (4, 8, 16) and {"avx512dq", "avx512vl"} <= b.features


def _by_reciprocal(b: Builder, x: Reg, y: Reg) -> Reg:
    scale, y, reciprocal = _once(b, y)
    x = b.binary("fmul", x, scale)
    quotient = b.binary("fmul", x, reciprocal)
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
