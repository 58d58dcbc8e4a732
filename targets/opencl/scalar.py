"""Scalar operations in OpenCL C: one table row per `arith` or `math` operation.

A row is a template over its operands `{0}`, `{1}` ..., which are names or numbers. f16, bf16 and
floats of a byte are kept as the integers of their bits, so that no extension of OpenCL is needed;
arithmetic on halves widens to f32 and rounds, which is exact for single operations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from xdsl.dialects.arith import (
    CMPF_COMPARISON_OPERATIONS,
    CMPI_COMPARISON_OPERATIONS,
    CmpfOp,
    CmpiOp,
)
from xdsl.ir import Attribute, Operation

from dialects.strata import types as t
from targets.interface import TargetError

_HEAD = """\
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define SMALLER(a, b) ((a) < (b) ? (a) : (b))
#define MAXIMUM(a, b) ((a) != (a) || (a) > (b) ? (a) : (b))
#define MINIMUM(a, b) ((a) != (a) || (a) < (b) ? (a) : (b))
#define DIVIDE(a, b) ((b) == 0 ? 0 : (b) == -1 ? 0 - (a) : (a) / (b))
#define REMAINDER(a, b) ((b) == 0 || (b) == -1 ? 0 : (a) % (b))

long floor_div(long a, long b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
long floor_mod(long a, long b) { return a - floor_div(a, b) * b; }
float from_f16(ushort x) { return vload_half(0, (const private half *)&x); }
ushort to_f16(float y) { ushort x; vstore_half_rte(y, 0, (private half *)&x); return x; }
float from_bf16(ushort x) { return as_float((uint)x << 16); }
ushort to_bf16(float y) {
  uint bits = as_uint(y);
  return (ushort)(isnan(y) ? bits >> 16 | 64 : (bits + 32767 + (bits >> 16 & 1)) >> 16);
}
"""
_INTEGERS = {8: "char", 16: "short", 32: "int", 64: "long"}

FLOATS: Mapping[str, str] = {
    "arith.addf": "{0} + {1}", "arith.subf": "{0} - {1}", "arith.mulf": "{0} * {1}",
    "arith.divf": "{0} / {1}", "arith.remf": "fmod({0}, {1})", "arith.negf": "-{0}",
    "arith.maximumf": "MAXIMUM({0}, {1})", "arith.minimumf": "MINIMUM({0}, {1})",
    "arith.maxnumf": "fmax({0}, {1})", "arith.minnumf": "fmin({0}, {1})",
    "math.absf": "fabs({0})", "math.roundeven": "rint({0})", "math.powf": "pow({0}, {1})",
    "math.atan2": "atan2({0}, {1})", "math.copysign": "copysign({0}, {1})",
    "math.fma": "fma({0}, {1}, {2})",
    **{f"math.{name}": f"{name}({{0}})" for name in (
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "cbrt", "erf",
        "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh",
        "atanh", "floor", "ceil", "round", "trunc")},
}
"""Operations on floats, whose results are floats of the same type."""

SIGNED: Mapping[str, str] = {
    "arith.divsi": "DIVIDE({0}, {1})", "arith.remsi": "REMAINDER({0}, {1})",
    "arith.floordivsi": "floor_div({0}, {1})", "arith.ceildivsi": "-floor_div(-(long){0}, {1})",
    "arith.maxsi": "LARGER({0}, {1})", "arith.minsi": "SMALLER({0}, {1})",
    "arith.andi": "{0} & {1}", "arith.ori": "{0} | {1}", "arith.xori": "{0} ^ {1}",
    "arith.shrsi": "{0} >> {1}", "math.absi": "{0} < 0 ? -{0} : {0}",
}
"""Operations on integers as they are."""

UNSIGNED: Mapping[str, str] = {
    "arith.addi": "{0} + {1}", "arith.subi": "{0} - {1}", "arith.muli": "1u * {0} * {1}",
    "arith.divui": "{1} == 0 ? 0 : {0} / {1}", "arith.remui": "{1} == 0 ? 0 : {0} % {1}",
    "arith.maxui": "LARGER({0}, {1})", "arith.minui": "SMALLER({0}, {1})",
    "arith.shli": "{0} << {1}", "arith.shrui": "{0} >> {1}",
}
"""Operations on integers as unsigned ones, whose sums and products wrap around."""

_SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_OPPOSITES = {"eq": "ne", "lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}
_COMBINERS = {"add": ("arith.addf", "arith.addi"), "mul": ("arith.mulf", "arith.muli"),
              "max": ("arith.maximumf", "arith.maxsi"), "min": ("arith.minimumf", "arith.minsi"),
              "and": ("", "arith.andi"), "or": ("", "arith.ori")}


def head(exact: bool) -> str:
    """What comes before the kernels; `exact`: round products before they are added."""
    return f"#pragma OPENCL FP_CONTRACT {'OFF' if exact else 'ON'}\n{_HEAD}"


# ---------------------------------------------------------------------- types and numbers
def type_text(element: Attribute) -> str:
    """The type of a value: `float`, `int`, `bool`; halves and narrower floats are their bits."""
    if element == t.i1:
        return "bool"
    if element in (t.f32, t.f64):
        return "float" if element == t.f32 else "double"
    bits = 8 * t.byte_width(element)
    return f"u{_INTEGERS[bits]}" if t.is_float(element) else _INTEGERS[bits]


def memory_text(element: Attribute) -> str:
    """The type of an element in memory, where truth values are bytes."""
    return "uchar" if element == t.i1 else type_text(t.signless(element))


def unsigned_text(element: Attribute) -> str:
    """The unsigned type of an integer's width."""
    return "bool" if element == t.i1 else f"u{type_text(element)}"


def number_text(value: float | bool, element: Attribute) -> str:
    """A number of a type."""
    if element == t.i1:
        return "true" if value else "false"
    if not t.is_float(element):
        return _integer_text(int(value), 8 * t.byte_width(element))
    if element not in (t.f32, t.f64):
        bits = np.array(value).astype(t.dtype_of(element)).view(f"u{t.byte_width(element)}")
        return f"({type_text(element)}){int(bits)}"
    if math.isnan(value) or math.isinf(value):
        text = "NAN" if math.isnan(value) else "INFINITY"
        return f"({'-' if value < 0 else ''}({type_text(element)}){text})"
    text = repr(float(np.float32(value)) if element == t.f32 else float(value))
    return f"({text}f)" if element == t.f32 else f"({text})"


def _integer_text(value: int, bits: int) -> str:
    lowest = -1 << (bits - 1)
    value = (value - lowest) % (1 << bits) + lowest  # an unsigned number, as its bits
    text = f"({value + 1}{'L' if bits == 64 else ''} - 1)" if value == lowest else (
        f"({value}{'L' if bits == 64 else ''})")
    return text if bits >= 32 else f"({_INTEGERS[bits]}){text}"


def widened(text: str, element: Attribute) -> str:
    """A float as one that can be computed with."""
    return f"from_{element}({text})" if t.is_half(element) else text


def _narrowed(text: str, element: Attribute) -> str:
    return f"to_{element}({text})" if t.is_half(element) else text


# ---------------------------------------------------------------------- operations
def expression(op: Operation, texts: Sequence[str]) -> str:
    """The value of a scalar operation of one result. Raises TargetError if OpenCL has none."""
    source, result = op.operands[0].type, op.results[0].type
    match op:
        case CmpfOp():
            text = _float_comparison(CMPF_COMPARISON_OPERATIONS[op.predicate.value.data])
            return text.format(*(widened(x, source) for x in texts))
        case CmpiOp():
            name = CMPI_COMPARISON_OPERATIONS[op.predicate.value.data]
            if name[0] == "u":
                texts, name = [f"({unsigned_text(source)}){x}" for x in texts], name[1:]
            sign = _SIGNS[name if name in _SIGNS else name[1:]]
            return f"{texts[0]} {sign} {texts[1]}"
        case _ if op.name == "arith.select":
            return f"{texts[0]} ? {texts[1]} : {texts[2]}"
        case _ if op.name in _CASTS:
            return _CASTS[op.name](texts[0], source, result)
        case _:
            return computed(op.name, texts, result)


def computed(name: str, texts: Sequence[str], element: Attribute) -> str:
    """The value of an operation whose operands and result have one type."""
    if name in FLOATS:
        return _narrowed(FLOATS[name].format(*(widened(x, element) for x in texts)), element)
    if name in SIGNED:
        return f"({type_text(element)})({SIGNED[name].format(*texts)})"
    if name in UNSIGNED:
        wide = [f"({unsigned_text(element)}){x}" for x in texts]
        return f"({type_text(element)})({UNSIGNED[name].format(*wide)})"
    raise TargetError(f"{name} has no form in OpenCL: targets/opencl/scalar.py has a table with a "
                      "row per operation")


def combined(combiner: str, left: str, right: str, element: Attribute) -> str:
    """Two values of a reduction as one."""
    return computed(_COMBINERS[combiner][not t.is_float(element)], (left, right), element)


def _float_comparison(name: str) -> str:
    """Ordered comparisons are false on NaN, unordered ones (`u..`) true."""
    match name:
        case "true" | "false":
            return name
        case "ord" | "uno":
            return f"{'!' * (name == 'uno')}({{0}} == {{0}} && {{1}} == {{1}})"
        case "one" | "ueq":
            return f"{'!' * (name == 'ueq')}({{0}} < {{1}} || {{0}} > {{1}})"
        case "une":
            return "{0} != {1}"
        case _ if name[0] == "o":
            return f"{{0}} {_SIGNS[name[1:]]} {{1}}"
        case _:
            return f"!({{0}} {_SIGNS[_OPPOSITES[name[1:]]]} {{1}})"


# ---------------------------------------------------------------------- conversions
def _to(text: str, element: Attribute) -> str:
    return f"({type_text(element)})({text})"


def _to_float(text: str, element: Attribute) -> str:
    """A number as a float of a type; halves are rounded from f32."""
    return _narrowed(f"(float)({text})", element) if t.is_half(element) else _to(text, element)


def _between_floats(x: str, source: Attribute, target: Attribute) -> str:
    if t.is_narrow_float(source) or t.is_narrow_float(target):
        raise TargetError(f"OpenCL does not convert {source} to {target}: run the pass "
                          "block-expand-floats")
    return _to_float(widened(x, source), target)


def _signed_to_float(x: str, source: Attribute, target: Attribute) -> str:
    return _to_float(f"-(int){x}" if source == t.i1 else x, target)


def _unsigned_to_float(x: str, source: Attribute, target: Attribute) -> str:
    return _to_float(f"({unsigned_text(source)}){x}", target)


def _float_to_signed(x: str, source: Attribute, target: Attribute) -> str:
    """Converts to narrower types through i32, and keeps its low bits."""
    x = widened(x, source)
    if target == t.i1:
        return f"{x} != 0"
    return _to(x if t.bit_width(target) >= 32 else f"(int)({x})", target)


def _float_to_unsigned(x: str, source: Attribute, target: Attribute) -> str:
    """Negative numbers wrap around, if a signed type of twice the width, or i64, holds them."""
    if target == t.i1 or t.bit_width(target) < 32:
        return _float_to_signed(x, source, target)
    x = widened(x, source)
    return _to(f"{x} < 0 || {x} < 9.2e18f ? (long)({x}) : (long)(ulong)({x})", target)


def _extend_signed(x: str, source: Attribute, target: Attribute) -> str:
    if t.is_short_integer(source):
        above = 32 - t.bit_width(source)
        return _to(f"(int){x} << {above} >> {above}", target)
    return _to(f"-(int){x}" if source == t.i1 else x, target)


def _extend_unsigned(x: str, source: Attribute, target: Attribute) -> str:
    if t.is_short_integer(source):
        return _to(f"{x} & {(1 << t.bit_width(source)) - 1}", target)
    return _to(f"({unsigned_text(source)}){x}", target)


def _truncate(x: str, _source: Attribute, target: Attribute) -> str:
    if t.is_short_integer(target):
        return _to(f"{x} & {(1 << t.bit_width(target)) - 1}", target)
    return f"({x} & 1) != 0" if target == t.i1 else _to(x, target)


def _bitcast(x: str, source: Attribute, target: Attribute) -> str:
    if type_text(source) == type_text(target):
        return x
    return _to(x, target) if t.i1 in (source, target) else f"as_{type_text(target)}({x})"


def _index_cast(x: str, _source: Attribute, target: Attribute) -> str:
    return _to(x, target)


_CASTS = {
    "arith.extf": _between_floats, "arith.truncf": _between_floats,
    "arith.sitofp": _signed_to_float, "arith.uitofp": _unsigned_to_float,
    "arith.fptosi": _float_to_signed, "arith.fptoui": _float_to_unsigned,
    "arith.extsi": _extend_signed, "arith.extui": _extend_unsigned, "arith.trunci": _truncate,
    "arith.index_cast": _index_cast, "arith.bitcast": _bitcast,
}
