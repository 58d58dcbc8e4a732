"""The operations of the `block` level: one program of a kernel, on tiles.

Indices are written as expressions (see `dialects.expr`) over
- `%name`: an index value (a program id, a loop counter) or a tile of indices,
- size symbols (`batch`), which the kernel receives as integers,
- `t0`, `t1` ...: the position inside dim 0, 1 ... of the tile that the operation makes or stores.

    %x = block.load %X[%r, %c + t0] check [1] pad 0.0 : tile<[64]xf32>

reads element (%r, %c + t0) for t0 in 0..63; dim 1 is checked against the buffer's size, and lanes
outside read 0.0. Checks are on buffer dims, so padding of convolutions needs nothing more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute, Block, BlockArgument, Dialect, Operation, Region, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
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
from xdsl.traits import IsolatedFromAbove, IsTerminator, Pure, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from dialects import types as t
from dialects.block.syntax import (
    IndexReader,
    parse_mapped_values,
    print_index,
    print_indices,
    print_mapped_values,
)
from dialects.expr import Expr, Size
from dialects.schedule import ScheduleAttr
from dialects.syntax import parse_value, parse_values, print_values
from dialects.types import BufferType, ExprAttr, LiteralAttr, SizesAttr, TileType

COMBINERS = ("add", "mul", "max", "min", "and", "or")
"""How two values merge in a reduction. max and min propagate NaN."""


@irdl_op_definition
class YieldOp(IRDLOperation):
    """End a region: the next iteration's values in `block.for`, the result in `block.map`."""

    name = "block.yield"
    values = var_operand_def()
    traits = traits_def(IsTerminator(), Pure())

    @staticmethod
    def of(*values: SSAValue) -> YieldOp:
        return YieldOp.create(operands=values)

    def print(self, printer: Printer) -> None:
        if self.values:
            printer.print_string(" ")
            print_values(printer, self.values)

    @classmethod
    def parse(cls, parser: Parser) -> YieldOp:
        return YieldOp.create(operands=parse_values(parser))


@irdl_op_definition
class KernelOp(IRDLOperation):
    """A kernel: the body is run once per program of the grid, in any order or in parallel.

        block.kernel @copy(%x: f32[n], %y: f32[n]) grid(%p: n ceildiv 64) sizes(n) { ... }

    Arguments: buffers, then one program id (index) per grid axis, 0 <= id < extent. `sizes` names
    the size symbols, passed as 64-bit integers in that order. `schedule` is how the kernel was
    made; targets read warps and stages from it. Programs must not write what others read.
    Constraints: (C1) grid has one extent per index argument; (C2) every symbol in an expression is
    in `sizes`.
    """

    name = "block.kernel"
    sym_name = prop_def(StringAttr)
    grid = prop_def(SizesAttr)
    sizes = prop_def(ArrayAttr[StringAttr])
    schedule = opt_prop_def(ScheduleAttr)
    body = region_def("single_block")
    traits = traits_def(SymbolOpInterface(), IsolatedFromAbove())

    @staticmethod
    def of(
        name: str, buffers: Sequence[BufferType], grid: Sequence[Size], sizes: Sequence[str],
        schedule: ScheduleAttr | None = None,
    ) -> KernelOp:
        """A kernel with an empty body."""
        properties: dict[str, Attribute] = {
            "sym_name": StringAttr(name), "grid": SizesAttr.of(grid),
            "sizes": ArrayAttr([StringAttr(s) for s in sizes]),
        }
        if schedule is not None:
            properties["schedule"] = schedule
        block = Block(arg_types=[*buffers, *[t.index] * len(grid)])
        return KernelOp.create(properties=properties, regions=[Region(block)])

    @property
    def buffers(self) -> tuple[BlockArgument, ...]:
        return tuple(a for a in self.body.block.args if isinstance(a.type, BufferType))

    @property
    def program_ids(self) -> tuple[BlockArgument, ...]:
        return tuple(a for a in self.body.block.args if a.type == t.index)

    @property
    def size_names(self) -> list[str]:
        return [s.data for s in self.sizes.data]

    def verify_(self) -> None:
        if len(self.program_ids) != len(self.grid.data):
            raise VerifyException("C1: block.kernel needs one program id per grid extent")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        with printer.in_parens():
            printer.print_list(self.buffers, lambda a: _print_buffer_argument(printer, a))
        printer.print_string(" grid(")
        for k, (argument, extent) in enumerate(
            zip(self.program_ids, self.grid.data, strict=True)
        ):
            printer.print_string(", " if k else "")
            printer.print_ssa_value(argument)
            printer.print_string(f": {extent}")
        printer.print_string(f") sizes({', '.join(self.size_names)}) ")
        if self.schedule is not None:
            printer.print_string(f"schedule{self.schedule.text} ")
        printer.print_region(self.body, print_entry_block_args=False)

    @classmethod
    def parse(cls, parser: Parser) -> KernelOp:
        name = parser.parse_symbol_name()
        paren = parser.Delimiter.PAREN
        arguments = parser.parse_comma_separated_list(
            paren, lambda: _parse_buffer_argument(parser))
        parser.parse_keyword("grid")
        grid = parser.parse_comma_separated_list(paren, lambda: _parse_program_id(parser))
        parser.parse_keyword("sizes")
        sizes = parser.parse_comma_separated_list(paren, parser.parse_identifier)
        properties: dict[str, Attribute] = {
            "sym_name": name, "grid": SizesAttr.of([e for _, e in grid]),
            "sizes": ArrayAttr([StringAttr(s) for s in sizes]),
        }
        if parser.parse_optional_keyword("schedule"):
            properties["schedule"] = ScheduleAttr(ScheduleAttr.parse_parameter(parser))
        body = parser.parse_region([*arguments, *(a for a, _ in grid)])
        return KernelOp.create(properties=properties, regions=[body])


