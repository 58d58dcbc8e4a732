"""`loop-assign-layouts`: store image tensors with channels last (NHWC).

Enters: nests over tensors in the model's order of dims (batch, channels, height, width). Leaves:
the same nests, with tensors around convolutions stored as (batch, height, width, channels).

A convolution sums over input channels and computes many output channels. With channels last, its
reads are contiguous and its results fill vector lanes, on every target. Changing a tensor's layout
means permuting its dims in every index expression that names it, so no operator is a special case:

    %y = nest ins(%x[n, c, h, w]) outs(f32[1, 64, 56, 56][n, c, h, w])
    ->   ins(%x[n, h, w, c]) outs(f32[1, 56, 56, 64][n, h, w, c])

Tensors that a nest walks in the same way get the same layout, so that no transpose is needed. What
equal layers pass to their function, and what it returns, lie as inside of it (`strata.call`).
Inputs and results of the model keep their order, and so do tensors that a view reads. A result that
nests read as well is copied into that order where the function returns; if it returns the tensor
with channels last, it returns the tensor itself. A nest whose result is
only viewed as an image, with dims merged, stores the image directly (a shuffle of channels):

    %p = nest outs(f32[1, 29, 2, h, w][0, a, b, i, j])   %y = view %p : f32[1, 58, h, w]
    ->  %y = nest outs(f32[1, 58, h, w][0, 2*a + b, i, j])
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from dialects.graph import ConstantOp
from dialects.loop import Axis, EmptyOp, NestOp, ViewOp, YieldOp, extents_of
from dialects.strata.control import CallOp
from dialects.strata.func import FuncOp, ReturnOp
from dialects.strata.types import TensorType, shape_of, tensor
from dialects.symbolic.expr import Expr, monomial_symbols
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import set_location
from passes.analyses.loop.kinds import is_contraction
from passes.base import StrataContext, StrataPass
from passes.rewrites.calls import called
from passes.rewrites.loop.nests import (
    Read,
    carry,
    is_copy,
    plain_axes,
    reads_of,
    result_types,
    through_view,
    with_reads,
)
from passes.rewriting import erase, functions, replace


class LoopAssignLayouts(StrataPass):
    """Permute image tensors to channels-last order."""

    name = "loop-assign-layouts"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        layers = called(module)
        for func in functions(module):
            if func.sym_name.data not in layers and context.allowance.take(func, self.name):
                _assign([func, *(f for f in functions(module) if any(
                    call.parent_op() is func for call in layers.get(f.sym_name.data, ())))],
                        context.facts.channels_last)


def _store_viewed(block: Block) -> None:
    """Let nests whose result is only viewed as an image store it in the view's shape."""
    for view in [op for op in block.ops if isinstance(op, ViewOp)]:
        nest = view.source.owner
        if not isinstance(nest, NestOp) or nest.into or not _is_free(view.result) or (
                len(nest.results) != 1 or view.source.uses.get_length() != 1):
            continue
        shape, target = shape_of(view.source), shape_of(view.result)
        stored = through_view(nest.output_maps[0], shape, target, extents_of(nest.axes))
        if _rank(view.result) >= 4 and stored is not None:
            assert isinstance(view.result.type, TensorType)
            new = with_reads(nest, reads_of(nest), [view.result.type], [stored])
            block.insert_op_before(new, nest)
            replace(view, new.results, rule="stored-as-viewed")
            erase(nest)


def _assign(funcs: Sequence[FuncOp], follows: bool) -> None:
    """Choose layouts for a function and the layers that it calls. `follows`: whether sums of images
    with channels last follow their order."""
    for func in funcs:
        _store_viewed(func.body.block)
    chosen = _Layouts(funcs, follows).chosen()
    _copy_returned(funcs[0].body.block, chosen)
    for func in funcs:
        for argument in [a for a in func.body.block.args if a in chosen]:
            _permute_argument(argument, chosen)
        for op in list(func.body.block.ops):
            if not any(v in chosen for v in [*op.operands, *op.results]):
                continue
            if isinstance(op, NestOp):
                _permute_nest(op, chosen)
            elif isinstance(op, EmptyOp):
                _replace(op, EmptyOp.of(_permuted_type(op.result)), chosen)
            elif isinstance(op, CallOp):
                new = CallOp.create(operands=op.operands, properties=op.properties, result_types=[
                    _permuted_type(r) if r in chosen else r.type for r in op.results])
                _replace(op, new, chosen)
        func.properties["result_types"] = ArrayAttr([v.type for v in func.return_op.operands])
        _drop_plain_copies(func.body.block)


