"""Sums of a few products per lane: the form of `block.dot` with grouped operands.

    c[lane] + sum over k of a[k] * b[lane, k]         a: one group, the same for all lanes

Bytes, 16-bit integers and bf16 have instructions for this (vpdpbusd, vpmaddwd, vdpbf16ps). Without
one, each position of the group is widened and multiplied. All integer forms are exact modulo 2^32.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute

from dialects.strata import types as t
from targets.cpu.emit.build import Builder
from targets.cpu.emit.halves import widen
from targets.cpu.emit.index import splat
from targets.cpu.emit.values import Reg, lane_literal
from targets.cpu.machine import Machine

_VECTOR_BITS = (128, 256, 512)


class Products:
    """Emits grouped multiply-adds with the machine's best instruction."""

    def __init__(self, builder: Builder, machine: Machine):
        self.builder, self.writer, self.machine = builder, builder.writer, machine

    def multiply_add(self, a: Reg, b: Reg, c: Reg, unsigned: Sequence[bool]) -> Reg:
        """c + the products of group `a` with the groups in b's lanes, in c's element type.

        `unsigned`: whether the integers of a and of b are unsigned.
        """
        word = a.width * t.bit_width(a.element) == 32 and a.element == b.element
        if not self.machine.is_x86 or not word:
            return self._one_by_one(a, b, c, unsigned)
        width = max(c.width, 4)
        words, lanes = self._all_lanes(a, width), self._bits(self._padded(b, width * a.width))
        total = self._padded(c, width)
        match a.element:
            case t.bf16 if c.element == t.f32:
                found = self._of_halves(words, lanes, total)
            case t.i8 if c.element == t.i32:
                found = self._of_bytes(words, lanes, total, unsigned)
            case t.i16 if c.element == t.i32 and not any(unsigned):
                found = self._of_shorts(words, lanes, total)
            case _:
                return self._one_by_one(a, b, c, unsigned)
        return self._first(found, c.width)

    # ------------------------------------------------------------------ operands
    def _bits(self, reg: Reg) -> Reg:
        """A register as lanes of 32 bits."""
        bits = reg.width * t.bit_width(reg.element)
        return self.builder.reinterpret(reg, t.i32, bits // 32)

    def _all_lanes(self, group: Reg, width: int) -> Reg:
        """The 32 bits of one group, in all lanes."""
        return splat(self.writer, self.builder.reinterpret(group, t.i32, 0), width)

    def _padded(self, reg: Reg, width: int) -> Reg:
        """A register of at least this width; the values of added lanes do not matter."""
        if reg.width == width:
            return reg
        if not reg.width:
            vector = Reg.of("", reg.element, width)
            return vector.named(self.writer.local(
                f"insertelement {vector.type} poison, {reg.typed}, i64 0"))
        return self._picked(reg, [min(k, reg.width) for k in range(width)])

    def _first(self, reg: Reg, width: int) -> Reg:
        """The first lanes; as a scalar if `width` is 0."""
        if reg.width == width:
            return reg
        if not width:
            return Reg.of(self.writer.local(f"extractelement {reg.typed}, i64 0"), reg.element)
        return self._picked(reg, list(range(width)))

    def _picked(self, reg: Reg, lanes: list[int]) -> Reg:
        return reg.resized(self.writer.local(
            f"shufflevector {reg.typed}, {reg.type} poison, <{len(lanes)} x i32> "
            f"{lane_literal(lanes, 'i32')}"), len(lanes))

    # ------------------------------------------------------------------ instructions
    def _call(self, names: Sequence[str], result: Reg, operands: Sequence[Reg]) -> Reg:
        """An intrinsic with three widths, selected by the width of its result."""
        bits = 32 * result.width
        name = names[_VECTOR_BITS.index(bits)]
        return result.named(self.writer.local(self.writer.call(
            name, result.type, [(r.type, r.name) for r in operands])))

    def _accumulate(self, name: str, total: Reg, a: Reg, b: Reg) -> Reg:
        """total + a . b, by an instruction of AVX-VNNI or AVX512-VNNI."""
        return self._call([f"llvm.x86.{name}.{bits}" for bits in _VECTOR_BITS], total,
                          (total, a, b))

    def _of_bytes(self, a: Reg, b: Reg, c: Reg, unsigned: Sequence[bool]) -> Reg:
        if unsigned[0] != unsigned[1] and self.machine.multiplies_groups(t.i8):
            first, second = (a, b) if unsigned[0] else (b, a)
            return self._accumulate("avx512.vpdpbusd", c, first, second)
        for part in (0, 1):  # the even-numbered bytes, then the odd ones, as 16 bits each
            c = self._of_shorts(self._every_second(a, part, unsigned[0]),
                                self._every_second(b, part, unsigned[1]), c)
        return c

    def _every_second(self, words: Reg, part: int, unsigned: bool) -> Reg:
        """The even-numbered or odd-numbered bytes, widened in place."""
        shorts = self._as_shorts(words)
        eight = self.builder.constant(8, shorts)
        raised = shorts if part else self.builder.binary("shl", shorts, eight)
        shift = "lshr" if unsigned else "ashr"
        return self._bits(self.builder.binary(shift, raised, eight))

    def _of_shorts(self, a: Reg, b: Reg, c: Reg) -> Reg:
        if self.machine.multiplies_groups(t.i16):
            return self._accumulate("avx512.vpdpwssd", c, a, b)
        names = ("llvm.x86.sse2.pmadd.wd", "llvm.x86.avx2.pmadd.wd", "llvm.x86.avx512.pmaddw.d.512")
        product = self._call(names, c, [self._as_shorts(x) for x in (a, b)])
        return self.builder.binary("add", c, product)

    def _as_shorts(self, words: Reg) -> Reg:
        return self.builder.reinterpret(words, t.i16, 2 * words.width)

    def _of_halves(self, a: Reg, b: Reg, c: Reg) -> Reg:
        if self.machine.multiplies_groups(t.bf16):
            name, vector = "llvm.x86.avx512bf16.dpbf16ps", f"<{2 * c.width} x bfloat>"
            parts = [self.writer.local(f"bitcast {x.typed} to {vector}") for x in (a, b)]
            return c.named(self.writer.local(self.writer.call(f"{name}.{32 * c.width}", c.type, [
                (c.type, c.name), *((vector, p) for p in parts)])))
        for part in (0, 1):
            c = self.builder.fma(self._half(a, part), self._half(b, part), c)
        return c

    def _half(self, words: Reg, part: int) -> Reg:
        """One of two bf16 as f32: its bits are the upper half."""
        b = self.builder
        bits = (b.binary("and", words, b.constant(-1 << 16, words)) if part
                else b.binary("shl", words, b.constant(16, words)))
        return b.bits(bits, t.f32)

    # ------------------------------------------------------------------ without such instructions
    def _one_by_one(self, a: Reg, b: Reg, c: Reg, unsigned: Sequence[bool]) -> Reg:
        each = a.width
        for k in range(each):
            left = Reg.of(self.writer.local(f"extractelement {a.typed}, i64 {k}"), a.element)
            right = self._picked(b, [k + each * lane for lane in range(b.width // each)])
            c = self.add_product(left, right, c, unsigned)
        return c

    def add_product(self, a: Reg, b: Reg, c: Reg, unsigned: Sequence[bool]) -> Reg:
        """a*b + c in the element type of c."""
        left, right = (self._widened(x, c.element, u)
                       for x, u in zip((a, b), unsigned, strict=True))
        if t.is_float(c.element):
            return self.builder.fma(left, right, c)
        return self.builder.binary("add", self.builder.binary("mul", left, right), c)

    def _widened(self, value: Reg, element: Attribute, unsigned: bool) -> Reg:
        value = widen(self.builder, value)
        if value.element == element:
            return value
        cast = "fpext" if t.is_float(element) else "zext" if unsigned else "sext"
        return self.builder.convert(cast, value, element)
