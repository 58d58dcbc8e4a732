"""The structured operations of the `block` level: kernel, loop, yield."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import DenseArrayBase, StringAttr, i32
from xdsl.ir import Attribute, Block, BlockArgument, Region, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, IsTerminator, Pure, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from dialects.block.syntax import (
    IndexReader,
    print_index,
)
from dialects.classes import StrataOperation
from dialects.definition import irdl_op_definition
from dialects.strata import types as t
from dialects.strata.schedule import (
    ScheduleAttr,
    parse_kernel_schedule,
    print_kernel_schedule,
)
from dialects.strata.symbols_in import unnamed_sizes
from dialects.strata.types import BufferType, ExprAttr, SizesAttr, SymbolsAttr
from dialects.symbolic.expr import Expr, Size
from dialects.symbolic.symbol import Symbol
from dialects.text.region_syntax import (
    ValuesOp,
    parse_signature,
    parse_sizes,
    print_signature,
    print_sizes,
)
from dialects.text.syntax import parse_value


@irdl_op_definition
class YieldOp(ValuesOp):
    """The terminator: yields the next trip's values in `block.for`, the results in `block.map`."""

    name = "block.yield"
    values = var_operand_def()
    traits = traits_def(IsTerminator(), Pure())


@irdl_op_definition
class KernelOp(StrataOperation):
    """A kernel: its body runs once per program of the grid, in any order or in parallel.

        block.kernel @copy(%x: f32[n], %y: f32[n]) grid(%p: n ceildiv 64) sizes(n) { ... }

    Its arguments are buffers, then one program id (of type index) per grid axis, 0 <= id < extent.
    `sizes` lists the size symbols, which are passed as 64-bit integers in that order. `schedule`
    is the schedule from which the kernel was lowered; targets take options such as warps and
    stages from it. A program must not write what another program reads.
    Constraints: (C1) the grid has one extent per index argument; (C2) `sizes` lists every size
    symbol in an expression.
    """

    name = "block.kernel"
    sym_name = prop_def(StringAttr)
    grid = prop_def(SizesAttr)
    sizes = prop_def(SymbolsAttr)
    schedule = opt_prop_def(ScheduleAttr)
    body = region_def("single_block")
    traits = traits_def(SymbolOpInterface(), IsolatedFromAbove())

    @staticmethod
    def of(
        name: str, buffers: Sequence[BufferType], grid: Sequence[Size], sizes: Sequence[Symbol],
        schedule: ScheduleAttr | None = None,
    ) -> KernelOp:
        """A kernel with an empty body."""
        properties: dict[str, Attribute] = {
            "sym_name": StringAttr(name), "grid": SizesAttr.of(grid),
            "sizes": SymbolsAttr(tuple(sizes)),
        }
        if schedule is not None:
            properties["schedule"] = schedule
        block = Block(arg_types=[*buffers, *[t.index] * len(grid)])
        return KernelOp.create(properties=properties, regions=[Region(block)])

    @property
    def buffers(self) -> tuple[BlockArgument, ...]:
        return tuple(a for a in self.body.block.args if isinstance(a.type, BufferType))

    @property
    def taken(self) -> list[Attribute]:
        """The types of its buffers."""
        return [buffer.type for buffer in self.buffers]

    @property
    def program_ids(self) -> tuple[BlockArgument, ...]:
        return tuple(a for a in self.body.block.args if a.type == t.index)

    @property
    def size_names(self) -> list[Symbol]:
        return list(self.sizes.data)

    def verify_(self) -> None:
        if len(self.program_ids) != len(self.grid.data):
            raise VerifyException("C1: block.kernel needs one program id per grid extent")
        unnamed = unnamed_sizes(self.body, self.size_names, self.grid.data)
        if unnamed:
            raise VerifyException(
                f"C2: block.kernel does not name the sizes {t.format_symbols(unnamed)}")

    def print(self, printer: Printer) -> None:
        print_signature(printer, self.sym_name, self.buffers)
        printer.print_string(" grid(")
        for k, (argument, extent) in enumerate(
            zip(self.program_ids, self.grid.data, strict=True)
        ):
            printer.print_string(", " if k else "")
            printer.print_ssa_value(argument)
            printer.print_string(f": {extent}")
        printer.print_string(")")
        print_sizes(printer, self.sizes)
        print_kernel_schedule(printer, self.schedule)
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False)

    @classmethod
    def parse(cls, parser: Parser) -> KernelOp:
        name, arguments = parse_signature(parser, t.parse_buffer_type)
        parser.parse_keyword("grid")
        grid = parser.parse_comma_separated_list(
            parser.Delimiter.PAREN, lambda: _parse_program_id(parser))
        properties: dict[str, Attribute] = {
            "sym_name": name, "grid": SizesAttr.of([e for _, e in grid]),
            "sizes": parse_sizes(parser), **parse_kernel_schedule(parser),
        }
        body = parser.parse_region([*arguments, *(a for a, _ in grid)])
        return KernelOp.create(properties=properties, regions=[body])


def _parse_program_id(parser: Parser) -> tuple[Parser.Argument, Expr]:
    argument = parser.parse_argument(expect_type=False)
    parser.parse_punctuation(":")
    return argument.resolve(t.index), t.parse_size(parser)


PARALLEL, SERIAL, WHILE = "parallel", "serial", "while"
"""The kinds of loops."""


