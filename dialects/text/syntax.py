"""The text syntax that Strata's dialects share: operands, attribute dictionaries, results.

    %y = graph.conv %x, %w {strides = [2, 2], group = 1} : f32[1, 64, 112, 112]

In a dictionary, a list denotes size expressions, a bare word or integer a single expression,
quoted text a string, `true` or `false` a truth value, a number with a decimal point a float, and
an element type a type. All other attributes use MLIR's generic form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from io import StringIO
from typing import cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    FloatAttr,
    FusedLoc,
    IntegerAttr,
    IntegerType,
    LocationAttr,
    NameLoc,
    NoneAttr,
    StringAttr,
    UnknownLoc,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer

from dialects.strata import types as t
from dialects.strata.types import ExprAttr, LiteralAttr, SizesAttr
from dialects.symbolic.symbol import quoted
from dialects.walking import walked

_ELEMENT_WORDS = {str(e): e for e in (*t.ELEMENTS, t.index)}

LONGEST_IDENTIFIER = 80
"""The maximum length of identifiers derived from a model's names; longer ones are truncated."""


def parse_value(parser: Parser) -> SSAValue:
    """An operand that is already defined, without its type."""
    return resolve(parser, parser.parse_unresolved_operand())


def resolve(parser: Parser, operand: UnresolvedOperand) -> SSAValue:
    """The value that an operand names; a parse error where there is none yet."""
    values = parser.ssa_values.get(operand.operand_name)
    if values is None or operand.index >= len(values):
        parser.raise_error(f"%{operand.operand_name} is used before it is defined", operand.span)
    return values[operand.index]


def parse_values(parser: Parser) -> list[SSAValue]:
    """`%a, %b, ...`, possibly none."""
    values: list[SSAValue] = []
    while re.match(r"%", parser._current_token.text):  # pyright: ignore[reportPrivateUsage]
        values.append(parse_value(parser))
        if not parser.parse_optional_punctuation(","):
            break
    return values


def print_values(printer: Printer, values: Sequence[SSAValue]) -> None:
    printer.print_list(values, printer.print_ssa_value)


def strings(names: Sequence[str]) -> ArrayAttr[StringAttr]:
    """Names as an attribute."""
    return ArrayAttr([StringAttr(n) for n in names])


def parse_names(parser: Parser, keyword: str) -> ArrayAttr[StringAttr]:
    """`keyword ["a", "b"]`."""
    parser.parse_keyword(keyword)
    names = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_str_literal)
    return strings(names)


def print_names(printer: Printer, keyword: str, names: ArrayAttr[StringAttr]) -> None:
    """Print what `parse_names` parses, after a space."""
    printer.print_string(f" {keyword} [")
    printer.print_list(names.data, lambda n: printer.print_string_literal(n.data))
    printer.print_string("]")


def format_attribute(attribute: Attribute) -> str:
    """The dictionary form of one attribute."""
    match attribute:
        case SizesAttr():
            return t.format_sizes(attribute.data)
        case ExprAttr():
            text = str(attribute.data)
            return f"({text})" if text.startswith('"') else text  # not a string
        case StringAttr():
            return quoted(attribute.data)
        case FloatAttr():
            return t.format_number(attribute.value.data)
        case IntegerAttr() if attribute.type == t.i1:
            return "true" if attribute.value.data else "false"
        case LiteralAttr():
            return f"literal{t.format_literal(attribute.data)}"
        case _:
            stream = StringIO()
            Printer(stream).print_attribute(attribute)
            return stream.getvalue()


def print_attributes(printer: Printer, attributes: Mapping[str, Attribute]) -> None:
    """` {a = 1, b = [2, 3]}`, or nothing when empty."""
    if attributes:
        items = ", ".join(f"{k} = {format_attribute(v)}" for k, v in attributes.items())
        printer.print_string(f" {{{items}}}")


def parse_attributes(parser: Parser) -> dict[str, Attribute]:
    """The inverse of `print_attributes`; an empty dictionary if there is none."""
    if parser.parse_optional_punctuation("{") is None:
        return {}
    found: dict[str, Attribute] = {}
    while parser.parse_optional_punctuation("}") is None:
        name = parser.parse_identifier()
        parser.parse_punctuation("=")
        found[name] = parse_attribute(parser)
        parser.parse_optional_punctuation(",")
    return found


def parse_attribute(parser: Parser) -> Attribute:
    """One attribute in dictionary form."""
    text = parser._current_token.text  # pyright: ignore[reportPrivateUsage]
    if text == "[":
        return SizesAttr(t.parse_sizes(parser))
    if text in ("true", "false"):
        return bool_attr(parser.parse_boolean())
    if text == "literal":
        parser.parse_keyword("literal")
        return LiteralAttr(t.parse_literal(parser))
    if text in _ELEMENT_WORDS:
        return parser.parse_type()
    if text in ("nan", "inf") or re.fullmatch(r"\d+\.\d*([eE][-+]?\d+)?", text):
        return FloatAttr(float(t.parse_number(parser)), t.f64)
    if text == "-":
        return _parse_negative(parser)
    if re.match(r"[\w(]", text):
        return ExprAttr(t.parse_size(parser))
    return parser.parse_attribute()


