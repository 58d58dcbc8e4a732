"""The scalar operations of `block.map` bodies: one table row each.

A row is a function (builder, operation, operands) -> result. Operands are `Reg`s: either all lanes
of a chunk, or a scalar that all lanes share. The result is a scalar if all operands are. 16-bit
floats are widened to f32 for arithmetic, and narrowed after every operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import FloatAttr, IntegerAttr
from xdsl.ir import Attribute, Operation, SSAValue

from dialects.semantics.remainder import RemFOp
from dialects.strata import types as t
from targets.cpu.emit import math as approximations
from targets.cpu.emit.build import Builder
from targets.cpu.emit.division.shared import divide, is_summed
from targets.cpu.emit.halves import narrow, widen
from targets.cpu.emit.values import Reg, literal
from targets.cpu.llvm.operands import is_literal, number_of

Row = Callable[[Builder, Any, Sequence[Reg]], Reg]


# ---------------------------------------------------------------------- makers of rows
class _Instruction(NamedTuple):
    """A row that is one instruction of two operands."""

    name: str
    may_fuse: bool = False
    """Whether LLVM may fuse it with another, if the target's options permit."""

    def __call__(self, b: Builder, op: Operation, r: Sequence[Reg]) -> Reg:
        if not self.may_fuse:
            return b.binary(self.name, r[0], r[1])
        return (b.contracted if self._fuses(b, op) else b.separate)(self.name, r[0], r[1])

    def text(self, b: Builder, op: Operation) -> str:
        """The instruction for a builder of plain numbers."""
        return f"{self.name} contract" if (
            self.may_fuse and b.contracts and self._fuses(b, op)) else self.name

    def _fuses(self, b: Builder, op: Operation) -> bool:
        """An addition takes a product in one rounding, unless a whole number is made of the sum:
        there the last bit decides, which has to be that of the operators."""
        if type(op) is arith.MulfOp:
            return True
        result = op.results[0]
        if (whole := b.becomes_whole.get(result)) is None:
            whole = b.becomes_whole[result] = _becomes_whole(result)
        return not whole


def _becomes_whole(value: SSAValue) -> bool:
    """Whether a value, or what sums, scales and limits make of it, is rounded to a whole number or
    converted to one.
    """
    todo, seen = [value], {value}
    while todo:
        for reader in {use.operation for use in todo.pop().uses}:
            if type(reader) in _WHOLE:
                return True
            if type(reader) in _SHIFTS and reader.results[0] not in seen:
                seen.add(reader.results[0])
                todo.append(reader.results[0])
    return False


def _intrinsic(name: str) -> Row:
    return lambda b, op, r: b.intrinsic(name, *r)


def _cast(operation: str) -> Row:
    return lambda b, op, r: b.convert(operation, r[0], op.results[0].type)


def _function(fast: Callable[..., Reg], exact: str) -> Row:
    """An inline approximation for f32, and an LLVM intrinsic (the C library's function) for f64."""
    return lambda b, op, r: fast(b, *r) if r[0].element == t.f32 else b.intrinsic(exact, *r)


def _library(name: str, fast: Callable[..., Reg] | None = None) -> Row:
    """A function of the C library, in f64; inline for f32 if there is an approximation."""
    def row(b: Builder, op: Operation, r: Sequence[Reg]) -> Reg:
        if r[0].element == t.f64:
            return b.library(name, *r)
        if fast is not None:
            return fast(b, *r)
        wide = [b.convert("fpext", x, t.f64) for x in r]
        return b.convert("fptrunc", b.library(name, *wide), t.f32)
    return row


# ---------------------------------------------------------------------- individual rows
def _constant(b: Builder, op: arith.ConstantOp, _: Sequence[Reg]) -> Reg:
    match op.value:
        case IntegerAttr():
            number: Any = op.value.value.data
        case FloatAttr():
            number = op.value.value.data
        case _:
            raise ValueError(f"the CPU target does not support constants such as {op.value}")
    return Reg.of(literal(number, op.result.type), op.result.type)


def extremum(b: Builder, greatest: bool, x: Reg, y: Reg) -> Reg:
    """maximumf or minimumf: NaN if either is. x86's max returns its second operand for NaN."""
    if is_literal(y.name):
        x, y = y, x
    order = "fcmp ogt" if greatest else "fcmp olt"
    value = b.select(b.compare(order, x, y), x, y)
    number = number_of(x.name)
    if number is not None and number == number:  # not NaN, and NaN in y is kept
        return value
    return b.select(b.compare("fcmp ord", x, x), value, x)  # one instruction under a mask


