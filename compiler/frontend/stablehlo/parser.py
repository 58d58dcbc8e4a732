"""StableHLO's text as functions, operations and attributes.

    %2 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0] : (tensor<2x3xf32>, ...) -> ...
    %2 = "stablehlo.dot_general"(%0, %1) <{...}> : (...) -> ...

Both forms become the same: a name, operands, attributes by name, regions and result types. Words
of the pretty form that have no name are in `words`. Locations and unknown attributes are skipped.
Modules and functions have a generic form, too: "builtin.module"() ({ "func.func"() ... }).
Source: the StableHLO specification (openxla/stablehlo, docs/spec.md) and MLIR's language reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from compiler.frontend.stablehlo.attributes import Attributes
from compiler.frontend.stablehlo.operations import Function, Op, Region
from dialects.strata.types import TensorType

Form: TypeAlias = "Callable[[Parser, Op], None]"


class Parser(Attributes):
    """A recursive descent over the tokens of a module. `forms`: what reads operations whose pretty
    form is their own, after their name."""

    def __init__(self, text: str, name: str, forms: Mapping[str, Form]):
        super().__init__(text, name)
        self.forms = forms

    # ------------------------------------------------------------------ modules and functions
    def module(self) -> dict[str, Function]:
        while self.next.text not in ("module", "func.func", '"builtin.module"'):
            if self.next.kind == "end":
                raise self.error("there is no module")
            self.take()
        if self.next.kind == "string":
            return self._generic_module()
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

    def _generic_module(self) -> dict[str, Function]:
        """Functions as operations, whose types their arguments and returns tell."""
        found: dict[str, Function] = {}
        for region in self.operation().regions:
            for op in region.operations:
                name = str(op.attributes.get("sym_name", ""))
                if op.name == "func.func" and op.regions:
                    found[name] = Function(name, op.regions[0], None)
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
        found = Function(name, Region(arguments, self.operations()), types)
        self._location()
        return found

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
        if self.accept("<"):  # <{name = value}>
            self.expect("{")
            op.attributes = self.entries("}")
            self.expect(">")
        if self.accept("("):
            op.regions = self.listed(self.region, ")")
        if self.next.text == "{":
            op.attributes |= self.attribute()
        self.signature(op)
        return op

    def _is_region(self) -> bool:
        """Whether the next brace opens a region, and no dictionary of attributes."""
        following = self.tokens[self.place + 1: self.place + 3]
        first, second = following if len(following) == 2 else (self.next, self.next)
        if first.kind in ("block", "value") or second.text == "(":
            return True
        return "." in first.text and second.kind == "value"

    def region(self) -> Region:
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
            elif token.text == "{" and self._is_region():
                op.regions.append(self.region())
            elif token.text == "{":
                op.attributes |= self.attribute()
            elif token.text != ",":
                return
            self.accept(",")
