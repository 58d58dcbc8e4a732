"""`strata.if`, `strata.loop`: decisions that only a run knows.

    strata.func @main(%x: f32[m, 4], %c: i1[]) -> (f32[m, 4]) inputs ["x", "c"] outputs ["y"] {
      %y = strata.if %c then @small else @large (%x) : f32[m, 4]
      strata.return %y
    }

What is decided upon are functions, as in HLO: they take what they use as arguments, so that every
function of a module is compiled like any other. The size symbols of a function are bound by the
shapes of its arguments; those it names in `sizes(...)` are its caller's, of the same name.

All levels share these operations. On buffers the functions are `host.func`s, which own what they
return until they return it; then their caller does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from dialects.strata import types as t
from dialects.strata.func import FuncOp
from dialects.strata.sizes import defined_sizes
from dialects.strata.types import Array, BufferType, ExprAttr, Shaped, SymbolsAttr, i1
from dialects.symbolic.expr import Expr, Size
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import parse_value, parse_values, print_values

Call: TypeAlias = Callable[[str, Sequence[Array], dict[Symbol, int]], list[Array]]
"""call(name, inputs, sizes) runs a function; `sizes` are its caller's."""


def function_of(op: Operation, name: str) -> FuncOp:
    """A function of the module that holds `op`. Raises KeyError when there is none of that name."""
    root = op
    while (parent := root.parent_op()) is not None:
        root = parent
    for other in root.regions[0].block.ops if root.regions else ():
        if isinstance(other, FuncOp) and other.sym_name.data == name:
            return other
    raise KeyError(f"the module has no strata.func @{name}")


# ---------------------------------------------------------------------- what if and loop share
class ControlOp(IRDLOperation):
    """An operation that calls functions. Its results' types may name sizes that it defines.

    Constraints: (C1) the functions' arguments have the operands' element types and ranks; (C2) so
    have their results those of the operation; (C3) each size that it defines is a dim of a result.
    """

    defines = prop_def(SymbolsAttr)

    @property
    def result_types(self) -> list[Shaped]:
        return [r.type for r in self.results if isinstance(r.type, Shaped)]

    @property
    def callees(self) -> list[str]:
        """The names of the functions that it may call."""
        raise NotImplementedError(self.name)

    def check_call(self, name: str, inputs: Sequence[SSAValue], results: Sequence[Any]) -> None:
        """Check the signature of a function against operands and result types, if it is here."""
        try:
            function = function_of(self, name)
        except KeyError:  # on buffers, or outside a module
            return
        given = [_kind(v.type) for v in inputs]
        if [_kind(a.type) for a in function.body.block.args] != given:
            raise VerifyException(f"C1: the operands do not fit the arguments of @{name}")
        if [_kind(r) for r in function.result_types_.data] != [_kind(r) for r in results]:
            raise VerifyException(f"C2: @{name} does not return the results of {self.name}")

    def check_defines(self) -> None:
        dims = {s.as_symbol for type_ in self.result_types for s in type_.shape}
        for name in defined_sizes(self):
            if name not in dims:
                raise VerifyException(f"C3: the size {name} is no dim of a result")

    def bind(self, context: Any, arrays: Sequence[Array]) -> None:
        """Give the defined sizes their values, from the results."""
        names = set(defined_sizes(self))
        for type_, array in zip(self.result_types, arrays, strict=True):
            for size, found in zip(type_.shape, array.shape, strict=True):
                if size.as_symbol in names:
                    context.sizes[size.as_symbol] = found

    def print_tail(self, printer: Printer) -> None:
        names = defined_sizes(self)
        if names:
            printer.print_string(f" defines({t.format_symbols(names)})")
        printer.print_string(" buffers" if self.is_on_buffers else " :")
        printer.print_string(f" {', '.join(type_.short for type_ in self.result_types)}")

    @property
    def is_on_buffers(self) -> bool:
        return any(isinstance(v.type, BufferType) for v in (*self.results, *self.operands))

    @staticmethod
    def parse_tail(parser: Parser) -> tuple[list[Symbol], list[Shaped]]:
        names: list[Symbol] = []
        if parser.parse_optional_keyword("defines"):
            names = t.parse_symbols(parser)
        parse = t.parse_tensor_type
        if parser.parse_optional_keyword("buffers"):
            parse = t.parse_buffer_type
        else:
            parser.parse_punctuation(":")
        types = parser.parse_optional_undelimited_comma_separated_list(
            lambda: _parse_optional(parser, parse), lambda: parse(parser))
        return names, types or []


def _parse_optional(parser: Parser, parse: Callable[[Parser], Shaped]) -> Shaped | None:
    """A type, if one follows: a control operation may have no results."""
    text = parser._current_token.text  # pyright: ignore[reportPrivateUsage]
    return parse(parser) if re.fullmatch(r"[a-z]+\d\w*", text) else None


