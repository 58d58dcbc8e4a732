"""Sums of a few products per lane: the form of `block.dot` with grouped operands.

    c[lane] + sum over k of a[k] * b[lane, k]         a: one group, the same for all lanes

Processors have instructions for bytes, 16-bit integers and bf16 (`targets/cpu/instructions`).
Without one, each position of the group is widened and multiplied. All integer forms are exact
modulo 2^32.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute

from dialects.strata import types as t
from targets.cpu.emit.build import Builder
from targets.cpu.emit.halves import widen
from targets.cpu.emit.index import splat
from targets.cpu.emit.values import Reg, lane_literal


class Products:
    """Emits grouped multiply-adds with the machine's best instruction."""

    def __init__(self, builder: Builder):
        self.builder, self.writer = builder, builder.writer

    def multiply_add(self, a: Reg, b: Reg, c: Reg, unsigned: Sequence[bool]) -> Reg:
        """c + the products of group `a` with the groups in b's lanes, in c's element type.

        `unsigned`: whether the integers of a and of b are unsigned.
        """
        word = a.width * t.bit_width(a.element) == 32 and a.element == b.element
        width = max(c.width, 4)
        if not word or not self.builder.has_products(a.element, c.element, width, unsigned):
            return self._one_by_one(a, b, c, unsigned)
        words, lanes = self._all_lanes(a, width), self._bits(self._padded(b, width * a.width))
        total = self._padded(c, width)
        found = self.builder.add_products(a.element, words, lanes, total, unsigned)
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