def _drop_plain_copies(block: Block) -> None:
    """Let readers of a nest that has come to copy a tensor as it lies in memory read that tensor.

    A tensor that the function returns stays, so that none is returned twice.
    """
    last = block.last_op
    returned = set(last.operands) if isinstance(last, ReturnOp) else set[SSAValue]()
    for nest in [op for op in block.ops if isinstance(op, NestOp) and is_copy(op)]:
        source, result = nest.inputs[0], nest.results[0]
        if isinstance(source.owner, NestOp) and _copies_plainly(nest) and not (
                {source, result} <= returned):
            returned |= {source} if result in returned else set()
            replace(nest, [source], rule="copied-as-it-lies")


def _copies_plainly(nest: NestOp) -> bool:
    return (nest.inputs[0].type == nest.results[0].type and not nest.into
            and nest.pad_values[0] is None and nest.input_maps[0] == nest.output_maps[0]
            and plain_axes(nest.output_maps[0]) is not None)


class _Layouts:
    """Classes of tensors that share a layout: which want channels last, and which cannot."""

    def __init__(self, funcs: Sequence[FuncOp], follows: bool):
        """`funcs`: a function, then the layers that it calls."""
        self.follows = follows
        self.parent: dict[SSAValue, SSAValue] = {}
        self.wanted: list[SSAValue] = []
        self.fixed: list[SSAValue] = []
        layers = {f.sym_name.data: f for f in funcs[1:]}
        ops = [op for func in funcs for op in func.body.block.ops]
        for func in funcs:
            made = [r for op in func.body.block.ops if isinstance(op, (NestOp, EmptyOp, CallOp))
                    for r in op.results]
            is_layer = func.sym_name.data in layers
            values = [*func.body.block.args, *made] if is_layer else made
            readers = (NestOp, CallOp, ReturnOp) if is_layer else (NestOp, CallOp)
            self.parent.update((v, v) for v in values if _is_free(v, readers))
        for op in ops:
            if isinstance(op, NestOp):
                self.visit(op)
            elif isinstance(op, CallOp):
                layer = layers[op.callee.data]
                for pair in (*zip(op.inputs, layer.body.block.args, strict=True),
                             *zip(op.results, layer.return_op.operands, strict=True)):
                    self.unite_all(pair)

    def visit(self, nest: NestOp) -> None:
        maps = [*nest.input_maps, *nest.output_maps]
        values = [*nest.inputs, *nest.results]
        known = [(v, m) for v, m in zip(values, maps, strict=True) if v in self.parent]
        walked = [(v, _walked(nest, m)) for v, m in known]
        for (a, dims_a), (b, dims_b) in pairwise(sorted(walked, key=lambda k: _rank(k[0]))):
            if _aligned(dims_a, dims_b):
                self.unite(a, b)
        if nest.into:  # a tensor that a nest writes into may fix the layout of the result
            self.unite_all((nest.into[0], nest.results[0]))
        if is_contraction(nest) and _makes_channels(nest, self.follows):
            self.wanted += [v for v, _ in known if _rank(v) == _rank(nest.results[0])]

    def find(self, value: SSAValue) -> SSAValue:
        """The representative of a tensor's class, with path halving for later lookups."""
        parent = self.parent
        while parent[value] is not value:
            parent[value] = parent[parent[value]]
            value = parent[value]
        return value

    def unite(self, a: SSAValue, b: SSAValue) -> None:
        self.parent[self.find(a)] = self.find(b)

    def unite_all(self, values: Sequence[SSAValue]) -> None:
        """Let values have one layout, which is fixed if one of them is."""
        free = [v for v in values if v in self.parent]
        for a, b in pairwise(free):
            self.unite(a, b)
        if len(free) < len(values):
            self.fixed += free

    def chosen(self) -> set[SSAValue]:
        roots = {self.find(v) for v in self.wanted} - {self.find(v) for v in self.fixed}
        return {v for v in self.parent if self.find(v) in roots}


