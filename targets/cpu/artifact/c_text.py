"""Pieces of C: identifiers, texts, types, and expressions over sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dialects.symbolic.expr import Atom, Call, Expr
from dialects.symbolic.symbol import Symbol
from targets.expressions import Expressions
from targets.naming import Names, one_line

_RESERVED = frozenset((
    "sum", "alignas", "alignof", "auto", "bool", "break", "case", "char", "const", "constexpr",
    "continue", "default", "do", "double", "else", "enum", "extern", "false", "float", "for",
    "goto", "if", "inline", "int", "long", "nullptr", "register", "restrict", "return", "short",
    "signed", "sizeof", "static", "static_assert", "struct", "switch", "thread_local", "true",
    "typedef", "typeof", "union", "unsigned", "void", "volatile", "while", "class", "delete",
    "explicit", "export", "friend", "mutable", "namespace", "new", "operator", "private",
    "protected", "public", "template", "this", "throw", "try", "typename", "using", "virtual",
    "wchar_t", "and", "or", "not", "xor", "main", "state", "status", "in", "out", "asm", "near",
    "far", "linux", "unix", "NULL", "EOF", "errno", "stdin", "stdout", "stderr", "refuse",
    "memcpy", "argc", "argv", "options", "k", "d", "printf", "fprintf", "calloc", "free",
    "atoll", "STATE", "MODEL", "INPUTS", "OUTPUTS", "GIVEN_OUTPUTS", "CONSTANTS", "SIZES",
    "ENTRY_SIZES", "STEPS", "POISONS", "ASSUMPTIONS", "MOST_SYMBOLS", "MOST_SIZE", "MOST_BYTES",
    "FIRST_ARGUMENT", "LINE", "LOOKS",
))
"""Words of C and C++ that no parameter may be, and names that generated functions use."""
_PLAIN = re.compile(r"[ !#-\[\]-~]")
_CALLS = {"floordiv": "quotient_of", "mod": "rest_of", "max": "larger_of", "min": "smaller_of"}

DTYPES: Mapping[str, tuple[int, str, int]] = {
    "f32": (1, "float", 4), "f64": (2, "double", 8), "f16": (3, "uint16_t", 2),
    "bf16": (4, "uint16_t", 2), "i1": (5, "uint8_t", 1), "i8": (6, "int8_t", 1),
    "i16": (7, "int16_t", 2), "i32": (8, "int32_t", 4), "i64": (9, "int64_t", 8),
    "ui8": (10, "uint8_t", 1), "ui16": (11, "uint16_t", 2), "ui32": (12, "uint32_t", 4),
    "ui64": (13, "uint64_t", 8), "i2": (14, "int8_t", 1), "i4": (15, "int8_t", 1),
    "ui2": (16, "uint8_t", 1), "ui4": (17, "uint8_t", 1), "f8E4M3FN": (18, "uint8_t", 1),
    "f8E4M3FNUZ": (19, "uint8_t", 1), "f8E5M2": (20, "uint8_t", 1),
    "f8E5M2FNUZ": (21, "uint8_t", 1), "f8E8M0FNU": (22, "uint8_t", 1),
    "f4E2M1FN": (23, "uint8_t", 1), "f8E3M4": (24, "uint8_t", 1), "f8E4M3": (25, "uint8_t", 1),
    "f8E4M3B11FNUZ": (26, "uint8_t", 1), "f6E2M3FN": (27, "uint8_t", 1),
    "f6E3M2FN": (28, "uint8_t", 1), "index": (9, "int64_t", 8)}
"""For each element type its number in the interface, the C type that holds it, and its bytes."""


def identifier(text: str) -> str:
    """A text as a C identifier."""
    name = re.sub(r"[^0-9A-Za-z_]", "_", text) or "_"
    return f"n{name}" if name[0].isdigit() or name[0] == "_" else name


def parameter_names() -> Names:
    """The names of a function's parameters."""
    return Names(identifier, _RESERVED)


def quoted(text: str) -> str:
    """A C string literal of a text, in UTF-8. Octal escapes end by themselves."""
    return '"' + "".join(
        chr(b) if _PLAIN.fullmatch(chr(b)) and chr(b) != "?" else f"\\{b:03o}"
        for b in text.encode("utf-8", "surrogateescape")) + '"'


def number(value: int) -> str:
    """A C literal of a 64-bit number; numbers beyond that saturate."""
    if value <= -2**63:
        return "INT64_MIN"
    return f"INT64_C({min(value, 2**63 - 1)})" if abs(value) >= 2**31 else str(value)


def comment(text: str) -> str:
    """A text inside a comment, on one line."""
    return one_line([" ".join(text.replace("*/", "* /").replace("/*", "/ *").split())])


class CExpressions(Expressions[str]):
    """Size expressions as C, in arithmetic that saturates (`checks.c`)."""

    def __init__(self, symbols: Mapping[Symbol, str]):
        self.symbols = symbols

    def value(self, expr: Expr) -> str:
        total = ""
        for monomial, factor in expr.terms:
            term = number(factor) if factor != 1 or not monomial else ""
            for atom in monomial:
                part = self.atom(atom)
                term = f"product_of({term}, {part})" if term else part
            total = f"sum_of({total}, {term})" if total else term
        return total or "0"

    def symbol(self, symbol: Symbol) -> str:
        return self.symbols[symbol]

    def division(self, call: Call, left: str, right: str) -> str:
        return f"{_CALLS[call.op]}({left}, {right})"

    def extremum(self, call: Call, left: str, right: str) -> str:
        return f"{_CALLS[call.op]}({left}, {right})"


class SharedExpressions(CExpressions):
    """The same in one function, where equal calls are computed once. Expressions of sizes that a
    model computes may hold a call thousands of times."""

    def __init__(self, symbols: Mapping[Symbol, str], indent: str = "    "):
        super().__init__(symbols)
        self._indent = indent
        self._known: dict[Atom, str] = {}
        self.lines: list[str] = []
        """The variables, which come before the code that uses the values."""

    def atom(self, atom: Atom) -> str:
        if isinstance(atom, Symbol):
            return self.symbol(atom)
        if atom not in self._known:
            text = super().atom(atom)
            name = f"t{len(self._known)}"
            self.lines.append(f"{self._indent}const int64_t {name} = {text};")
            self._known[atom] = name
        return self._known[atom]
