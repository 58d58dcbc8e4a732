"""The operations of the `loop` level: nests over tensors, and kernels that group them.

A nest says what is computed for each point of an iteration domain; in which order, in which tiles
and on how many threads stays open until a schedule decides. Index expressions (see
`dialects.expr`) range over the nest's axes, size symbols, and `in0`, `in1` ...: the value of an
earlier integer input at this point (a gather).
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute, Block, Dialect, Operation, Region, SSAValue
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
from dialects.expr import Expr, Size
from dialects.graph.base import EvaluationContext
from dialects.loop.axes import AxesAttr, Axis, extents_of
from dialects.ranges import is_at_most, is_nonnegative, lower_bound, upper_bound
from dialects.schedule import ScheduleAttr
from dialects.syntax import parse_value, parse_values, print_values
from dialects.types import Array, ExprAttr, LiteralAttr, SizesAttr, TensorType, signless

COMBINERS = ("none", "add", "mul", "max", "min", "and", "or")


@irdl_op_definition
class YieldOp(IRDLOperation):
    """End a region: a point's values in a nest, the results in a kernel."""

    name = "loop.yield"
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
class IndexOp(IRDLOperation):
    """The value of an index expression at this point, in a nest: `loop.index i0 - i1 : index`."""

    name = "loop.index"
    expr = prop_def(ExprAttr)
    result = result_def(t.index)
    traits = traits_def(Pure())

    @staticmethod
    def of(expr: Size) -> IndexOp:
        return IndexOp.create(
            properties={"expr": ExprAttr(Expr.of(expr))}, result_types=[t.index])

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.expr.data} : index")

    @classmethod
    def parse(cls, parser: Parser) -> IndexOp:
        expr = t.parse_size(parser)
        parser.parse_punctuation(":")
        parser.parse_keyword("index")
        return IndexOp.of(expr)