def _rank(value: SSAValue) -> int:
    return value.type.rank if isinstance(value.type, TensorType) else 0


def _is_free(value: SSAValue, readers: Sequence[type[Operation]] = (NestOp, CallOp)) -> bool:
    """Whether every use of the tensor can follow a permutation or return a copy, and some reader
    could gain from it."""
    kinds = {type(use.operation) for use in value.uses}
    return _rank(value) >= 3 and not kinds.isdisjoint(readers) and (
        kinds <= {NestOp, CallOp, ReturnOp})


def _copy_returned(block: Block, chosen: set[SSAValue]) -> None:
    """Let the function return copies of tensors whose layout will change."""
    last = block.last_op
    for k, value in enumerate(last.operands if isinstance(last, ReturnOp) else ()):
        if value in chosen and isinstance(value.owner, NestOp | CallOp):
            assert last is not None and isinstance(value.type, TensorType)
            axes = [Axis(Symbol.axis(f"i{d}"), size) for d, size in enumerate(value.type.shape)]
            point = [Expr.symbol(a.name) for a in axes]
            copy = NestOp.of(axes, [value], [point], [value.type], [point])
            copy.body.block.add_op(YieldOp.of(copy.body.block.args[0]))
            set_location(copy, value.owner)
            block.insert_op_before(copy, last)
            last.operands[k] = copy.results[0]


def _walked(nest: NestOp, map_: Sequence[Expr]) -> list[frozenset[Symbol] | None]:
    """The axes that walk each dim; None for a dim that is read at one constant index. An index that
    is gathered from a tensor walks along the axes of that tensor."""
    indices = [frozenset[Symbol]().union(*(e.symbols for e in m)) for m in nest.input_maps]
    numbers = {Symbol.gathered(k): axes for k, axes in enumerate(indices)}
    return [None if e.constant is not None else frozenset[Symbol]().union(
        *(numbers.get(s, {s}) for s in e.symbols)) for e in map_]


def _aligned(
    a: Sequence[frozenset[Symbol] | None], b: Sequence[frozenset[Symbol] | None]
) -> bool:
    """Whether two tensors are walked alike: dim by dim by the same axes, or broadcast. If their
    ranks differ, because one has its positions merged, say, all positions count as one dim."""
    if len(a) != len(b):
        a, b = ([*dims[:2], frozenset[Symbol]().union(*(d or () for d in dims[2:]))]
                for dims in (a, b))
    return all(x is None or y is None or x & y for x, y in zip(a, b, strict=True))


def _makes_channels(nest: NestOp, follows: bool) -> bool:
    """Whether dim 1 of the result counts channels: the weights index it, but no later dim.

    The data is the operand that the later dims (the positions) index. It has the result's rank, or
    lacks the dim of its only channel; with `follows`, its channels may be its last dim. If each
    channel of the data makes one of the result, the data must be read by windows, because a batch
    of products of one row would look the same. A transposed convolution stores several results per
    position, `2*i + v`; its weights may index the `v`. Constants are not data, because a batch of
    weights that multiplies one matrix would look like images.
    """
    map_ = nest.output_maps[0]
    if len(map_) < 3:
        return False
    positions = _stored_at(map_[2:])
    data = [m for m in nest.input_maps if positions <= _positions(nest, m, len(map_))]
    if follows and not data:
        data = [m for m in nest.input_maps if _has_channels_last(m, positions, map_)]
    weights = [m for m in nest.input_maps if m not in data]
    if len(data) == 1 and (_is_batch(nest, data[0], map_[1], positions)
                           or _is_constant(nest, data[0])):
        return False
    return len(data) == 1 and any(
        map_[1].symbols & e.symbols for m in weights for e in m) and not any(
        positions & e.symbols for m in weights for e in m)


