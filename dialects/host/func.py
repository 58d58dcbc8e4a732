"""`host.func` and `host.return`: a driver, the straight-line program of a run.

    host.func @main(%x: f32[batch, 64], %y: f32[batch, 8]) inputs ["x"] outputs ["y"]
        sizes(batch) arena(256*batch) {
      %w = host.constant #strata.weight<"w", "3f2a"> : f32[64, 8]
      %h = host.alloc offset 0 : f32[batch, 64]
      host.launch @k0(%x, %h) sizes(batch)
      host.launch @k1(%h, %w, %y) sizes(batch)
      host.return
    }

Arguments are the model's inputs, then its outputs, which the caller allocates. The inputs'
run-time shapes bind size symbols. Buffer planning gives each `host.alloc` an offset into a single
arena of `arena` bytes. An allocation without an offset has memory of its own until `host.free`,
because its size is not known at the start or because it is returned. An output whose size is not
known at the start is not an argument. It has a type, `outputs ["y", "found": i64[2, count]]`, and
is returned:

      strata.size count = %n
      %found = host.alloc : i64[2, count]
      ...
      host.return %found

Functions called by `strata.if` and `strata.loop` return all of their outputs.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, StringAttr, UnitAttr
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region
from xdsl.irdl import opt_prop_def, prop_def, region_def, traits_def, var_operand_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import HasParent, IsolatedFromAbove, IsTerminator, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from dialects.classes import StrataOperation
from dialects.definition import irdl_op_definition
from dialects.strata import types as t
from dialects.strata.types import BufferType, ExprAttr, SymbolsAttr
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from dialects.text.region_syntax import (
    ValuesOp,
    parse_signature,
    parse_sizes,
    print_signature,
    print_sizes,
)
from dialects.text.syntax import parse_names, print_names, strings


@irdl_op_definition
class FuncOp(StrataOperation):
    """A driver: a straight-line sequence of allocations, launches, and calls of other drivers.

    `sizes` are the size symbols that have values at the start.
    Constraints: (C1) one argument per input and per output without a type; (C2) the terminator is
    `host.return`, which returns the outputs with types.
    """

    name = "host.func"
    sym_name = prop_def(StringAttr)
    inputs = prop_def(ArrayAttr[StringAttr])
    outputs = prop_def(ArrayAttr[StringAttr])
    returned = prop_def(ArrayAttr[Attribute])
    sizes = prop_def(SymbolsAttr)
    arena = opt_prop_def(ExprAttr)
    body = region_def("single_block")
    traits = traits_def(SymbolOpInterface(), IsolatedFromAbove())

    @staticmethod
    def of(
        name: str, inputs: Sequence[str], outputs: Sequence[str], types: Sequence[BufferType],
        sizes: Sequence[Symbol], returned: Sequence[BufferType | None] | None = None,
    ) -> FuncOp:
        """A function with an empty body. `returned`: the type of each output that is returned."""
        kept = [None] * len(outputs) if returned is None else returned
        return FuncOp.create(
            properties={"sym_name": StringAttr(name), "inputs": strings(inputs),
                        "outputs": strings(outputs), "sizes": SymbolsAttr(tuple(sizes)),
                        "returned": ArrayAttr([r or UnitAttr() for r in kept])},
            regions=[Region(Block(arg_types=types))])

    @property
    def input_names(self) -> list[str]:
        return [n.data for n in self.inputs.data]

    @property
    def output_names(self) -> list[str]:
        return [n.data for n in self.outputs.data]

    @property
    def size_names(self) -> list[Symbol]:
        return list(self.sizes.data)

    @property
    def input_arguments(self) -> tuple[BlockArgument, ...]:
        return tuple(self.body.block.args[: len(self.inputs.data)])

    @property
    def output_arguments(self) -> tuple[BlockArgument, ...]:
        return tuple(self.body.block.args[len(self.inputs.data):])

    @property
    def returned_types(self) -> list[BufferType | None]:
        """For each output, its type if it is returned, or None if it is an argument."""
        return [r if isinstance(r, BufferType) else None for r in self.returned.data]

    @property
    def output_types(self) -> list[BufferType]:
        """The types of all outputs, in order."""
        arguments = iter(self.output_arguments)
        types = [r or next(arguments).type for r in self.returned_types]
        return [type_ for type_ in types if isinstance(type_, BufferType)]

    @property
    def return_op(self) -> ReturnOp:
        last = self.body.block.last_op
        assert isinstance(last, ReturnOp)
        return last

    @property
    def arena_bytes(self) -> Expr | None:
        """The size of the arena, once buffers are planned."""
        return None if self.arena is None else self.arena.data

    def verify_(self) -> None:
        kept = [r for r in self.returned_types if r is not None]
        arguments = len(self.inputs.data) + len(self.outputs.data) - len(kept)
        if len(self.body.block.args) != arguments:
            raise VerifyException("C1: host.func needs one name per argument")
        last = self.body.block.last_op
        if not isinstance(last, ReturnOp):
            raise VerifyException("C2: host.func must end in host.return")
        if [v.type for v in last.values] != kept:
            raise VerifyException("C2: host.return must return the outputs that have types")

    def print(self, printer: Printer) -> None:
        print_signature(printer, self.sym_name, self.body.block.args)
        print_names(printer, "inputs", self.inputs)
        printer.print_string(" outputs [")
        printer.print_list(zip(self.output_names, self.returned_types, strict=True),
                           lambda pair: _print_output(printer, *pair))
        printer.print_string("]")
        print_sizes(printer, self.sizes)
        if self.arena is not None:
            printer.print_string(f" arena({self.arena.data})")
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False)

    @classmethod
    def parse(cls, parser: Parser) -> FuncOp:
        name, arguments = parse_signature(parser, t.parse_buffer_type)
        properties: dict[str, Attribute] = {"sym_name": name}
        properties["inputs"] = parse_names(parser, "inputs")
        parser.parse_keyword("outputs")
        outputs = parser.parse_comma_separated_list(
            parser.Delimiter.SQUARE, lambda: _parse_output(parser))
        properties["outputs"] = strings([name for name, _ in outputs])
        properties["returned"] = ArrayAttr([type_ or UnitAttr() for _, type_ in outputs])
        properties["sizes"] = parse_sizes(parser)
        if parser.parse_optional_keyword("arena"):
            with parser.in_parens():
                properties["arena"] = ExprAttr(t.parse_size(parser))
        return FuncOp.create(properties=properties, regions=[parser.parse_region(arguments)])


def _print_output(printer: Printer, name: str, type_: BufferType | None) -> None:
    printer.print_string_literal(name)
    if type_ is not None:
        printer.print_string(f": {type_.short}")


def _parse_output(parser: Parser) -> tuple[str, BufferType | None]:
    name = parser.parse_str_literal()
    is_typed = parser.parse_optional_punctuation(":") is not None
    return name, t.parse_buffer_type(parser) if is_typed else None


@irdl_op_definition
class ReturnOp(ValuesOp):
    """The terminator of a driver. The caller owns the returned buffers."""

    name = "host.return"
    values = var_operand_def(BufferType)
    traits = traits_def(IsTerminator(), HasParent(FuncOp))


def host_functions(module: Operation) -> list[FuncOp]:
    """All drivers of a module."""
    return [op for op in module.regions[0].block.ops if isinstance(op, FuncOp)]


def host_function(module: Operation) -> FuncOp:
    """The model's driver, `@main` if there are several. Raises ValueError if there is none."""
    found = host_functions(module)
    if not found:
        raise ValueError("the module has no host.func")
    return next((f for f in found if f.sym_name.data == "main"), found[0])
