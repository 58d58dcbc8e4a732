"""`loop.kernel` and `loop.call`, and tensors without a nest: `loop.empty` and `loop.view`."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.irdl import (
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, Pure, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from dialects.classes import StrataOperation
from dialects.definition import irdl_op_definition
from dialects.loop.body_ops import YieldOp
from dialects.loop.nest import NestOp
from dialects.loop.nest_text import short_type
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata import types as t
from dialects.strata.callees import callee_of, check_kernel_call
from dialects.strata.same_elements import check_same_elements
from dialects.strata.schedule import (
    ScheduleAttr,
    parse_kernel_schedule,
    print_kernel_schedule,
)
from dialects.strata.symbols_in import unnamed_sizes
from dialects.strata.types import Array, ExprAttr, SizesAttr, SymbolsAttr, TensorType
from dialects.symbolic.expr import Expr, Size
from dialects.symbolic.symbol import Symbol
from dialects.text.region_syntax import (
    parse_call,
    parse_signature,
    parse_sizes,
    print_call,
    print_signature,
    print_sizes,
)
from dialects.text.syntax import parse_value
from dialects.walking import listed


@irdl_op_definition
class EmptyOp(StrataOperation):
    """A tensor with undefined elements, which nests write `into`: `loop.empty : f32[8]`."""

    name = "loop.empty"
    result = result_def(TensorType)
    traits = traits_def(Pure())

    @staticmethod
    def of(type_: TensorType) -> EmptyOp:
        return EmptyOp.create(result_types=[type_])

    def evaluate(self, context: EvaluationContext) -> Array:
        import numpy as np

        assert isinstance(self.result.type, TensorType)
        return np.zeros(context.shape(self.result.type), self.result.type.dtype)

    def print(self, printer: Printer) -> None:
        printer.print_string(f" : {short_type(self.result)}")

    @classmethod
    def parse(cls, parser: Parser) -> EmptyOp:
        parser.parse_punctuation(":")
        return EmptyOp.of(t.parse_tensor_type(parser))


@irdl_op_definition
class ViewOp(StrataOperation):
    """The same elements in row-major order under another shape: `loop.view %x : f32[b, 768]`.

    Fusion folds views into index expressions. A view that remains costs nothing at run time.
    Constraint: (C1) the element type and the number of elements are preserved, as far as sizes are
    known.
    """

    name = "loop.view"
    source = operand_def(TensorType)
    result = result_def(TensorType)
    traits = traits_def(Pure())

    @staticmethod
    def of(source: SSAValue, shape: Sequence[Size]) -> ViewOp:
        assert isinstance(source.type, TensorType)
        return ViewOp.create(operands=[source],
                             result_types=[t.tensor(source.type.element, shape)])

    def verify_(self) -> None:
        check_same_elements(self, self.source, self.result)

    def evaluate(self, context: EvaluationContext, x: Array) -> Array:
        assert isinstance(self.result.type, TensorType)
        return x.reshape(context.shape(self.result.type))

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.source)
        printer.print_string(f" : {short_type(self.result)}")

    @classmethod
    def parse(cls, parser: Parser) -> ViewOp:
        source = parse_value(parser)
        parser.parse_punctuation(":")
        return ViewOp.of(source, t.parse_tensor_type(parser).shape)


@irdl_op_definition
class VisibleOp(StrataOperation):
    """What rows may see along an axis of a kernel: `loop.visible i3 from %first to %last [i0, i1]`.

    Nests of the kernel hide every place from the rows at `at` that is before the element of `first`
    there, or not before that of `last`: such places change no result. Loops over the axis may
    therefore leave them out; rows that see nothing have none. It computes nothing.
    Constraints: (C1) both tensors are of i32 and have one dim per expression.
    """

    name = "loop.visible"
    axis = prop_def(ExprAttr)
    at = prop_def(SizesAttr)
    first = operand_def(TensorType)
    last = operand_def(TensorType)

    @staticmethod
    def of(axis: Symbol, first: SSAValue, last: SSAValue, at: Sequence[Expr]) -> VisibleOp:
        return VisibleOp.create(operands=[first, last], properties={
            "axis": ExprAttr(Expr.symbol(axis)), "at": SizesAttr.of(at)})

    @property
    def axis_name(self) -> Symbol:
        [name] = self.axis.data.symbols
        return name

    def verify_(self) -> None:
        for value in self.operands:
            assert isinstance(value.type, TensorType)
            if value.type.element != t.i32 or len(value.type.shape) != len(self.at.data):
                raise VerifyException("C1: loop.visible takes tensors of i32 with one dim per "
                                      f"expression, not {short_type(value)}")

    def evaluate(self, context: EvaluationContext, first: Array, last: Array) -> list[Array]:
        return []

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.axis.data} from ")
        printer.print_ssa_value(self.first)
        printer.print_string(" to ")
        printer.print_ssa_value(self.last)
        printer.print_string(f" {t.format_sizes(self.at.data)}")

    @classmethod
    def parse(cls, parser: Parser) -> VisibleOp:
        [axis] = t.parse_size(parser).symbols
        parser.parse_keyword("from")
        first = parse_value(parser)
        parser.parse_keyword("to")
        return VisibleOp.of(axis, first, parse_value(parser), t.parse_sizes(parser))


@irdl_op_definition
class KernelOp(StrataOperation):
    """A kernel: nests that a single launch computes, over axes shared by name.

        loop.kernel @softmax(%x: f32[rows, 1000]) -> (f32[rows, 1000]) sizes(rows)
            schedule<grid i0 tile 1, loop i1 tile 64 lanes> { ... loop.yield %y }

    Nests that use an axis of the same name iterate over it together.
    Constraints: (C1) an axis has the same extent in all nests; (C2) the body consists of nests,
    views, empties and `loop.visible`, and its terminator is `loop.yield`; (C3) `sizes` lists every
    size symbol used in the kernel.
    """

    name = "loop.kernel"
    sym_name = prop_def(StringAttr)
    sizes = prop_def(SymbolsAttr)
    schedule = opt_prop_def(ScheduleAttr)
    body = region_def("single_block")
    traits = traits_def(SymbolOpInterface(), IsolatedFromAbove())

    @staticmethod
    def of(name: str, types: Sequence[Attribute], sizes: Sequence[Symbol]) -> KernelOp:
        """A kernel with an empty body."""
        return KernelOp.create(
            properties={"sym_name": StringAttr(name),
                        "sizes": SymbolsAttr(tuple(sizes))},
            regions=[Region(Block(arg_types=types))])

    @property
    def size_names(self) -> list[Symbol]:
        return list(self.sizes.data)

    @property
    def nests(self) -> list[NestOp]:
        return [op for op in listed(self.body.block) if type(op) is NestOp]

    @property
    def yielded(self) -> Sequence[SSAValue]:
        last = self.body.block.last_op
        assert last is not None
        return last.operands

    @property
    def taken(self) -> list[Attribute]:
        """The types of the tensors that it reads, then of those that it computes."""
        return [v.type for v in (*self.body.block.args, *self.yielded)]

    @property
    def axes(self) -> dict[Symbol, Expr]:
        """The axes of all nests with their extents, in order of appearance."""
        return {a.name: a.extent for nest in self.nests for a in nest.axes}

    def verify_(self) -> None:
        found: dict[Symbol, Expr] = {}
        for nest in self.nests:
            for axis in nest.axes:
                if found.setdefault(axis.name, axis.extent) != axis.extent:
                    raise VerifyException(
                        f"C1: axis {axis.name} has extents {found[axis.name]} and {axis.extent}")
        if not isinstance(self.body.block.last_op, YieldOp):
            raise VerifyException("C2: loop.kernel must end in loop.yield")
        for op in self.body.block.ops:
            if not isinstance(op, (NestOp, ViewOp, EmptyOp, VisibleOp, YieldOp)):
                raise VerifyException("C2: loop.kernel must hold only nests, views, empty "
                                      f"tensors and loop.visible, not {op.name}")
        extents = [axis.extent for nest in self.nests for axis in nest.axes]
        if unnamed := unnamed_sizes(self.body, self.size_names, extents):
            raise VerifyException(
                f"C3: loop.kernel does not name the sizes {t.format_symbols(unnamed)}")

    def print(self, printer: Printer) -> None:
        print_signature(printer, self.sym_name, self.body.block.args)
        results = ", ".join(short_type(v) for v in self.yielded)
        printer.print_string(f" -> ({results})")
        print_sizes(printer, self.sizes)
        print_kernel_schedule(printer, self.schedule)
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False)

    @classmethod
    def parse(cls, parser: Parser) -> KernelOp:
        name, arguments = parse_signature(parser, t.parse_tensor_type)
        parser.parse_punctuation("->")
        parser.parse_comma_separated_list(
            parser.Delimiter.PAREN, lambda: t.parse_tensor_type(parser))
        properties: dict[str, Attribute] = {
            "sym_name": name, "sizes": parse_sizes(parser), **parse_kernel_schedule(parser)}
        return KernelOp.create(properties=properties, regions=[parser.parse_region(arguments)])


@irdl_op_definition
class CallOp(StrataOperation):
    """Call a kernel: `%y = loop.call @k0(%x) sizes(batch) : f32[batch, 8]`.

    `sizes` passes the kernel's size parameters, as expressions over the function's sizes.
    Constraints: (C1) the module has a kernel of that name; (C2) one size per size parameter of
    the kernel; (C3) operands and results have the element types, ranks and constant sizes of what
    the kernel reads and yields.
    """

    name = "loop.call"
    kernel = prop_def(StringAttr)
    sizes = prop_def(SizesAttr)
    inputs = var_operand_def(TensorType)
    results_ = var_result_def(TensorType)
    traits = traits_def(Pure())

    @staticmethod
    def of(
        kernel: str, inputs: Sequence[SSAValue], sizes: Sequence[Size],
        types: Sequence[TensorType],
    ) -> CallOp:
        return CallOp.create(
            operands=inputs, result_types=types,
            properties={"kernel": StringAttr(kernel), "sizes": SizesAttr.of(sizes)})

    def target(self) -> KernelOp:
        """The called kernel. Raises ValueError if the module has no kernel of that name."""
        found = callee_of(self, self.kernel.data)
        if isinstance(found, KernelOp):
            return found
        raise ValueError(f"the module has no loop.kernel @{self.kernel.data}")

    def verify_(self) -> None:
        values = [v.type for v in (*self.inputs, *self.results)]
        check_kernel_call(self, self.kernel.data, len(self.sizes.data), values)

    def print(self, printer: Printer) -> None:
        print_call(printer, self.kernel, self.inputs, self.sizes)
        printer.print_string(f" : {', '.join(short_type(r) for r in self.results)}")

    @classmethod
    def parse(cls, parser: Parser) -> CallOp:
        kernel, inputs, sizes = parse_call(parser)
        parser.parse_punctuation(":")
        types = parser.parse_comma_separated_list(
            parser.Delimiter.NONE, lambda: t.parse_tensor_type(parser))
        return CallOp.of(kernel, inputs, sizes, types)