def _has_channels_last(
    map_: Sequence[Expr], positions: set[Symbol], result: Sequence[Expr]
) -> bool:
    """Whether an image, such as an input of the model, has its positions before its channels."""
    return len(map_) == len(result) > 3 and map_[0] == result[0] and not (
        positions & map_[-1].symbols) and (
        positions <= {s for e in map_[1:-1] for s in e.symbols})


def _stored_at(dims: Sequence[Expr]) -> set[Symbol]:
    """The axes that walk positions; in a dim that mixes axes, those with a step larger than 1."""
    found = set[Symbol]()
    for expr in dims:
        steps = {s for atoms, factor in expr.terms if factor != 1 for s in monomial_symbols(atoms)}
        found |= steps or expr.symbols
    return found


def _is_batch(nest: NestOp, data: Sequence[Expr], channel: Expr, positions: set[Symbol]) -> bool:
    """Whether channels form a batch: each yields one of the result, summed along a whole dim."""
    if len(data) != len(nest.output_maps[0]) or not channel.symbols & data[1].symbols:
        return False
    reduce = {a.name for a in nest.reduce_axes}
    return any(e.symbols & reduce and not e.symbols & positions for e in data[2:])


def _is_constant(nest: NestOp, data: Sequence[Expr]) -> bool:
    """Whether the operand read at `data` is a constant of the model."""
    return any(isinstance(v.owner, ConstantOp) for v, m in
               zip(nest.inputs, nest.input_maps, strict=True) if m == data)


def _positions(nest: NestOp, map_: Sequence[Expr], rank: int) -> set[Symbol]:
    """The axes that may index positions of an operand: those of its dims after the channels.

    An operand without channels must be read by windows, which overlap; a plain matrix is not.
    """
    later = map_[2 - rank:]
    if len(map_) == rank:
        return {s for e in later for s in e.symbols}
    reduce = {a.name for a in nest.reduce_axes}
    windows = len(map_) == rank - 1 and all(e.symbols & reduce for e in later)
    return {s for e in later for s in e.symbols} if windows else set()


def _moved(items: Sequence[Expr]) -> tuple[Expr, ...]:
    """The items with dim 1 moved to the end."""
    return (items[0], *items[2:], items[1])


def _permuted_type(value: SSAValue) -> TensorType:
    assert isinstance(value.type, TensorType)
    return tensor(value.type.element, _moved(value.type.shape))


def _permute_argument(argument: BlockArgument, chosen: set[SSAValue]) -> None:
    block = argument.block
    new = block.insert_arg(_permuted_type(argument), argument.index)
    new.name_hint = argument.name_hint
    chosen.add(new)
    argument.replace_all_uses_with(new)
    block.erase_arg(argument)


def _permute_nest(nest: NestOp, chosen: set[SSAValue]) -> None:
    reads = [Read(r.value, _moved(r.map), r.pad) if r.value in chosen else r
             for r in reads_of(nest)]
    types = [_permuted_type(r) if r in chosen else type_
             for r, type_ in zip(nest.results, result_types(nest), strict=True)]
    maps = [_moved(m) if r in chosen else m
            for r, m in zip(nest.results, nest.output_maps, strict=True)]
    new = NestOp.of(
        nest.axes, [r.value for r in reads], [r.map for r in reads],
        types, maps, combiners=nest.combiner_names,
        pads=[r.pad for r in reads], into=list(nest.into), body=nest.detach_region(0))
    _replace(nest, carry(nest, new), chosen)


def _replace(old: Operation, new: Operation, chosen: set[SSAValue]) -> None:
    """Put `new` in the place of `old`; its results inherit the chosen layout."""
    set_location(new, old)
    block = old.parent_block()
    assert block is not None
    block.insert_op_before(new, old)
    for a, b in zip(old.results, new.results, strict=True):
        b.name_hint = a.name_hint
        if a in chosen:
            chosen.add(b)
        a.replace_all_uses_with(b)
    old.detach()
    old.erase()
