"""Types and attributes in StableHLO's text.

    tensor<2x?xf32>      [1, 2]      array<i64: 1, 2>      dense<[1.0, 2.0]> : tensor<2xf32>
    #stablehlo.gather<offset_dims = [1], ...>              {name = value, ...}

Attributes of other kinds (maps, locations, types, what other dialects print) are skipped up to the
bracket or comma that ends them: their value is their text.

Source: the StableHLO specification (openxla/stablehlo, docs/spec.md) and MLIR's language reference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from xdsl.dialects.builtin import ComplexType

from compiler.frontend.stablehlo.literals import array_of
from compiler.frontend.stablehlo.tokens import Token, Tokens
from dialects.strata import types as t
from dialects.strata.types import TensorType
from dialects.symbolic.expr import Expr

_TENSOR = re.compile(r"((?:[^<>]|<[^<>]*>)*)>")
"""What a tensor type holds, up to the bracket that closes it."""
_SIZES = re.compile(r"(?:(?:\d+|\?)x)*")
ELEMENTS: Mapping[str, Any] = {
    "f16": t.f16, "bf16": t.bf16, "f32": t.f32, "f64": t.f64, "i1": t.i1, "i8": t.i8,
    "i16": t.i16, "i32": t.i32, "i64": t.i64, "ui8": t.ui8, "ui16": t.ui16, "ui32": t.ui32,
    "ui64": t.ui64, "i2": t.i2, "ui2": t.ui2, "i4": t.i4, "ui4": t.ui4,
    "f8E4M3FN": t.f8E4M3FN, "f8E5M2": t.f8E5M2, "f8E4M3FNUZ": t.f8E4M3FNUZ,
    "f8E5M2FNUZ": t.f8E5M2FNUZ, "f8E8M0FNU": t.f8E8M0FNU, "f8E3M4": t.f8E3M4, "f8E4M3": t.f8E4M3,
    "f8E4M3B11FNUZ": t.f8E4M3B11FNUZ, "f6E2M3FN": t.f6E2M3FN, "f6E3M2FN": t.f6E3M2FN,
    "f4E2M1FN": t.f4E2M1FN,
    "complex<f32>": ComplexType(t.f32), "complex<f64>": ComplexType(t.f64)}
_OF_ATTRIBUTES = {**ELEMENTS, "index": t.i64}
"""Those of constants, of which some are attributes, such as the order of dims in memory."""


class Attributes(Tokens):
    """A recursive descent over the tokens of types and attributes."""

    # ------------------------------------------------------------------ types
    def type_(self, owner: str = "", elements: Mapping[str, Any] = ELEMENTS) -> TensorType:
        """`tensor<2x?xf32>`. Open sizes of an argument get names from it."""
        if not self.accept("tensor"):
            raise self.error(f"{self.next.text!r} is no tensor type")
        if not str(self.next.text).startswith("<"):
            raise self.error("a tensor type has sizes and elements in < >")
        start = self.next.at + 1
        found = _TENSOR.match(self.text, start)
        if found is None:
            raise self.error("a tensor type has no end")
        while self.tokens[self.place].at < found.end():
            self.place += 1
        inner = found[1].split(",")[0].strip()
        element = _SIZES.sub("", inner, count=1)
        sizes = inner.removesuffix(element).split("x")[:-1]
        if element not in elements:
            raise self.error(f"elements of {element.split('<')[0]} are not supported", start)
        shape = [Expr.size(f"{owner.lstrip('%')}_{k}") if s == "?" else int(s)
                 for k, s in enumerate(sizes)]
        return t.tensor(elements[element], shape)

    def _skipped(self, first: str, last: str) -> str:
        """Brackets, and what is between them."""
        self.expect(first)
        found = self.balanced()
        self.expect(last)
        return found

    # ------------------------------------------------------------------ attributes
    def dim_numbers(self, end: str = "") -> tuple[Any, Any, Any]:
        """`[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]`"""
        first = self.attribute()
        self.expect("x")
        second = self.attribute()
        self.expect("->")
        found = first, second, self.attribute()
        self.accept(end)
        return found

    def pair(self) -> Any:
        """An attribute, or two of them: `[0] x [1]`."""
        first = self.attribute()
        if self.next.text == "x":
            self.take()
            return first, self.attribute()
        return first

    def entries(self, end: str) -> dict[str, Any]:
        def entry() -> tuple[str, Any]:
            if self.next.kind not in ("word", "string"):
                return self.balanced(","), True
            name = self.take().text.strip('"')
            found = self.pair() if self.accept("=") else True
            self.balanced(",")  # its type, or what this reader does not know
            return name, found
        return dict(self.listed(entry, end))

    def _item(self) -> Any:
        found = self.attribute()
        self.balanced(",")
        return found

    def attribute(self) -> Any:
        token = self.take()
        if token.text == "[":
            return self.listed(self._item, "]")
        if token.text == "{":
            return self.entries("}")
        if token.kind == "number":
            self._typed()
            return float(token.text) if re.search(r"[.eE]", token.text) and (
                "0x" not in token.text) else int(token.text, 0)
        if token.kind == "string":
            return token.text[1:-1]
        if token.text in ("true", "false"):
            return token.text == "true"
        if token.text == "array":
            return self._array()
        if token.text == "dense":
            return self._dense()
        if token.kind == "word":
            return self._named(token)
        if token.kind == "symbol":
            return token.text[1:]
        self.place -= 1
        found = self.balanced(",")
        if not found:
            raise self.error(f"cannot read the attribute {token.text!r}", token.at)
        return found

    def _typed(self) -> None:
        """Skip the type of a number, if it has one: `1 : i64`."""
        if self.next.text == ":" and self.tokens[self.place + 1].text in (*ELEMENTS, "index"):
            self.place += 2

    def _array(self) -> list[Any]:
        self.expect("<")
        self.take()
        self.accept(":")
        return self.listed(self._item, ">")

    def _named(self, token: Token) -> Any:
        """`#stablehlo.gather<offset_dims = [1], ...>`, `#stablehlo<comparison_direction LT>`, or a
        word."""
        if token.text.startswith("#sdy."):  # how devices share values
            self._skipped("<", ">")
            return token.text
        if not self.accept("<"):
            return token.text
        if token.text.endswith(".conv") and self.next.text == "[":
            return self.dim_numbers(">")
        if self.tokens[self.place + 1].text == "=":
            return self.entries(">")
        start = self.place
        found = self.balanced()
        words = self.tokens[start:self.place]
        self.expect(">")
        if all(word.kind == "word" for word in words):
            return words[-1].text if words else token.text
        return found

    def _dense(self) -> Any:
        """An array of a constant: one number, nested lists, or bytes in hexadecimal."""
        self.expect("<")
        contents = None if self.next.text == ">" else self._numbers()
        self.expect(">")
        self.expect(":")
        type_ = self.type_(elements=_OF_ATTRIBUTES)
        try:
            return array_of(contents, type_)
        except (ValueError, OverflowError) as error:
            raise self.error(f"a constant is no {type_.short}: {error}") from None

    def _numbers(self) -> Any:
        if self.next.text == "[":
            self.take()
            return self.listed(self._numbers, "]")
        token = self.take()
        if token.text == "(":  # a complex number
            return tuple(self.listed(self._numbers, ")"))
        if token.kind == "string":
            return bytes.fromhex(token.text.strip('"').removeprefix("0x"))
        if token.text in ("true", "false"):
            return token.text == "true"
        return token.text
