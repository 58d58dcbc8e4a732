"""Operations of the `block` level on memory: loads, stores, prefetches, and scratch buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import ArrayAttr, StringAttr
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
from xdsl.utils.exceptions import VerifyException

from dialects.block.syntax import (
    IndexReader,
    parse_mapped_values,
    print_indices,
    print_mapped_values,
)
from dialects.classes import StrataOperation
from dialects.definition import irdl_op_definition
from dialects.strata import types as t
from dialects.strata.types import BufferType, ExprAttr, LiteralAttr, SizesAttr, TileType
from dialects.symbolic.expr import Expr, Size
from dialects.symbolic.ranges import lower_bound, upper_bound
from dialects.symbolic.symbol import Kind, Symbol
from dialects.text.directives import Buffer
from dialects.text.syntax import parse_value


class _AccessOp(StrataOperation):
    """The common part of load and store: a buffer, one index expression per dim, and checks."""

    @staticmethod
    def access(
        where: Sequence[Size], checks: Sequence[int], assumed: Sequence[int]
    ) -> dict[str, Attribute]:
        properties: dict[str, Attribute] = {
            "where": SizesAttr.of(where), "checks": SizesAttr.of(checks)}
        return properties | ({"assumed": SizesAttr.of(assumed)} if assumed else {})

    def checked(self, dims: Sequence[int]) -> None:
        """Make these dims checked, too."""
        self.properties["checks"] = SizesAttr.of(sorted({*self.checked_dims, *dims}))

    @property
    def checked_dims(self) -> tuple[int, ...]:
        """The buffer dims whose index is compared with 0 and the size at run time."""
        checks = self.properties["checks"]
        assert isinstance(checks, SizesAttr)
        return tuple(c.constant or 0 for c in checks.data)

    @property
    def assumed_dims(self) -> tuple[int, ...]:
        """The buffer dims whose index is in bounds because of `strata.assume`."""
        assumed = self.properties.get("assumed")
        return tuple(d.constant or 0 for d in assumed.data) if isinstance(
            assumed, SizesAttr) else ()

    @property
    def exprs(self) -> tuple[Expr, ...]:
        """One index expression per buffer dim."""
        where = self.properties["where"]
        assert isinstance(where, SizesAttr)
        return where.data


@irdl_op_definition
class LoadOp(_AccessOp):
    """Read a tile from a buffer: result[t0, t1 ...] = buffer[where].

    The symbols of `where` are `%0`, `%1` ... for `indices` (printed by name), `t0` ... for
    positions along tile dims, and sizes. An index operand may be a tile of integers (a gather),
    whose dim d maps to tile dim `index_dims[k][d]`. Out of bounds in a checked dim, the load reads
    `pad`. Indices of `assumed` dims are in bounds for all sizes that satisfy the caller's
    `strata.assume`s; those of all other dims are in bounds for any sizes (see
    `block-prove-bounds`).
    Constraints: (C1) there is one expression per buffer dim, and it only uses existing index
    operands; (C2) unchecked indices are in range, as far as the tile's own dims determine them.
    The tile's element type is the signless form of the buffer's.
    Source: vector.transfer_read, tl.load.
    """

    name = "block.load"
    buffer = operand_def(BufferType)
    indices = var_operand_def()
    where = prop_def(SizesAttr)
    index_dims = prop_def(ArrayAttr[SizesAttr])
    checks = prop_def(SizesAttr)
    assumed = opt_prop_def(SizesAttr)
    pad = prop_def(LiteralAttr)
    result = result_def(TileType)
    traits = traits_def()

    @staticmethod
    def of(
        buffer: SSAValue, where: Sequence[Size], indices: Sequence[SSAValue], type_: TileType, *,
        checks: Sequence[int] = (), pad: float | bool = 0,
        index_dims: Sequence[Sequence[int]] | None = None, assumed: Sequence[int] = (),
    ) -> LoadOp:
        dims = index_dims if index_dims is not None else [()] * len(indices)
        properties = _AccessOp.access(where, checks, assumed) | {
            "pad": LiteralAttr((pad,)), "index_dims": ArrayAttr([SizesAttr.of(d) for d in dims])}
        return LoadOp.create(operands=[buffer, *indices], result_types=[type_],
                             properties=properties)

    @property
    def pad_value(self) -> float | bool:
        return self.pad.data[0]

    def verify_(self) -> None:
        _verify_access(self, self.buffer, self.index_dims)
        _verify_inside(self, self.buffer, self.result)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        _print_access(printer, self, self.buffer, self.indices, self.index_dims)
        if self.checks.data:
            printer.print_string(f" pad {t.format_number(self.pad_value)}")
        assert isinstance(self.result.type, TileType)
        printer.print_string(f" : {self.result.type.short}")

    @classmethod
    def parse(cls, parser: Parser) -> LoadOp:
        buffer, reader, where, checks, assumed, dims = _parse_access(parser)
        pad = t.parse_number(parser) if parser.parse_optional_keyword("pad") else 0
        parser.parse_punctuation(":")
        return LoadOp.of(buffer, where, reader.values, t.parse_tile_type(parser),
                         checks=checks, pad=pad, index_dims=dims, assumed=assumed)


@irdl_op_definition
class StoreOp(_AccessOp):
    """Write a tile to a buffer: buffer[where] = value[t0, t1 ...].

    Symbols are as in `block.load`. Out of bounds in a checked dim, nothing is written. The
    positions that one store writes are distinct; several stores take effect in program order.
    With the combiner `add`, the values are added to the elements instead, indivisibly and in no
    particular order, also where positions are equal and programs are different.
    Constraints: (C1) and (C2) of `block.load`; (C3) the combiner is add, and elements are numbers.
    Source: vector.transfer_write, tl.store, tl.atomic_add.
    """

    name = "block.store"
    value = operand_def(TileType)
    buffer = operand_def(BufferType)
    indices = var_operand_def()
    where = prop_def(SizesAttr)
    index_dims = prop_def(ArrayAttr[SizesAttr])
    checks = prop_def(SizesAttr)
    assumed = opt_prop_def(SizesAttr)
    combiner = opt_prop_def(StringAttr)

    @staticmethod
    def of(
        value: SSAValue, buffer: SSAValue, where: Sequence[Size], indices: Sequence[SSAValue], *,
        checks: Sequence[int] = (), index_dims: Sequence[Sequence[int]] | None = None,
        assumed: Sequence[int] = (),
    ) -> StoreOp:
        dims = index_dims if index_dims is not None else [()] * len(indices)
        properties = _AccessOp.access(where, checks, assumed) | {
            "index_dims": ArrayAttr([SizesAttr.of(d) for d in dims])}
        return StoreOp.create(operands=[value, buffer, *indices], properties=properties)

    def verify_(self) -> None:
        _verify_access(self, self.buffer, self.index_dims)
        _verify_inside(self, self.buffer, self.value)
        assert isinstance(self.buffer.type, BufferType)
        if self.combiner is not None and (
                self.combiner.data != "add" or self.buffer.type.element == t.i1):
            raise VerifyException(f"C3: {self.name} cannot combine elements of "
                                  f"{self.buffer.type.element} by {self.combiner.data}")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        if self.combiner is not None:
            printer.print_string(f"{self.combiner.data} ")
        printer.print_ssa_value(self.value)
        printer.print_string(", ")
        _print_access(printer, self, self.buffer, self.indices, self.index_dims)

    @classmethod
    def parse(cls, parser: Parser) -> StoreOp:
        adds = parser.parse_optional_keyword("add")
        value = parse_value(parser)
        parser.parse_punctuation(",")
        buffer, reader, where, checks, assumed, dims = _parse_access(parser)
        store = StoreOp.of(value, buffer, where, reader.values, checks=checks, index_dims=dims,
                           assumed=assumed)
        store.combiner = StringAttr("add") if adds else None
        return store


def _verify_access(op: _AccessOp, buffer: SSAValue, dims: ArrayAttr[SizesAttr]) -> None:
    assert isinstance(buffer.type, BufferType)
    if len(op.exprs) != buffer.type.rank:
        raise VerifyException(f"C1: {op.name} needs {buffer.type.rank} index expressions")
    count = len(dims.data)
    for name in {s for e in op.exprs for s in e.symbols if s.kind is Kind.OPERAND}:
        if name.number >= count:
            raise VerifyException(f"C1: {op.name} uses index operand {name}, but has {count}")


def _verify_inside(op: _AccessOp, buffer: SSAValue, tile: SSAValue) -> None:
    """Check C2 for indices that only depend on tile positions, if the operation certainly runs."""
    assert isinstance(buffer.type, BufferType) and isinstance(tile.type, TileType)
    places = {Symbol.place(d): Expr.of(n) for d, n in enumerate(tile.type.shape)}
    trusted = {*op.checked_dims, *op.assumed_dims}
    for dim, (expr, size) in enumerate(zip(op.exprs, buffer.type.shape, strict=True)):
        if dim in trusted or not expr.symbols <= places.keys() or size.constant is None:
            continue
        low, high = lower_bound(expr, places), upper_bound(expr, places)
        if low is None or high is None or not _certainly_runs(op):
            continue
        if (low.constant or 0) < 0 or (high.constant or 0) >= size.constant:
            raise VerifyException(f"C2: {op.name} at {expr} is outside dim {dim} of "
                                  f"{buffer.type.short}, and not checked")


def _certainly_runs(op: Operation) -> bool:
    """Whether the grid and all enclosing loops have constant bounds and at least one trip."""
    parent = op.parent_op()
    while parent is not None and parent.name == "block.for":
        lower, upper = (parent.properties[name] for name in ("lower", "upper"))
        assert isinstance(lower, ExprAttr) and isinstance(upper, ExprAttr)
        if ((upper.data - lower.data).constant or 0) <= 0:
            return False
        parent = parent.parent_op()
    grid = None if parent is None else parent.properties.get("grid")
    return isinstance(grid, SizesAttr) and all((n.constant or 0) > 0 for n in grid.data)


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
    if op.assumed_dims:
        printer.print_string(f" assumed {list(op.assumed_dims)}")


def _parse_access(
    parser: Parser,
) -> tuple[SSAValue, IndexReader, list[Expr], list[int], list[int], list[tuple[int, ...]]]:
    buffer = parse_value(parser)
    reader = IndexReader(parser)
    where = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, reader.parse)
    mapped: Mapping[SSAValue, tuple[int, ...]] = {}
    if parser.parse_optional_keyword("with"):
        mapped = dict(parse_mapped_values(parser))
    checks, assumed = (_parse_dims(parser, word) for word in ("check", "assumed"))
    return buffer, reader, where, checks, assumed, [mapped.get(v, ()) for v in reader.values]


def _parse_dims(parser: Parser, word: str) -> list[int]:
    if not parser.parse_optional_keyword(word):
        return []
    return parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)


@irdl_op_definition
class PrefetchOp(StrataOperation):
    """Prefetch the cache line of an element that is needed soon: `block.prefetch %w[%p + 1, 0]`.

    It has no result. Indices may be out of range of their dims and of the buffer: the address is
    computed from them in row-major order.
    Constraint: (C1) one expression per buffer dim.
    Source: memref.prefetch.
    """

    name = "block.prefetch"
    buffer = operand_def(BufferType)
    indices = var_operand_def()
    where = prop_def(SizesAttr)

    @staticmethod
    def of(buffer: SSAValue, where: Sequence[Size], indices: Sequence[SSAValue]) -> PrefetchOp:
        return PrefetchOp.build(operands=[buffer, list(indices)],
                                properties={"where": SizesAttr.of(where)})

    def verify_(self) -> None:
        assert isinstance(self.buffer.type, BufferType)
        if len(self.where.data) != self.buffer.type.rank:
            raise VerifyException(
                f"C1: {self.name} needs {self.buffer.type.rank} index expressions")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.buffer)
        print_indices(printer, self.where.data, self.indices)

    @classmethod
    def parse(cls, parser: Parser) -> PrefetchOp:
        buffer, reader = parse_value(parser), IndexReader(parser)
        where = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, reader.parse)
        return PrefetchOp.of(buffer, where, reader.values)


@irdl_op_definition
class BarrierOp(StrataOperation):
    """What the program has stored is what it loads from here on: `block.barrier`.

    Without it, a load may come before a store that stands above it, unless both name the same
    buffer. It orders nothing between programs.
    Source: gpu.barrier, tl.debug_barrier.
    """

    name = "block.barrier"
    assembly_format = "attr-dict"


@irdl_op_definition
class ScratchOp(StrataOperation):
    """Uninitialized memory private to one program: `%s = block.scratch : f32[8, 1024]`.

    Its sizes are integers or expressions over the kernel's sizes.
    """

    name = "block.scratch"
    result = result_def(BufferType)
    custom_directives = (Buffer,)
    assembly_format = "`:` custom<Buffer>(type($result)) attr-dict"

    @staticmethod
    def of(type_: BufferType) -> ScratchOp:
        return ScratchOp.create(result_types=[type_])