def _kind(type_: Any) -> tuple[Any, int] | None:
    """What must agree between a function and its caller: sizes may have other names."""
    return (type_.element, type_.rank) if isinstance(type_, Shaped) else None


def _is_flag(value: SSAValue) -> bool:
    return isinstance(value.type, Shaped) and value.type.element == i1 and not value.type.shape


@irdl_op_definition
class IfOp(ControlOp):
    """The results of one of two functions: `%y = strata.if %c then @f else @g (%x) : f32[8]`.

    Both get the same operands.

    Constraints: (C1) to (C3) as above; (C4) the condition is one truth value.
    """

    name = "strata.if"
    then_ = prop_def(StringAttr, prop_name="then")
    else_ = prop_def(StringAttr, prop_name="else")
    condition = operand_def(Shaped)
    inputs = var_operand_def(Shaped)
    results_ = var_result_def(Shaped)
    traits = traits_def(Pure())

    @staticmethod
    def of(
        condition: SSAValue, then: str, otherwise: str, inputs: Sequence[SSAValue],
        types: Sequence[Shaped], defines: Sequence[Symbol] = (),
    ) -> IfOp:
        return IfOp.create(
            operands=[condition, *inputs], result_types=types,
            properties={"then": StringAttr(then), "else": StringAttr(otherwise),
                        "defines": SymbolsAttr(tuple(defines))})

    @property
    def callees(self) -> list[str]:
        return [self.then_.data, self.else_.data]

    def verify_(self) -> None:
        if not _is_flag(self.condition):
            raise VerifyException("C4: the condition of strata.if must be i1[]")
        for name in self.callees:
            self.check_call(name, self.inputs, self.result_types)
        self.check_defines()

    def evaluate(self, context: Any, condition: Array, *inputs: Array) -> Sequence[Array]:
        from dialects.graph.interpret import evaluate_func

        name = self.then_.data if bool(condition) else self.else_.data
        results = evaluate_func(function_of(self, name), inputs, context)
        self.bind(context, results)
        return results

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.condition)
        printer.print_string(" then ")
        printer.print_symbol_name(self.then_.data)
        printer.print_string(" else ")
        printer.print_symbol_name(self.else_.data)
        printer.print_string(" ")
        with printer.in_parens():
            print_values(printer, self.inputs)
        self.print_tail(printer)

    @classmethod
    def parse(cls, parser: Parser) -> IfOp:
        condition = parse_value(parser)
        parser.parse_keyword("then")
        then = parser.parse_symbol_name().data
        parser.parse_keyword("else")
        otherwise = parser.parse_symbol_name().data
        with parser.in_parens():
            inputs = parse_values(parser)
        defines, types = cls.parse_tail(parser)
        return cls.of(condition, then, otherwise, inputs, types, defines)