def _print_buffer_argument(printer: Printer, argument: BlockArgument) -> None:
    assert isinstance(argument.type, BufferType)
    printer.print_ssa_value(argument)
    printer.print_string(f": {argument.type.short}")


def _parse_buffer_argument(parser: Parser) -> Parser.Argument:
    argument = parser.parse_argument(expect_type=False)
    parser.parse_punctuation(":")
    return argument.resolve(t.parse_buffer_type(parser))


def _parse_program_id(parser: Parser) -> tuple[Parser.Argument, Expr]:
    argument = parser.parse_argument(expect_type=False)
    parser.parse_punctuation(":")
    return argument.resolve(t.index), t.parse_size(parser)


@irdl_op_definition
class ForOp(IRDLOperation):
    """A loop with carried tiles.

        %acc = block.for %k = 0 to 768 step 4 unroll 4 (%a = %zero) { ... block.yield %next }

    `lower` and `upper` are expressions over `%` index values and sizes; the counter runs
    lower, lower + step, ... while below upper. `unroll` is a hint: so many bodies per trip.
    A loop marked `parallel` carries nothing and its trips are independent.
    Constraints: (C1) carried values, region arguments after the counter, yields and results have
    equal types; (C2) step >= 1; (C3) a parallel loop carries nothing.
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
        carried: Sequence[SSAValue] = (), *, unroll: int = 1, parallel: bool = False,
        body: Region | None = None,
    ) -> ForOp:
        """A loop, its body empty unless given; `%0`, `%1` of the bounds stand for `indices`."""
        types = [c.type for c in carried]
        properties: dict[str, Attribute] = {
            "lower": ExprAttr(Expr.of(lower)), "upper": ExprAttr(Expr.of(upper)),
            "step": ExprAttr(Expr.of(step)), "unroll": ExprAttr(Expr.of(unroll)),
            "kind": StringAttr("parallel" if parallel else "serial"),
        }
        return ForOp.build(
            operands=[list(indices), list(carried)], result_types=[types], properties=properties,
            regions=[body or Region(Block(arg_types=[t.index, *types]))],
        )

    @property
    def counter(self) -> BlockArgument:
        return self.body.block.args[0]

    @property
    def is_parallel(self) -> bool:
        return self.kind.data == "parallel"

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
            raise VerifyException("C1: block.for carries, yields and returns other types")
        if (self.step.data.constant or 0) < 1:
            raise VerifyException("C2: the step of block.for must be at least 1")
        if self.is_parallel and types:
            raise VerifyException("C3: a parallel block.for carries nothing")

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
        if self.is_parallel:
            printer.print_string(" parallel")
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
        parallel = parser.parse_optional_keyword("parallel") is not None
        carried = parser.parse_optional_comma_separated_list(
            parser.Delimiter.PAREN, lambda: _parse_carried(parser)) or []
        body = parser.parse_region([counter, *(a for a, _ in carried)])
        return ForOp.of(lower, upper, step, reader.values, [v for _, v in carried],
                        unroll=unroll, parallel=parallel, body=body)


def _print_carried(printer: Printer, argument: SSAValue, value: SSAValue) -> None:
    printer.print_ssa_value(argument)
    printer.print_string(" = ")
    printer.print_ssa_value(value)


def _parse_carried(parser: Parser) -> tuple[Parser.Argument, SSAValue]:
    argument = parser.parse_argument(expect_type=False)
    parser.parse_punctuation("=")
    value = parse_value(parser)
    return argument.resolve(value.type), value


class _AccessOp(IRDLOperation):
    """What load and store share: a buffer, one index expression per buffer dim, checks."""

    @staticmethod
    def access(where: Sequence[Size], checks: Sequence[int]) -> dict[str, Attribute]:
        return {"where": SizesAttr.of(where), "checks": SizesAttr.of(checks)}

    @property
    def checked_dims(self) -> tuple[int, ...]:
        """The buffer dims whose index must be compared with 0 and the size."""
        checks = self.properties["checks"]
        assert isinstance(checks, SizesAttr)
        return tuple(c.constant or 0 for c in checks.data)

    @property
    def exprs(self) -> tuple[Expr, ...]:
        """One index expression per buffer dim."""
        where = self.properties["where"]
        assert isinstance(where, SizesAttr)
        return where.data


@irdl_op_definition
class LoadOp(_AccessOp):
    """Read a tile from a buffer: result[t0, t1 ...] = buffer[where].

    Symbols of `where`: `%0`, `%1` ... for `indices` (printed by name), `t0` ... for tile dims, and
    sizes. An index operand may be a tile of integers (a gather): dim d of it stands for tile dim
    `index_dims[k][d]`. Checked dims outside the buffer read `pad`.
    Constraints: (C1) one expression per buffer dim; (C2) unchecked indices are in range.
    The tile's element type is the buffer's, without its sign. Source: vector.transfer_read, tl.load.
    """

    name = "block.load"
    buffer = operand_def(BufferType)
    indices = var_operand_def()
    where = prop_def(SizesAttr)
    index_dims = prop_def(ArrayAttr[SizesAttr])
    checks = prop_def(SizesAttr)
    pad = prop_def(LiteralAttr)
    result = result_def(TileType)
    traits = traits_def()

    @staticmethod
    def of(
        buffer: SSAValue, where: Sequence[Size], indices: Sequence[SSAValue], type_: TileType, *,
        checks: Sequence[int] = (), pad: float | bool = 0,
        index_dims: Sequence[Sequence[int]] | None = None,
    ) -> LoadOp:
        dims = index_dims if index_dims is not None else [()] * len(indices)
        properties = _AccessOp.access(where, checks) | {
            "pad": LiteralAttr((pad,)), "index_dims": ArrayAttr([SizesAttr.of(d) for d in dims])}
        return LoadOp.build(operands=[buffer, list(indices)], result_types=[type_],
                            properties=properties)

    @property
    def pad_value(self) -> float | bool:
        return self.pad.data[0]

    def verify_(self) -> None:
        _verify_access(self, self.buffer, self.index_dims)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        _print_access(printer, self, self.buffer, self.indices, self.index_dims)
        if self.checks.data:
            printer.print_string(f" pad {t.format_number(self.pad_value)}")
        assert isinstance(self.result.type, TileType)
        printer.print_string(f" : {self.result.type.short}")

    @classmethod
    def parse(cls, parser: Parser) -> LoadOp:
        buffer, reader, where, checks, dims = _parse_access(parser)
        pad = t.parse_number(parser) if parser.parse_optional_keyword("pad") else 0
        parser.parse_punctuation(":")
        return LoadOp.of(buffer, where, reader.values, t.parse_tile_type(parser),
                         checks=checks, pad=pad, index_dims=dims)


@irdl_op_definition
class StoreOp(_AccessOp):
    """Write a tile to a buffer: buffer[where] = value[t0, t1 ...]; checked dims outside are skipped.

    Symbols and constraints as in `block.load`. Positions written by one store are distinct.
    Source: vector.transfer_write, tl.store.
    """

    name = "block.store"
    value = operand_def(TileType)
    buffer = operand_def(BufferType)
    indices = var_operand_def()
    where = prop_def(SizesAttr)
    index_dims = prop_def(ArrayAttr[SizesAttr])
    checks = prop_def(SizesAttr)

    @staticmethod
    def of(
        value: SSAValue, buffer: SSAValue, where: Sequence[Size], indices: Sequence[SSAValue], *,
        checks: Sequence[int] = (), index_dims: Sequence[Sequence[int]] | None = None,
    ) -> StoreOp:
        dims = index_dims if index_dims is not None else [()] * len(indices)
        properties = _AccessOp.access(where, checks) | {
            "index_dims": ArrayAttr([SizesAttr.of(d) for d in dims])}
        return StoreOp.build(operands=[value, buffer, list(indices)], properties=properties)

    def verify_(self) -> None:
        _verify_access(self, self.buffer, self.index_dims)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.value)
        printer.print_string(", ")
        _print_access(printer, self, self.buffer, self.indices, self.index_dims)

    @classmethod
    def parse(cls, parser: Parser) -> StoreOp:
        value = parse_value(parser)
        parser.parse_punctuation(",")
        buffer, reader, where, checks, dims = _parse_access(parser)
        return StoreOp.of(value, buffer, where, reader.values, checks=checks, index_dims=dims)


def _verify_access(op: _AccessOp, buffer: SSAValue, dims: ArrayAttr[SizesAttr]) -> None:
    assert isinstance(buffer.type, BufferType)
    if len(op.exprs) != buffer.type.rank:
        raise VerifyException(f"C1: {op.name} needs {buffer.type.rank} index expressions")
    count = len(dims.data)
    for name in {s for e in op.exprs for s in e.symbols if s.startswith("%")}:
        if int(name[1:]) >= count:
            raise VerifyException(f"{op.name} uses index operand {name}, but has {count}")


def _print_access(
    printer: Printer, op: _AccessOp, buffer: SSAValue, indices: Sequence[SSAValue],
    dims: ArrayAttr[SizesAttr],
) -> None:
    printer.print_ssa_value(buffer)
    print_indices(printer, op.exprs, indices)
    tiles = [(v, d) for v, d in zip(indices, dims.data, strict=True) if d.data]
    if tiles:
        printer.print_string(" with ")
        print_mapped_values(printer, tiles)
    if op.checked_dims:
        printer.print_string(f" check {list(op.checked_dims)}")


def _parse_access(
    parser: Parser,
) -> tuple[SSAValue, IndexReader, list[Expr], list[int], list[tuple[int, ...]]]:
    buffer = parse_value(parser)
    reader = IndexReader(parser)
    where = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, reader.parse)
    mapped: Mapping[SSAValue, tuple[int, ...]] = {}
    if parser.parse_optional_keyword("with"):
        mapped = dict(parse_mapped_values(parser))
    checks: list[int] = []
    if parser.parse_optional_keyword("check"):
        checks = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
    return buffer, reader, where, checks, [mapped.get(v, ()) for v in reader.values]


@irdl_op_definition
class FullOp(IRDLOperation):
    """A tile filled with one number: `%z = block.full 0.0 : tile<6x[64]xf32>`."""

    name = "block.full"
    value = prop_def(LiteralAttr)
    result = result_def(TileType)
    traits = traits_def(Pure())

    @staticmethod
    def of(value: float | bool, type_: TileType) -> FullOp:
        return FullOp.create(properties={"value": LiteralAttr((value,))}, result_types=[type_])

    @property
    def number(self) -> float | bool:
        return self.value.data[0]

    def print(self, printer: Printer) -> None:
        assert isinstance(self.result.type, TileType)
        printer.print_string(f" {t.format_number(self.number)} : {self.result.type.short}")

    @classmethod
    def parse(cls, parser: Parser) -> FullOp:
        value = t.parse_number(parser)
        parser.parse_punctuation(":")
        return FullOp.of(value, t.parse_tile_type(parser))


@irdl_op_definition
class MapOp(IRDLOperation):
    """Apply a scalar body to every position of tiles.

        %y = block.map (%acc[0, 1], %bias[1]) : tile<6x[64]xf32> {
        ^bb0(%a: f32, %b: f32):
          %s = arith.addf %a, %b : f32
          block.yield %s
        }

    The list behind an operand says which result dim each of its dims is: what is missing is
    broadcast. An operand of type `index` is a scalar. The body is `arith` and `math` on scalars.
    Several results have equal dims. Constraints: (C1) dims agree with the lists; (C2) the body
    takes the operands' element types and yields the results'.
    """

    name = "block.map"
    inputs = var_operand_def()
    dims = prop_def(ArrayAttr[SizesAttr])
    results_ = var_result_def(TileType)
    body = region_def("single_block")
    traits = traits_def(Pure())

    @staticmethod
    def of(
        inputs: Sequence[SSAValue], dims: Sequence[Sequence[int]], types: Sequence[TileType],
        body: Region | None = None,
    ) -> MapOp:
        region = body or Region(Block(arg_types=[element_type(v) for v in inputs]))
        return MapOp.create(
            operands=inputs, result_types=types, regions=[region],
            properties={"dims": ArrayAttr([SizesAttr.of(d) for d in dims])})

    @property
    def dim_lists(self) -> list[tuple[int, ...]]:
        """Per input: which result dim each of its dims is."""
        return [tuple(e.constant or 0 for e in d.data) for d in self.dims.data]

    @property
    def result_type(self) -> TileType:
        type_ = self.results[0].type
        assert isinstance(type_, TileType)
        return type_

    @property
    def yielded(self) -> Sequence[SSAValue]:
        last = self.body.block.last_op
        assert last is not None
        return last.operands

    def verify_(self) -> None:
        shape = self.result_type.shape
        for value, dims in zip(self.inputs, self.dim_lists, strict=True):
            found = value.type.shape if isinstance(value.type, TileType) else ()
            if found != tuple(shape[d] for d in dims):
                raise VerifyException(
                    f"C1: block.map reads {found} as dims {dims} of {shape}")
        if [a.type for a in self.body.block.args] != [element_type(v) for v in self.inputs]:
            raise VerifyException("C2: the body of block.map takes other element types")
        if [v.type for v in self.yielded] != [element_type(r) for r in self.results]:
            raise VerifyException("C2: the body of block.map yields other element types")

    def print(self, printer: Printer) -> None:
        printer.print_string(" (")
        print_mapped_values(printer, list(zip(self.inputs, self.dims.data, strict=True)))
        types = [r.type.short for r in self.results if isinstance(r.type, TileType)]
        printer.print_string(f") : {', '.join(types)} ")
        printer.print_region(self.body)

    @classmethod
    def parse(cls, parser: Parser) -> MapOp:
        with parser.in_parens():
            mapped = parse_mapped_values(parser)
        parser.parse_punctuation(":")
        types = parser.parse_comma_separated_list(
            parser.Delimiter.NONE, lambda: t.parse_tile_type(parser))
        body = parser.parse_region()
        return MapOp.of([v for v, _ in mapped], [d for _, d in mapped], types, body)


def element_type(value: SSAValue) -> Attribute:
    """The scalar type of a tile's elements; `index` for an index value."""
    return value.type.element if isinstance(value.type, TileType) else value.type


