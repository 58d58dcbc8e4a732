"""`strata.if` and `strata.loop`: control flow that depends on run-time values. And `strata.call`.

    strata.func @main(%x: f32[m, 4], %c: i1[]) -> (f32[m, 4]) inputs ["x", "c"] outputs ["y"] {
      %y = strata.if %c then @small else @large (%x) : f32[m, 4]
      strata.return %y
    }

As in HLO, branches and loop bodies are functions of the module. They capture nothing: whatever
they use is an argument, so they compile like any other function. The shapes of its arguments bind
a function's size symbols. The sizes listed in `sizes(...)` come from the caller's symbols of the
same name.

Equal parts of a model share a function, which is called once for each (`strata.call`). They are
equal but for their weights, so a constant of the function may have one for each call:

    %y0 = strata.call @layer number 0 of ["layer.0/MatMul"] (%x) : f32[batch, 8]
    %y1 = strata.call @layer number 1 of ["layer.1/MatMul"] (%y0) : f32[batch, 8]

    strata.func @layer(%x: f32[batch, 8]) -> (f32[batch, 8]) inputs ["0"] outputs ["0"] {
      %w = graph.constant {value = #strata.weights<[...]>} : f32[8, 8]
      ...

`passes/graph/share_layers.py` makes such calls, and `passes/loop/inline_layers.py` puts the
function's kernels in their place. In between, passes transform the function once for all of them.

All levels share the operations on run-time values. On buffers, the functions are `host.func`s.
Returning a buffer transfers its ownership to the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import (
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

from dialects.definition import irdl_op_definition
from dialects.strata import types as t
from dialects.strata.callees import ControlOp, function_of
from dialects.strata.sizes import defined_sizes
from dialects.strata.types import Array, ExprAttr, Shaped, SymbolsAttr, i1
from dialects.symbolic.expr import Expr, Size
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import (
    parse_names,
    parse_value,
    parse_values,
    print_names,
    print_values,
    strings,
)

Call: TypeAlias = Callable[[str, Sequence[Array], dict[Symbol, int]], list[Array]]
"""call(name, inputs, sizes) runs a function; `sizes` are its caller's."""


def _is_flag(value: SSAValue) -> bool:
    return isinstance(value.type, Shaped) and value.type.element == i1 and not value.type.shape


@irdl_op_definition
class IfOp(ControlOp):
    """The results of one of two functions: `%y = strata.if %c then @f else @g (%x) : f32[8]`.

    Both functions receive the same operands.

    Constraints: (C1) to (C3) as above; (C4) the condition is an `i1[]`.
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
    """Call a function repeatedly, passing the values returned by one call to the next.

        %h, %ys = strata.loop @step at k trip n while %c carried(%h0) with(%w)
            : f32[b, 8], f32[n, b, 8]

    The function takes the carried values, then the loop-invariant values after `with`. It returns
    the condition to continue (only if there is a `while`), then the new carried values, then the
    values to stack. `trip` is an upper bound of the trip count. If `%c` is initially false, the
    function is never called. Its size `k` is the number of the call, starting at 0. The results are
    the final carried values, followed by one tensor per stacked value with a new first dim that
    has one entry per call. Without any call there are no entries, and sizes that the loop defines
    are 0.

    On buffers, the body borrows the carried buffers, and the loop owns what the body returns.

    Constraints: (C1) to (C3) as above; (C4) there is a `trip`, a `while`, or both; (C5) the
    condition is an `i1[]`.
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
        """The body's size symbol that holds the number of the call."""
        [symbol] = self.step.data
        return symbol

    @property
    def condition(self) -> SSAValue | None:
        return self.operands[0] if self._first else None

    @property
    def carried(self) -> Sequence[SSAValue]:
        """The initial values of the loop-carried values."""
        return self.operands[self._first: self._first + self._count]

    @property
    def inputs(self) -> Sequence[SSAValue]:
        """The loop-invariant values."""
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
        from dialects.graph.interpret import evaluate_func

        def call(name: str, inputs: Sequence[Array], sizes: dict[Symbol, int]) -> list[Array]:
            return evaluate_func(function_of(self, name), inputs, replace(context, sizes=sizes))

        results = self.run(context, operands, call)
        self.bind(context, results)
        return results

    def run(self, context: Any, operands: Sequence[Array], call: Call) -> list[Array]:
        """Run the loop and return its results. `context.sizes` holds the caller's sizes."""
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
        """Stack one value of all calls. Without calls, sizes that the loop defines are 0."""
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


@irdl_op_definition
class CallOp(ControlOp):
    """The results of a function whose constants may be others in each call.

    `number` tells which weights they are. `nodes` are the names of the model's nodes that the call
    stands for. Those of call 0 are the names in the function, in the same order.

    Constraints: (C1) to (C3) as above.
    """

    name = "strata.call"
    callee = prop_def(StringAttr)
    number = prop_def(ExprAttr)
    nodes = prop_def(ArrayAttr[StringAttr])
    inputs = var_operand_def(Shaped)
    results_ = var_result_def(Shaped)
    traits = traits_def(Pure())

    @staticmethod
    def of(
        callee: str, number: int, nodes: Sequence[str], inputs: Sequence[SSAValue],
        types: Sequence[Shaped], defines: Sequence[Symbol] = (),
    ) -> CallOp:
        return CallOp.create(operands=inputs, result_types=types, properties={
            "callee": StringAttr(callee), "number": ExprAttr(Expr.of(number)),
            "nodes": strings(nodes), "defines": SymbolsAttr(tuple(defines))})

    @property
    def callees(self) -> list[str]:
        return [self.callee.data]

    @property
    def place(self) -> int:
        """The number of the call."""
        return self.number.data.constant or 0

    @property
    def node_names(self) -> list[str]:
        return [name.data for name in self.nodes.data]

    def names_of(self, first: CallOp) -> Mapping[str, str]:
        """The model's nodes of this call by the names in the function, those of call 0."""
        return dict(zip(first.node_names, self.node_names, strict=True))

    def verify_(self) -> None:
        self.check_call(self.callee.data, self.inputs, self.result_types)
        self.check_defines()

    def evaluate(self, context: Any, *inputs: Array) -> Sequence[Array]:
        from dialects.graph.interpret import evaluate_func

        function = function_of(self, self.callee.data)
        results = evaluate_func(function, inputs, replace(context, call=self.place))
        self.bind(context, results)
        return results

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.callee.data)
        printer.print_string(f" number {self.place}")
        print_names(printer, "of", self.nodes)
        printer.print_string(" ")
        with printer.in_parens():
            print_values(printer, self.inputs)
        self.print_tail(printer)

    @classmethod
    def parse(cls, parser: Parser) -> CallOp:
        callee = parser.parse_symbol_name().data
        parser.parse_keyword("number")
        number = parser.parse_integer()
        nodes = [name.data for name in parse_names(parser, "of").data]
        with parser.in_parens():
            inputs = parse_values(parser)
        defines, types = cls.parse_tail(parser)
        return cls.of(callee, number, nodes, inputs, types, defines)


CONTROL_OPS: list[type[Operation]] = [IfOp, LoopOp, CallOp]
