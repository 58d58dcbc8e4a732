"""`strata.size` defines sizes at run time; `strata.assume` states what the code relies on.

    strata.func @main(%x: f32[n, 4]) -> (f32[m, 4]) inputs ["x"] outputs ["y"] {
      ...
      strata.size m = %count                      // the element of %count becomes the size m
      strata.assume m <= n                        // the model needs this
      %y = graph.slice %x {starts = [0, 0], sizes = [m, 4], steps = [1, 1]} : f32[m, 4]
      strata.return %y
    }

All levels share these operations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import operand_def, opt_prop_def, prop_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from dialects.classes import StrataOperation
from dialects.definition import irdl_op_definition
from dialects.strata import types as t
from dialects.strata.assumptions import (
    Assumption,
    Choice,
    Outcome,
    check_with_choices,
    choices_first,
    named_sizes,
)
from dialects.strata.types import Array, ExprAttr, Shaped, SymbolsAttr, i64
from dialects.symbolic.expr import Expr, Size
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import location_name, parse_value


def defined_sizes(op: Operation) -> list[Symbol]:
    """The size symbols that an operation defines when it runs."""
    names = op.properties.get("defines")
    return list(names.data) if type(names) is SymbolsAttr else []


@irdl_op_definition
class SizeOp(StrataOperation):
    """Elements of a tensor become sizes: `strata.size h, w = %shape`, with %shape: i64[2].

    The elements are read when the operation runs, so every use of the sizes must follow it. Each
    must be from 0 to 2**48; otherwise the run ends with an error that names the operation's model
    node. At the host level the operand is a buffer.

    Constraints: (C1) i64 elements; (C2) one element per name.
    """

    name = "strata.size"
    defines = prop_def(SymbolsAttr)
    source = operand_def(Shaped)

    @staticmethod
    def of(names: Sequence[Symbol], source: SSAValue) -> SizeOp:
        return SizeOp.create(operands=[source], properties={"defines": SymbolsAttr(tuple(names))})

    def verify_(self) -> None:
        type_ = self.source.type
        assert isinstance(type_, Shaped)
        if type_.element != i64:
            raise VerifyException(f"C1: strata.size reads i64 elements, not {type_.element}")
        if type_.count.constant != len(self.defines.data):
            raise VerifyException(f"C2: strata.size names {len(self.defines.data)} sizes of "
                                  f"{type_.count} elements")

    def read(self, values: Sequence[int]) -> dict[Symbol, int]:
        """The symbols' values. Raises SizeError for an invalid size."""
        return named_sizes(defined_sizes(self), values, location_name(self))

    def evaluate(self, context: Any, source: Array) -> Sequence[Array]:
        context.sizes.update(self.read([int(v) for v in source.reshape(-1)]))
        return []

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {t.format_symbols(defined_sizes(self))} = ")
        printer.print_ssa_value(self.source)

    @classmethod
    def parse(cls, parser: Parser) -> SizeOp:
        names = parser.parse_comma_separated_list(
            parser.Delimiter.NONE, lambda: t.parse_symbol(parser))
        parser.parse_punctuation("=")
        return SizeOp.of(names, parse_value(parser))