@irdl_op_definition
class ReduceOp(IRDLOperation):
    """Combine the values along one dim: `%m = block.reduce max %x dim 1 : tile<2xf32>`.

    The order of combination is free (floating-point sums may differ in rounding).
    Constraint (C1): the result has the operand's dims without `dim`.
    """

    name = "block.reduce"
    value = operand_def(TileType)
    combiner = prop_def(StringAttr)
    dim = prop_def(ExprAttr)
    result = result_def(TileType)
    traits = traits_def(Pure())

    @staticmethod
    def of(combiner: str, value: SSAValue, dim: int) -> ReduceOp:
        """Reduce; lanes stay where they are, or vanish with their dim."""
        type_ = value.type
        assert isinstance(type_, TileType)
        shape = [s for k, s in enumerate(type_.shape) if k != dim]
        lanes = type_.lanes
        kept = None if lanes is None or lanes == dim else lanes - (lanes > dim)
        return ReduceOp.create(
            operands=[value], result_types=[t.tile(type_.element, shape, kept)],
            properties={"combiner": StringAttr(combiner), "dim": ExprAttr(Expr.of(dim))})

    @property
    def axis(self) -> int:
        return self.dim.data.constant or 0

    def verify_(self) -> None:
        if self.combiner.data not in COMBINERS:
            raise VerifyException(f"block.reduce has no combiner {self.combiner.data!r}")
        assert isinstance(self.value.type, TileType) and isinstance(self.result.type, TileType)
        shape = self.value.type.shape
        if self.result.type.shape != shape[: self.axis] + shape[self.axis + 1:]:
            raise VerifyException("C1: block.reduce keeps all dims but one")

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.combiner.data} ")
        printer.print_ssa_value(self.value)
        assert isinstance(self.result.type, TileType)
        printer.print_string(f" dim {self.axis} : {self.result.type.short}")

    @classmethod
    def parse(cls, parser: Parser) -> ReduceOp:
        combiner = parser.parse_identifier()
        value = parse_value(parser)
        parser.parse_keyword("dim")
        dim = parser.parse_integer()
        parser.parse_punctuation(":")
        type_ = t.parse_tile_type(parser)
        return ReduceOp.create(
            operands=[value], result_types=[type_],
            properties={"combiner": StringAttr(combiner), "dim": ExprAttr(Expr.of(dim))})


