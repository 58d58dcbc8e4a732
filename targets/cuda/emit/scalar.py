"""Scalar operations: one table row per `arith` or `math` operation.

A row is a template over its operands `{0}`, `{1}` ..., which are put in parentheses next to an
operator. `narrow` says how f16 is computed: "keep" computes in f16, and "widen" in f32 followed by
a rounding, which is exact for single operations. bf16 always widens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.dialects.arith import (
    CMPF_COMPARISON_OPERATIONS,
    CMPI_COMPARISON_OPERATIONS,
    CmpfOp,
    CmpiOp,
)
from xdsl.ir import Attribute, Operation

from dialects.strata import types as t
from targets.cuda.emit.values import dtype_text, in_parentheses
from targets.cuda.errors import EmitError


@dataclass(frozen=True)
class Row:
    """How one operation is printed.

    `f64`: a different template for f64. `helper`: the function that the template calls. `unsigned`:
    operands are treated as unsigned. `literals`: next to which operands a bare literal is allowed:
    those of "any" type, those of the "plain" types that Python numbers convert to, or "none".
    """

    text: str
    f64: str | None = None
    helper: str | None = None
    narrow: str = "keep"
    unsigned: bool = False
    literals: str = "none"

    @property
    def is_select(self) -> bool:
        return self is ROWS["arith.select"]

    def takes_literals(self, element: Attribute) -> bool:
        """Whether a bare literal next to an operand of this type keeps that type."""
        plain = self.widens(element) or element in (t.f32, t.i32, t.i64)
        return self.literals == "any" or (self.literals == "plain" and plain)

    def widens(self, element: Attribute) -> bool:
        """Whether the operation on operands of this narrow type computes in f32."""
        narrow = element == t.bf16 or (element == t.f16 and self.narrow == "widen")
        return narrow and not self.is_select


def _infix(operator: str, unsigned: bool = False) -> Row:
    return Row(f"{{0}} {operator} {{1}}", unsigned=unsigned, literals="none" if unsigned else "any")


def _function(name: str) -> Row:
    return Row(f"tl.{name}({{0}})", narrow="widen")


def _helper(name: str, operands: int = 1) -> Row:
    arguments = ", ".join(f"{{{k}}}" for k in range(operands))
    return Row(f"{name}_f32({arguments})", f64=f"{name}_f64({arguments})", helper=name,
               narrow="widen")


def _extremum(name: str, propagate: str) -> Row:
    nan = f"propagate_nan=tl.PropagateNan.{propagate}"
    return Row(f"tl.{name}({{0}}, {{1}}, {nan})", narrow="widen", literals="plain")


ROWS: dict[str, Row] = {
    # floats
    "arith.addf": _infix("+"),
    "arith.subf": _infix("-"),
    "arith.mulf": _infix("*"),
    "arith.divf": Row("tl.div_rn({0}, {1})", f64="{0} / {1}", narrow="widen", literals="plain"),
    "arith.remf": _helper("fmod", 2),
    "arith.negf": Row("-{0}"),
    "arith.maximumf": _extremum("maximum", "ALL"),
    "arith.minimumf": _extremum("minimum", "ALL"),
    "arith.maxnumf": _extremum("maximum", "NONE"),
    "arith.minnumf": _extremum("minimum", "NONE"),
    "math.absf": Row("tl.abs({0})"),
    "math.exp": Row("exp_f32({0})", f64="tl.exp({0})", helper="exp_f32", narrow="widen"),
    "math.exp2": _function("exp2"),
    "math.expm1": _helper("expm1"),
    "math.log": _function("log"),
    "math.log2": _function("log2"),
    "math.log1p": _helper("log1p"),
    "math.log10": _helper("log10"),
    "math.cbrt": _helper("cbrt"),
    "math.sqrt": Row("tl.sqrt_rn({0})", f64="tl.sqrt({0})", narrow="widen"),
    "math.rsqrt": _function("rsqrt"),
    "math.tanh": _helper("tanh"),
    "math.erf": _function("erf"),
    "math.sin": _function("sin"),
    "math.cos": _function("cos"),
    "math.tan": Row("tl.div_rn(tl.sin({0}), tl.cos({0}))", f64="tl.sin({0}) / tl.cos({0})",
                    narrow="widen"),
    "math.asin": _helper("asin"),
    "math.acos": _helper("acos"),
    "math.atan": _helper("atan"),
    "math.atan2": _helper("atan2", 2),
    "math.sinh": _helper("sinh"),
    "math.cosh": _helper("cosh"),
    "math.asinh": _helper("asinh"),
    "math.acosh": _helper("acosh"),
    "math.atanh": _helper("atanh"),
    "math.floor": _function("floor"),
    "math.ceil": _function("ceil"),
    "math.roundeven": _helper("roundeven"),
    "math.round": _helper("round"),
    "math.trunc": _helper("trunc"),
    "math.powf": _helper("pow", 2),
    "math.copysign": _helper("copysign", 2),
    "math.fma": Row("tl.fma({0}, {1}, {2})", narrow="widen"),
    # integers
    "arith.addi": _infix("+"),
    "arith.subi": _infix("-"),
    "arith.muli": _infix("*"),
    "arith.divsi": _infix("//"),  # Triton's integer division truncates, as divsi does
    "arith.divui": _infix("//", unsigned=True),
    "arith.remsi": _infix("%"),
    "arith.remui": _infix("%", unsigned=True),
    "arith.floordivsi": Row("floordiv({0}, {1})", helper="floordiv"),
    "arith.ceildivsi": Row("ceildiv({0}, {1})", helper="ceildiv"),
    "arith.maxsi": Row("tl.maximum({0}, {1})", literals="plain"),
    "arith.maxui": Row("tl.maximum({0}, {1})", unsigned=True),
    "arith.minsi": Row("tl.minimum({0}, {1})", literals="plain"),
    "arith.minui": Row("tl.minimum({0}, {1})", unsigned=True),
    "arith.andi": _infix("&"),
    "arith.ori": _infix("|"),
    "arith.xori": _infix("^"),
    "arith.shli": _infix("<<"),
    "arith.shrsi": _infix(">>"),
    "arith.shrui": _infix(">>", unsigned=True),
    "math.absi": Row("tl.abs({0})"),
    # both
    "arith.select": Row("tl.where({0}, {1}, {2})", literals="any"),
}

_ORDERED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_OPPOSITE = {"eq": "ne", "lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}


def row_of(op: Operation) -> Row:
    """The row of an operation. Raises EmitError if there is none."""
    match op:
        case CmpfOp():
            name = CMPF_COMPARISON_OPERATIONS[op.predicate.value.data]
            return Row(_float_comparison(name), narrow="widen", literals="any")
        case CmpiOp():
            return _integer_comparison(CMPI_COMPARISON_OPERATIONS[op.predicate.value.data])
        case _:
            if op.name not in ROWS:
                raise EmitError(f"{op.name} has no form in Triton: targets/cuda/emit/scalar.py "
                                "has a table with a row per operation")
            return ROWS[op.name]


def _integer_comparison(name: str) -> Row:
    unsigned = name[0] == "u"
    operator = _ORDERED[name if name in ("eq", "ne") else name[1:]]
    return Row(f"{{0}} {operator} {{1}}", unsigned=unsigned, literals="none" if unsigned else "any")


def _float_comparison(name: str) -> str:
    """Ordered comparisons are false on NaN, unordered ones (`u..`) true."""
    ordered = "(({0} == {0}) & ({1} == {1}))"
    match name:
        case "true" | "false":
            return "{0} == {0}" if name == "true" else "({0} == {0}) & ({0} != {0})"
        case "ord":
            return ordered
        case "uno":
            return "({0} != {0}) | ({1} != {1})"
        case "one":
            return "({0} < {1}) | ({0} > {1})"
        case "ueq":
            return "~(({0} < {1}) | ({0} > {1}))"
        case "une":
            return "{0} != {1}"
        case _ if name[0] == "o":
            return f"{{0}} {_ORDERED[name[1:]]} {{1}}"
        case _:
            return f"~({{0}} {_ORDERED[_OPPOSITE[name[1:]]]} {{1}})"


# ---------------------------------------------------------------------- conversions
Cast = Callable[[str, Attribute, Attribute], str]


def _to(text: str, element: Attribute) -> str:
    return f"{text}.to({dtype_text(element)})"


def unsigned_text(element: Attribute) -> str:
    """`tl.uint32` for i32; booleans count as bytes."""
    return f"tl.uint{32 if element == t.index else 8 * t.byte_width(element)}"


def _is_narrow(element: Attribute) -> bool:
    return element in (t.f16, t.bf16)


NATIVE_FLOATS: dict[Attribute, str] = {t.f8E4M3FN: "tl.float8e4nv", t.f8E5M2: "tl.float8e5"}
"""Narrow floats that Triton converts to f32 on machines with instructions for it."""
BEYOND = 464.0
"""The largest number that rounds to an f8E4M3FN: halfway from 448 to the next step."""


def _between_floats(x: str, source: Attribute, target: Attribute) -> str:
    if source in NATIVE_FLOATS:
        return _to(f"{x}.to({NATIVE_FLOATS[source]}, bitcast=True)", target)
    if target == t.f8E4M3FN and source == t.f32:
        fits = f'tl.where(tl.abs({x}) <= {BEYOND}, {x}, float("nan"))'
        return f"{fits}.to({NATIVE_FLOATS[target]}).to(tl.int8, bitcast=True)"
    if t.is_narrow_float(source) or t.is_narrow_float(target):
        raise EmitError(f"Triton does not convert {source} to {target}: run the pass "
                        "block-expand-floats")
    through = (_is_narrow(source) and target != t.f32) or (_is_narrow(target) and source != t.f32)
    return _to(_to(x, t.f32) if through else x, target)


def _signed_to_float(x: str, source: Attribute, target: Attribute) -> str:
    x = _to(x, t.f32 if _is_narrow(target) else target)
    x = _to(x, target) if _is_narrow(target) else x
    return f"-{x}" if source == t.i1 else x


def _unsigned_to_float(x: str, source: Attribute, target: Attribute) -> str:
    x = x if source == t.i1 else f"{x}.to({unsigned_text(source)})"
    x = _to(x, t.f32 if _is_narrow(target) else target)
    return _to(x, target) if _is_narrow(target) else x


def _float_to_signed(x: str, source: Attribute, target: Attribute) -> str:
    """Converts to narrower types through i32, and keeps its low bits."""
    x = _to(x, t.f32) if _is_narrow(source) else x
    if target == t.i1:
        return f"{x} != 0"
    return _to(x if t.bit_width(target) >= 32 else _to(x, t.i32), target)


def _float_to_unsigned(x: str, source: Attribute, target: Attribute) -> str:
    """Negative numbers wrap around, if a signed type of twice the width, or i64, holds them."""
    if target == t.i1 or t.bit_width(target) < 32:
        return _float_to_signed(x, source, target)
    x = _to(x, t.f32) if _is_narrow(source) else x
    if target != t.i64:
        return _to(_to(x, t.i64), target)
    return f"tl.where({x} < 0, {_to(x, t.i64)}, {_to(f'{x}.to(tl.uint64)', t.i64)})"


def _extend_signed(x: str, source: Attribute, target: Attribute) -> str:
    if t.is_short_integer(source):
        above = 32 - t.bit_width(source)
        return _to(f"({_to(x, t.i32)} << {above} >> {above})", target)
    return f"-{_to(x, target)}" if source == t.i1 else _to(x, target)


def _extend_unsigned(x: str, source: Attribute, target: Attribute) -> str:
    if t.is_short_integer(source):
        return _to(_low_bits(x, source), target)
    return _to(x if source == t.i1 else f"{x}.to({unsigned_text(source)})", target)


def _low_bits(x: str, element: Attribute) -> str:
    return f"({x} & {(1 << t.bit_width(element)) - 1})"


def _truncate(x: str, _source: Attribute, target: Attribute) -> str:
    if t.is_short_integer(target):
        return _to(_low_bits(x, target), target)
    return f"({x} & 1) != 0" if target == t.i1 else _to(x, target)


def _bitcast(x: str, source: Attribute, target: Attribute) -> str:
    same = dtype_text(source) == dtype_text(target)
    return x if same else f"{x}.to({dtype_text(target)}, bitcast=True)"


CASTS: dict[str, Cast] = {
    "arith.extf": _between_floats,
    "arith.truncf": _between_floats,
    "arith.sitofp": _signed_to_float,
    "arith.uitofp": _unsigned_to_float,
    "arith.fptosi": _float_to_signed,
    "arith.fptoui": _float_to_unsigned,
    "arith.extsi": _extend_signed,
    "arith.extui": _extend_unsigned,
    "arith.trunci": _truncate,
    "arith.index_cast": lambda x, _source, target: f"tl.cast({x}, {dtype_text(target)})",
    "arith.bitcast": _bitcast,
}


def render(row: Row, texts: Sequence[str], operand: Attribute, result: Attribute) -> str:
    """The filled template of a row; `operand` is the type in which the operation computes."""
    template = row.f64 if row.f64 is not None and operand == t.f64 else row.text
    if row.unsigned:
        text = _fill(template, [f"{in_parentheses(x)}.to({unsigned_text(operand)})" for x in texts])
        return text if result == t.i1 != operand else f"({text}).to({dtype_text(result)})"
    text = _fill(template, texts)
    if not row.widens(operand) or result == t.i1:
        return text
    return f"{in_parentheses(text)}.to({dtype_text(result)})"


_PLACE = re.compile(r"(?<=\(|,)( ?)\{(\d)\}(?=[,)])|\{(\d)\}")


def _fill(template: str, texts: Sequence[str]) -> str:
    """Put operands into a template, in parentheses unless they are whole arguments of a call."""
    def operand(match: re.Match[str]) -> str:
        if match[2]:
            return match[1] + texts[int(match[2])]
        return in_parentheses(texts[int(match[3])])

    return _PLACE.sub(operand, template)
