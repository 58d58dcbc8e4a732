"""`block-expand-floats`: expand conversions of narrow floats to arithmetic on their bits.

    %y = arith.extf %x : f8E4M3FN to f32      ->   %b = arith.bitcast %x : f8E4M3FN to i8
                                                   ... integers ...
                                                   %y = arith.bitcast %n : i32 to f32

`arith.truncf` from f32 is expanded likewise. The semantics of the type determine everything. With M
bits of mantissa, a code without its sign, shifted up to the mantissa of f32, is the number's f32
code except for the bias. Numbers below the smallest normal one are multiples of the smallest
number. A code above the largest finite one is inf or NaN. Both conversions are exact or rounded to
even, and do not depend on how the machine treats subnormal f32 numbers. Targets only need to move
narrow floats and read their bits. A target that `decodes` a type keeps its extf, and one that
`encodes` it keeps its truncf.
"""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import FloatNanEncoding, FloatNonfiniteBehavior, FloatSemantics, ModuleOp
from xdsl.ir import Attribute

from dialects.strata import types as t
from dialects.walking import walked
from passes.base import StrataContext, StrataPass
from passes.graph_to_loop.scalars import Body, Scalar

_MANTISSA, _BIAS = 23, 127  # of f32
_INFINITY = 0x7F800000
_NAN = 0x7FC00000


class BlockExpandFloats(StrataPass):
    """Replace extf from and truncf to narrow floats."""

    name = "block-expand-floats"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        for op in walked(module):
            if type(op) is arith.ExtFOp and _is_decoded(op, context):
                if context.allowance.take(op, self.name):
                    _replace(op, decode(_operand(op)))
            elif type(op) is arith.TruncFOp and _is_encoded(op, context) and (
                    context.allowance.take(op, self.name)):
                _replace(op, encode(_operand(op), op.result.type))


def _is_decoded(op: arith.ExtFOp, context: StrataContext) -> bool:
    """Whether an extf converts a narrow float that the target cannot convert itself."""
    element = op.input.type
    return t.is_narrow_float(element) and element not in context.facts.decodes


def _is_encoded(op: arith.TruncFOp, context: StrataContext) -> bool:
    """Whether a truncf converts to a narrow float and the target cannot do that itself."""
    element = op.result.type
    return t.is_narrow_float(element) and (
        op.input.type != t.f32 or element not in context.facts.encodes)


def _operand(op: arith.ExtFOp | arith.TruncFOp) -> Scalar:
    block = op.parent
    assert block is not None
    return Scalar(Body(block, op), op.input, op.input.type)


def _replace(op: arith.ExtFOp | arith.TruncFOp, value: Scalar) -> None:
    op.result.replace_all_uses_with(value.value)
    op.detach()
    op.erase()


# ---------------------------------------------------------------------- from bits
def decode(x: Scalar) -> Scalar:
    """A narrow float as f32."""
    form = t.semantics_of(x.element)
    code = x.bitcast(_code_type(form)).to(t.i32)
    magnitude = code & (_sign(form) - 1) if form.has_sign else code
    shifted = magnitude << (_MANTISSA - form.mantissa_bits)
    number = _with_small(form, magnitude, shifted + ((_BIAS - form.exponent_bias) << _MANTISSA))
    number = _with_specials(form, code, magnitude, shifted, number)
    if form.has_sign:
        number = number | ((code & _sign(form)) << (31 - form.sign_shift))
    return number.bitcast(t.f32)


def _with_small(form: FloatSemantics, magnitude: Scalar, normal: Scalar) -> Scalar:
    """The bits of f32 including numbers with exponent 0: multiples of the smallest number."""
    if not form.has_zero:  # 2^-127, which f32 has as a subnormal number
        return magnitude.compare("eq", 0).where(normal.like(1 << (_MANTISSA - 1)), normal)
    small = magnitude.to(t.f32) * _smallest(form)
    return magnitude.compare("lt", 1 << form.mantissa_bits).where(small.bitcast(t.i32), normal)