@irdl_op_definition
class DotOp(IRDLOperation):
    """Matrix product with accumulation: `%d = block.dot %a, %b, %c : tile<128x128xf32>`.

    a is m x k, b is k x n, c and the result are m x n of the accumulation type.
    `precision` is how f32 operands multiply: "ieee" or "tf32".
    Source: tl.dot, vector.contract.
    """

    name = "block.dot"
    a = operand_def(TileType)
    b = operand_def(TileType)
    c = operand_def(TileType)
    precision = prop_def(StringAttr)
    result = result_def(TileType)
    traits = traits_def(Pure())

    @staticmethod
    def of(a: SSAValue, b: SSAValue, c: SSAValue, precision: str = "ieee") -> DotOp:
        return DotOp.create(operands=[a, b, c], result_types=[c.type],
                            properties={"precision": StringAttr(precision)})

    def verify_(self) -> None:
        a, b, c = (v.type for v in self.operands)
        assert isinstance(a, TileType) and isinstance(b, TileType) and isinstance(c, TileType)
        if a.shape[1] != b.shape[0] or c.shape != (a.shape[0], b.shape[1]):
            raise VerifyException(f"block.dot of {a.short}, {b.short} into {c.short}")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        print_values(printer, self.operands)
        printer.print_string(f" {self.precision.data} : ")
        assert isinstance(self.result.type, TileType)
        printer.print_string(self.result.type.short)

    @classmethod
    def parse(cls, parser: Parser) -> DotOp:
        a, b, c = parse_values(parser)
        precision = parser.parse_identifier()
        parser.parse_punctuation(":")
        return DotOp.create(operands=[a, b, c], result_types=[t.parse_tile_type(parser)],
                            properties={"precision": StringAttr(precision)})