@irdl_op_definition
class ForOp(StrataOperation):
    """A loop with carried tiles.

        %acc = block.for %k = 0 to 768 step 4 unroll 4 (%a = %zero) { ... block.yield %next }

    `lower` and `upper` are expressions over `%` index values and sizes. The counter takes the
    values lower, lower + step, ... below upper. `unroll` is a hint: the number of bodies per trip.
    A loop marked `parallel` carries nothing, and its trips are independent. A loop marked `while`
    carries a truth value first, and ends before the first trip for which it is false:

        %last = block.for %k = 0 to 50 step 1 while (%goes_on = %flag) { ... block.yield %next }

    Constraints: (C1) carried values, region arguments after the counter, yields and results have
    equal types; (C2) step >= 1; (C3) a parallel loop carries nothing; (C4) the first value that a
    loop marked `while` carries is a tile<i1>.
    """

    name = "block.for"
    indices = var_operand_def()
    carried = var_operand_def()
    lower = prop_def(ExprAttr)
    upper = prop_def(ExprAttr)
    step = prop_def(ExprAttr)
    unroll = prop_def(ExprAttr)
    kind = prop_def(StringAttr)
    results_ = var_result_def()
    body = region_def("single_block")
    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    @staticmethod
    def of(
        lower: Size, upper: Size, step: int, indices: Sequence[SSAValue] = (),
        carried: Sequence[SSAValue] = (), *, unroll: int = 1, kind: str = SERIAL,
        body: Region | None = None,
    ) -> ForOp:
        """A loop whose body is empty unless given; `%0`, `%1` in the bounds denote `indices`."""
        types = [c.type for c in carried]
        properties: dict[str, Attribute] = {
            "lower": ExprAttr(Expr.of(lower)), "upper": ExprAttr(Expr.of(upper)),
            "step": ExprAttr(Expr.of(step)), "unroll": ExprAttr(Expr.of(unroll)),
            "kind": StringAttr(kind),
            "operandSegmentSizes": DenseArrayBase.from_list(i32, [len(indices), len(carried)]),
        }
        return ForOp.create(
            operands=[*indices, *carried], result_types=types, properties=properties,
            regions=[body or Region(Block(arg_types=[t.index, *types]))],
        )

    @property
    def counter(self) -> BlockArgument:
        return self.body.block.args[0]

    @property
    def is_parallel(self) -> bool:
        return self.kind.data == PARALLEL

    @property
    def is_conditional(self) -> bool:
        """Whether the first carried value tells if there is another trip."""
        return self.kind.data == WHILE

    @property
    def yielded(self) -> Sequence[SSAValue]:
        last = self.body.block.last_op
        assert last is not None
        return last.operands

    def verify_(self) -> None:
        types = [c.type for c in self.carried]
        same = (types == [a.type for a in self.body.block.args[1:]]
                == [v.type for v in self.yielded] == [r.type for r in self.results])
        if not same:
            raise VerifyException("C1: block.for must carry, yield and return the same types")
        if (self.step.data.constant or 0) < 1:
            raise VerifyException("C2: the step of block.for must be at least 1")
        if self.is_parallel and types:
            raise VerifyException("C3: a parallel block.for must not carry values")
        if self.is_conditional and types[:1] != [t.tile(t.i1, [])]:
            raise VerifyException("C4: block.for with `while` must carry a tile<i1> first")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.counter)
        printer.print_string(" = ")
        print_index(printer, self.lower.data, self.indices)
        printer.print_string(" to ")
        print_index(printer, self.upper.data, self.indices)
        printer.print_string(f" step {self.step.data}")
        if self.unroll.data.constant != 1:
            printer.print_string(f" unroll {self.unroll.data}")
        if self.kind.data != SERIAL:
            printer.print_string(f" {self.kind.data}")
        if self.carried:
            printer.print_string(" (")
            pairs = zip(self.body.block.args[1:], self.carried, strict=True)
            printer.print_list(list(pairs), lambda pair: _print_carried(printer, *pair))
            printer.print_string(")")
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False)

    @classmethod
    def parse(cls, parser: Parser) -> ForOp:
        counter = parser.parse_argument(expect_type=False).resolve(t.index)
        parser.parse_punctuation("=")
        reader = IndexReader(parser)
        lower = reader.parse()
        parser.parse_keyword("to")
        upper = reader.parse()
        parser.parse_keyword("step")
        step = parser.parse_integer()
        unroll = parser.parse_integer() if parser.parse_optional_keyword("unroll") else 1
        kind = next(filter(parser.parse_optional_keyword, (PARALLEL, WHILE)), SERIAL)
        carried = parser.parse_optional_comma_separated_list(
            parser.Delimiter.PAREN, lambda: _parse_carried(parser)) or []
        body = parser.parse_region([counter, *(a for a, _ in carried)])
        return ForOp.of(lower, upper, step, reader.values, [v for _, v in carried],
                        unroll=unroll, kind=kind, body=body)


def _print_carried(printer: Printer, argument: SSAValue, value: SSAValue) -> None:
    printer.print_ssa_value(argument)
    printer.print_string(" = ")
    printer.print_ssa_value(value)


def _parse_carried(parser: Parser) -> tuple[Parser.Argument, SSAValue]:
    argument = parser.parse_argument(expect_type=False)
    parser.parse_punctuation("=")
    value = parse_value(parser)
    return argument.resolve(value.type), value
