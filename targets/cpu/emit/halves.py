"""f16 and bf16: held in registers as their 16 bits, and widened to f32 for arithmetic.

bf16 is the upper half of an f32. Narrowing rounds to nearest even, with an instruction if there is
one (AVX512-BF16), else by integer arithmetic. So do both conversions of f16 on a processor without
F16C: LLVM would call functions there that the C library does not have.
"""

from __future__ import annotations

from xdsl.ir import Attribute

from dialects.strata import types as t
from targets.cpu.emit.build import Builder
from targets.cpu.emit.values import Reg


def widen(b: Builder, value: Reg) -> Reg:
    """f16 and bf16 widened to f32; values of other types unchanged."""
    if value.element == t.bf16:
        bits = b.convert("zext", value, t.i32)
        return b.bits(b.binary("shl", bits, b.constant(16, bits)), t.f32)
    if value.element == t.f16 and not b.converts_f16:
        return _widen_by_integers(b, value)
    if value.element == t.f16:
        return Reg.of(_through(b, "fpext", f"bitcast {value.typed} to", "half", value.width,
                            "float"), t.f32, value.width)
    return value


def narrow(b: Builder, value: Reg, target: Attribute) -> Reg:
    """f32 narrowed to f16 or bf16, rounded to nearest even."""
    if target == t.f16 and not b.converts_f16:
        return _half_by_integers(b, value)
    if target == t.f16:
        return Reg.of(_through(b, "bitcast", f"fptrunc {value.typed} to", "half", value.width,
                            "i16"), target, value.width)
    if b.narrows_bf16:
        return Reg.of(_through(b, "bitcast", f"fptrunc {value.typed} to", "bfloat", value.width,
                            "i16"), target, value.width)
    return _narrow_by_integers(b, value)


def _through(
    b: Builder, second: str, first: str, middle: str, width: int, last: str
) -> str:
    """Convert by `first` into the type `middle`, then by `second` to `last`."""
    middle, last = (f"<{width} x {x}>" if width else x for x in (middle, last))
    name = b.writer.local(f"{first} {middle}")
    return b.writer.local(f"{second} {middle} {name} to {last}")


def _narrow_by_integers(b: Builder, value: Reg) -> Reg:
    """Add half of the last kept bit (minus one if that bit is even), then truncate; keep NaN."""
    bits = b.bits(value, t.i32)
    upper = b.binary("lshr", bits, b.constant(16, bits))
    odd = b.binary("and", upper, b.constant(1, bits))
    rounded = b.binary("add", b.binary("add", bits, b.constant(0x7FFF, bits)), odd)
    quiet = b.binary("or", bits, b.constant(0x400000, bits))
    kept = b.select(b.compare("fcmp uno", value, value), quiet, rounded)
    cut = b.convert("trunc", b.binary("lshr", kept, b.constant(16, bits)), t.i16)
    return cut.cast(t.bf16)


# ---------------------------------------------------------------------- f16 without instructions
_SHIFT, _REBIAS = 13, 112 << 10
"""The bits by which the mantissas differ; the difference of the biases, in codes of f16."""
_INFINITY, _LEAST_NORMAL = 0x7C00, 0x0400


def _widen_by_integers(b: Builder, value: Reg) -> Reg:
    """Shift the code and change its bias. A number with exponent 0 counts units of 2^-24."""
    def number(code: int) -> Reg:
        return b.constant(code, bits)

    bits = b.convert("zext", value, t.i32)
    magnitude = b.binary("and", bits, number(0x7FFF))
    normal = b.binary("shl", b.binary("add", magnitude, number(_REBIAS)), number(_SHIFT))
    units = b.convert("sitofp", magnitude, t.f32)
    small = b.bits(b.binary("fmul", units, b.constant(2.0**-24, units)), t.i32)
    special = b.binary("or", normal, number(0x7F800000))
    found = b.select(b.compare("icmp ult", magnitude, number(_LEAST_NORMAL)), small, normal)
    found = b.select(b.compare("icmp uge", magnitude, number(_INFINITY)), special, found)
    sign = b.binary("shl", b.binary("xor", bits, magnitude), number(16))
    return b.bits(b.binary("or", found, sign), t.f32)


def _half_by_integers(b: Builder, value: Reg) -> Reg:
    """Round the code at the last kept bit, as for bf16, and change its bias. Below the smallest
    normal number, adding 0.5 rounds to the units of 2^-24, and its code less that of 0.5 is their
    number. Codes beyond the largest number are that of infinity, and one is left for NaN.
    """
    def number(code: int) -> Reg:
        return b.constant(code, bits)

    bits = b.bits(value, t.i32)
    magnitude = b.binary("and", bits, number(0x7FFFFFFF))
    odd = b.binary("and", b.binary("lshr", magnitude, number(_SHIFT)), number(1))
    rounded = b.binary("add", b.binary("add", magnitude, number((1 << (_SHIFT - 1)) - 1)), odd)
    normal = b.binary("sub", b.binary("lshr", rounded, number(_SHIFT)), number(_REBIAS))
    normal = b.select(b.compare("icmp ugt", rounded, number((_REBIAS + _INFINITY) << _SHIFT)),
                      number(_INFINITY), normal)
    shifted = b.binary("fadd", b.bits(magnitude, t.f32), b.constant(0.5, value))
    small = b.binary("sub", b.bits(shifted, t.i32), number(0x3F000000))
    least = number((_REBIAS + _LEAST_NORMAL) << _SHIFT)
    code = b.select(b.compare("icmp ult", magnitude, least), small, normal)
    code = b.select(b.compare("icmp ugt", magnitude, number(0x7F800000)), number(0x7E00), code)
    sign = b.binary("lshr", b.binary("xor", bits, magnitude), number(16))
    return b.convert("trunc", b.binary("or", code, sign), t.i16).cast(t.f16)