@irdl_op_definition
class IndexOp(IRDLOperation):
    """A tile of index values: `%m = block.index %p*128 + t0 : tile<128xindex>`.

    Of no dims it is a scalar tile. Symbols as in `block.load`.
    """

    name = "block.index"
    indices = var_operand_def()
    expr = prop_def(ExprAttr)
    index_dims = prop_def(ArrayAttr[SizesAttr])
    result = result_def(TileType)
    traits = traits_def(Pure())

    @staticmethod
    def of(
        expr: Size, indices: Sequence[SSAValue], shape: Sequence[int], lanes: int | None = None,
        index_dims: Sequence[Sequence[int]] | None = None,
    ) -> IndexOp:
        dims = index_dims if index_dims is not None else [()] * len(indices)
        return IndexOp.create(
            operands=indices, result_types=[t.tile(t.index, shape, lanes)],
            properties={"expr": ExprAttr(Expr.of(expr)),
                        "index_dims": ArrayAttr([SizesAttr.of(d) for d in dims])})

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        print_index(printer, self.expr.data, self.indices)
        tiles = [(v, d) for v, d in zip(self.indices, self.index_dims.data, strict=True)
                 if d.data]
        if tiles:
            printer.print_string(" with ")
            print_mapped_values(printer, tiles)
        assert isinstance(self.result.type, TileType)
        printer.print_string(f" : {self.result.type.short}")

    @classmethod
    def parse(cls, parser: Parser) -> IndexOp:
        reader = IndexReader(parser)
        expr = reader.parse()
        mapped: Mapping[SSAValue, tuple[int, ...]] = {}
        if parser.parse_optional_keyword("with"):
            mapped = dict(parse_mapped_values(parser))
        parser.parse_punctuation(":")
        type_ = t.parse_tile_type(parser)
        return IndexOp.of(expr, reader.values, type_.shape, type_.lanes,
                          [mapped.get(v, ()) for v in reader.values])


