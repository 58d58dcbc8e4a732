"""Instructions of x86-64: AVX-512's on single floats, and products of short elements."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute

from dialects.strata import types as t
from targets.cpu.emit.build import Builder
from targets.cpu.emit.values import Reg

_VECTOR_BITS = (128, 256, 512)
_FINAL = 0x9F
"""Classes for vfpclass: quiet and signalling NaN, both infinities, both zeros."""
_SUMS = {t.bf16: t.f32, t.i8: t.i32, t.i16: t.i32}
"""The sums of products of short elements."""


class X86(Builder):
    """x86-64, from SSE2 to AVX-512 with its dot products."""

    @property
    def rounds_once(self) -> bool:
        return "fma" in self.features

    @property
    def converts_f16(self) -> bool:
        return "f16c" in self.features

    @property
    def narrows_bf16(self) -> bool:
        return "avx512bf16" in self.features

    # ------------------------------------------------------------------ single floats
    def has_table(self, width: int) -> bool:
        return width == 16 and {"avx512f", "avx512dq", "avx512vl"} <= self.features

    def looked_up(self, table: str, index: Reg, like: Reg) -> Reg:
        """By vpermps."""
        return like.named(self.writer.local(self.writer.call(
            "llvm.x86.avx512.permvar.sf.512", like.type,
            [(like.type, table), (index.type, index.name)])))

    def nearer_zero(self, x: Reg, bound: Reg) -> Reg:
        """By vrangeps."""
        return x.named(self.writer.local(self.writer.call(
            "llvm.x86.avx512.mask.range.ps.512", x.type, [
                (x.type, x.name), (x.type, bound.name), ("i32", "2"), (x.type, "zeroinitializer"),
                ("i16", "-1"), ("i32", "4")])))

    def scaled(self, value: Reg, n: Reg) -> Reg | None:
        """By vscalefps, in the current rounding mode."""
        if n.width not in (4, 8, 16) or not {"avx512f", "avx512vl"} <= self.features:
            return None
        value, n = self.align(value, n)
        mask = f"i{max(8, n.width)}"
        arguments = [(n.type, value.name), (n.type, n.name), (n.type, "zeroinitializer"),
                     (mask, "-1")]
        rounding = [("i32", "4")] if n.width == 16 else []
        name = f"llvm.x86.avx512.mask.scalef.ps.{32 * n.width}"
        return value.named(self.writer.local(self.writer.call(
            name, n.type, [*arguments, *rounding])))

    def has_classes(self, width: int) -> bool:
        return width in (4, 8, 16) and {"avx512dq", "avx512vl"} <= self.features

    def is_final(self, x: Reg) -> Reg:
        """By vfpclassps."""
        text = self.writer.call(f"llvm.x86.avx512.fpclass.ps.{32 * x.width}", f"<{x.width} x i1>",
                                [(x.type, x.name), ("i32", str(_FINAL))])
        return Reg.of(self.writer.local(text), t.i1, x.width)

    def fence(self) -> None:
        self.writer.emit(self.writer.call("llvm.x86.sse.sfence", "void", []))

    # ------------------------------------------------------------------ products of short elements
    def has_products(
        self, element: Attribute, total: Attribute, width: int, unsigned: Sequence[bool]
    ) -> bool:
        known = _SUMS.get(element) == total  # type: ignore[call-overload]
        return known and not (element == t.i16 and any(unsigned))

    def add_products(
        self, element: Attribute, a: Reg, b: Reg, c: Reg, unsigned: Sequence[bool]
    ) -> Reg:
        if element == t.bf16:
            return self._of_halves(a, b, c)
        return self._of_bytes(a, b, c, unsigned) if element == t.i8 else self._of_shorts(a, b, c)

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
        """By vpdpbusd, whose first factor is unsigned; else as 16-bit integers."""
        if unsigned[0] != unsigned[1] and self.machine.multiplies_groups(t.i8):
            first, second = (a, b) if unsigned[0] else (b, a)
            return self._accumulate("avx512.vpdpbusd", c, first, second)
        for part in (0, 1):  # the even-numbered bytes, then the odd ones, as 16 bits each
            c = self._of_shorts(self.every_second(a, part, unsigned[0]),
                                self.every_second(b, part, unsigned[1]), c)
        return c

    def _of_shorts(self, a: Reg, b: Reg, c: Reg) -> Reg:
        """By vpdpwssd, or vpmaddwd and an addition."""
        if self.machine.multiplies_groups(t.i16):
            return self._accumulate("avx512.vpdpwssd", c, a, b)
        names = ("llvm.x86.sse2.pmadd.wd", "llvm.x86.avx2.pmadd.wd", "llvm.x86.avx512.pmaddw.d.512")
        product = self._call(names, c, [self.as_shorts(x) for x in (a, b)])
        return self.binary("add", c, product)

    def _of_halves(self, a: Reg, b: Reg, c: Reg) -> Reg:
        """By vdpbf16ps, else by two products of floats."""
        if self.machine.multiplies_groups(t.bf16):
            name, vector = "llvm.x86.avx512bf16.dpbf16ps", f"<{2 * c.width} x bfloat>"
            parts = [self.writer.local(f"bitcast {x.typed} to {vector}") for x in (a, b)]
            return c.named(self.writer.local(self.writer.call(f"{name}.{32 * c.width}", c.type, [
                (c.type, c.name), *((vector, p) for p in parts)])))
        for part in (0, 1):
            c = self.fma(self._as_float(a, part), self._as_float(b, part), c)
        return c

    def _as_float(self, words: Reg, part: int) -> Reg:
        """One of two bf16 as f32: its bits are the upper half."""
        bits = (self.binary("and", words, self.constant(-1 << 16, words)) if part
                else self.binary("shl", words, self.constant(16, words)))
        return self.bits(bits, t.f32)
