"""Instructions on residues in place of those on floats.

    x + y, x * y    exact in f64 for residues of 25 bits, then r - M * rint(r / M)
    exp, 1 / x      a call of NumPy's meaning (`calls.py`), on operands in the function's memory

Maxima, comparisons, selections and conversions between floats are those of the numbers that stand
for residues, so they stay. Infinities and NaN compute as in floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import FloatAttr
from xdsl.ir import Attribute, Operation, SSAValue

from dialects.semantics.ring import Ring
from dialects.strata import types as t
from targets.cpu.emit.build import Builder
from targets.cpu.emit.scalar import in_floats
from targets.cpu.emit.values import Reg, literal
from targets.cpu.instructions import builder_for
from targets.cpu.llvm.writer import Writer
from targets.cpu.machine import Machine
from targets.cpu.ring.calls import SLOT, Calls

_AS_NUMBERS = (
    arith.NegfOp, arith.MaximumfOp, arith.MinimumfOp, arith.MaxnumfOp, arith.MinnumfOp,
    arith.CmpfOp, arith.SelectOp, arith.ExtFOp, arith.TruncFOp, arith.BitcastOp,
    arith.FPToSIOp, arith.FPToUIOp, math.AbsFOp, math.FloorOp, math.CeilOp, math.TruncOp,
    math.RoundOp, math.RoundEvenOp, math.CopySignOp)
"""Operations that compute with the numbers that stand for residues."""
_INSTRUCTIONS = (arith.AddfOp, arith.SubfOp, arith.MulfOp, math.FmaOp)
_FUSED = ("fma", "fmuladd")


class RingBuilder(Builder):
    """A builder of instructions on residues. `calls`: what code calls back. `plain`: the values of
    the kernel that are plain numbers, which are computed in floats."""

    def __init__(
        self, writer: Writer, machine: Machine, ring: Ring, calls: Calls,
        plain: frozenset[SSAValue],
    ) -> None:
        super().__init__(writer, machine)
        self.ring, self.calls, self.plain = ring, calls, plain
        self.floats = builder_for(writer, machine)

    # ------------------------------------------------------------------ the processor's own
    @property
    def converts_f16(self) -> bool:
        return self.floats.converts_f16

    def has_products(
        self, element: Attribute, total: Attribute, width: int, unsigned: Sequence[bool]
    ) -> bool:
        """Of integers only: those of floats round."""
        return not t.is_float(element) and self.floats.has_products(
            element, total, width, unsigned)

    def add_products(
        self, element: Attribute, a: Reg, b: Reg, c: Reg, unsigned: Sequence[bool]
    ) -> Reg:
        return self.floats.add_products(element, a, b, c, unsigned)

    def fence(self) -> None:
        self.floats.fence()

    # ------------------------------------------------------------------ sums and products
    def contracted(self, operation: str, a: Reg, b: Reg) -> Reg:
        """A sum, difference or product of floats."""
        x, y = (self._wide(r) for r in self.align(a, b))
        return self._narrow(self._reduced(self.binary(operation, x, y)), a.element)

    separate = contracted

    def intrinsic(self, name: str, *regs: Reg) -> Reg:
        if name not in _FUSED or not t.is_float(regs[0].element):
            return super().intrinsic(name, *regs)
        a, b, c = regs
        return self.add(self.mul(a, b), c)

    def _wide(self, x: Reg) -> Reg:
        return x if x.element == t.f64 else self.convert("fpext", x, t.f64)

    def _narrow(self, x: Reg, element: Any) -> Reg:
        return x if element == t.f64 else self.convert("fptrunc", x, element)

    def _reduced(self, x: Reg) -> Reg:
        """The residue of an exact number, or x itself if it is not finite.

        The rounded quotient may be off by one, so the rest is moved by M where it is too large.
        """
        modulus, half = self.ring.modulus, float(self.ring.modulus // 2)
        scaled = self.binary("fmul", x, self.constant(1.0 / modulus, x))
        whole = self.intrinsic("rint", scaled)
        rest = self.binary("fsub", x, self.binary("fmul", whole, self.constant(
            float(modulus), x)))
        for predicate, limit, move in (("fcmp ogt", half, "fsub"), ("fcmp olt", -half, "fadd")):
            beyond = self.compare(predicate, rest, self.constant(limit, x))
            moved = self.binary(move, rest, self.constant(float(modulus), x))
            rest = self.select(beyond, moved, rest)
        finite = self.compare("fcmp olt", super().intrinsic("fabs", x),
                              self.constant(float("inf"), x))
        return self.select(finite, rest, x)

    # ------------------------------------------------------------------ scalar operations
    @property
    def is_plain(self) -> bool:
        return False

    def number(self, value: Any, element: Any) -> Any:
        """The residue of a literal."""
        if not t.is_float(element):
            return value
        return float(self.ring.embedded(t.dtype_of(element).type(value)))

    def arithmetic(self, op: Operation) -> Builder:
        return self.floats if all(v in self.plain for v in op.results) else self

    def replaced(self, op: Operation, operands: Sequence[Reg]) -> Reg | None:
        floats = [v for v in (*op.operands, *op.results) if t.is_float(v.type)]
        if not floats or (all(v in self.plain for v in op.results) and op.results):
            return None
        given = [self._residue(v, r) for v, r in zip(op.operands, operands, strict=True)]
        mixed = any(r is None for r in given)
        if isinstance(op, (*_AS_NUMBERS, *_INSTRUCTIONS)) and not mixed:
            return None if given == [*operands] else self.again(op, [r for r in given if r])
        return self._called(op, operands)

    def _residue(self, value: SSAValue, reg: Reg) -> Reg | None:
        """An operand as a residue; None for a plain number that only a call can convert."""
        if value not in self.plain or not t.is_float(value.type):
            return reg
        if not isinstance(value.owner, arith.ConstantOp):
            return None
        assert isinstance(value.owner.value, FloatAttr)
        number = self.number(value.owner.value.value.data, reg.element)
        return Reg.of(literal(number, reg.element, reg.width), reg.element, reg.width)

    def again(self, op: Operation, operands: Sequence[Reg]) -> Reg:
        """The operation on other operands."""
        return in_floats(op)(self, operands)

    def embedded(self, reg: Reg) -> Reg:
        """Numbers as residues."""
        return self._call(self.calls.embedding(reg.element), [reg], reg.element)

    def _called(self, op: Operation, operands: Sequence[Reg]) -> Reg:
        return self._call(self.calls.operation(op), operands, op.results[0].type)

    def _call(self, number: int, operands: Sequence[Reg], element: Attribute) -> Reg:
        """A call with all lanes of the operands in memory, where its results are then. Truth values
        are bytes there, as in NumPy; those of LLVM's vectors would be bits."""
        w, given = self.writer, [self.convert("zext", r, t.i8) if r.element == t.i1 else r
                                 for r in self.align(*operands)]
        width = given[0].width
        memory = w.at_entry(f"alloca [{len(given) * SLOT} x i8], align 64")
        for k, reg in enumerate(given):
            w.emit(f"store {reg.typed}, ptr {self._slot(memory, k)}")
        w.emit(f"call void inttoptr (i64 {self.calls.address} to ptr)(i64 {number}, "
               f"ptr {memory}, i64 {max(width, 1)})")
        result = Reg.of("", t.i8 if element == t.i1 else element, width)
        found = result.named(w.assign(f"load {result.type}, ptr {memory}"))
        return self.convert("trunc", found, t.i1) if element == t.i1 else found

    def _slot(self, memory: str, number: int) -> str:
        return memory if not number else self.writer.local(
            f"getelementptr i8, ptr {memory}, i64 {number * SLOT}")