@irdl_op_definition
class ValidOp(IRDLOperation):
    """Which positions lie below a bound: `%v = block.valid %c + t0 < 1000 : tile<[64]xi1>`."""

    name = "block.valid"
    indices = var_operand_def()
    expr = prop_def(ExprAttr)
    bound = prop_def(ExprAttr)
    result = result_def(TileType)
    traits = traits_def(Pure())

    @staticmethod
    def of(
        expr: Size, bound: Size, indices: Sequence[SSAValue], shape: Sequence[int],
        lanes: int | None = None,
    ) -> ValidOp:
        return ValidOp.create(
            operands=indices, result_types=[t.tile(t.i1, shape, lanes)],
            properties={"expr": ExprAttr(Expr.of(expr)), "bound": ExprAttr(Expr.of(bound))})

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        print_index(printer, self.expr.data, self.indices)
        printer.print_string(" < ")
        print_index(printer, self.bound.data, self.indices)
        assert isinstance(self.result.type, TileType)
        printer.print_string(f" : {self.result.type.short}")

    @classmethod
    def parse(cls, parser: Parser) -> ValidOp:
        reader = IndexReader(parser)
        expr = reader.parse()
        parser.parse_punctuation("<")
        bound = reader.parse()
        parser.parse_punctuation(":")
        type_ = t.parse_tile_type(parser)
        return ValidOp.of(expr, bound, reader.values, type_.shape, type_.lanes)


