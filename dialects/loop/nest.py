"""`loop.nest`: what it computes, its checks and its text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import ArrayAttr, IntAttr, IntegerType, StringAttr, UnitAttr
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.irdl import (
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

import dialects.loop.nest_text as text
from dialects.classes import StrataOperation
from dialects.definition import irdl_op_definition, part_of
from dialects.loop.axes import AxesAttr, Axis, extents_of
from dialects.loop.body_ops import IndexOp
from dialects.strata.types import LiteralAttr, SizesAttr, TensorType, signless
from dialects.symbolic.expr import Expr, Size
from dialects.symbolic.ranges import is_at_most, is_nonnegative, lower_bound, upper_bound
from dialects.symbolic.symbol import Kind, Symbol
from dialects.text.syntax import parse_values, print_values

COMBINERS = ("none", "add", "mul", "max", "min", "and", "or", "next", "sort")
"""How the value of a point is combined into the result. `none` stores it, `next` makes it the state
in which a recurrence reaches the next point, and `sort` orders the values of all points."""


@irdl_op_definition
class NestOp(StrataOperation):
    """Compute tensors point by point over a domain.

        %y = loop.nest (i0: batch, i1: 64, reduce i2: 768) ins(%a[i0, i2], %b[i2, i1] pad 0.0)
            outs(add f32[batch, 64][i0, i1]) {
        ^bb0(%p: f32, %q: f32):
          %r = arith.mulf %p, %q : f32
          loop.yield %r
        }

    For every point of the domain the inputs are read at their index expressions, the body computes
    one value per result, and the value is combined into the result at its index expressions.
    `none` stores the value; any other combiner starts at its identity. An input with `pad` reads
    that value outside its tensor. With `into(%d)`, the (single) result keeps the elements of %d
    that the nest does not write. The body converts f16 and bf16 inputs; sums are accumulated in
    the result's element type.

    A scatter writes at indices read from inputs (`in0` is the value of the first input):

        %y = loop.nest (i0: 64, reduce i1: n) ins(%places[i1], %u[i1, i0])
            outs(add f32[rows, 64][in0, i0]) into(%x) { ... }

    Each point combines its value with the current element; `none` replaces it. The points of the
    reduce axes are processed in row-major order, so the last one wins. Reads of %x see its
    original elements.

    A scan is a nest whose result is indexed by its reduce axis. It stores at each point the values
    combined so far, for instance running sums:

        %y = loop.nest (i0: 64, reduce i1: n) ins(%x[i0, i1]) outs(add f32[64, n][i0, i1]) { ... }

    A recurrence has the combiner `next` and walks its reduce axis in order. Its state is at first
    what the first input reads. At every point, the first argument and `in0` are the state, and the
    body yields the state at the next point. The result is the state after the last point:

        %y = loop.nest (i0: n, reduce i1: 8) ins(%first[i0], %follower[in0])
            outs(next i64[n][i0]) { ^bb0(%at: i64, %to: i64): loop.yield %to }

    A scan with the combiner `sort` stores its integers in ascending order:

        %y = loop.nest (i0: 64, reduce i1: n) ins(%x[i0, i1]) outs(sort i64[64, n][i0, i1]) { ... }

    `parts 32` requests that a long floating-point sum be computed as a sum of partial sums of
    about 32 terms each, because later operations amplify its rounding errors. It only affects
    rounding. `unordered` lets a scatter combine its points in any order. `total` says that the
    points of a scatter write every element, so that none of the `into` tensor is kept.
    `inside([i1 + i3 - 1, 7])`: where an expression is negative or not less than its size, as in the
    border of an image, points of a sum may be left out, though 0 times infinity would be NaN there.

    Constraints: (C1) there is one expression per dim of every tensor; (C2) result expressions use
    only parallel axes and gathered inputs (those of a scan also its single reduce axis), and
    distinct points over these axes write distinct elements; (C3) a nest with reduce axes combines
    every result and one without stores it, unless it is a scatter; (C4) unpadded reads and all
    writes are in bounds; (C5) the body's arguments have the signless element types of the inputs,
    and its yielded values those of the results; (C6) expressions use only axes of the nest and
    gathered inputs, which are integers; (C7) a scatter has one result, and an `into` tensor;
    (C8) there is at most one `into` tensor, of the type of the only result; (C9) a combiner is
    `none` or one of COMBINERS; (C10) a recurrence has one reduce axis, one result, which that axis
    does not index, and a first input of the result's element type, whose read uses parallel axes
    only and has no pad; (C11) a nest that sorts is a scan of signed integers; (C12) a total nest is
    a scatter that stores; (C13) a nest with `inside` adds up its only result.
    Source: linalg.generic, extended with padding, gathers, partial results, scans, scatters and
    recurrences.
    """

    name = "loop.nest"
    tensors = var_operand_def(TensorType)
    axes_attr = prop_def(AxesAttr, prop_name="axes")
    maps = prop_def(ArrayAttr[SizesAttr])
    pads = prop_def(ArrayAttr[Attribute])
    combiners = prop_def(ArrayAttr[StringAttr])
    result_maps = prop_def(ArrayAttr[SizesAttr])
    part = opt_prop_def(IntAttr)
    unordered = opt_prop_def(UnitAttr)
    total = opt_prop_def(UnitAttr)
    inside = opt_prop_def(ArrayAttr[SizesAttr])
    results_ = var_result_def(TensorType)
    body = region_def("single_block")
    traits = traits_def(Pure())

    @staticmethod
    def of(
        axes: Sequence[Axis], inputs: Sequence[SSAValue], maps: Sequence[Sequence[Size]],
        types: Sequence[TensorType], result_maps: Sequence[Sequence[Size]], *,
        combiners: Sequence[str] | None = None, pads: Sequence[float | bool | None] | None = None,
        into: Sequence[SSAValue] = (), body: Region | None = None,
    ) -> NestOp:
        """A nest; without `body` its region is empty, with one argument per input."""
        kinds = list(combiners) if combiners is not None else ["none"] * len(types)
        filled = list(pads) if pads is not None else [None] * len(inputs)
        properties: dict[str, Attribute] = {
            "axes": AxesAttr(tuple(axes)),
            "maps": ArrayAttr([SizesAttr.of(m) for m in maps]),
            "pads": ArrayAttr([LiteralAttr(() if p is None else (p,)) for p in filled]),
            "combiners": ArrayAttr([StringAttr(k) for k in kinds]),
            "result_maps": ArrayAttr([SizesAttr.of(m) for m in result_maps]),
        }
        region = body or Region(Block(arg_types=[scalar_type(v) for v in inputs]))
        return NestOp.create(operands=[*inputs, *into], result_types=types,
                             properties=properties, regions=[region])

    # ------------------------------------------------------------------ reading
    @property
    def inputs(self) -> Sequence[SSAValue]:
        """The tensors that the nest reads: the first operands, one per map."""
        return part_of(self._operands, 0, len(self.maps.data))

    @property
    def into(self) -> Sequence[SSAValue]:
        """The tensor whose unwritten elements the result keeps, if any: the operand after the
        inputs.
        """
        return part_of(self.tensors, len(self.maps.data))

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.axes_attr.data

    @property
    def parallel_axes(self) -> list[Axis]:
        return [*self.axes_attr.parallel]

    @property
    def reduce_axes(self) -> list[Axis]:
        return [*self.axes_attr.reduce]

    @property
    def input_maps(self) -> list[tuple[Expr, ...]]:
        return [m.data for m in self.maps.data]

    @property
    def output_maps(self) -> list[tuple[Expr, ...]]:
        return [m.data for m in self.result_maps.data]

    def number_of(self, result: SSAValue) -> int:
        """The number of a result."""
        return next(k for k, own in enumerate(self.results) if own is result)

    def stored_at(self, result: SSAValue) -> tuple[Expr, ...]:
        """The index expressions at which a result is stored."""
        return self.output_maps[self.number_of(result)]

    @property
    def pad_values(self) -> list[float | bool | None]:
        """For each input, the value read outside its tensor, or None if reads are in bounds."""
        return [p.data[0] if isinstance(p, LiteralAttr) and p.data else None
                for p in self.pads.data]

    @property
    def insides(self) -> list[tuple[Expr, ...]]:
        """Expressions with their sizes: a sum has terms other than 0 inside of these only."""
        return [] if self.inside is None else [pair.data for pair in self.inside.data]

    @property
    def combiner_names(self) -> list[str]:
        return [c.data for c in self.combiners.data]

    @property
    def is_elementwise(self) -> bool:
        """Whether each point is stored once, and no other tensor's elements are kept."""
        return not self.axes_attr.reduce and not self.into

    @property
    def is_scatter(self) -> bool:
        """Whether the result is written at gathered indices."""
        return any([s.kind is Kind.GATHERED for m in self.result_maps.data for s in m.symbols])

    @property
    def is_reduction(self) -> bool:
        """Whether points along reduce axes are combined before they are stored."""
        return bool(self.axes_attr.reduce) and not self.is_scatter

    @property
    def is_scan(self) -> bool:
        """Whether the result holds the running value at each position along the reduce axis."""
        reduce = {a.name for a in self.axes_attr.reduce}
        return bool(reduce) and any(
            m.symbols & reduce for m in self.result_maps.data) and not self.is_scatter

    @property
    def is_recurrence(self) -> bool:
        """Whether each point along the reduce axis starts from the value of the point before."""
        return "next" in self.combiner_names

    @property
    def yielded(self) -> Sequence[SSAValue]:
        last = self.body.block.last_op
        assert last is not None
        return last.operands

    # ------------------------------------------------------------------ checks
    def verify_(self) -> None:
        self._verify_maps()
        self._verify_symbols()
        self._verify_kinds()
        self._verify_body()

    def _verify_maps(self) -> None:
        if len(self.operands) < len(self.maps.data):
            raise VerifyException("C1: loop.nest has more maps than tensors")
        for value, map_ in zip([*self.inputs, *self.results],
                               [*self.input_maps, *self.output_maps], strict=True):
            assert isinstance(value.type, TensorType)
            if len(map_) != value.type.rank:
                raise VerifyException(
                    f"C1: loop.nest indexes {value.type.short} with {len(map_)} expressions")
        parallel = {a.name for a in self.parallel_axes}
        reduce = {a.name for a in self.reduce_axes}
        alone = self.is_scan and len(reduce) == len(self.results) == 1
        for map_ in self.output_maps:
            if any(e.symbols & reduce for e in map_) and not alone:
                raise VerifyException("C2: a result of loop.nest is indexed by a reduce axis, "
                                      "neither the only one nor of the only result")
        self._verify_distinct()
        self._verify_ranges(parallel | reduce)

    def _verify_distinct(self) -> None:
        """C2, as far as decidable: an axis that no index depends on writes elements repeatedly."""
        if self.is_scatter:
            return
        for map_ in self.output_maps:
            used = {symbol for expr in map_ for symbol in expr.symbols}
            for axis in self.parallel_axes:
                if axis.name not in used and (axis.extent.constant or 0) > 1:
                    raise VerifyException("C2: all points along the parallel axis "
                                          f"{axis.name} of loop.nest write the same elements")

    def _verify_symbols(self) -> None:
        axes = {axis.name for axis in self.axes}
        own = [expr for map_ in (*self.input_maps, *self.output_maps, *self.insides)
               for expr in map_]
        inner = [op.expr.data for op in self.body.block.ops if isinstance(op, IndexOp)]
        for symbol in sorted({s for expr in (*own, *inner) for s in expr.symbols}):
            if symbol.kind is Kind.GATHERED:
                self._verify_gathered(symbol)
            elif symbol.kind not in (Kind.SIZE, Kind.COMPUTED) and symbol not in axes:
                raise VerifyException(f"C6: loop.nest has no axis {symbol}")

    def _verify_gathered(self, symbol: Symbol) -> None:
        if symbol.number >= len(self.inputs) or not isinstance(
                scalar_type(self.inputs[symbol.number]), IntegerType):
            raise VerifyException(f"C6: {symbol} of loop.nest is not an input of integers")

    def _verify_ranges(self, names: set[Symbol]) -> None:
        """C4, as far as decidable: an access that is certainly out of bounds is an error.

        An axis whose extent is symbolic may be empty at run time; then nothing is accessed.
        """
        if not all(a.extent.constant for a in self.axes):
            return
        extents = extents_of(self.axes)
        rows = [(v, m, "reads") for v, m, pad in zip(
            self.inputs, self.input_maps, self.pad_values, strict=True) if pad is None]
        rows += [(v, m, "writes") for v, m in zip(self.results, self.output_maps, strict=True)]
        for value, map_, does in rows:
            assert isinstance(value.type, TensorType)
            for expr, size in zip(map_, value.type.shape, strict=True):
                if expr.symbols <= names and _is_outside(expr, size, extents):
                    raise VerifyException(f"C4: loop.nest {does} {expr} of {value.type.short}")

    def _verify_kinds(self) -> None:
        for kind in self.combiner_names:
            if kind not in COMBINERS:
                raise VerifyException(f"C9: loop.nest has no combiner {kind!r}")
            if (kind == "none") == bool(self.reduce_axes) and not self.is_scatter:
                raise VerifyException("C3: loop.nest must combine exactly when it has reduce axes")
        if self.is_scatter and len(self.results) != 1:
            raise VerifyException("C7: a loop.nest that scatters must have one result")
        if self.into and (len(self.into) != 1 or len(self.results) != 1
                          or self.into[0].type != self.results[0].type):
            raise VerifyException("C8: loop.nest must write into one tensor of its result's type")
        if self.is_scatter and not self.into:
            raise VerifyException("C7: a loop.nest that scatters must write into a tensor")
        if self.total is not None and not (self.is_scatter and self.combiner_names == ["none"]):
            raise VerifyException("C12: a total loop.nest must be a scatter that stores")
        if any(len(pair) != 2 for pair in self.insides) or (
                self.inside is not None and self.combiner_names != ["add"]):
            raise VerifyException("C13: a loop.nest with `inside` must add up one result")
        if self.is_recurrence:
            _verify_recurrence(self)
        if "sort" in self.combiner_names and not (
                self.is_scan and isinstance(scalar_type(self.results[0]), IntegerType)):
            raise VerifyException("C11: a loop.nest that sorts must be a scan of integers")

    def _verify_body(self) -> None:
        expected = [scalar_type(v) for v in self.inputs]
        if [a.type for a in self.body.block.args] != expected:
            raise VerifyException("C5: the body of loop.nest must take its inputs' element types")
        if [v.type for v in self.yielded] != [scalar_type(r) for r in self.results]:
            raise VerifyException("C5: the body of loop.nest must yield its results' element types")

    # ------------------------------------------------------------------ text
    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.axes_attr.text} ins(")
        rows = zip(self.inputs, self.input_maps, self.pad_values, strict=True)
        printer.print_list(list(rows), lambda row: text.print_input(printer, *row))
        printer.print_string(") outs(")
        outs = zip(self.combiner_names, self.results, self.output_maps, strict=True)
        printer.print_list(list(outs), lambda row: text.print_output(printer, *row))
        printer.print_string(") ")
        if self.into:
            printer.print_string("into(")
            print_values(printer, self.into)
            printer.print_string(") ")
        if self.part is not None:
            printer.print_string(f"parts {self.part.data} ")
        text.print_insides(printer, self.insides)
        for word, flag in (("unordered ", self.unordered), ("total ", self.total)):
            printer.print_string(word if flag is not None else "")
        printer.print_region(self.body)

    @classmethod
    def parse(cls, parser: Parser) -> NestOp:
        axes = AxesAttr.parse_parameter(parser)
        parser.parse_keyword("ins")
        paren = parser.Delimiter.PAREN
        inputs = parser.parse_comma_separated_list(paren, lambda: text.parse_input(parser))
        parser.parse_keyword("outs")
        outs = parser.parse_comma_separated_list(
            paren, lambda: text.parse_output(parser, COMBINERS))
        into: list[SSAValue] = []
        if parser.parse_optional_keyword("into"):
            with parser.in_parens():
                into = parse_values(parser)
        part = parser.parse_integer() if parser.parse_optional_keyword("parts") else None
        insides = text.parse_insides(parser)
        flags = [parser.parse_optional_keyword(word) for word in ("unordered", "total")]
        nest = NestOp.of(
            axes, [v for v, _, _ in inputs], [m for _, m, _ in inputs],
            [type_ for _, type_, _ in outs], [m for _, _, m in outs],
            combiners=[k for k, _, _ in outs], pads=[p for _, _, p in inputs], into=into,
            body=parser.parse_region())
        nest.part = None if part is None else IntAttr(part)
        nest.inside = ArrayAttr(map(SizesAttr.of, insides)) if insides else None
        nest.unordered, nest.total = (UnitAttr() if flag else None for flag in flags)
        return nest


def scalar_type(value: SSAValue) -> Attribute:
    """The signless type of a tensor's elements inside a body."""
    assert isinstance(value.type, TensorType)
    return signless(value.type.element)


def _is_outside(expr: Expr, size: Expr, extents: Mapping[Symbol, Expr]) -> bool:
    """Whether an index over axes certainly violates 0 <= index < size somewhere."""
    low, high = lower_bound(expr, extents), upper_bound(expr, extents)
    return (low is not None and is_nonnegative(-low - 1)) or (
        high is not None and is_at_most(size, high))


def _verify_recurrence(nest: NestOp) -> None:
    if len(nest.reduce_axes) != 1 or len(nest.results) != 1 or nest.is_scan or nest.into:
        raise VerifyException("C10: a recurrence of loop.nest must have one reduce axis and "
                              "one result, which holds its last state")
    parallel = {a.name for a in nest.parallel_axes}
    plain = bool(nest.inputs) and nest.pad_values[0] is None and all(
        s in parallel or s.kind in (Kind.SIZE, Kind.COMPUTED)
        for e in nest.input_maps[0] for s in e.symbols)
    if not plain or scalar_type(nest.inputs[0]) != scalar_type(nest.results[0]):
        raise VerifyException("C10: the first input of a recurrence of loop.nest must be its "
                              "state before the first point")
