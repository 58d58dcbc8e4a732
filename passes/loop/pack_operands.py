"""`loop-pack-operands`: lay out what contractions read and store in the order in which they do.

    contract(%x, %w: f32[768, 3072]) ins(%x[i0, i2], %w[i2, i1])        target: tiles of 64 along i1
    ->  contract(%x, %w': f32[48, 768, 64]) ins(%x[i0, i2], %w'[i1 floordiv 64, i2, i1 mod 64])

An operand indexed by the vectorized axis becomes panels of the tile's width. The last panel is
padded with zeros, so that a tile is one unmasked contiguous load. Where the target multiplies
groups of the summed axis with one instruction, the elements of a group are adjacent, and the last
group is padded with zeros:

    %w: i8[768, 3072]  ->  %w': i8[48, 192, 64, 4]  read at [i1 floordiv 64, i2 floordiv 4,
                                                             i1 mod 64, i2 mod 4]

Dims of an operand that are walked together, such as the taps of a filter, are one dim of the copy
kernel, also where the product reads them backwards: such a dim is long enough to fill vectors.

A padded read of a convolution becomes a read of a tensor with its border written out, so that the
inner loop has no bounds checks; its dims may be reordered as well. Constants are packed at compile
time, into the weight store. Other operands are packed by a copy kernel before the call. Where rows
of another operand begin at addresses that allow no wide loads, they are filled up with zeros.

A result whose lanes would be far apart in memory, such as the gradient of a filter, is stored with
its dims in the order that the target asks for, and copied.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.ir import Block, BlockArgument, SSAValue
from xdsl.rewriter import Rewriter

from dialects.graph import ConstantOp
from dialects.loop import AxesAttr, Axis, CallOp, KernelOp, NestOp, YieldOp, extents_of
from dialects.semantics.relayout import Relayout
from dialects.strata.types import SizesAttr, TensorType, shape_of
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import set_location
from passes.analyses.loop.coded import stepped_dims
from passes.analyses.loop.constants import constant_source
from passes.analyses.loop.kinds import is_contraction
from passes.analyses.loop.pairs import pair_of
from passes.base import StrataContext, StrataPass
from passes.contract import Border, Packing, Panel
from passes.loop_to_block.compute import is_dot
from passes.rewrites.kernels.collapsing import collapse
from passes.rewrites.kernels.copies import (
    copying,
    filled_up,
    known_sizes,
    range_of,
    renamed,
    size_symbols,
)
from passes.rewrites.kernels.reordered_results import reorder_result
from passes.rewrites.loop.nests import (
    Read,
    gathered_inputs,
    reads_of,
    replace_nest,
    result_types,
    with_reads,
)
from passes.rewriting import erase_unused, functions


class LoopPackOperands(StrataPass):
    """Pack the operands that the target asks for, and write out borders."""

    name = "loop-pack-operands"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        if context.rules is None:
            return
        for func in functions(module):
            self._pack(context, module, func.body.block)

    def _pack(self, context: StrataContext, module: ModuleOp, block: Block) -> None:
        assert context.rules is not None
        kernels = {op.sym_name.data: op for op in module.body.block.ops
                   if isinstance(op, KernelOp)}
        for call in [op for op in block.ops if isinstance(op, CallOp)]:
            kernel = kernels[call.kernel.data]
            order = context.rules.result_order(kernel)
            if order is not None and context.allowance.take(kernel, self.name):
                call, copier, copy = reorder_result(module, kernel, call, order)
                collapse(copier, copy)
            multiples = context.rules.row_multiples(kernel)
            if multiples and context.allowance.take(kernel, self.name):
                copier = _Copier(context, module, kernel, call)
                for number, multiple in multiples.items():
                    copier.fill_up(number, multiple)
            first = next((n for n in kernel.nests if is_contraction(n)), None)
            for nest in pair_of(kernel) or [*filter(None, [first])]:
                packer = _Packer(context, module, kernel, call, nest)
                panels = context.rules.panels(kernel, nest, packer.constants())
                if panels is not None and context.allowance.take(kernel, self.name):
                    packer.run(panels)
        erase_unused(block, context)  # constants whose packed copies have replaced them


class _Copier:
    """Passes copies of operands to a kernel."""

    def __init__(self, context: StrataContext, module: ModuleOp, kernel: KernelOp, call: CallOp):
        self.context, self.module, self.kernel, self.call = context, module, kernel, call
        self.copies = list[tuple[KernelOp, CallOp]]()
        """The copy kernels that were inserted, with their calls."""

    def fill_up(self, number: int, multiple: int) -> None:
        """Make all nests read a copy of an operand whose rows are zeros up to a multiple."""
        argument = self.kernel.body.block.args[number]
        axes = [Axis(Symbol.axis(f"i{d}d"), size) for d, size in enumerate(shape_of(argument))]
        point = [Expr.symbol(a.name) for a in axes]
        copy = copying(argument, point, 0, filled_up(axes, multiple), point)
        type_ = copy.results[0].type
        assert isinstance(type_, TensorType)
        self.call.operands[number] = self.made(
            copy, self.call.inputs[number], f"{self.kernel.sym_name.data}_rows{number}")
        Rewriter.replace_value_with_new_type(argument, type_)

    def made(self, copy: NestOp, source: SSAValue, name: str) -> SSAValue:
        """The copy's value in the calling function: a constant, or the call of a copy kernel."""
        constant = constant_source(source)
        if constant is not None and not size_symbols(copy):
            return self._packed_constant(constant, copy)
        return self._copy_call(copy, source, name)

    def _packed_constant(self, constant: ConstantOp, copy: NestOp) -> SSAValue:
        source = copy.inputs[0].type
        assert isinstance(source, TensorType)
        packed = Relayout(
            known_sizes(source.shape), tuple(zip((a.name for a in copy.axes), known_sizes(
                [a.extent for a in copy.axes]), strict=True)),
            tuple(copy.input_maps[0]), copy.pad_values[0])
        computation = f"pack {' '.join(map(str, (source, *copy.properties.values())))}"
        new = constant.derived(self.context.weights, ".packed", computation, packed)
        copy.erase()
        return self._before_call(new)

    def _before_call(self, op: ConstantOp | CallOp) -> SSAValue:
        set_location(op, self.call)
        block = self.call.parent_block()
        assert block is not None
        block.insert_op_before(op, self.call)
        return op.results[0]

    def _copy_call(self, copy: NestOp, source: SSAValue, name: str) -> SSAValue:
        sizes = sorted(size_symbols(copy))
        kernel = KernelOp.of(name, [source.type], sizes)
        nest = NestOp.of(
            [Axis(Symbol.axis(f"i{k}"), a.extent) for k, a in enumerate(copy.axes)],
            [kernel.body.block.args[0]], [renamed(copy, m) for m in copy.input_maps],
            result_types(copy), [renamed(copy, m) for m in copy.output_maps],
            pads=copy.pad_values, body=copy.body.clone())
        kernel.body.block.add_ops([nest, YieldOp.of(nest.results[0])])
        set_location(kernel, self.call)
        self.module.body.block.insert_op_before(kernel, self.kernel)
        type_ = nest.results[0].type
        assert self.context.rules is not None and isinstance(type_, TensorType)
        self.context.rules.prepare(kernel)
        copy.erase()
        call = CallOp.of(name, [source], [Expr.symbol(s) for s in sizes], [type_])
        self.copies.append((kernel, call))
        return self._before_call(call)