def _with_specials(
    form: FloatSemantics, code: Scalar, magnitude: Scalar, shifted: Scalar, number: Scalar
) -> Scalar:
    """The bits of f32 including codes that stand for NaN or inf."""
    limit, _ = _specials(form)
    match form.nonfinite, form.nan_encoding:
        case FloatNonfiniteBehavior.FINITE_ONLY, _:
            return number
        case FloatNonfiniteBehavior.IEEE, _:
            return magnitude.compare("ge", limit).where(shifted | _INFINITY, number)
        case _, FloatNanEncoding.NEGATIVE_ZERO:
            return code.compare("eq", limit).where(number.like(_NAN), number)
        case _:
            return magnitude.compare("eq", limit).where(number.like(_NAN), number)


# ---------------------------------------------------------------------- to bits
def encode(x: Scalar, element: Attribute) -> Scalar:
    """f32 as a narrow float, rounded to even; larger numbers become inf, NaN or the largest number.
    """
    form = t.semantics_of(element)
    limit, nan = _specials(form)
    bits = x.bitcast(t.i32)
    magnitude = bits & 0x7FFFFFFF
    code = _rounded(form, x, magnitude).minimum(limit)
    code = magnitude.compare("gt", _INFINITY).where(code.like(nan), code)
    return _with_sign(form, bits, code, nan).to(_code_type(form)).bitcast(element)


def _rounded(form: FloatSemantics, x: Scalar, magnitude: Scalar) -> Scalar:
    """The code of a magnitude, as if exponents had no upper limit."""
    places = _MANTISSA - form.mantissa_bits
    if form.mantissa_bits:
        tie_up = (magnitude >> places) & 1
    else:  # a power of two: ties go up, except the one between 0 and the smallest number
        tie_up = magnitude.compare("ge", 1 << _MANTISSA).to(t.i32)
    carried = magnitude + tie_up + ((1 << (places - 1)) - 1)
    normal = (carried >> places) - ((_BIAS - form.exponent_bias) << form.mantissa_bits)
    if not form.has_zero:
        return normal
    exponent = 1 - form.exponent_bias - form.mantissa_bits + _MANTISSA
    aligned = x.absolute() + 2.0**exponent  # large enough that f32 rounds off smaller fractions
    small = aligned.bitcast(t.i32) - ((_BIAS + exponent) << _MANTISSA)
    least = (_BIAS + 1 - form.exponent_bias) << _MANTISSA
    return magnitude.compare("lt", least).where(small, normal)


def _with_sign(form: FloatSemantics, bits: Scalar, code: Scalar, nan: int) -> Scalar:
    if not form.has_sign:
        return bits.compare("le", 0).where(code.like(nan), code)
    sign = (bits >> (31 - form.sign_shift)) & _sign(form)
    if form.nan_encoding == FloatNanEncoding.NEGATIVE_ZERO:  # -0 is NaN, and the only one
        unsigned = code.compare("eq", 0) | code.compare("eq", nan)
        sign = unsigned.where(sign.like(0), sign)
    return code | sign


# ---------------------------------------------------------------------- the format
def _code_type(form: FloatSemantics) -> Attribute:
    return {4: t.ui4, 6: t.ui6, 8: t.ui8}[form.bitwidth]


def _sign(form: FloatSemantics) -> int:
    return 1 << form.sign_shift


def _smallest(form: FloatSemantics) -> float:
    """The smallest positive number."""
    return 2.0 ** (1 - form.exponent_bias - form.mantissa_bits)


def _specials(form: FloatSemantics) -> tuple[int, int]:
    """The codes, without a sign, of numbers beyond the largest, and of NaN."""
    ones = (1 << form.sign_shift) - 1
    match form.nonfinite, form.nan_encoding:
        case FloatNonfiniteBehavior.FINITE_ONLY, _:
            return ones, 0
        case FloatNonfiniteBehavior.IEEE, _:
            infinity = form.max_exponent << form.mantissa_bits
            return infinity, infinity | (1 << (form.mantissa_bits - 1))
        case _, FloatNanEncoding.NEGATIVE_ZERO:
            return ones + 1, ones + 1
        case _:
            return ones, ones