@irdl_op_definition
class LoopOp(ControlOp):
    """Call a function again and again, each time with the values that the last call returned.

        %h, %ys = strata.loop @step at k trip n while %c carried(%h0) with(%w)
            : f32[b, 8], f32[n, b, 8]

    The function takes the carried values, then those `with` it, which stay the same; it returns,
    where there is a `while`, whether to go on, then the carried values, then values to be stacked.
    There are at most `trip` calls; none, if `%c` is false at first. The function's size `k` is the
    number of the call, from 0. Results: the last carried values, then one tensor per stacked value
    with a new first dim, one entry per call (0 entries with sizes 0 where nothing was called).

    On buffers, the body gets the carried buffers lent; the loop owns what it returned.

    Constraints: (C1) to (C3) as above; (C4) `trip` or `while` is there; (C5) the condition is one
    truth value.
    """

    name = "strata.loop"
    body = prop_def(StringAttr)
    step = prop_def(SymbolsAttr)
    trip = opt_prop_def(ExprAttr)
    carried_count = prop_def(ExprAttr)
    has_condition = prop_def(ExprAttr)
    operands_ = var_operand_def(Shaped)
    results_ = var_result_def(Shaped)
    traits = traits_def(Pure())

    @staticmethod
    def of(
        body: str, step: Symbol, trip: Size | None, condition: SSAValue | None,
        carried: Sequence[SSAValue], inputs: Sequence[SSAValue], types: Sequence[Shaped],
        defines: Sequence[Symbol] = (),
    ) -> LoopOp:
        first = [] if condition is None else [condition]
        properties: dict[str, Any] = {
            "body": StringAttr(body), "step": SymbolsAttr((step,)),
            "defines": SymbolsAttr(tuple(defines)),
            "carried_count": ExprAttr(Expr.of(len(carried))),
            "has_condition": ExprAttr(Expr.of(len(first)))}
        if trip is not None:
            properties["trip"] = ExprAttr(Expr.of(trip))
        return LoopOp.create(operands=[*first, *carried, *inputs], result_types=types,
                             properties=properties)

    @property
    def callees(self) -> list[str]:
        return [self.body.data]

    @property
    def step_symbol(self) -> Symbol:
        """The function's symbol for the number of the call."""
        [symbol] = self.step.data
        return symbol

    @property
    def condition(self) -> SSAValue | None:
        return self.operands[0] if self._first else None

    @property
    def carried(self) -> Sequence[SSAValue]:
        """The values before the first call."""
        return self.operands[self._first: self._first + self._count]

    @property
    def inputs(self) -> Sequence[SSAValue]:
        """The values that stay the same."""
        return self.operands[self._first + self._count:]

    @property
    def stacked(self) -> Sequence[SSAValue]:
        return self.results[self._count:]

    @property
    def _first(self) -> int:
        return self.has_condition.data.constant or 0

    @property
    def _count(self) -> int:
        return self.carried_count.data.constant or 0

    def verify_(self) -> None:
        if self.trip is None and self.condition is None:
            raise VerifyException("C4: strata.loop has neither a trip count nor a condition")
        if self.condition is not None and not _is_flag(self.condition):
            raise VerifyException("C5: the condition of strata.loop must be i1[]")
        stacked = [t.tensor(type_.element, type_.shape[1:])
                   for type_ in self.result_types[self._count:]]
        results = [*([t.tensor(i1, [])] if self._first else []),
                   *self.result_types[: self._count], *stacked]
        self.check_call(self.body.data, self.operands[self._first:], results)
        self.check_defines()

    def evaluate(self, context: Any, *operands: Array) -> Sequence[Array]:
        from dataclasses import replace

        from dialects.graph.interpret import evaluate_func

        def call(name: str, inputs: Sequence[Array], sizes: dict[Symbol, int]) -> list[Array]:
            return evaluate_func(function_of(self, name), inputs, replace(context, sizes=sizes))

        results = self.run(context, operands, call)
        self.bind(context, results)
        return results

    def run(self, context: Any, operands: Sequence[Array], call: Call) -> list[Array]:
        """The results; `context.sizes` has the caller's sizes."""
        going = not self._first or bool(operands[0])
        values = list(operands[self._first: self._first + self._count])
        inputs = operands[self._first + self._count:]
        limit = None if self.trip is None else int(self.trip.data.evaluate(context.sizes))
        stacks: list[list[Array]] = [[] for _ in self.stacked]
        calls = 0
        while going and (limit is None or calls < limit):
            sizes = {**context.sizes, self.step_symbol: calls}
            found = call(self.body.data, [*values, *inputs], sizes)
            going = not self._first or bool(found[0])
            values = found[self._first: self._first + self._count]
            for stack, array in zip(stacks, found[self._first + self._count:], strict=True):
                stack.append(array)
            calls += 1
        return [*values, *(self._stack(s, type_, context.sizes) for s, type_ in zip(
            stacks, self.result_types[self._count:], strict=True))]

    def _stack(self, arrays: Sequence[Array], type_: Shaped, sizes: dict[Symbol, int]) -> Array:
        """What the calls gave, stacked; without calls, sizes that the loop defines are 0."""
        if len({a.shape for a in arrays}) > 1:
            raise ValueError("the values that the loop stacks have different shapes")
        if arrays:
            return np.stack(arrays)
        known = {**sizes, **dict.fromkeys(defined_sizes(self), 0)}
        return np.zeros([int(s.evaluate(known)) for s in type_.shape], type_.dtype)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.body.data)
        printer.print_string(f" at {self.step_symbol}")
        if self.trip is not None:
            printer.print_string(f" trip {self.trip.data}")
        if self.condition is not None:
            printer.print_string(" while ")
            printer.print_ssa_value(self.condition)
        for word, values in ((" carried", self.carried), (" with", self.inputs)):
            printer.print_string(word)
            with printer.in_parens():
                print_values(printer, values)
        self.print_tail(printer)

    @classmethod
    def parse(cls, parser: Parser) -> LoopOp:
        body = parser.parse_symbol_name().data
        parser.parse_keyword("at")
        step = t.parse_symbol(parser)
        trip = t.parse_size(parser) if parser.parse_optional_keyword("trip") else None
        condition = parse_value(parser) if parser.parse_optional_keyword("while") else None
        parser.parse_keyword("carried")
        with parser.in_parens():
            carried = parse_values(parser)
        parser.parse_keyword("with")
        with parser.in_parens():
            inputs = parse_values(parser)
        defines, types = cls.parse_tail(parser)
        return cls.of(body, step, trip, condition, carried, inputs, types, defines)


CONTROL_OPS: list[type[Operation]] = [IfOp, LoopOp]