def _number_extremum(b: Builder, greatest: bool, x: Reg, y: Reg) -> Reg:
    """maxnumf or minnumf: the other operand if one is NaN."""
    return b.intrinsic("maxnum" if greatest else "minnum", x, y)


def _compare_integers(b: Builder, op: arith.CmpiOp, r: Sequence[Reg]) -> Reg:
    return b.compare(f"icmp {_INTEGER_PREDICATES[op.predicate.value.data]}", r[0], r[1])


def _compare_floats(b: Builder, op: arith.CmpfOp, r: Sequence[Reg]) -> Reg:
    return b.compare(f"fcmp {_FLOAT_PREDICATES[op.predicate.value.data]}", r[0], r[1])


_INTEGER_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
_FLOAT_PREDICATES = ("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord",
                     "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true")


def _floor_division(b: Builder, op: Operation, r: Sequence[Reg]) -> Reg:
    """Rounds towards minus infinity: one less if the remainder's sign differs from the divisor's.
    """
    x, y = b.align(*r)
    quotient, rest = b.binary("sdiv", x, y), b.binary("srem", x, y)
    zero = b.constant(0, rest)
    inexact = b.compare("icmp ne", rest, zero)
    differs = b.compare("icmp slt", b.binary("xor", rest, y), zero)
    return b.binary("add", quotient,
                    b.convert("sext", b.binary("and", inexact, differs), x.element))


def _ceil_division(b: Builder, op: Operation, r: Sequence[Reg]) -> Reg:
    """Rounds towards infinity: one more if the remainder has the divisor's sign."""
    x, y = b.align(*r)
    quotient, rest = b.binary("sdiv", x, y), b.binary("srem", x, y)
    zero = b.constant(0, rest)
    inexact = b.compare("icmp ne", rest, zero)
    same = b.compare("icmp sge", b.binary("xor", rest, y), zero)
    return b.binary("sub", quotient,
                    b.convert("sext", b.binary("and", inexact, same), x.element))


def _resize(b: Builder, x: Reg, target: Attribute, signed: bool) -> Reg:
    """An integer converted to another width."""
    before, after = (t.bit_width(e) for e in (x.element, target))
    if before == after:
        return x.cast(target)
    extend = "sext" if signed else "zext"
    return b.convert(extend if after > before else "trunc", x, target)


def _float_to_signed(b: Builder, op: Operation, r: Sequence[Reg]) -> Reg:
    target = op.results[0].type
    wide = t.i64 if target == t.i64 else t.i32
    return _resize(b, _within(b, r[0], wide), target, signed=True)


def _float_to_unsigned(b: Builder, op: Operation, r: Sequence[Reg]) -> Reg:
    """Numbers from 2^31 (or 2^63) on: the excess as a signed integer, with the sign bit flipped."""
    target, x = op.results[0].type, r[0]
    if target not in (t.i32, t.i64):
        return _float_to_signed(b, op, r)
    sign = 1 << (t.bit_width(target) - 1)
    end = b.constant(float(sign), x)
    high = b.compare("fcmp oge", x, end)
    low = _within(b, b.select(high, b.binary("fsub", x, end), x), target)
    bit = b.select(high, b.constant(-sign, low), b.constant(0, low))
    return b.binary("xor", low, bit)


def _within(b: Builder, x: Reg, target: Attribute) -> Reg:
    """A float as i32 or i64; the smallest integer for numbers out of range, undefined in LLVM."""
    end = float(1 << (t.bit_width(target) - 1))
    least = b.constant(-end, x)
    x = b.select(b.compare("fcmp olt", x, b.constant(end, x)), x, least)
    x = b.select(b.compare("fcmp ogt", x, least), x, least)
    return b.convert("fptosi", x, target)


def _integer_to_float(operation: str) -> Row:
    def row(b: Builder, op: Operation, r: Sequence[Reg]) -> Reg:
        target = op.results[0].type
        if target in (t.f16, t.bf16):
            return narrow(b, b.convert(operation, r[0], t.f32), target)
        return b.convert(operation, r[0], target)
    return row


def _extend(b: Builder, op: Operation, r: Sequence[Reg]) -> Reg:
    target, value = op.results[0].type, widen(b, r[0])
    return value if value.element == target else b.convert("fpext", value, target)


def _truncate(b: Builder, op: Operation, r: Sequence[Reg]) -> Reg:
    target, value = op.results[0].type, widen(b, r[0])
    if value.element == t.f64:
        value = b.convert("fptrunc", value, t.f32)
    return value if value.element == target else narrow(b, value, target)