class _Packer(_Copier):
    """Packs the operands of a contraction."""

    def __init__(
        self, context: StrataContext, module: ModuleOp, kernel: KernelOp, call: CallOp,
        nest: NestOp,
    ):
        super().__init__(context, module, kernel, call)
        self.nest = nest
        self.extents = extents_of(nest.axes)

    def constants(self) -> set[int]:
        """The inputs of the nest that are constants, except those whose bytes the caller holds."""
        arguments: dict[SSAValue, SSAValue] = dict(
            zip(self.kernel.body.block.args, self.call.inputs, strict=True))
        found = {k: constant_source(arguments[v]) for k, v in enumerate(self.nest.inputs)
                 if v in arguments}
        return {k for k, constant in found.items()
                if constant is not None and not constant.is_held(self.context.weights)}

    def run(self, panels: Mapping[int, Packing]) -> None:
        filled = set[int]()
        for position in range(len(self.nest.inputs)):
            copy = self.copy(position, panels) if position in panels else (
                None if self.nest.pad_values[position] is None else self.border(position))
            packing = panels.get(position)
            keeps = isinstance(packing, Border) and not packing.padded
            if copy is not None:
                inside = self.inside(position)
                self.replace(position, *copy, self.nest.pad_values[position] if keeps else None)
                self.nest.inside = inside or self.nest.inside
                if keeps:
                    filled.add(position)
            if isinstance(packing, Panel):
                self.collapse_copies()
        if filled and is_dot(self.nest):
            self.sum_zeros(filled)

    def collapse_copies(self) -> None:
        """Merge the dims that copy kernels walk together."""
        for kernel, call in self.copies:
            collapse(kernel, call)
        self.copies.clear()

    # ------------------------------------------------------------------ what to copy
    def copy(
        self, position: int, panels: Mapping[int, Packing]
    ) -> tuple[NestOp, tuple[Expr, ...]] | None:
        """The copy that the target asks for, and where the kernel reads it."""
        match panels[position]:
            case Panel() as panel:
                return self.panel(position, panel)
            case Border(order, padded, multiple):
                return (self.border if padded else self.reordered)(position, order, multiple)
            case None:
                return None

    def panel(self, position: int, panel: Panel) -> tuple[NestOp, tuple[Expr, ...]]:
        """The copy into panels, and where the kernel reads it. A dim that is read in steps, or from
        its end to its beginning, is copied as it is."""
        axis, tile, group = panel.axis, panel.tile, panel.group
        read = reads_of(self.nest)[position]
        kept_dims = {*stepped_dims(read.map), *self.reversed_dims(read)}
        blocks = {Symbol.axis(f"i{d}d"): d for d in sorted(kept_dims)
                  if axis not in read.map[d].symbols}
        map_ = [*read.map]
        for name, d in blocks.items():
            map_[d] = Expr.symbol(name)
        used = {s for e in map_ for s in e.symbols if s in self.extents}
        outer = [a for a in self.nest.axes if a.name in used and a.name != axis and not a.reduce]
        inner = [Axis(n, self.extents[n]) for n in panel.inner if n in used]
        count = self.extents[axis].ceildiv(tile)
        outside, place = axis.followed_by("o"), axis.followed_by("t")
        axes = [*(Axis(a.name, a.extent) for a in outer), Axis(outside, count),
                *(Axis(name, shape_of(read.value)[d]) for name, d in blocks.items()),
                *inner, Axis(place, Expr.of(tile))]
        o, t, i = map(Expr.symbol, (outside, place, axis))
        parts, at = {axis: o * tile + t}, {outside: i // tile, place: i % tile}
        if group > 1:
            name = inner[-1].name
            member = name.followed_by("g")
            last, g = Expr.symbol(name), Expr.symbol(member)
            axes[-2:] = [Axis(name, inner[-1].extent.ceildiv(group)), axes[-1],
                         Axis(member, Expr.of(group))]
            parts[name] = last * group + g
            at |= {name: last // group, member: last % group}
        kept = [Expr.symbol(a.name) for a in axes]
        copy = copying(read.value, [e.substitute(parts) for e in map_], 0, axes, kept)
        at |= {name: read.map[d] for name, d in blocks.items()}
        return copy, tuple(e.substitute(at) for e in kept)

    def reversed_dims(self, read: Read) -> list[int]:
        """The dims that an axis walks alone, as a whole and backwards."""
        shape, found = shape_of(read.value), list[int]()
        for d, expr in enumerate(read.map):
            axis = (shape[d] - 1 - expr).as_symbol
            alone = axis is not None and sum(axis in e.symbols for e in read.map) == 1
            if axis is not None and alone and self.extents.get(axis) == shape[d]:
                found.append(d)
        return found

    def border(
        self, position: int, order: Sequence[int] | None = None, multiple: int = 1
    ) -> tuple[NestOp, tuple[Expr, ...]] | None:
        """The copy with its border, and where the kernel reads it; None if its range is unknown, or
        known to another input alone."""
        read = reads_of(self.nest)[position]
        if gathered_inputs(read.map):
            return None
        ranges = [range_of(e, self.extents) for e in read.map]
        if None in ranges:
            return None
        shape = shape_of(read.value)
        axes: list[Axis] = []
        map_: list[Expr] = []
        at: list[Expr] = []
        for d, (expr, size, bounds) in enumerate(zip(read.map, shape, ranges, strict=True)):
            assert bounds is not None
            low, high = bounds
            axis = expr.as_symbol
            whole = axis is not None and self.extents.get(axis) == size
            start = Expr.of(0) if whole else low
            extent = size if whole else high - low + 1
            axes.append(Axis(Symbol.axis(f"i{d}d"), extent))
            map_.append(Expr.symbol(axes[-1].name) + start)
            at.append(expr - start)
        axes = filled_up([axes[d] for d in order or range(len(axes))], multiple)
        kept = [Expr.symbol(a.name) for a in axes]
        copy = copying(read.value, map_, read.pad or 0, axes, kept)
        return copy, tuple(at[d] for d in order or range(len(at)))

    def reordered(
        self, position: int, order: Sequence[int], multiple: int = 1
    ) -> tuple[NestOp, tuple[Expr, ...]]:
        """The copy with its dims in another order, and where the kernel reads it. Dims that have no
        place in the order are read where the kernel does, at constants."""
        read, shape = reads_of(self.nest)[position], shape_of(self.nest.inputs[position])
        point = [*read.map]
        for d in order:
            point[d] = Expr.symbol(Symbol.axis(f"i{d}d"))
        filled = filled_up([Axis(Symbol.axis(f"i{d}d"), shape[d]) for d in order], multiple)
        pad = None if multiple == 1 else read.pad or 0
        copy = copying(read.value, point, pad, filled, [point[d] for d in order])
        return copy, tuple(read.map[d] for d in order)

    def inside(self, position: int) -> ArrayAttr[SizesAttr] | None:
        """Where a factor that is padded with zeros is read inside its tensor, as far as summed axes
        decide; None if it is not padded so, or nothing but one sum is computed."""
        read, summed = reads_of(self.nest)[position], {a.name for a in self.nest.reduce_axes}
        pairs = [SizesAttr.of((expr, size)) for expr, size in zip(
            read.map, shape_of(read.value), strict=True)
            if expr.symbols & summed and expr.as_symbol is None]
        is_sum = self.nest.combiner_names == ["add"]
        return ArrayAttr(pairs) if pairs and read.pad == 0 and is_sum else None

    def sum_zeros(self, filled: Collection[int]) -> None:
        """Where zeros fill up the rows of a factor along a summed axis, sum over these, too; the
        other factor counts as 0 behind its end. Then no tile needs a mask of its own, for which
        copies of tiles would have to wait."""
        for axis in self.nest.reduce_axes:
            reads = reads_of(self.nest)
            ends = {k: shape_of(read.value)[d] for k, read in enumerate(reads)
                    for d, place in enumerate(read.map) if place.as_symbol == axis.name}
            used = [place for read in reads for place in read.map if axis.name in place.symbols]
            longer = {ends[k] for k in filled if reads[k].map[-1].as_symbol == axis.name}
            alone = all(nest is self.nest or axis.name not in extents_of(nest.axes)
                        for nest in self.kernel.nests)
            if len(longer) == 1 and len(used) == len(ends) == len(reads) and alone:
                self.extend(axis, longer.pop(), {k for k in ends if k not in filled})

    def extend(self, axis: Axis, extent: Expr, padded: Collection[int]) -> None:
        """Lengthen an axis, behind whose end the reads at `padded` positions return 0."""
        reads = [Read(r.value, r.map, 0.0) if k in padded and r.pad is None else r
                 for k, r in enumerate(reads_of(self.nest))]
        new = with_reads(self.nest, reads)
        new.axes_attr = AxesAttr(tuple(
            Axis(a.name, extent, a.reduce) if a.name == axis.name else a for a in new.axes))
        replace_nest(self.nest, new)
        self.nest = new

    # ------------------------------------------------------------------ doing it
    def replace(
        self, position: int, copy: NestOp, at: tuple[Expr, ...], pad: float | bool | None = None
    ) -> None:
        """Make the kernel read the copy, and pass the copy to it."""
        argument = self.nest.inputs[position]
        assert isinstance(argument, BlockArgument)
        number = argument.index
        source = self.call.inputs[number]
        type_ = copy.results[0].type
        assert isinstance(type_, TensorType)
        new_argument = self.kernel.body.block.insert_arg(type_, number + 1)
        new_argument.name_hint = argument.name_hint
        reads = reads_of(self.nest)
        reads[position] = Read(new_argument, at, pad)
        new = with_reads(self.nest, reads)
        self.kernel.body.block.insert_op_before(new, self.nest)
        self.nest.results[0].replace_all_uses_with(new.results[0])
        self.nest.detach()
        self.nest.erase()
        self.nest = new
        value = self.made(
            copy, source, f"{self.kernel.sym_name.data}_pack{position}")
        if argument.uses.get_length() == 0:
            self.kernel.body.block.erase_arg(argument)
            self.call.operands[number] = value
        else:
            self._insert_operand(number + 1, value)

    def _insert_operand(self, number: int, value: SSAValue) -> None:
        operands = [*self.call.operands]
        operands.insert(number, value)
        self.call.operands = operands