@irdl_op_definition
class NestOp(IRDLOperation):
    """Compute tensors point by point over a domain.

        %y = loop.nest (i0: batch, i1: 64, reduce i2: 768) ins(%a[i0, i2], %b[i2, i1] pad 0.0)
            outs(add f32[batch, 64][i0, i1]) {
        ^bb0(%p: f32, %q: f32):
          %r = arith.mulf %p, %q : f32
          loop.yield %r
        }

    For every point of the domain the inputs are read at their index expressions, the body computes
    one value per result, and the value is combined into the result at its index expressions.
    `none` stores; a combiner starts at its identity. An input with `pad` reads that value outside
    its tensor. `into(%d)` gives the tensor whose elements outside the written ones the (single)
    result keeps. Reads of f16 and bf16 are converted by the body, sums are held in the result's
    element type.

    Constraints: (C1) one expression per dim of every tensor; (C2) result expressions use parallel
    axes only, and distinct points (over the parallel axes) write distinct elements; (C3) a nest
    with reduce axes combines every result, one without stores; (C4) unpadded reads stay inside;
    (C5) the body takes the inputs' and yields the results' signless element types; (C6) expressions
    use known axes and gathered inputs only.
    Source: linalg.generic, extended with padding, gathers and partial results.
    """

    name = "loop.nest"
    inputs = var_operand_def(TensorType)
    into = var_operand_def(TensorType)
    axes_attr = prop_def(AxesAttr, prop_name="axes")
    maps = prop_def(ArrayAttr[SizesAttr])
    pads = prop_def(ArrayAttr[Attribute])
    combiners = prop_def(ArrayAttr[StringAttr])
    result_maps = prop_def(ArrayAttr[SizesAttr])
    results_ = var_result_def(TensorType)
    body = region_def("single_block")
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
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
        return NestOp.build(operands=[list(inputs), list(into)], result_types=[list(types)],
                            properties=properties, regions=[region])

    # ------------------------------------------------------------------ reading
    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.axes_attr.data

    @property
    def parallel_axes(self) -> list[Axis]:
        return [a for a in self.axes if not a.reduce]

    @property
    def reduce_axes(self) -> list[Axis]:
        return [a for a in self.axes if a.reduce]

    @property
    def input_maps(self) -> list[tuple[Expr, ...]]:
        return [m.data for m in self.maps.data]

    @property
    def output_maps(self) -> list[tuple[Expr, ...]]:
        return [m.data for m in self.result_maps.data]

    @property
    def pad_values(self) -> list[float | bool | None]:
        """Per input: what reads outside give, or None when reads stay inside."""
        return [p.data[0] if isinstance(p, LiteralAttr) and p.data else None
                for p in self.pads.data]

    @property
    def combiner_names(self) -> list[str]:
        return [c.data for c in self.combiners.data]

    @property
    def is_elementwise(self) -> bool:
        """Stores each point once, and keeps nothing of another tensor."""
        return not self.reduce_axes and not self.into

    @property
    def yielded(self) -> Sequence[SSAValue]:
        last = self.body.block.last_op
        assert last is not None
        return last.operands

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Sequence[Array]:
        from dialects.loop.interpret import evaluate_nest

        return evaluate_nest(self, context, operands)

    # ------------------------------------------------------------------ checks
    def verify_(self) -> None:
        self._verify_maps()
        self._verify_kinds()
        self._verify_body()

    def _verify_maps(self) -> None:
        for value, map_ in zip([*self.inputs, *self.results],
                               [*self.input_maps, *self.output_maps], strict=True):
            assert isinstance(value.type, TensorType)
            if len(map_) != value.type.rank:
                raise VerifyException(
                    f"C1: loop.nest indexes {value.type.short} with {len(map_)} expressions")
        parallel = {a.name for a in self.parallel_axes}
        reduce = {a.name for a in self.reduce_axes}
        for map_ in self.output_maps:
            if any(e.symbols & reduce for e in map_):
                raise VerifyException("C2: a result of loop.nest is indexed by a reduce axis")
        self._verify_ranges(parallel | reduce)

    def _verify_ranges(self, names: set[str]) -> None:
        """C4, as far as it can be decided: a read that is certainly outside is an error."""
        extents = extents_of(self.axes)
        empty = any(a.extent.constant == 0 for a in self.axes)
        for value, map_, pad in zip(self.inputs, self.input_maps, self.pad_values, strict=True):
            assert isinstance(value.type, TensorType)
            for expr, size in zip(map_, value.type.shape, strict=True):
                if pad is not None or empty or not expr.symbols <= names:
                    continue
                low, high = lower_bound(expr, extents), upper_bound(expr, extents)
                outside = (low is not None and is_nonnegative(-low - 1)) or (
                    high is not None and is_at_most(size, high))
                if outside:
                    raise VerifyException(f"C4: loop.nest reads {expr} of {value.type.short}")

    def _verify_kinds(self) -> None:
        for kind in self.combiner_names:
            if kind not in COMBINERS:
                raise VerifyException(f"loop.nest has no combiner {kind!r}")
            if (kind == "none") == bool(self.reduce_axes):
                raise VerifyException("C3: loop.nest combines exactly when it has reduce axes")
        if self.into and (len(self.into) != 1 or len(self.results) != 1
                          or self.into[0].type != self.results[0].type):
            raise VerifyException("loop.nest keeps the rest of one tensor of its result's type")

    def _verify_body(self) -> None:
        expected = [scalar_type(v) for v in self.inputs]
        if [a.type for a in self.body.block.args] != expected:
            raise VerifyException("C5: the body of loop.nest takes other element types")
        if [v.type for v in self.yielded] != [scalar_type(r) for r in self.results]:
            raise VerifyException("C5: the body of loop.nest yields other element types")

    # ------------------------------------------------------------------ text
    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.axes_attr.text} ins(")
        rows = zip(self.inputs, self.input_maps, self.pad_values, strict=True)
        printer.print_list(list(rows), lambda row: _print_input(printer, *row))
        printer.print_string(") outs(")
        printer.print_string(", ".join(
            f"{'' if kind == 'none' else kind + ' '}{_short(r)}{t.format_sizes(map_)}"
            for kind, r, map_ in zip(self.combiner_names, self.results, self.output_maps,
                                     strict=True)))
        printer.print_string(") ")
        if self.into:
            printer.print_string("into(")
            print_values(printer, self.into)
            printer.print_string(") ")
        printer.print_region(self.body)

    @classmethod
    def parse(cls, parser: Parser) -> NestOp:
        axes = AxesAttr.parse_parameter(parser)
        parser.parse_keyword("ins")
        paren = parser.Delimiter.PAREN
        inputs = parser.parse_comma_separated_list(paren, lambda: _parse_input(parser))
        parser.parse_keyword("outs")
        outs = parser.parse_comma_separated_list(paren, lambda: _parse_output(parser))
        into: list[SSAValue] = []
        if parser.parse_optional_keyword("into"):
            with parser.in_parens():
                into = parse_values(parser)
        return NestOp.of(
            axes, [v for v, _, _ in inputs], [m for _, m, _ in inputs],
            [type_ for _, type_, _ in outs], [m for _, _, m in outs],
            combiners=[k for k, _, _ in outs], pads=[p for _, _, p in inputs], into=into,
            body=parser.parse_region())


def scalar_type(value: SSAValue) -> Attribute:
    """The type of a tensor's elements inside a body: signless."""
    assert isinstance(value.type, TensorType)
    return signless(value.type.element)


def _short(value: SSAValue) -> str:
    assert isinstance(value.type, TensorType)
    return value.type.short


def _print_input(
    printer: Printer, value: SSAValue, map_: Sequence[Expr], pad: float | bool | None
) -> None:
    printer.print_ssa_value(value)
    printer.print_string(t.format_sizes(map_))
    if pad is not None:
        printer.print_string(f" pad {t.format_number(pad)}")


def _parse_input(parser: Parser) -> tuple[SSAValue, tuple[Expr, ...], float | bool | None]:
    value = parse_value(parser)
    map_ = t.parse_sizes(parser)
    pad = t.parse_number(parser) if parser.parse_optional_keyword("pad") else None
    return value, map_, pad


def _parse_output(parser: Parser) -> tuple[str, TensorType, tuple[Expr, ...]]:
    kind = parser.parse_optional_keyword_in(COMBINERS[1:]) or "none"
    return kind, t.parse_tensor_type(parser), t.parse_sizes(parser)


@irdl_op_definition
class EmptyOp(IRDLOperation):
    """A tensor of undefined elements, to be filled by nests `into` it: `loop.empty : f32[8]`."""

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
        printer.print_string(f" : {_short(self.result)}")

    @classmethod
    def parse(cls, parser: Parser) -> EmptyOp:
        parser.parse_punctuation(":")
        return EmptyOp.of(t.parse_tensor_type(parser))


@irdl_op_definition
class ViewOp(IRDLOperation):
    """The same elements in row-major order under another shape: `loop.view %x : f32[b, 768]`.

    Fusion composes views into index expressions; one that stays costs nothing at run time.
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

    def evaluate(self, context: EvaluationContext, x: Array) -> Array:
        assert isinstance(self.result.type, TensorType)
        return x.reshape(context.shape(self.result.type))

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.source)
        printer.print_string(f" : {_short(self.result)}")

    @classmethod
    def parse(cls, parser: Parser) -> ViewOp:
        source = parse_value(parser)
        parser.parse_punctuation(":")
        return ViewOp.of(source, t.parse_tensor_type(parser).shape)


@irdl_op_definition
class KernelOp(IRDLOperation):
    """A kernel: nests that one launch computes, over axes that they share by name.

        loop.kernel @softmax(%x: f32[rows, 1000]) -> (f32[rows, 1000]) sizes(rows)
            schedule<grid i0 tile 1, loop i1 tile 64 lanes> { ... loop.yield %y }

    Two nests that use an axis of the same name iterate it together. Constraints: (C1) an axis has
    the same extent in all nests; (C2) the body holds nests, views and empties, and yields the
    results; (C3) `sizes` names every size symbol in it.
    """

    name = "loop.kernel"
    sym_name = prop_def(StringAttr)
    sizes = prop_def(ArrayAttr[StringAttr])
    schedule = opt_prop_def(ScheduleAttr)
    body = region_def("single_block")
    traits = traits_def(SymbolOpInterface(), IsolatedFromAbove())

    @staticmethod
    def of(name: str, types: Sequence[Attribute], sizes: Sequence[str]) -> KernelOp:
        """A kernel with an empty body."""
        return KernelOp.create(
            properties={"sym_name": StringAttr(name),
                        "sizes": ArrayAttr([StringAttr(s) for s in sizes])},
            regions=[Region(Block(arg_types=types))])

    @property
    def size_names(self) -> list[str]:
        return [s.data for s in self.sizes.data]

    @property
    def nests(self) -> list[NestOp]:
        return [op for op in self.body.block.ops if isinstance(op, NestOp)]

    @property
    def yielded(self) -> Sequence[SSAValue]:
        last = self.body.block.last_op
        assert last is not None
        return last.operands

    @property
    def axes(self) -> dict[str, Expr]:
        """All axes of the nests, in order of appearance, with their extents."""
        return {a.name: a.extent for nest in self.nests for a in nest.axes}

    def evaluate(self, context: EvaluationContext, *inputs: Array) -> Sequence[Array]:
        """Run the body; `context.sizes` must hold the kernel's sizes."""
        from dialects.loop.interpret import evaluate_kernel

        return evaluate_kernel(self, context, inputs)

    def verify_(self) -> None:
        found: dict[str, Expr] = {}
        for nest in self.nests:
            for axis in nest.axes:
                if found.setdefault(axis.name, axis.extent) != axis.extent:
                    raise VerifyException(
                        f"C1: axis {axis.name} has extents {found[axis.name]} and {axis.extent}")
        if not isinstance(self.body.block.last_op, YieldOp):
            raise VerifyException("C2: loop.kernel must end in loop.yield")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        with printer.in_parens():
            printer.print_list(self.body.block.args, lambda a: _print_argument(printer, a))
        results = ", ".join(_short(v) for v in self.yielded)
        printer.print_string(f" -> ({results}) sizes({', '.join(self.size_names)}) ")
        if self.schedule is not None:
            printer.print_string(f"schedule{self.schedule.text} ")
        printer.print_region(self.body, print_entry_block_args=False)

    @classmethod
    def parse(cls, parser: Parser) -> KernelOp:
        name = parser.parse_symbol_name()
        paren = parser.Delimiter.PAREN
        arguments = parser.parse_comma_separated_list(paren, lambda: _parse_argument(parser))
        parser.parse_punctuation("->")
        parser.parse_comma_separated_list(paren, lambda: t.parse_tensor_type(parser))
        parser.parse_keyword("sizes")
        sizes = parser.parse_comma_separated_list(paren, parser.parse_identifier)
        properties: dict[str, Attribute] = {
            "sym_name": name, "sizes": ArrayAttr([StringAttr(s) for s in sizes])}
        if parser.parse_optional_keyword("schedule"):
            properties["schedule"] = ScheduleAttr(ScheduleAttr.parse_parameter(parser))
        return KernelOp.create(properties=properties, regions=[parser.parse_region(arguments)])


def _print_argument(printer: Printer, argument: SSAValue) -> None:
    printer.print_ssa_value(argument)
    printer.print_string(f": {_short(argument)}")


def _parse_argument(parser: Parser) -> Parser.Argument:
    argument = parser.parse_argument(expect_type=False)
    parser.parse_punctuation(":")
    return argument.resolve(t.parse_tensor_type(parser))


@irdl_op_definition
class CallOp(IRDLOperation):
    """Compute tensors by a kernel: `%y = loop.call @k0(%x) sizes(batch) : f32[batch, 8]`.

    `sizes` gives the kernel's size parameters as expressions of this function's sizes.
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
        """The kernel in this module. Raises ValueError when there is none of that name."""
        module: Operation = self
        while (parent := module.parent_op()) is not None:
            module = parent
        for op in module.regions[0].block.ops:
            if isinstance(op, KernelOp) and op.sym_name.data == self.kernel.data:
                return op
        raise ValueError(f"the module has no loop.kernel @{self.kernel.data}")

    def evaluate(self, context: EvaluationContext, *inputs: Array) -> Sequence[Array]:
        kernel = self.target()
        values = context.ints(self.sizes)
        sizes = dict(zip(kernel.size_names, values, strict=True))
        return kernel.evaluate(EvaluationContext(sizes, context.weights), *inputs)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.kernel.data)
        with printer.in_parens():
            print_values(printer, self.inputs)
        sizes = ", ".join(map(str, self.sizes.data))
        types = ", ".join(_short(r) for r in self.results)
        printer.print_string(f" sizes({sizes}) : {types}")

    @classmethod
    def parse(cls, parser: Parser) -> CallOp:
        kernel = parser.parse_symbol_name().data
        with parser.in_parens():
            inputs = parse_values(parser)
        parser.parse_keyword("sizes")
        sizes = parser.parse_comma_separated_list(
            parser.Delimiter.PAREN, lambda: t.parse_size(parser))
        parser.parse_punctuation(":")
        types = parser.parse_comma_separated_list(
            parser.Delimiter.NONE, lambda: t.parse_tensor_type(parser))
        return CallOp.of(kernel, inputs, sizes, types)


LOOP_OPS: list[type[Operation]] = [
    NestOp, IndexOp, YieldOp, EmptyOp, ViewOp, KernelOp, CallOp,
]
Loop = Dialect("loop", LOOP_OPS, [AxesAttr])