@irdl_op_definition
class ConvertOp(IRDLOperation):
    """The same values in another register layout: `block.convert %x : tile<[8]x4xf32>`.

    Constraint (C1): dims and element type stay.
    """

    name = "block.convert"
    value = operand_def(TileType)
    result = result_def(TileType)
    traits = traits_def(Pure())

    @staticmethod
    def of(value: SSAValue, lanes: int | None) -> ConvertOp:
        assert isinstance(value.type, TileType)
        type_ = t.tile(value.type.element, value.type.shape, lanes)
        return ConvertOp.create(operands=[value], result_types=[type_])

    def verify_(self) -> None:
        a, b = self.value.type, self.result.type
        assert isinstance(a, TileType) and isinstance(b, TileType)
        if a.shape != b.shape or a.element != b.element:
            raise VerifyException("C1: block.convert changes only the layout")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.value)
        assert isinstance(self.result.type, TileType)
        printer.print_string(f" : {self.result.type.short}")

    @classmethod
    def parse(cls, parser: Parser) -> ConvertOp:
        value = parse_value(parser)
        parser.parse_punctuation(":")
        return ConvertOp.create(operands=[value], result_types=[t.parse_tile_type(parser)])


@irdl_op_definition
class ScratchOp(IRDLOperation):
    """Memory private to one program, undefined at first: `%s = block.scratch : f32[8, 1024]`.

    Constraint (C1): the sizes are integers.
    """

    name = "block.scratch"
    result = result_def(BufferType)

    @staticmethod
    def of(type_: BufferType) -> ScratchOp:
        return ScratchOp.create(result_types=[type_])

    def verify_(self) -> None:
        assert isinstance(self.result.type, BufferType)
        if self.result.type.static_shape is None:
            raise VerifyException("C1: block.scratch needs constant sizes")

    def print(self, printer: Printer) -> None:
        assert isinstance(self.result.type, BufferType)
        printer.print_string(f" : {self.result.type.short}")

    @classmethod
    def parse(cls, parser: Parser) -> ScratchOp:
        parser.parse_punctuation(":")
        return ScratchOp.of(t.parse_buffer_type(parser))


BLOCK_OPS: list[type[Operation]] = [
    KernelOp, ForOp, YieldOp, LoadOp, StoreOp, FullOp, MapOp, ReduceOp, DotOp, IndexOp, ValidOp,
    ConvertOp, ScratchOp,
]
BlockDialect = Dialect("block", BLOCK_OPS)