def _bitcast(b: Builder, op: Operation, r: Sequence[Reg]) -> Reg:
    return b.bits(r[0], op.results[0].type)


def _absolute_integer(b: Builder, op: Operation, r: Sequence[Reg]) -> Reg:
    return b.integer_intrinsic("abs", r[0])


def _integer_power(b: Builder, op: Operation, r: Sequence[Reg]) -> Reg:
    """x^n for an integer n, by powf, which is accurate enough for the integers of f32."""
    power = b.convert("sitofp", r[1], r[0].element)
    return _function(approximations.powf, "pow")(b, op, [r[0], power])


# ---------------------------------------------------------------------- the table
_ARITH: Mapping[type[Operation], Row] = {
    arith.ConstantOp: _constant,
    arith.AddfOp: _Instruction("fadd", True),
    arith.SubfOp: _Instruction("fsub", True),
    arith.MulfOp: _Instruction("fmul", True),
    arith.DivfOp: lambda b, op, r: divide(b, *r, summed=is_summed(op.operands[1])),
    RemFOp: _library("fmod"),
    arith.NegfOp: lambda b, op, r: b.negative(r[0]),
    arith.MaximumfOp: lambda b, op, r: extremum(b, True, *r),
    arith.MinimumfOp: lambda b, op, r: extremum(b, False, *r),
    arith.MaxnumfOp: lambda b, op, r: _number_extremum(b, True, *r),
    arith.MinnumfOp: lambda b, op, r: _number_extremum(b, False, *r),
    arith.AddiOp: _Instruction("add"),
    arith.SubiOp: _Instruction("sub"),
    arith.MuliOp: _Instruction("mul"),
    arith.DivSIOp: _Instruction("sdiv"),
    arith.DivUIOp: _Instruction("udiv"),
    arith.RemSIOp: _Instruction("srem"),
    arith.RemUIOp: _Instruction("urem"),
    arith.FloorDivSIOp: _floor_division,
    arith.CeilDivSIOp: _ceil_division,
    arith.MaxSIOp: _intrinsic("smax"),
    arith.MinSIOp: _intrinsic("smin"),
    arith.MaxUIOp: _intrinsic("umax"),
    arith.MinUIOp: _intrinsic("umin"),
    arith.AndIOp: _Instruction("and"),
    arith.OrIOp: _Instruction("or"),
    arith.XOrIOp: _Instruction("xor"),
    arith.ShLIOp: _Instruction("shl"),
    arith.ShRSIOp: _Instruction("ashr"),
    arith.ShRUIOp: _Instruction("lshr"),
    arith.CmpiOp: _compare_integers,
    arith.CmpfOp: _compare_floats,
    arith.SelectOp: lambda b, op, r: b.select(*r),
    arith.ExtFOp: _extend,
    arith.TruncFOp: _truncate,
    arith.ExtSIOp: _cast("sext"),
    arith.ExtUIOp: _cast("zext"),
    arith.TruncIOp: _cast("trunc"),
    arith.SIToFPOp: _integer_to_float("sitofp"),
    arith.UIToFPOp: _integer_to_float("uitofp"),
    arith.FPToSIOp: _float_to_signed,
    arith.FPToUIOp: _float_to_unsigned,
    arith.IndexCastOp: lambda b, op, r: _resize(b, r[0], op.results[0].type, signed=True),
    arith.BitcastOp: _bitcast,
}

_MATH: Mapping[type[Operation], Row] = {
    math.AbsFOp: _intrinsic("fabs"),
    math.AbsIOp: _absolute_integer,
    math.ExpOp: _function(approximations.exp, "exp"),
    math.Exp2Op: _function(approximations.exp2, "exp2"),
    math.ExpM1Op: _library("expm1", approximations.expm1),
    math.LogOp: _function(approximations.log, "log"),
    math.Log2Op: _function(approximations.log2, "log2"),
    math.Log10Op: _function(approximations.log10, "log10"),
    math.Log1pOp: _library("log1p", approximations.log1p),
    math.SqrtOp: _intrinsic("sqrt"),
    math.RsqrtOp: lambda b, op, r: approximations.rsqrt(b, *r),
    math.CbrtOp: _library("cbrt"),
    math.TanhOp: _library("tanh", approximations.tanh),
    math.ErfOp: _library("erf", approximations.erf),
    math.SinOp: _function(approximations.sin, "sin"),
    math.CosOp: _function(approximations.cos, "cos"),
    math.TanOp: _function(approximations.tan, "tan"),
    math.AsinOp: _library("asin"),
    math.AcosOp: _library("acos"),
    math.AtanOp: _library("atan"),
    math.Atan2Op: _library("atan2"),
    math.SinhOp: _library("sinh"),
    math.CoshOp: _library("cosh"),
    math.AsinhOp: _library("asinh"),
    math.AcoshOp: _library("acosh"),
    math.AtanhOp: _library("atanh"),
    math.FloorOp: _intrinsic("floor"),
    math.CeilOp: _intrinsic("ceil"),
    math.RoundEvenOp: _intrinsic("roundeven"),
    math.RoundOp: _intrinsic("round"),
    math.TruncOp: _intrinsic("trunc"),
    math.PowFOp: _function(approximations.powf, "pow"),
    math.FPowIOp: _integer_power,
    math.FmaOp: _intrinsic("fma"),
    math.CopySignOp: _intrinsic("copysign"),
}

