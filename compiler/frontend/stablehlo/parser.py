"""StableHLO's text as functions, operations and attributes.

    %2 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0] : (tensor<2x3xf32>, ...) -> ...
    %2 = "stablehlo.dot_general"(%0, %1) <{...}> : (...) -> ...

Both forms become the same: a name, operands, attributes by name, regions and result types. Words
of the pretty form that have no name are in `words`. Locations and unknown attributes are skipped.
Source: the StableHLO specification (openxla/stablehlo, docs/spec.md) and MLIR's language reference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from xdsl.dialects.builtin import ComplexType

from compiler.frontend.stablehlo.literals import array_of
from compiler.frontend.stablehlo.operations import Function, Op, Region
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
    "ui64": t.ui64, "i4": t.i4, "ui4": t.ui4, "f8E4M3FN": t.f8E4M3FN, "f8E5M2": t.f8E5M2,
    "f8E4M3FNUZ": t.f8E4M3FNUZ, "f8E5M2FNUZ": t.f8E5M2FNUZ, "f8E8M0FNU": t.f8E8M0FNU,
    "complex<f32>": ComplexType(t.f32), "complex<f64>": ComplexType(t.f64)}
_OF_ATTRIBUTES = {**ELEMENTS, "index": t.i64}
"""Those of constants, of which some are attributes, such as the order of dims in memory."""
Form: TypeAlias = "Callable[[Parser, Op], None]"


class Parser(Tokens):
    """A recursive descent over the tokens of a module. `forms`: what reads operations whose pretty
    form is their own, after their name."""

    def __init__(self, text: str, name: str, forms: Mapping[str, Form]):
        super().__init__(text, name)
        self.forms = forms

    # ------------------------------------------------------------------ modules and functions
    def module(self) -> dict[str, Function]:
        while self.next.text != "module" and self.next.text != "func.func":
            if self.next.kind == "end":
                raise self.error("there is no module")
            self.take()
        wrapped = self.accept("module")
        if wrapped:
            if self.next.kind == "symbol":
                self.take()
            if self.accept("attributes"):
                self.attribute()
            self.expect("{")
        found: dict[str, Function] = {}
        while self.next.text in ("func.func", "sdy.mesh"):
            if self.accept("sdy.mesh"):  # devices; the program is that of one
                self._mesh()
                continue
            function = self.function()
            found[function.name] = function
        if wrapped:
            self.expect("}")
        if not found:
            raise self.error("the module has no function")
        return found

    def _mesh(self) -> None:
        """`@mesh = <["x"=2]> {stablehlo.mesh = {axes = []}}`"""
        self.take()
        self.expect("=")
        self._skipped("<", ">")
        if self.next.text == "{":
            self.attribute()
        self._location()

    def function(self) -> Function:
        self.expect("func.func")
        if self.next.text in ("public", "private", "nested"):
            self.take()
        name = self.take().text[1:].strip('"')
        self.expect("(")
        arguments = self.listed(self.argument, ")")
        types: list[TensorType] = []
        if self.accept("->"):
            types = self._result_types()
        if self.accept("attributes"):
            self.attribute()
        self.expect("{")
        return Function(name, Region(arguments, self.operations()), types)

    def argument(self) -> tuple[str, TensorType]:
        name = self.take().text
        self.expect(":")
        type_ = self.type_(name)
        if self.next.text == "{":
            self.attribute()
        self._location()
        return name, type_

    def _result_types(self) -> list[TensorType]:
        if not self.accept("("):
            return [self.type_()]

        def one() -> TensorType:
            found = self.type_()
            if self.next.text == "{":
                self.attribute()
            return found

        return self.listed(one, ")")

    def _location(self) -> None:
        if self.accept("loc"):
            self._skipped("(", ")")

    def _skipped(self, first: str, last: str) -> None:
        """Brackets, and what is between them."""
        self.expect(first)
        depth = 1
        while depth:
            token = self.take()
            if token.kind == "mark" and token.text != "->":
                depth += token.text.count(first) - token.text.count(last)

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

    # ------------------------------------------------------------------ operations
    def operations(self) -> list[Op]:
        """The operations of a block, whose closing brace is consumed."""
        found: list[Op] = []
        while not self.accept("}"):
            found.append(self.operation())
        return found

    def operation(self) -> Op:
        line, results = self.line(self.next.at), list[str]()
        while self.next.kind == "value":
            name = self.take().text
            if self.accept(":"):
                results += [f"{name}#{k}" for k in range(int(self.take().text))]
            else:
                results.append(name)
            if not self.accept(","):
                self.expect("=")
        token = self.take()
        if token.kind == "string":
            op = self._generic(token.text.strip('"'), line)
        else:
            op = self._pretty(token.text, line)
        op.results = results
        self._location()
        return op

    def _generic(self, name: str, line: int) -> Op:
        op = Op(name, [], {}, [], [], [], line)
        self.expect("(")
        op.operands = self.listed(lambda: self.take().text, ")")
        if self.accept("<{"):
            op.attributes = self._entries("}>")
        if self.accept("("):
            op.regions = self.listed(self._region, ")")
        if self.next.text == "{":
            op.attributes |= self.attribute()
        self.signature(op)
        return op

    def _region(self) -> Region:
        self.expect("{")
        arguments: list[tuple[str, TensorType]] = []
        if self.next.kind == "block":
            self.take()
            if self.accept("("):
                arguments = self.listed(self.argument, ")")
            self.expect(":")
        return Region(arguments, self.operations())

    def signature(self, op: Op) -> None:
        """The types after an operation: of its results, or of everything."""
        if not self.accept(":"):
            return
        if self.next.text == "(":
            self.take()
            self.listed(self.type_, ")")
            self.expect("->")
            op.types = self._result_types()
            return
        op.types = [self.type_()]
        while self.accept(","):
            op.types.append(self.type_())
        if self.accept("->"):
            op.types = self._result_types()

    def _pretty(self, name: str, line: int) -> Op:
        op = Op(name, [], {}, [], [], [], line)
        form = self.forms.get(name)
        if form is not None:
            form(self, op)
            return op
        self.items(op)
        self.signature(op)
        return op

    def items(self, op: Op) -> None:
        """Operands, words and named attributes, separated by commas or nothing."""
        while True:
            token = self.next
            if token.kind == "value":
                op.operands.append(self.take().text)
            elif token.kind == "string":
                op.attributes["name"] = self.take().text[1:-1]
            elif token.kind == "symbol":
                op.attributes["callee"] = self.take().text[1:].strip('"')
            elif token.kind == "word" and self.tokens[self.place + 1].text == "=":
                self.take()
                self.expect("=")
                op.attributes[token.text] = self.pair()
            elif token.kind == "word" and token.text not in ("loc",) and (
                    "." not in token.text and op.name != "return"):
                op.words.append(self.take().text)
            elif token.text == "(":
                self.take()
                self.items(op)  # operands, and attributes: (%x, k = 5)
                self.expect(")")
            elif token.text == "{":
                op.attributes |= self.attribute()
            elif token.text != ",":
                return
            self.accept(",")

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

    def _entries(self, end: str) -> dict[str, Any]:
        def entry() -> tuple[str, Any]:
            name = self.take().text.strip('"')
            return name, self.pair() if self.accept("=") else True
        return dict(self.listed(entry, end))

    def attribute(self) -> Any:
        token = self.take()
        if token.text == "[":
            return self.listed(self.attribute, "]")
        if token.text == "{":
            return self._entries("}")
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
        raise self.error(f"cannot read the attribute {token.text!r}", token.at)

    def _typed(self) -> None:
        """Skip the type of a number, if it has one: `1 : i64`."""
        if self.next.text == ":" and self.tokens[self.place + 1].text in (*ELEMENTS, "index"):
            self.place += 2

    def _array(self) -> list[Any]:
        self.expect("<")
        self.take()
        self.accept(":")
        return self.listed(self.attribute, ">")

    def _named(self, token: Token) -> Any:
        """`#stablehlo.gather<offset_dims = [1], ...>`, `#stablehlo<comparison_direction LT>`, or a
        word."""
        if token.text.startswith("#sdy."):  # how devices share values
            self._skipped("<", ">")
            return token.text
        if not self.accept("<"):
            return token.text
        if token.text.endswith(".conv"):
            return self.dim_numbers(">")
        if self.tokens[self.place + 1].text == "=":
            return self._entries(">")
        words: list[str] = []
        while not self.accept(">"):
            words.append(self.take().text)
        return words[-1] if words else token.text

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
