"""Instructions of 64-bit ARM: products of bytes, group by group or two rows by two columns."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute

from dialects.strata import types as t
from targets.cpu.emit.build import Builder
from targets.cpu.emit.values import Reg

_LANES = 4
"""The sums in a register of NEON."""


class Aarch64(Builder):
    """64-bit ARM with NEON; `dotprod`, `i8mm` and `bf16` where the machine has them."""

    @property
    def narrows_bf16(self) -> bool:
        return "bf16" in self.features

    def to_nearest(self, a: Reg) -> Reg:
        """LLVM takes vectors longer than NEON's apart to lanes, unless they are rounded first."""
        if a.width <= _LANES:
            return super().to_nearest(a)
        return self.convert("fptosi", self.intrinsic("roundeven", a), t.i32)

    def has_products(
        self, element: Attribute, total: Attribute, width: int, unsigned: Sequence[bool]
    ) -> bool:
        if element != t.i8 or total != t.i32 or width % _LANES:
            return False
        return "i8mm" in self.features or (
            "dotprod" in self.features and unsigned[0] == unsigned[1])

    def add_products(
        self, element: Attribute, a: Reg, b: Reg, c: Reg, unsigned: Sequence[bool]
    ) -> Reg:
        """By sdot and udot; by usdot for factors of which one is unsigned. Wider registers are
        taken apart, since these instructions are NEON's."""
        if c.width > _LANES:
            return self.by_halves(
                lambda x, y, z: self.add_products(element, x, y, z, unsigned), a, b, c)
        name = "usdot" if unsigned[0] != unsigned[1] else "udot" if unsigned[0] else "sdot"
        first, second = (b, a) if name == "usdot" and unsigned[1] else (a, b)
        factors = [self.reinterpret(x, t.i8, 4 * x.width) for x in (first, second)]
        return c.named(self.writer.local(self.writer.call(
            f"llvm.aarch64.neon.{name}.v{c.width}i32.v{4 * c.width}i8", c.type,
            [(c.type, c.name), *((x.type, x.name) for x in factors)])))

    def has_blocks(self, element: Attribute) -> bool:
        return self.machine.multiplies_blocks(element)

    def add_blocks(self, a: Reg, b: Reg, c: Reg, unsigned: Sequence[bool]) -> Reg:
        """By smmla and ummla; by usmmla for unsigned rows and signed columns."""
        name = "usmmla" if unsigned[0] != unsigned[1] else "ummla" if unsigned[0] else "smmla"
        if unsigned[1] and not unsigned[0]:
            raise ValueError("products of signed rows and unsigned columns are no blocks")
        return c.named(self.writer.local(self.writer.call(
            f"llvm.aarch64.neon.{name}.v4i32.v16i8", c.type,
            [(r.type, r.name) for r in (c, a, b)])))
