"""Operations of the `block` level on tiles: maps, reductions, products, indices and masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.irdl import (
    operand_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from dialects.block.syntax import (
    IndexReader,
    parse_mapped_values,
    print_index,
    print_mapped_values,
)
from dialects.classes import StrataOperation
from dialects.definition import irdl_op_definition
from dialects.strata import types as t
from dialects.strata.types import ExprAttr, LiteralAttr, SizesAttr, TileType
from dialects.symbolic.expr import Expr, Size
from dialects.text.directives import Known, Tile
from dialects.text.syntax import parse_value

COMBINERS = ("add", "mul", "max", "min", "and", "or")
"""How two values are combined in a reduction. max and min propagate NaN."""


def element_type(value: SSAValue) -> Attribute:
    """The scalar type of a tile's elements; `index` for an index value."""
    return value.type.element if isinstance(value.type, TileType) else value.type


@irdl_op_definition
class FullOp(StrataOperation):
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
class MapOp(StrataOperation):
    """Apply a scalar body to every position of tiles.

        %y = block.map (%acc[0, 1], %bias[1]) : tile<6x[64]xf32> {
        ^bb0(%a: f32, %b: f32):
          %s = arith.addf %a, %b : f32
          block.yield %s
        }

    The list after an operand maps each of its dims to a result dim; the operand is broadcast along
    the other dims. An operand of type `index` is a scalar. The body consists of scalar `arith` and
    `math` operations. All results have the same dims.
    Constraints: (C1) the operands' dims agree with the lists; (C2) the body's arguments have the
    operands' element types, and its yielded values those of the results; (C3) no tile lies in
    matrix registers.
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
        """For each input, the result dims to which its dims map."""
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
            raise VerifyException("C2: the body of block.map must take its inputs' element types")
        if [v.type for v in self.yielded] != [element_type(r) for r in self.results]:
            raise VerifyException("C2: the body of block.map must yield its results' element types")
        types = [v.type for v in (*self.inputs, *self.results)]
        if any(isinstance(type_, TileType) and type_.matrix for type_ in types):
            raise VerifyException("C3: block.map cannot compute in matrix registers")

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


class AlongDimOp(StrataOperation):
    """The base of operations that combine values along a dim: `NAME add %x dim 1 : TYPE`."""

    value = operand_def(TileType)
    combiner = prop_def(StringAttr)
    dim = prop_def(ExprAttr)
    result = result_def(TileType)
    traits = traits_def(Pure())

    @classmethod
    def typed(cls, combiner: str, value: SSAValue, dim: int, type_: Attribute) -> Self:
        """An operation with a result of that type."""
        return cls.create(
            operands=[value], result_types=[type_],
            properties={"combiner": StringAttr(combiner), "dim": ExprAttr(Expr.of(dim))})

    @property
    def axis(self) -> int:
        return self.dim.data.constant or 0

    def check_combiner(self, constraint: str) -> None:
        """Raise VerifyException, citing a constraint, for an unknown combiner."""
        if self.combiner.data not in COMBINERS:
            raise VerifyException(
                f"{constraint}: {self.name} has no combiner {self.combiner.data!r}")

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.combiner.data} ")
        printer.print_ssa_value(self.value)
        assert isinstance(self.result.type, TileType)
        printer.print_string(f" dim {self.axis} : {self.result.type.short}")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        combiner = parser.parse_identifier()
        value = parse_value(parser)
        parser.parse_keyword("dim")
        dim = parser.parse_integer()
        parser.parse_punctuation(":")
        return cls.typed(combiner, value, dim, t.parse_tile_type(parser))


@irdl_op_definition
class ReduceOp(AlongDimOp):
    """Combine the values along one dim: `%m = block.reduce max %x dim 1 : tile<2xf32>`.

    The order of combination is unspecified, so floating-point sums may differ in rounding.
    Constraints: (C1) the result has the operand's dims without `dim`; (C2) the combiner is one
    of COMBINERS.
    """

    name = "block.reduce"

    @staticmethod
    def of(combiner: str, value: SSAValue, dim: int) -> ReduceOp:
        """A reduction. The lane dim is kept, unless it is the one that is reduced."""
        type_ = value.type
        assert isinstance(type_, TileType)
        shape = [s for k, s in enumerate(type_.shape) if k != dim]
        lanes = type_.lanes
        kept = None if lanes is None or lanes == dim else lanes - (lanes > dim)
        return ReduceOp.typed(combiner, value, dim, t.tile(type_.element, shape, kept))

    def verify_(self) -> None:
        self.check_combiner("C2")
        assert isinstance(self.value.type, TileType) and isinstance(self.result.type, TileType)
        shape = self.value.type.shape
        if self.result.type.shape != shape[: self.axis] + shape[self.axis + 1:]:
            raise VerifyException("C1: block.reduce must keep all dims but one")


@irdl_op_definition
class IndexOp(StrataOperation):
    """A tile of index values: `%m = block.index %p*128 + t0 : tile<128xindex>`.

    Without dims, it is a scalar tile. Symbols are as in `block.load`.
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
class ValidOp(StrataOperation):
    """A mask of the positions below a bound: `%v = block.valid %c + t0 < 1000 : tile<[64]xi1>`."""

    name = "block.valid"
    indices = var_operand_def()
    expr = prop_def(ExprAttr)
    bound = prop_def(ExprAttr)
    result = result_def(TileType)
    traits = traits_def(Pure())

    @staticmethod
    def of(
        expr: Size, bound: Size, indices: Sequence[SSAValue], shape: Sequence[int],
        lanes: int | None = None, group: int | None = None,
    ) -> ValidOp:
        return ValidOp.create(
            operands=indices, result_types=[t.tile(t.i1, shape, lanes, group)],
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
        return ValidOp.of(expr, bound, reader.values, type_.shape, type_.lanes, type_.group)


@irdl_op_definition
class ConvertOp(StrataOperation):
    """The same values in another register layout: `block.convert %x : tile<[8]x{4}xi8>`.

    Constraint (C1): the dims and the element type are unchanged.
    """

    name = "block.convert"
    value = operand_def(TileType)
    result = result_def(TileType)
    traits = traits_def(Pure())
    custom_directives = (Known, Tile)
    assembly_format = ("custom<Known>($value, type($value)) `:` "
                       "custom<Tile>(type($result)) attr-dict")

    @staticmethod
    def of(value: SSAValue, lanes: int | None, group: int | None = None) -> ConvertOp:
        assert isinstance(value.type, TileType)
        type_ = t.tile(value.type.element, value.type.shape, lanes, group)
        return ConvertOp.create(operands=[value], result_types=[type_])

    def verify_(self) -> None:
        a, b = self.value.type, self.result.type
        assert isinstance(a, TileType) and isinstance(b, TileType)
        if a.shape != b.shape or a.element != b.element:
            raise VerifyException("C1: block.convert must change only the layout")
