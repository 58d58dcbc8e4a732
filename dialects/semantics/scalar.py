"""The meaning of scalar bodies: `arith` and `math` on single numbers, evaluated on whole arrays.

The regions of `block.map` and of loop nests contain scalar operations. Each of them is one row in
a table here and works on arrays with broadcasting, so a body is evaluated for all positions at
once:

    evaluate_body(op.body.block, [a, b])     # one array per block argument -> one per yielded value

Types are exact: f32 stays f32, bf16 rounds after every operation, and integers wrap around. Narrow
floats and integers of less than a byte are only converted and selected. Integers are signless; the
operation determines how they are interpreted (`divui` reads the bits of i8 as 0..255). A truth
value is a one-bit integer: 0 or 1 unsigned, 0 or -1 signed. Cases that MLIR leaves undefined
(division by zero, conversions out of range) yield some value, never an error or a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import FloatAttr, IntegerAttr
from xdsl.ir import Block, Operation, SSAValue

from dialects.semantics import numerics
from dialects.semantics.carriers import as_array, as_in
from dialects.semantics.positions import enters_floats
from dialects.semantics.remainder import RemFOp
from dialects.semantics.views import each
from dialects.strata.types import Array, dtype_of, i2, i4, ui2, ui4

OtherOps = Callable[[Operation], Sequence[Array]]
"""Evaluates an operation that is not in the tables, such as `loop.index`."""

Formula = Callable[..., Any]
Comparison = Callable[[Array, Array], Array]


def evaluate_body(
    block: Block, arguments: Sequence[Array], other: OtherOps | None = None,
    like: Array | None = None,
) -> list[Array]:
    """The values that the terminator of `block` yields, one array each.

    `arguments`: one array per block argument, of the argument's dtype; their shapes broadcast. A
    result has the broadcast shape of the arguments that it depends on; a constant has no dims.
    `other` evaluates operations that are not scalar arithmetic. Floats of sizes that are data
    (`positions.py`) get the arithmetic of `like`. Raises KeyError, naming the operation, for an
    unknown one.
    """
    assert block.last_op is not None
    return evaluate_values(block, arguments, block.last_op.operands, other, like)


def evaluate_values(
    block: Block, arguments: Sequence[Array], wanted: Sequence[SSAValue],
    other: OtherOps | None = None, like: Array | None = None,
) -> list[Array]:
    """The values of `wanted`, which are arguments of `block` or results of its operations.

    Only operations that `wanted` depends on are evaluated, so other arguments may be anything.
    """
    known: dict[SSAValue, Array] = dict(zip(block.args, arguments, strict=True))
    with np.errstate(all="ignore"):
        for op in operations_for(block, wanted):
            operands = [known[o] for o in op.operands]
            if like is not None and enters_floats(op):
                operands = [as_in(operand, like) for operand in operands]
            known.update(zip(op.results, _evaluate_distinct(op, operands, other), strict=True))
    return [as_array(known[value]) for value in wanted]


def operations_for(block: Block, wanted: Iterable[SSAValue]) -> list[Operation]:
    """The operations of `block` that `wanted` depends on, in program order."""
    needed, found = set(wanted), list[Operation]()
    for op in reversed(list(block.ops)):
        if not needed.isdisjoint(op.results):
            needed.update(op.operands)
            found.append(op)
    return found[::-1]


def _evaluate_distinct(
    op: Operation, operands: list[Array], other: OtherOps | None
) -> Sequence[Array]:
    """Evaluate an operation on one array and scalars, once for each distinct element in memory."""
    arrays = [k for k, operand in enumerate(operands) if operand.size != 1]
    if len(arrays) != 1 or len(op.results) != 1:
        return _evaluate(op, operands, other)
    rank = max(operand.ndim for operand in operands)
    alone = [operand if operand.size != 1 else operand.reshape(()) for operand in operands]
    array = operands[arrays[0]]

    def compute(numbers: Array) -> Array:
        alone[arrays[0]] = numbers
        return _evaluate(op, alone, other)[0]

    return [each(compute, array.reshape((1,) * (rank - array.ndim) + array.shape))]


def evaluate_operation(op: Operation, operands: Sequence[Array]) -> Sequence[Array]:
    """The results of one operation on arrays. Raises KeyError for one that is not scalar."""
    with np.errstate(all="ignore"):
        return _evaluate(op, operands, None)


def _evaluate(
    op: Operation, operands: Sequence[Array], other: OtherOps | None
) -> Sequence[Array]:
    kind = type(op)
    if (formula := FORMULAS.get(kind)) is not None:
        return [formula(*operands)]
    if (convert := CONVERSIONS.get(kind)) is not None:
        return [convert(operands[0], dtype_of(op.results[0].type))]
    if isinstance(op, arith.CmpfOp):
        return [FLOAT_PREDICATES[op.predicate.value.data](*operands)]
    if isinstance(op, arith.CmpiOp):
        return [INTEGER_PREDICATES[op.predicate.value.data](*operands)]
    if isinstance(op, arith.ConstantOp):
        return [_constant(op)]
    if other is None:
        raise KeyError(f"{op.name} is not a scalar operation")
    return other(op)


def is_scalar(op: Operation) -> bool:
    """Whether an operation is scalar arithmetic."""
    kind = type(op)
    return kind in FORMULAS or kind in CONVERSIONS or isinstance(
        op, arith.CmpfOp | arith.CmpiOp | arith.ConstantOp)


def _constant(op: arith.ConstantOp) -> Array:
    dtype = dtype_of(op.result.type)
    assert isinstance(op.value, (IntegerAttr, FloatAttr))
    return np.asarray(op.value.value.data).astype(dtype)


# ---------------------------------------------------------------------- signs of integers
_SHORT = {dtype_of(signed): dtype_of(plain) for signed, plain in ((i2, ui2), (i4, ui4))}
"""The unsigned dtypes of signed integers of less than a byte, which are only converted."""


def _as_signed(x: Array) -> Array:
    """Integers as they are; a truth value as 0 or -1."""
    return -x.astype(np.int8) if x.dtype == np.bool_ else x


def _as_unsigned(x: Array) -> Array:
    """The same bits read as unsigned; integers of less than a byte become bytes."""
    short = _SHORT.get(x.dtype)
    return x.view(f"u{x.dtype.itemsize}") if short is None else x.view(short).astype(np.uint8)


def _as_signless(x: Array, dtype: np.dtype[Any]) -> Array:
    """Convert back to `dtype` of the same width; a truth value takes the lowest bit."""
    return (x & 1).astype(np.bool_) if dtype == np.bool_ else x.view(dtype)


def _signed(formula: Formula) -> Formula:
    """Adapt a formula on signed integers to signless ones."""
    def apply(*operands: Array) -> Array:
        result = formula(*map(_as_signed, operands))
        return _as_signless(result, operands[0].dtype)

    return apply


def _unsigned(formula: Formula) -> Formula:
    """Adapt a formula on unsigned integers to signless ones."""
    def apply(*operands: Array) -> Array:
        result = formula(*map(_as_unsigned, operands))
        return _as_signless(result, operands[0].dtype)

    return apply


def _compare_unsigned(formula: Formula) -> Comparison:
    return lambda x, y: formula(_as_unsigned(x), _as_unsigned(y))


def _compare_signed(formula: Formula) -> Comparison:
    return lambda x, y: formula(_as_signed(x), _as_signed(y))


# ---------------------------------------------------------------------- formulas
def _ceil_divide(x: Array, y: Array) -> Array:
    quotient = np.floor_divide(x, y)
    return quotient + (quotient * y != x).astype(x.dtype)


def _erf(x: Array) -> Array:
    return numerics.erf(np.atleast_1d(numerics.widen(x))).reshape(x.shape).astype(x.dtype)


def _rsqrt(x: Array) -> Array:
    wide = numerics.widen(x)
    return np.reciprocal(np.sqrt(wide)).astype(x.dtype)


def _round_half_away(x: Array) -> Array:
    whole = np.trunc(x)
    far = np.abs(x - whole) >= x.dtype.type(0.5)
    return np.where(far, whole + np.copysign(x.dtype.type(1), x), whole)


def _fma(x: Array, y: Array, z: Array) -> Array:
    """x*y + z with one rounding for f32 and smaller types; in f64 the product is rounded, too."""
    total = x.astype(np.float64) * y.astype(np.float64) + z.astype(np.float64)
    return total.astype(x.dtype)


def _ordered(formula: Formula) -> Comparison:
    """False where an operand is NaN."""
    return lambda x, y: formula(x, y) & ~_unordered(x, y)


def _or_unordered(formula: Formula) -> Comparison:
    """True where an operand is NaN."""
    return lambda x, y: formula(x, y) | _unordered(x, y)


def _unordered(x: Array, y: Array) -> Array:
    return np.isnan(x) | np.isnan(y)


FORMULAS: dict[type[Operation], Formula] = {
    # floats
    arith.AddfOp: np.add,
    arith.SubfOp: np.subtract,
    arith.MulfOp: np.multiply,
    arith.DivfOp: np.divide,
    RemFOp: np.fmod,
    arith.NegfOp: np.negative,
    arith.MaximumfOp: np.maximum,  # these two propagate NaN
    arith.MinimumfOp: np.minimum,
    arith.MaxnumfOp: np.fmax,  # these two prefer the number
    arith.MinnumfOp: np.fmin,
    # integers
    arith.AddiOp: _unsigned(np.add),
    arith.SubiOp: _unsigned(np.subtract),
    arith.MuliOp: _unsigned(np.multiply),
    arith.DivSIOp: _signed(numerics.truncating_divide),
    arith.DivUIOp: _unsigned(np.floor_divide),
    arith.FloorDivSIOp: _signed(np.floor_divide),
    arith.CeilDivSIOp: _signed(_ceil_divide),
    arith.RemSIOp: _signed(np.fmod),  # the dividend's sign
    arith.RemUIOp: _unsigned(np.remainder),
    arith.MaxSIOp: _signed(np.maximum),
    arith.MaxUIOp: _unsigned(np.maximum),
    arith.MinSIOp: _signed(np.minimum),
    arith.MinUIOp: _unsigned(np.minimum),
    arith.AndIOp: np.bitwise_and,
    arith.OrIOp: np.bitwise_or,
    arith.XOrIOp: np.bitwise_xor,
    arith.ShLIOp: _unsigned(np.left_shift),
    arith.ShRSIOp: _signed(np.right_shift),
    arith.ShRUIOp: _unsigned(np.right_shift),
    arith.SelectOp: np.where,
    # functions
    math.AbsFOp: np.abs,
    math.AbsIOp: _signed(np.abs),
    math.ExpOp: np.exp,
    math.Exp2Op: numerics.in_f64(np.exp2),
    math.ExpM1Op: np.expm1,
    math.LogOp: np.log,
    math.Log2Op: numerics.in_f64(np.log2),
    math.Log10Op: numerics.in_f64(np.log10),
    math.Log1pOp: np.log1p,
    math.SqrtOp: np.sqrt,
    math.RsqrtOp: _rsqrt,
    math.CbrtOp: np.cbrt,
    math.TanhOp: np.tanh,
    math.ErfOp: _erf,
    math.SinOp: np.sin,
    math.CosOp: np.cos,
    math.TanOp: np.tan,
    math.AsinOp: np.arcsin,
    math.AcosOp: np.arccos,
    math.AtanOp: np.arctan,
    math.Atan2Op: np.arctan2,
    math.SinhOp: np.sinh,
    math.CoshOp: np.cosh,
    math.AsinhOp: np.arcsinh,
    math.AcoshOp: np.arccosh,
    math.AtanhOp: np.arctanh,
    math.FloorOp: np.floor,
    math.CeilOp: np.ceil,
    math.TruncOp: np.trunc,
    math.RoundOp: _round_half_away,
    math.RoundEvenOp: np.rint,
    math.PowFOp: numerics.in_f64(np.power),
    math.FmaOp: _fma,
    math.CopySignOp: np.copysign,
}
"""Operations that are determined by their operands alone."""

FLOAT_PREDICATES: tuple[Comparison, ...] = (
    lambda x, y: np.zeros(np.broadcast_shapes(x.shape, y.shape), np.bool_),  # false
    np.equal,  # oeq: every NumPy comparison with NaN is false, except not_equal
    np.greater,  # ogt
    np.greater_equal,  # oge
    np.less,  # olt
    np.less_equal,  # ole
    _ordered(np.not_equal),  # one
    lambda x, y: ~_unordered(x, y),  # ord
    _or_unordered(np.equal),  # ueq
    _or_unordered(np.greater),  # ugt
    _or_unordered(np.greater_equal),  # uge
    _or_unordered(np.less),  # ult
    _or_unordered(np.less_equal),  # ule
    np.not_equal,  # une
    _unordered,  # uno
    lambda x, y: np.ones(np.broadcast_shapes(x.shape, y.shape), np.bool_),  # true
)
"""`arith.cmpf`, by the number of the predicate."""

INTEGER_PREDICATES: tuple[Comparison, ...] = (
    np.equal,
    np.not_equal,
    _compare_signed(np.less),
    _compare_signed(np.less_equal),
    _compare_signed(np.greater),
    _compare_signed(np.greater_equal),
    _compare_unsigned(np.less),
    _compare_unsigned(np.less_equal),
    _compare_unsigned(np.greater),
    _compare_unsigned(np.greater_equal),
)
"""`arith.cmpi`, by the number of the predicate."""


# ---------------------------------------------------------------------- conversions
def _to_float(x: Array, dtype: np.dtype[Any]) -> Array:
    return x.astype(dtype)


def _to_integer(x: Array, dtype: np.dtype[Any]) -> Array:
    """Truncate, or extend by zeros or by the sign according to the dtype of `x`."""
    return (x & 1).astype(dtype) if dtype == np.bool_ else x.astype(dtype)


def _float_to_signed(x: Array, dtype: np.dtype[Any]) -> Array:
    wide = np.dtype(np.int64 if dtype == np.int64 else np.int32)
    return _to_integer(numerics.to_integer(numerics.widen(x), wide), dtype)


def _float_to_unsigned(x: Array, dtype: np.dtype[Any]) -> Array:
    if dtype.itemsize < 4:
        return _float_to_signed(x, dtype)
    return numerics.to_integer(numerics.widen(x), np.dtype(f"u{dtype.itemsize}")).view(dtype)


CONVERSIONS: dict[type[Operation], Callable[[Array, np.dtype[Any]], Array]] = {
    arith.ExtFOp: _to_float,
    arith.TruncFOp: _to_float,
    arith.ExtSIOp: lambda x, dtype: _to_integer(_as_signed(x), dtype),
    arith.ExtUIOp: lambda x, dtype: _to_integer(_as_unsigned(x), dtype),
    arith.TruncIOp: lambda x, dtype: _to_integer(x, dtype),
    arith.IndexCastOp: lambda x, dtype: _to_integer(_as_signed(x), dtype),
    arith.SIToFPOp: lambda x, dtype: _to_float(_as_signed(x), dtype),
    arith.UIToFPOp: lambda x, dtype: _to_float(_as_unsigned(x), dtype),
    arith.FPToSIOp: _float_to_signed,
    arith.FPToUIOp: _float_to_unsigned,
    arith.BitcastOp: lambda x, dtype: x.view(dtype),
}
"""Conversions, given the operand and the dtype of the result."""
