"""The operations of the `host` level: buffers, constants, and launches of kernels, in order.

    %w = host.constant #strata.weight<"w", "3f2a"> : f32[64, 8]
    %h = host.alloc offset 0 : f32[batch, 64]
    host.launch @k0(%x, %h) sizes(batch)
    host.launch @k1(%h, %w, %y) sizes(batch)

The function that contains them is defined in dialects/host/func.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from dialects.classes import StrataOperation
from dialects.definition import irdl_op_definition
from dialects.strata import types as t
from dialects.strata.callees import check_kernel_call
from dialects.strata.same_elements import check_same_elements
from dialects.strata.types import Array, BufferType, ExprAttr, LiteralAttr, SizesAttr, WeightAttr
from dialects.strata.weights import WeightStore
from dialects.symbolic.expr import Expr, Size
from dialects.symbolic.symbol import Symbol
from dialects.text.directives import Buffer, Known
from dialects.text.region_syntax import parse_call, print_call
from dialects.text.syntax import (
    attribute_of,
    format_attribute,
    parse_attribute,
    parse_value,
)


class _BufferOp(StrataOperation):
    """An op whose single result is a buffer, printed as ` : f32[...]`."""

    result = result_def(BufferType)

    @property
    def type(self) -> BufferType:
        type_ = self.results[0].type
        assert isinstance(type_, BufferType)
        return type_


def contents_of(value: Attribute, type_: BufferType, weights: WeightStore) -> Array:
    """The elements of a constant, with a buffer's shape. Raises KeyError if the store lacks them.
    """
    import numpy as np

    if isinstance(value, WeightAttr):
        return weights.contents(value)
    assert isinstance(value, LiteralAttr) and type_.static_shape is not None
    return np.array(value.data, type_.dtype).reshape(type_.static_shape)


@irdl_op_definition
class ConstantOp(_BufferOp):
    """A buffer of constant values: a weight by handle, or a small literal.

    The buffer is filled once, when the model is loaded, and never written.
    """

    name = "host.constant"
    value = prop_def(Attribute)
    result = result_def(BufferType)
    traits = traits_def(Pure())

    @staticmethod
    def of(value: Attribute, type_: BufferType) -> ConstantOp:
        return ConstantOp.create(properties={"value": value}, result_types=[type_])

    def array(self, weights: WeightStore) -> Array:
        """The values, with the buffer's shape. Raises KeyError if the store lacks the weight."""
        return contents_of(self.value, self.type, weights)

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {format_attribute(self.value)} : {self.type.short}")

    @classmethod
    def parse(cls, parser: Parser) -> ConstantOp:
        value = parse_attribute(parser)
        parser.parse_punctuation(":")
        return ConstantOp.of(value, t.parse_buffer_type(parser))


@irdl_op_definition
class AllocOp(_BufferOp):
    """Allocate an uninitialized buffer for intermediate values; `offset` in bytes in the arena."""

    name = "host.alloc"
    offset = opt_prop_def(ExprAttr)
    result = result_def(BufferType)

    @staticmethod
    def of(type_: BufferType, offset: Size | None = None) -> AllocOp:
        properties = {} if offset is None else {"offset": attribute_of(Expr.of(offset))}
        return AllocOp.create(properties=properties, result_types=[type_])

    def print(self, printer: Printer) -> None:
        if self.offset is not None:
            printer.print_string(f" offset {self.offset.data}")
        printer.print_string(f" : {self.type.short}")

    @classmethod
    def parse(cls, parser: Parser) -> AllocOp:
        offset = t.parse_size(parser) if parser.parse_optional_keyword("offset") else None
        parser.parse_punctuation(":")
        return AllocOp.of(t.parse_buffer_type(parser), offset)


@irdl_op_definition
class ViewOp(_BufferOp):
    """The same memory under another shape: `%v = host.view %x : f32[batch, 768]`.

    Constraint: (C1) the element type and the number of elements are preserved, as far as sizes are
    known.
    """

    name = "host.view"
    source = operand_def(BufferType)
    result = result_def(BufferType)
    traits = traits_def(Pure())
    custom_directives = (Known, Buffer)
    assembly_format = ("custom<Known>($source, type($source)) `:` "
                       "custom<Buffer>(type($result)) attr-dict")

    @staticmethod
    def of(source: SSAValue, type_: BufferType) -> ViewOp:
        return ViewOp.create(operands=[source], result_types=[type_])

    def verify_(self) -> None:
        check_same_elements(self, self.source, self.result)