def _parse_negative(parser: Parser) -> Attribute:
    start = parser.pos
    parser.parse_punctuation("-")
    text = parser._current_token.text  # pyright: ignore[reportPrivateUsage]
    if text == "inf" or "." in text:
        return FloatAttr(-float(t.parse_number(parser)), t.f64)
    parser._resume_from(start)  # pyright: ignore[reportPrivateUsage]
    return ExprAttr(t.parse_size(parser))


def bool_attr(value: bool) -> IntegerAttr[IntegerType]:
    return IntegerAttr(int(value), t.i1)


def attribute_of(value: object) -> Attribute:
    """The attribute of a Python value: bool, int, float, str, size, list of sizes, attribute."""
    match value:
        case Attribute():
            return value
        case bool():
            return bool_attr(value)
        case int() | t.Expr():
            return ExprAttr(t.Expr.of(value))
        case float():
            return FloatAttr(value, t.f64)
        case str():
            return StringAttr(value)
        case list() | tuple():
            return SizesAttr.of(value)  # pyright: ignore[reportUnknownArgumentType]
        case _:
            raise TypeError(f"no attribute form for {value!r}")


# ---------------------------------------------------------------------- locations and names
_NAMES = "_names"
"""Under which a list of locations keeps the names in it."""


@lru_cache(maxsize=1 << 16)
def location(*names: str) -> LocationAttr:
    """The location of what comes from these nodes of a model. Equal names give the same object."""
    if len(names) == 1:
        return NameLoc(StringAttr(names[0]), NoneAttr())
    return _fused(tuple(map(location, names))) if names else UnknownLoc()


def _fused(parts: tuple[LocationAttr, ...]) -> FusedLoc:
    """A list of locations, without xDSL's checks: a model of many layers has thousands."""
    locations, made = object.__new__(ArrayAttr), object.__new__(FusedLoc)
    vars(locations)["data"] = parts
    vars(made).update(locations=locations, metadata=NoneAttr())
    return made


def names_in(place: Attribute) -> tuple[str, ...]:
    """The model's nodes that a location names, without duplicates. A list of several is kept with
    its location, which does not change."""
    if type(place) is NameLoc:
        return (place.desc.data,)
    if type(place) is not FusedLoc:
        return ()
    kept: tuple[str, ...] | None = vars(place).get(_NAMES)
    if kept is not None:
        return kept
    names, seen, todo = dict[str, None](), set[int](), list[Attribute]([place])
    while todo:
        part = todo.pop()
        if type(part) is NameLoc:
            names[part.desc.data] = None
        elif type(part) is FusedLoc and id(part) not in seen:
            seen.add(id(part))
            known = vars(part).get(_NAMES)
            if known is None:
                todo += reversed(_parts(part))
            else:
                names.update(dict.fromkeys(known))
    vars(place)[_NAMES] = found = tuple(names)
    return found


def _parts(place: FusedLoc) -> tuple[Attribute, ...]:
    return cast("ArrayAttr[Attribute]", place.locations).data


def location_names(op: Operation) -> tuple[str, ...]:
    """The model's nodes for which an op stands: several for what was fused, folded or merged."""
    return names_in(op.location)


def location_name(op: Operation) -> str:
    """The first of the model's nodes that an op comes from, or an empty string."""
    return next(iter(names_in(op.location)), "")


def merged(place: LocationAttr, other: LocationAttr) -> LocationAttr:
    """The location of what stands for the nodes of both."""
    if place is other or isinstance(other, UnknownLoc):
        return place
    if isinstance(place, UnknownLoc):
        return other
    if _is_long(place) or _is_long(other):  # a list of all names would be made for each merge
        return _fused((place, other))
    names = names_in(place)
    both = tuple(dict.fromkeys((*names, *names_in(other))))
    return place if len(both) == len(names) else location(*both)


LISTED = 8
"""Up to so many names, a location is a list of them; beyond, it refers to what it was made of."""


def _is_long(place: LocationAttr) -> bool:
    if type(place) is not FusedLoc:
        return False
    parts = _parts(place)
    return len(parts) > LISTED or any(type(part) is FusedLoc for part in parts)


def merge_locations(op: Operation, sources: Iterable[Operation]) -> None:
    """Let `op` also stand for the nodes of other operations."""
    for source in sources:
        op.location = merged(op.location, source.location)


def set_location(op: Operation, source: Operation) -> None:
    """Give `op`, and the ops in its regions, the location of `source` unless they have one."""
    for inner in walked(op) if op.regions else (op,):
        if type(inner.location) is UnknownLoc:
            inner.location = source.location


def distinct_identifiers(names: Iterable[str]) -> list[str]:
    """A distinct identifier for each name."""
    found: dict[str, None] = {}
    for name in names:
        clean, count = identifier(name), 2
        distinct = clean
        while distinct in found:
            distinct, count = f"{clean}_{count}", count + 1
        found[distinct] = None
    return list(found)


def identifier(name: str) -> str:
    """A readable identifier for an SSA value or a function: ASCII letters, digits and `_`.

    It only serves readers of the text: different names may give the same identifier.
    """
    clean = re.sub(r"\W+", "_", name[:LONGEST_IDENTIFIER], flags=re.ASCII).strip("_") or "v"
    return f"v{clean}" if clean[0].isdigit() else clean


def of_one_node(a: Operation, b: Operation) -> bool:
    """Whether both come from the same node; operations without a node have none in common."""
    return a.location == b.location and location_name(a) != ""
