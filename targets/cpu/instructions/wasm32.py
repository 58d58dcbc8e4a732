"""WebAssembly: products of 16-bit integers, rounding; no fused multiply-add, and no halves."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute

from dialects.strata import types as t
from targets.cpu.emit.build import Builder
from targets.cpu.emit.values import Reg

_LANES = 4
"""The sums in a vector."""


class Wasm32(Builder):
    """WebAssembly, with 128-bit vectors (SIMD128) or without."""

    @property
    def rounds_once(self) -> bool:
        return False

    @property
    def converts_f16(self) -> bool:
        return False

    def to_nearest(self, a: Reg) -> Reg:
        """By nearest and trunc_sat. LLVM would call lrintf for each lane."""
        return self.convert("fptosi", self.intrinsic("roundeven", a), t.i32)

    def has_products(
        self, element: Attribute, total: Attribute, width: int, unsigned: Sequence[bool]
    ) -> bool:
        if "simd128" not in self.features or total != t.i32 or width % _LANES:
            return False
        return element == t.i8 or (element == t.i16 and not any(unsigned))

    def add_products(
        self, element: Attribute, a: Reg, b: Reg, c: Reg, unsigned: Sequence[bool]
    ) -> Reg:
        """By i32x4.dot_i16x8_s. Bytes are widened to 16 bits where they are: the even-numbered
        ones, then the odd ones."""
        if c.width > _LANES:
            return self.by_halves(
                lambda x, y, z: self.add_products(element, x, y, z, unsigned), a, b, c)
        if element == t.i16:
            return self._add_dot(a, b, c)
        for part in (0, 1):
            c = self._add_dot(self.every_second(a, part, unsigned[0]),
                              self.every_second(b, part, unsigned[1]), c)
        return c

    def _add_dot(self, a: Reg, b: Reg, c: Reg) -> Reg:
        product = c.named(self.writer.local(self.writer.call(
            "llvm.wasm.dot", c.type,
            [(x.type, x.name) for x in map(self.as_shorts, (a, b))])))
        return self.binary("add", c, product)
