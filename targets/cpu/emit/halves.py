"""f16 and bf16: held in registers as their 16 bits, and widened to f32 for arithmetic.

bf16 is the upper half of an f32. Narrowing rounds to nearest even, with an instruction if there is
one (AVX512-BF16), else by integer arithmetic. f16 uses the F16C instructions, which need x86-64
with AVX2 or better.
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
    if value.element == t.f16:
        return Reg.of(_through(b, "fpext", f"bitcast {value.typed} to", "half", value.width,
                            "float"), t.f32, value.width)
    return value


def narrow(b: Builder, value: Reg, target: Attribute) -> Reg:
    """f32 narrowed to f16 or bf16, rounded to nearest even."""
    if target == t.f16:
        return Reg.of(_through(b, "bitcast", f"fptrunc {value.typed} to", "half", value.width,
                            "i16"), target, value.width)
    if "avx512bf16" in b.features:
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