@irdl_op_definition
class AssumeOp(StrataOperation):
    """An assumption about sizes on which the code relies: `strata.assume 2*h - 1 <= w`, or `... ==
    w`.

    It is checked once for each set of run-time sizes, before anything runs. If a size only becomes
    known during the run, it is checked when the run reaches this operation. Its location is the
    model node that requires it.

    Some assumptions are not the model's, but the compiler's choice between ways to compile a node:

        strata.assume n == 3 chosen equal at "add:0" else right n == 1

    This code is the outcome `equal` of the choice at the site `add:0`. Other sizes, here n == 1,
    need the code of another outcome, `right`. They are an error here (ChoiceError), and the reason
    to compile the model again. Sizes that no outcome fits contradict the model.
    """

    name = "strata.assume"
    left = prop_def(ExprAttr)
    right = prop_def(ExprAttr)
    relation = prop_def(StringAttr)
    chosen = opt_prop_def(StringAttr)
    site = opt_prop_def(StringAttr)
    others = opt_prop_def(ArrayAttr[ArrayAttr[Attribute]])

    @staticmethod
    def of(left: Size, relation: str, right: Size, choice: Choice | None = None) -> AssumeOp:
        """`relation` is `<=` or `==`."""
        properties: dict[str, Attribute] = {
            "left": ExprAttr(Expr.of(left)), "right": ExprAttr(Expr.of(right)),
            "relation": StringAttr(relation)}
        if choice is not None:
            properties |= {
                "chosen": StringAttr(choice.chosen), "site": StringAttr(choice.site),
                "others": ArrayAttr([ArrayAttr[Attribute]([
                    StringAttr(o.name), ExprAttr(o.left), StringAttr(o.relation),
                    ExprAttr(o.right)]) for o in choice.others])}
        return AssumeOp.create(properties=properties)

    @property
    def choice(self) -> Choice | None:
        """The compiler's choice, if it is none of the model's needs."""
        if self.site is None or self.chosen is None or self.others is None:
            return None
        return Choice(self.site.data, self.chosen.data, tuple(map(_outcome, self.others)))

    @property
    def symbols(self) -> frozenset[Symbol]:
        """The sizes that it mentions."""
        return self.assumption.symbols

    @property
    def assumption(self) -> Assumption:
        """The assumption as plain data."""
        return Assumption(self.left.data, self.relation.data, self.right.data,
                          location_name(self), self.choice)

    def copied(self) -> AssumeOp:
        """The same assumption, to be inserted elsewhere."""
        return AssumeOp.create(properties={**self.properties})

    def check(self, sizes: Mapping[Symbol, int]) -> None:
        """Raises SizeError, naming the node, if the sizes violate the assumption.

        It is a ChoiceError if they break a choice of the function, from which the assumption may
        follow. An assumption outside a function follows from none.
        """
        block = self.parent_block()
        check_with_choices(self.assumption, (
            op.assumption for op in (block.ops if block else ())
            if isinstance(op, AssumeOp) and op.site), sizes)

    def evaluate(self, context: Any) -> Sequence[Any]:
        self.check(context.sizes)
        return []

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.left.data} {self.relation.data} {self.right.data}")
        if (choice := self.choice) is None:
            return
        printer.print_string(f" chosen {choice.chosen} at ")
        printer.print_string_literal(choice.site)
        printer.print_string(" else ")
        printer.print_list(choice.others, lambda o: printer.print_string(
            f"{o.name} {o.left} {o.relation} {o.right}"))

    @classmethod
    def parse(cls, parser: Parser) -> AssumeOp:
        claim = _parse_claim(parser)
        if not parser.parse_optional_keyword("chosen"):
            return AssumeOp.of(*claim)
        chosen = parser.parse_identifier()
        parser.parse_keyword("at")
        site = parser.parse_str_literal()
        parser.parse_keyword("else")
        others = parser.parse_comma_separated_list(
            parser.Delimiter.NONE, lambda: _parse_outcome(parser))
        return AssumeOp.of(*claim, Choice(site, chosen, tuple(others)))


def _parse_outcome(parser: Parser) -> Outcome:
    return Outcome(parser.parse_identifier(), *_parse_claim(parser))


def _parse_claim(parser: Parser) -> tuple[Expr, str, Expr]:
    left = t.parse_size(parser)
    relation = "<=" if parser.parse_optional_punctuation("<") else "=="
    if relation == "==":
        parser.parse_punctuation("=")
    parser.parse_punctuation("=")
    return left, relation, t.parse_size(parser)


def _outcome(parts: ArrayAttr[Attribute]) -> Outcome:
    name, left, relation, right = parts
    assert isinstance(name, StringAttr) and isinstance(relation, StringAttr)
    assert isinstance(left, ExprAttr) and isinstance(right, ExprAttr)
    return Outcome(name.data, left.data, relation.data, right.data)


def assumptions_of(function: Operation) -> list[Assumption]:
    """Every assumption of a function, in order."""
    ops = function.regions[0].block.ops
    return [op.assumption for op in ops if isinstance(op, AssumeOp)]


def check_assumptions(function: Operation, sizes: Mapping[Symbol, int]) -> None:
    """Check every assumption of a function whose sizes are all known. Raises SizeError.

    The compiler's choices come first, since other code may need fewer assumptions.
    """
    for assumption in choices_first(assumptions_of(function)):
        if assumption.symbols <= sizes.keys():
            assumption.check(sizes)


def has_choices(module: Operation) -> bool:
    """Whether a function of a module is compiled for some sizes only, by the compiler's choice."""
    return any(isinstance(op, AssumeOp) and op.site is not None
               for function in module.regions[0].block.ops for region in function.regions
               for op in region.block.ops)


SIZE_OPS: list[type[Operation]] = [SizeOp, AssumeOp]
