"""A small vocabulary of lane-wise instructions, for the scalar ops and the math functions.

`Builder` uses what LLVM has for every processor. `targets/cpu/instructions` has a subclass for each
architecture, with the instructions that only its processors have; where those are optional, a
method returns None for a processor without them, and its caller computes the same in another way.

Every method takes and returns `Reg`s. Operands may mix scalars and vectors. A scalar is broadcast
when it meets a vector, so that values which are the same in all lanes are computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from xdsl.ir import Attribute, Operation, SSAValue

from dialects.strata import types as t
from targets.cpu.emit.index import splat
from targets.cpu.emit.values import Reg, lane_literal, literal, llvm_type
from targets.cpu.llvm.writer import Writer
from targets.cpu.machine import Machine


class Builder:
    """Emits lane-wise instructions into a writer; equal ones in one scope are shared."""

    def __init__(self, writer: Writer, machine: Machine):
        self.writer, self.machine = writer, machine
        self.features = machine.features
        self.contracts, self.flushes = machine.contracts, machine.flushes
        self.plain: Collection[SSAValue] = ()
        """Values that are numbers in an arithmetic other than that of floats."""
        self.becomes_whole: dict[SSAValue, bool] = {}
        """Whether a whole number is made of a sum: found once, as an unrolled loop repeats it."""

    # ------------------------------------------------------------------ another arithmetic
    @property
    def is_plain(self) -> bool:
        """Whether numbers are those of the operations, so that nothing is replaced."""
        return True

    def replaced(self, op: Operation, operands: Sequence[Reg]) -> Reg | None:
        """What stands for a scalar operation in an arithmetic other than that of floats."""
        return None

    def arithmetic(self, op: Operation) -> Builder:
        """The builder of an operation that is not replaced."""
        return self

    def embedded(self, reg: Reg) -> Reg:
        """What stands for numbers in memory."""
        return reg

    def number(self, value: Any, element: Attribute) -> Any:
        """What stands for a literal."""
        return value

    # ------------------------------------------------------------------ what processors may have
    @property
    def rounds_once(self) -> bool:
        """Whether `fma` rounds once."""
        return True

    @property
    def converts_f16(self) -> bool:
        """Whether instructions convert f16 from and to f32."""
        return True

    @property
    def narrows_bf16(self) -> bool:
        """Whether an instruction rounds f32 to bf16."""
        return False

    def has_table(self, width: int) -> bool:
        """Whether `looked_up`, `nearer_zero` and `scaled` are single instructions."""
        return False

    def looked_up(self, table: str, index: Reg, like: Reg) -> Reg:
        """The lanes of a constant vector whose numbers are the low bits of `index`."""
        raise NotImplementedError

    def nearer_zero(self, x: Reg, bound: Reg) -> Reg:
        """x, or the bound with the sign of x, whichever is nearer to 0; the bound for NaN."""
        raise NotImplementedError

    def scaled(self, value: Reg, n: Reg) -> Reg | None:
        """value * 2^n for any n, also infinite and NaN, by one instruction."""
        return None

    def has_classes(self, width: int) -> bool:
        """Whether `is_final` is one instruction."""
        return False

    def is_final(self, x: Reg) -> Reg:
        """Whether each number is NaN, infinite or zero."""
        raise NotImplementedError

    def has_products(
        self, element: Attribute, total: Attribute, width: int, unsigned: Sequence[bool]
    ) -> bool:
        """Whether few instructions do `add_products` for sums of a type in so many lanes."""
        return False

    def add_products(
        self, element: Attribute, a: Reg, b: Reg, c: Reg, unsigned: Sequence[bool]
    ) -> Reg:
        """c + the products of the elements in the 32 bits of each lane of a and b.

        `a` and `b` are registers of i32; `unsigned`: whether their elements are unsigned integers.
        """
        raise NotImplementedError

    def has_blocks(self, element: Attribute) -> bool:
        """Whether `add_blocks` is one instruction for factors of a type."""
        return False

    def add_blocks(self, a: Reg, b: Reg, c: Reg, unsigned: Sequence[bool]) -> Reg:
        """c + the products of two rows of eight bytes with two columns; `c` is
        <row 0, column 0>, <0, 1>, <1, 0>, <1, 1>."""
        raise NotImplementedError

    def fence(self) -> None:
        """Other threads see the non-temporal stores so far before all later ones."""

    # ------------------------------------------------------------------ operands
    def align(self, *regs: Reg) -> list[Reg]:
        """The operands, broadcast to equal widths."""
        width = max([r.width for r in regs])
        return [r if r.width == width else splat(self.writer, r, width) for r in regs]

    def constant(self, value: Any, like: Reg, element: Attribute | None = None) -> Reg:
        """A number as wide as `like`, of its element type unless another one is given."""
        kind = element or like.element
        return Reg.of(literal(value, kind, like.width), kind, like.width)

    def as_shorts(self, words: Reg) -> Reg:
        """Lanes of 32 bits as twice as many of 16."""
        return self.reinterpret(words, t.i16, 2 * words.width)

    def every_second(self, words: Reg, part: int, unsigned: bool) -> Reg:
        """The even-numbered (0) or odd-numbered (1) bytes of words, widened in place to 16 bits."""
        shorts = self.as_shorts(words)
        eight = self.constant(8, shorts)
        raised = shorts if part else self.binary("shl", shorts, eight)
        widened = self.binary("lshr" if unsigned else "ashr", raised, eight)
        return self.reinterpret(widened, t.i32, words.width)

    def by_halves(
        self, compute: Callable[[Reg, Reg, Reg], Reg], a: Reg, b: Reg, c: Reg
    ) -> Reg:
        """What a function computes lane by lane from registers of equal widths, which it gets in
        halves: the lower lanes, then the upper ones."""
        low, high = (compute(self.half(a, k), self.half(b, k), self.half(c, k))
                     for k in (0, 1))
        width = low.width + high.width
        return low.resized(self.writer.local(
            f"shufflevector {low.typed}, {high.typed}, <{width} x i32> "
            f"{lane_literal(list(range(width)), 'i32')}"), width)

    def half(self, reg: Reg, number: int) -> Reg:
        """The lower (0) or the upper (1) lanes."""
        width = reg.width // 2
        lanes = list(range(number * width, (number + 1) * width))
        return reg.resized(self.writer.local(
            f"shufflevector {reg.typed}, {reg.type} poison, <{width} x i32> "
            f"{lane_literal(lanes, 'i32')}"), width)

    # ------------------------------------------------------------------ instructions
    def binary(self, operation: str, a: Reg, b: Reg) -> Reg:
        """`operation` is the instruction: `fdiv`, `add`."""
        if a.width != b.width:
            a, b = self.align(a, b)
        return a.named(self.writer.local(f"{operation} {a.type} {a.name}, {b.name}"))

    def contracted(self, operation: str, a: Reg, b: Reg) -> Reg:
        """`fadd`, `fsub` or `fmul` that LLVM may fuse with another, if the target's options permit.
        """
        return self.binary(f"{operation} contract" if self.contracts else operation, a, b)

    def separate(self, operation: str, a: Reg, b: Reg) -> Reg:
        """`fadd` or `fsub` with a rounding of its own."""
        return self.binary(operation, a, b)

    def compare(self, predicate: str, a: Reg, b: Reg) -> Reg:
        """`predicate` with its kind: `fcmp olt`, `icmp eq`."""
        a, b = self.align(a, b)
        return Reg.of(self.writer.local(f"{predicate} {a.typed}, {b.name}"), t.i1, a.width)

    def select(self, test: Reg, a: Reg, b: Reg) -> Reg:
        width = max(test.width, a.width, b.width)
        a, b = (r if r.width == width else splat(self.writer, r, width) for r in (a, b))
        return a.named(self.writer.local(
            f"select {test.typed}, {a.typed}, {b.typed}"))

    def convert(self, operation: str, a: Reg, element: Attribute) -> Reg:
        """`operation` is an LLVM cast, such as `sitofp`."""
        type_ = llvm_type(element, a.width)
        name = self.writer.local(f"{operation} {a.typed} to {type_}")
        return Reg(name, element, a.width, type_)

    def reinterpret(self, a: Reg, element: Attribute, width: int) -> Reg:
        """The same bits as `width` elements of another type."""
        vector = Reg.of("", element, width)
        return vector.named(self.writer.local(f"bitcast {a.typed} to {vector.type}"))

    def bits(self, a: Reg, element: Attribute) -> Reg:
        """The same bits as another type of equal width."""
        return a.cast(element) if a.type == llvm_type(element, a.width) else (
            self.convert("bitcast", a, element))

    def intrinsic(self, name: str, *regs: Reg) -> Reg:
        """An LLVM intrinsic that is overloaded on its operands' common type."""
        operands = self.align(*regs)
        type_ = operands[0].type
        text = self.writer.call(f"llvm.{name}.{operands[0].suffix}", type_,
                                [(type_, r.name) for r in operands])
        return operands[0].named(self.writer.local(text))

    def integer_intrinsic(self, name: str, a: Reg) -> Reg:
        """An intrinsic with an extra flag (`abs`, `ctlz`): whether special values are undefined."""
        text = self.writer.call(f"llvm.{name}.{a.suffix}", a.type,
                                [(a.type, a.name), ("i1", "false")])
        return a.named(self.writer.local(text))

    def to_nearest(self, a: Reg) -> Reg:
        """f32 to i32, rounded to nearest even, the processor's default."""
        result = Reg.of("", t.i32, a.width)
        text = self.writer.call(f"llvm.lrint.{result.suffix}.{a.suffix}", result.type,
                                [(a.type, a.name)])
        return result.named(self.writer.local(text))

    def library(self, name: str, *regs: Reg) -> Reg:
        """A call of the C math library per lane, with f64 arguments."""
        operands = self.align(*regs)
        if not operands[0].width:
            text = self.writer.call(name, "double", [("double", r.name) for r in operands])
            return operands[0].named(self.writer.local(text))
        total = "poison"
        for lane in range(operands[0].width):
            scalars = [Reg.of(self.writer.local(f"extractelement {r.typed}, i64 {lane}"), t.f64)
                       for r in operands]
            value = self.library(name, *scalars)
            total = self.writer.local(f"insertelement {operands[0].type} {total}, "
                                      f"{value.typed}, i64 {lane}")
        return operands[0].named(total)

    # ------------------------------------------------------------------ shorthand for formulas
    def add(self, a: Reg, b: Reg) -> Reg:
        return self.contracted("fadd", a, b)

    def sub(self, a: Reg, b: Reg) -> Reg:
        return self.contracted("fsub", a, b)

    def mul(self, a: Reg, b: Reg) -> Reg:
        return self.contracted("fmul", a, b)

    def div(self, a: Reg, b: Reg) -> Reg:
        return self.binary("fdiv", a, b)

    def negative(self, a: Reg) -> Reg:
        return a.named(self.writer.local(f"fneg {a.typed}"))

    def fma(self, a: Reg, b: Reg, c: Reg) -> Reg:
        """a*b + c with one rounding (two on a machine without FMA)."""
        return self.intrinsic("fmuladd", a, b, c)

    def polynomial(self, x: Reg, coefficients: list[float]) -> Reg:
        """Horner's scheme, with the coefficient of the highest power first."""
        total = self.constant(coefficients[0], x)
        for c in coefficients[1:]:
            total = self.fma(total, x, self.constant(c, x))
        return total

    def clamp(self, x: Reg, low: float, high: float) -> Reg:
        """x within [low, high]; NaN stays NaN."""
        least, most = self.constant(low, x), self.constant(high, x)
        x = self.select(self.compare("fcmp ogt", least, x), least, x)
        return self.select(self.compare("fcmp olt", most, x), most, x)