SCALAR_ROWS: Mapping[type[Operation], Row] = {**_ARITH, **_MATH}
"""The emission of each scalar operation."""

_WHOLE = frozenset[type]({arith.FPToSIOp, arith.FPToUIOp, math.FloorOp, math.CeilOp, math.TruncOp,
                          math.RoundEvenOp, math.RoundOp})
_SHIFTS = frozenset[type]({
    arith.AddfOp, arith.SubfOp, arith.MulfOp, arith.DivfOp, arith.SelectOp, arith.MaximumfOp,
    arith.MinimumfOp, arith.MaxnumfOp, arith.MinnumfOp, arith.ExtFOp})
"""What turns a number beside a tie of the rounding into another one beside a tie."""

_BITWISE = frozenset[type]({
    arith.ConstantOp, arith.SelectOp, arith.BitcastOp, arith.ExtFOp, arith.TruncFOp})
"""Rows that accept 16-bit floats without widening."""


def operands_of(op: Operation) -> Sequence[SSAValue]:
    """The operands of `scalar_function`: a conversion to integers absorbs a preceding rounding."""
    return op.operands[0].owner.operands if _rounds(op) else op.operands  # type: ignore[union-attr]


def _rounds(op: Operation) -> bool:
    """Whether an operation converts an f32 to i32 right after rounding it to nearest even."""
    return (type(op) is arith.FPToSIOp and isinstance(op.input.owner, math.RoundEvenOp)
            and (op.input.type, op.result.type) == (t.f32, t.i32))


def scalar_function(op: Operation) -> Callable[[Builder, Sequence[Reg]], Reg]:
    """The emitter of one scalar operation, for the operands given by `operands_of`.

    Raises ValueError for an operation that the CPU target lacks.
    """
    plain = in_floats(op)

    def emitted(b: Builder, operands: Sequence[Reg]) -> Reg:
        found = b.replaced(op, operands)
        return plain(b.arithmetic(op), operands) if found is None else found

    return emitted


def instruction_of(b: Builder, op: Operation) -> str | None:
    """The instruction that is all of a scalar operation; None for other operations."""
    row = SCALAR_ROWS.get(type(op))
    if not isinstance(row, _Instruction) or not b.is_plain or _has_halves(op):
        return None
    return row.text(b, op)


def _has_halves(op: Operation) -> bool:
    return any(v.type in (t.f16, t.bf16) for v in (*op.operands, *op.results))


def in_floats(op: Operation) -> Callable[[Builder, Sequence[Reg]], Reg]:
    """The emitter of an operation as its row says."""
    row = SCALAR_ROWS.get(type(op))
    if row is None:
        raise ValueError(f"the CPU target has no scalar operation {op.name}; "
                         "add a row to targets/cpu/emit/scalar.py")
    if _rounds(op):
        return lambda b, operands: b.to_nearest(operands[0])
    target = op.results[0].type
    if type(op) in (arith.ExtFOp, arith.TruncFOp) and any(
            map(t.is_narrow_float, (op.operands[0].type, target))):
        raise ValueError(f"the CPU target does not convert {op.operands[0].type} to {target}: run "
                         "the pass block-expand-floats")
    if type(op) in _BITWISE or not _has_halves(op):
        return lambda b, operands: row(b, op, operands)

    def through_f32(b: Builder, operands: Sequence[Reg]) -> Reg:
        result = row(b, op, [widen(b, r) for r in operands])
        half = target in (t.f16, t.bf16) and result.element == t.f32
        return narrow(b, result, target) if half else result

    return through_f32