@irdl_op_definition
class PartOp(ViewOp):
    """Some of the memory, as a buffer: `%p = host.part %x[512] : f32[8, 64]`.

    Its elements are those of the source, in row-major order, from element `first` on.
    Constraints: (C1) the element type is preserved; (C2) the part lies inside the source, as far as
    sizes are known.
    """

    name = "host.part"
    source = operand_def(BufferType)
    first = prop_def(ExprAttr)
    result = result_def(BufferType)
    traits = traits_def(Pure())
    assembly_format = None

    @staticmethod
    def from_element(source: SSAValue, first: Size, type_: BufferType) -> PartOp:
        return PartOp.create(operands=[source], result_types=[type_],
                             properties={"first": attribute_of(Expr.of(first))})

    @property
    def offset(self) -> Expr:
        """The offset in bytes."""
        return self.first.data * t.byte_width(self.type.element)

    def verify_(self) -> None:
        source = t.buffer_type(self.source)
        if source.element != self.type.element:
            raise VerifyException(f"C1: host.part changes the element type of {source.short} to "
                                  f"{self.type.element}")
        left = (source.count - self.first.data - self.type.count).constant
        first = self.first.data.constant
        if (left is not None and left < 0) or (first is not None and first < 0):
            raise VerifyException(f"C2: host.part of {source.short} from element "
                                  f"{self.first.data} on has no {self.type.short}")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.source)
        printer.print_string(f"[{self.first.data}] : {self.type.short}")

    @classmethod
    def parse(cls, parser: Parser) -> PartOp:
        source = parse_value(parser)
        with parser.in_square_brackets():
            first = t.parse_size(parser)
        parser.parse_punctuation(":")
        return PartOp.from_element(source, first, t.parse_buffer_type(parser))


class OtherOp(StrataOperation):
    """An operation that another package defines, for a level of its own around `host`.

    Targets do not support it, so it must be lowered before the block level. `execute` defines its
    meaning.
    """

    def execute(self, state: Launches) -> None:
        """Execute the operation on the memory of a run."""
        raise NotImplementedError(self.name)


class Launches(Protocol):
    """The part of a run that `OtherOp.execute` may use."""

    def launch(
        self, op: Operation, name: str, buffers: Sequence[SSAValue], extents: Sequence[Expr]
    ) -> None:
        """Run a kernel by its name on buffers, with these values of its sizes."""
        ...


@irdl_op_definition
class LaunchOp(StrataOperation):
    """Launch a kernel on the buffers that it reads, then those that it writes. Launches are
    ordered.

    `sizes` passes the kernel's size parameters, in its order, as expressions over the function's
    sizes. `when`, if it is given, is 1 at sizes for which the launch happens, and 0 at others:
    several kernels that compute the same then take turns, each at the sizes that suit it.

        host.launch @k0(%x, %y) sizes(n) when min(1, n floordiv 64)

    Constraints: (C1) the module has a kernel of that name; (C2) one size per size parameter of
    the kernel; (C3) the buffers have the element types, ranks and constant sizes of what the
    kernel reads and writes.
    """

    name = "host.launch"
    kernel = prop_def(StringAttr)
    sizes = prop_def(SizesAttr)
    when = opt_prop_def(ExprAttr)
    buffers = var_operand_def(BufferType)

    @staticmethod
    def of(
        kernel: str, buffers: Sequence[SSAValue], sizes: Sequence[Size], when: Expr | None = None
    ) -> LaunchOp:
        chosen = {} if when is None else {"when": attribute_of(when)}
        return LaunchOp.create(
            operands=buffers,
            properties={"kernel": StringAttr(kernel), "sizes": SizesAttr.of(sizes), **chosen})

    def happens(self, sizes: Mapping[Symbol, int]) -> bool:
        """Whether kernels run at these sizes of the function."""
        return self.when is None or self.when.data.evaluate(sizes) != 0

    def verify_(self) -> None:
        check_kernel_call(self, self.kernel.data, len(self.sizes.data),
                          [buffer.type for buffer in self.buffers])

    def print(self, printer: Printer) -> None:
        print_call(printer, self.kernel, self.buffers, self.sizes)
        if self.when is not None:
            printer.print_string(f" when {self.when.data}")

    @classmethod
    def parse(cls, parser: Parser) -> LaunchOp:
        call = parse_call(parser)
        when = t.parse_size(parser) if parser.parse_optional_keyword("when") else None
        return LaunchOp.of(*call, when)


@irdl_op_definition
class CopyOp(StrataOperation):
    """Copy a whole buffer: `host.copy %from, %to`.

    Constraint: (C1) both have the same element type and number of elements, as far as sizes are
    known.
    """

    name = "host.copy"
    source = operand_def(BufferType)
    target = operand_def(BufferType)
    custom_directives = (Known,)
    assembly_format = ("custom<Known>($source, type($source)) `,` "
                       "custom<Known>($target, type($target)) attr-dict")

    @staticmethod
    def of(source: SSAValue, target: SSAValue) -> CopyOp:
        return CopyOp.create(operands=[source, target])

    def verify_(self) -> None:
        check_same_elements(self, self.source, self.target)


@irdl_op_definition
class FreeOp(StrataOperation):
    """Free a buffer that was allocated without an offset or returned by a call."""

    name = "host.free"
    buffer = operand_def(BufferType)
    custom_directives = (Known,)
    assembly_format = "custom<Known>($buffer, type($buffer)) attr-dict"

    @staticmethod
    def of(buffer: SSAValue) -> FreeOp:
        return FreeOp.create(operands=[buffer])
