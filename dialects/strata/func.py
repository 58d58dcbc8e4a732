"""`strata.func` and `strata.return`: a model as a function over tensors (graph and loop level).

    strata.func @main(%x: f32[batch, 3], %y: i64[batch]) -> (f32[batch, 8])
        inputs ["x", "labels"] outputs ["logits"] {
      ...
      strata.return %logits
    }

The arguments' run-time shapes bind the size symbols in argument types. A function called by others
may receive further sizes from its caller, which it lists after the results: `sizes(batch)`.
`inputs` and `outputs` keep the model's own names, which need not be identifiers.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from xdsl.irdl import opt_prop_def, prop_def, region_def, traits_def, var_operand_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import HasParent, IsolatedFromAbove, IsTerminator, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from dialects.classes import StrataOperation
from dialects.definition import irdl_op_definition
from dialects.strata import types as t
from dialects.strata.sizes import defined_sizes
from dialects.strata.types import SymbolsAttr, TensorType, parse_tensor_type
from dialects.symbolic.symbol import Symbol
from dialects.text.region_syntax import (
    ValuesOp,
    parse_signature,
    print_signature,
    print_sizes,
)
from dialects.text.syntax import identifier, merge_locations, parse_names, print_names, strings

MAIN = "main"
"""The name of a model's entry function."""


@irdl_op_definition
class FuncOp(StrataOperation):
    """A function from tensors to tensors.

    Constraints: (C1) one name per argument and per result; (C2) the terminator is
    `strata.return`, which returns values of the declared types; (C3) every size symbol in the type
    of a value in the body occurs in an argument's type or in `sizes`, or an earlier operation
    defines it (dialects/strata/sizes.py, dialects/strata/control.py).
    """

    name = "strata.func"
    sym_name = prop_def(StringAttr)
    inputs = prop_def(ArrayAttr[StringAttr])
    outputs = prop_def(ArrayAttr[StringAttr])
    result_types_ = prop_def(ArrayAttr[Attribute], prop_name="result_types")
    sizes = opt_prop_def(SymbolsAttr)
    body = region_def("single_block")
    traits = traits_def(SymbolOpInterface(), IsolatedFromAbove())

    @staticmethod
    def of(name: str, inputs: Sequence[str], types: Sequence[Attribute]) -> FuncOp:
        """A function with an empty body; `finish` sets its results."""
        return FuncOp.create(
            properties={"sym_name": StringAttr(name), "inputs": strings(inputs),
                        "outputs": ArrayAttr([]), "result_types": ArrayAttr([])},
            regions=[Region(Block(arg_types=types))],
        )

    def add_input(self, name: str, type_: TensorType) -> SSAValue:
        """A new last argument, whose name gets a number if another one has it."""
        known, count, unique = self.input_names, 1, name
        while unique in known:
            unique, count = f"{name}_{count}", count + 1
        self.properties["inputs"] = strings([*known, unique])
        argument = self.body.block.insert_arg(type_, len(known))
        argument.name_hint = identifier(unique)
        return argument

    def remove_input(self, argument: BlockArgument) -> None:
        """Remove an argument that nothing uses."""
        names = self.input_names
        del names[argument.index]
        self.properties["inputs"] = strings(names)
        self.body.block.erase_arg(argument)

    def finish(self, outputs: Sequence[str], values: Sequence[SSAValue]) -> None:
        """Append the return of `values`, which comes from their nodes, and declare the results."""
        self.body.block.add_op(last := ReturnOp.create(operands=values))
        merge_locations(last, [v.owner for v in values if isinstance(v.owner, Operation)])
        self.properties["outputs"] = strings(outputs)
        self.properties["result_types"] = ArrayAttr([v.type for v in values])

    @property
    def input_names(self) -> list[str]:
        return [n.data for n in self.inputs.data]

    @property
    def output_names(self) -> list[str]:
        return [n.data for n in self.outputs.data]

    @property
    def caller_sizes(self) -> list[Symbol]:
        """The size symbols that its caller provides."""
        return [] if self.sizes is None else list(self.sizes.data)

    @property
    def return_op(self) -> ReturnOp:
        last = self.body.block.last_op
        assert isinstance(last, ReturnOp)
        return last

    def verify_(self) -> None:
        returned = self.body.block.last_op
        if not isinstance(returned, ReturnOp):
            raise VerifyException("C2: strata.func must end in strata.return")
        if len(self.inputs.data) != len(self.body.block.args):
            raise VerifyException("C1: strata.func needs one input name per argument")
        if len(self.outputs.data) != len(returned.operands):
            raise VerifyException("C1: strata.func needs one output name per result")
        declared = [str(r) for r in self.result_types_.data]
        if [str(v.type) for v in returned.operands] != declared:
            raise VerifyException(f"C2: strata.return must return {', '.join(declared)}")
        _check_symbols(self)

    def print(self, printer: Printer) -> None:
        print_signature(printer, self.sym_name, self.body.block.args)
        printer.print_string(" -> (")
        printer.print_string(", ".join(_short(r) for r in self.result_types_.data))
        printer.print_string(")")
        if self.sizes is not None and self.sizes.data:
            print_sizes(printer, self.sizes)
        print_names(printer, "inputs", self.inputs)
        print_names(printer, "outputs", self.outputs)
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False)

    @classmethod
    def parse(cls, parser: Parser) -> FuncOp:
        name, arguments = parse_signature(parser, parse_tensor_type)
        parser.parse_punctuation("->")
        results = parser.parse_comma_separated_list(
            parser.Delimiter.PAREN, lambda: parse_tensor_type(parser))
        properties: dict[str, Attribute] = {"sym_name": name, "result_types": ArrayAttr(results)}
        if parser.parse_optional_keyword("sizes"):
            properties["sizes"] = SymbolsAttr(tuple(t.parse_symbols(parser)))
        properties["inputs"] = parse_names(parser, "inputs")
        properties["outputs"] = parse_names(parser, "outputs")
        body = parser.parse_region(arguments)
        return FuncOp.create(properties=properties, regions=[body])


def _check_symbols(func: FuncOp) -> None:
    bound = {name for argument in func.body.block.args for name in _symbols(argument)}
    bound |= {*func.caller_sizes}
    for op in func.body.block.ops:
        bound |= {*defined_sizes(op)}
        free = {name for result in op.results for name in _symbols(result)} - bound
        if free:
            raise VerifyException(
                f"C3: nothing defines the size {t.format_symbols(sorted(free))} of {op.name}"
            )


def _symbols(value: SSAValue) -> frozenset[Symbol]:
    """The size symbols in a tensor's type."""
    shape = value.type.shape if isinstance(value.type, TensorType) else ()
    return frozenset(name for size in shape for name in size.symbols)


def _short(type_: Attribute) -> str:
    return type_.short if isinstance(type_, (TensorType, t.BufferType)) else str(type_)


@irdl_op_definition
class ReturnOp(ValuesOp):
    """Return tensors from `strata.func`."""

    name = "strata.return"
    values = var_operand_def(TensorType)
    traits = traits_def(IsTerminator(), HasParent(FuncOp))


def main_function(module: Operation) -> FuncOp:
    """The model's entry function. Raises ValueError if the module has none."""
    for op in module.regions[0].block.ops:
        if isinstance(op, FuncOp) and op.sym_name.data == MAIN:
            return op
    raise ValueError("the module has no strata.func @main")
