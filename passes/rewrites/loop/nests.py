"""Helpers that rewrite nests: rename axes, substitute index expressions, inline bodies.

Most functions build new nests and leave the old ones alone, so that the caller replaces and erases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from dialects.loop import Axis, IndexOp, NestOp, YieldOp, extents_of, scalar_type
from dialects.records import dataclass
from dialects.strata.types import SizesAttr, TensorType, tensor
from dialects.symbolic.expr import Call, Expr, Size
from dialects.symbolic.ranges import simplify
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Kind, Symbol
from dialects.text.syntax import merge_locations, set_location
from dialects.walking import listed


@dataclass
class Read:
    """One input of a nest: a tensor, where it is read, and the value of out-of-bounds reads."""

    value: SSAValue
    map: tuple[Expr, ...]
    pad: float | bool | None = None

    def key(self) -> tuple[int, tuple[Expr, ...], str]:
        return id(self.value), self.map, repr(self.pad)


def reads_of(nest: NestOp) -> list[Read]:
    return [Read(v, m, p) for v, m, p in
            zip(nest.inputs, nest.input_maps, nest.pad_values, strict=True)]


def result_types(nest: NestOp) -> list[TensorType]:
    return [r.type for r in nest.results if isinstance(r.type, TensorType)]


def has_calls(exprs: Sequence[Expr]) -> bool:
    """Whether an expression is not affine: it divides or takes a minimum or maximum."""
    return any(isinstance(a, Call) for e in exprs for m, _ in e.terms for a in m)


def has_remainders(exprs: Sequence[Expr]) -> bool:
    """Whether an expression has calls other than divisions such as `h floordiv 4`."""
    return any(isinstance(a, Call) and a.op != "floordiv" for e in exprs for m, _ in e.terms
               for a in m)


def gathered_inputs(exprs: Sequence[Expr]) -> set[int]:
    """The numbers of the inputs whose values are used as indices."""
    return {s.number for e in exprs for s in e.symbols if s.kind is Kind.GATHERED}


def data_inputs(nest: NestOp) -> list[int]:
    """The inputs that do not index other inputs."""
    indices = gathered_inputs([e for m in nest.input_maps for e in m])
    return [k for k in range(len(nest.inputs)) if k not in indices]


def axes_of_input(nest: NestOp, position: int) -> set[Symbol]:
    """The axes that determine where an input is read, directly or through its index inputs."""
    map_ = nest.input_maps[position]
    own = {s for e in map_ for s in e.symbols} & {a.name for a in nest.axes}
    return own.union(*(axes_of_input(nest, k) for k in gathered_inputs(map_)))


def index_exprs(nest: NestOp) -> list[Expr]:
    """The index expressions whose values the body uses."""
    return [op.expr.data for op in listed(nest.body.block) if type(op) is IndexOp]


def body_size(nest: NestOp) -> int:
    """The number of operations of the body."""
    return len(listed(nest.body.block))


def is_copy(nest: NestOp) -> bool:
    """Whether the body passes its one input through, so that the nest only moves data."""
    if len(nest.inputs) != 1 or len(nest.results) != 1 or not nest.is_elementwise:
        return False
    return nest.yielded[0] is nest.body.block.args[0]


def plain_axes(map_: Sequence[Expr]) -> list[Symbol] | None:
    """The axes of a map whose expressions are distinct plain axes or the constant 0; else None."""
    names = [e.as_symbol for e in map_ if e.constant != 0]
    if None in names or len(set(names)) != len(names):
        return None
    return [n for n in names if n is not None]


def clone_body(
    block: Block, target: Block, arguments: Sequence[SSAValue], axes: Mapping[Symbol, Size]
) -> list[SSAValue]:
    """Append a body's operations to `target`, with arguments replaced and axes substituted in
    `loop.index`. Returns the values that the body yields."""
    mapping: dict[SSAValue, SSAValue] = dict(zip(block.args, arguments, strict=True))
    for op in listed(block):
        if type(op) is YieldOp:
            return [mapping.get(v, v) for v in op.operands]
        if type(op) is IndexOp and axes:
            copy: Operation = IndexOp.of(op.expr.data.substitute(axes))
            mapping[op.result] = copy.results[0]
        else:
            copy = op.clone(mapping) if op.regions else op.clone_without_regions(mapping)
        copy.location = op.location
        target.add_op(copy)
    raise AssertionError("a body ends in a yield")


def substitute_axes(
    nest: NestOp, axes: Sequence[Axis], values: Mapping[Symbol, Size],
    inputs: Sequence[SSAValue] | None = None,
) -> NestOp:
    """The nest over other axes, with each old axis replaced by an expression of the new ones."""
    body = Region(Block(arg_types=[a.type for a in nest.body.block.args]))
    yielded = clone_body(nest.body.block, body.block, body.block.args, values)
    body.block.add_op(YieldOp.of(*yielded))
    extents = extents_of(axes)

    def move(map_: Sequence[Expr]) -> list[Expr]:
        return [simplify(e.substitute(values), extents) for e in map_]

    new = NestOp.of(
        axes, inputs if inputs is not None else list(nest.inputs),
        [move(m) for m in nest.input_maps], result_types(nest),
        [move(m) for m in nest.output_maps], combiners=nest.combiner_names,
        pads=nest.pad_values, into=list(nest.into), body=body)
    new.inside = None if nest.inside is None else ArrayAttr(
        [SizesAttr.of(move(pair)) for pair in nest.insides])
    return carry(nest, new)


def rename_axes(nest: NestOp, names: Mapping[Symbol, Symbol]) -> NestOp:
    axes = [Axis(names.get(a.name, a.name), a.extent, a.reduce) for a in nest.axes]
    return substitute_axes(nest, axes, {k: Expr.symbol(v) for k, v in names.items()})


def divided(nest: NestOp, axis: Axis, count: int) -> NestOp:
    """The nest with an axis split into `count` parts, which keep its name, and an inner axis."""
    inner = axis.name.followed_by("_part")
    size = axis.extent // count
    axes = [new for a in nest.axes for new in (
        (Axis(a.name, Expr.of(count), True), Axis(inner, size, True)) if a == axis else (a,))]
    return substitute_axes(nest, axes, {axis.name: Expr.symbol(axis.name) * size
                                        + Expr.symbol(inner)})


def with_reads(
    nest: NestOp, reads: Sequence[Read], types: Sequence[TensorType] | None = None,
    maps: Sequence[Sequence[Expr]] | None = None,
) -> NestOp:
    """The nest with other reads (of equal number and types), result types or result maps."""
    new = NestOp.of(
        nest.axes, [r.value for r in reads], [r.map for r in reads],
        types if types is not None else result_types(nest),
        maps if maps is not None else nest.output_maps,
        combiners=nest.combiner_names, pads=[r.pad for r in reads], into=list(nest.into),
        body=nest.body.clone())
    new.inside = nest.inside
    return carry(nest, new)


def carry(old: NestOp, new: NestOp) -> NestOp:
    """Keep the location, the value names, how long sums are split into parts, and whether a scatter
    is unordered, or total. If the places of a scatter have become known, it is none any longer."""
    set_location(new, old)
    new.part = old.part
    new.unordered, new.total = (old.unordered, old.total) if new.is_scatter else (None, None)
    for a, b in zip(old.results, new.results, strict=True):
        b.name_hint = a.name_hint
    return new


def replace_nest(old: NestOp, new: NestOp) -> None:
    """Replace a nest by another one with equal results, which stands for the same nodes."""
    merge_locations(new, [old])
    block = old.parent_block()
    assert block is not None
    block.insert_op_before(new, old)
    for before, after in zip(old.results, new.results, strict=True):
        before.replace_all_uses_with(after)
    old.detach()
    old.erase()


def elementwise_on(
    value: SSAValue, element: Attribute, build: Callable[[SSAValue], Sequence[Operation]]
) -> NestOp:
    """Insert a nest after the one that computes a value, which applies operations to each element.
    The last of these gives the result."""
    maker = value.owner
    assert isinstance(maker, NestOp) and isinstance(value.type, TensorType)
    stored = maker.stored_at(value)
    block = Block(arg_types=[scalar_type(value)])
    ops = build(block.args[0])
    block.add_ops([*ops, YieldOp.of(ops[-1].results[0])])
    nest = NestOp.of(maker.parallel_axes, [value], [stored], [tensor(element, value.type.shape)],
                     [stored], body=Region(block))
    set_location(nest, maker)
    nest.results[0].name_hint = value.name_hint
    parent = maker.parent_block()
    assert parent is not None
    parent.insert_op_after(nest, maker)
    return nest


def drop_unused(nest: NestOp) -> None:
    """Erase operations of a body whose results are unused."""
    for op in reversed(list(nest.body.block.ops)):
        if op.results and not any(list(r.uses) for r in op.results):
            op.detach()
            op.erase()


def inline_producer(consumer: NestOp, position: int, producer: NestOp, result: int) -> NestOp:
    """The consumer with its input at `position` computed in place by the producer's body.

        %p = nest (i) ins(%x[i]) {f}     %y = nest (j) ins(%p[2*j]) {g}
        ->  %y = nest (j) ins(%x[2*j]) {f; g}

    The producer is elementwise. Each dim of its result map is a plain axis, or combines several
    axes (`digits_of`), which are then recovered by division.
    """
    read = reads_of(consumer)[position]
    values: dict[Symbol, Size] = {a.name: 0 for a in producer.axes}  # 0 remains for extents of 1
    for expr, at in zip(producer.output_maps[result], read.map, strict=True):
        if expr.as_symbol is not None:
            values[expr.as_symbol] = at
        elif expr.symbols:
            values |= {a: at // step % n for a, step, n in digits_of(expr, producer.axes) or ()}
    extents = extents_of(consumer.axes)
    inside = {**_numbering(range(len(producer.inputs)), to=_moved), **values}
    moved = [Read(r.value, tuple(simplify(e.substitute(inside), extents) for e in r.map),
                  r.pad if read.pad is None else read.pad) for r in reads_of(producer)]
    merged = _merge_reads(consumer, position, moved, producer, result, values)
    merge_locations(merged, [producer])
    return merged


def inline_everywhere(nest: NestOp) -> None:
    """Let all readers compute the elements of a nest themselves, and erase the nest."""
    value = nest.results[0]
    while (use := next(iter(value.uses), None)) is not None:
        reader = use.operation
        assert isinstance(reader, NestOp)
        replace_nest(reader, inline_producer(reader, use.index, nest, 0))
    nest.detach()
    nest.erase()


def digits_of(expr: Expr, axes: Sequence[Axis]) -> list[tuple[Symbol, int, Expr]] | None:
    """The axes of an expression such as 4*i + j with j < 4, as (name, step, extent), slowest first;
    None if division cannot recover its axes."""
    extents = extents_of(axes)
    split = expr.linear(extents)
    if split is None or split[1].constant != 0:
        return None
    steps = {name: step.constant or 0 for name, step in split[0].items()}
    order = sorted(steps, key=lambda name: -steps[name])
    below = [*order[1:], None] if order else []
    fits = all(steps[a] == (1 if b is None else steps[b] * (extents[b].constant or 0))
               for a, b in zip(order, below, strict=True))
    return [(a, steps[a], extents[a]) for a in order] if fits else None


def without_equal_reads(nest: NestOp) -> NestOp:
    """The nest with each distinct read only once."""
    return _merge_reads(nest, len(nest.inputs), [], nest, 0, {})


class _Reads:
    """Distinct reads in order; `add` returns the position of a read, whether old or new."""

    def __init__(self) -> None:
        self.reads: list[Read] = []
        self.places: dict[tuple[int, tuple[Expr, ...], str], int] = {}

    def add_state(self, read: Read) -> int:
        """The first read of a recurrence, to which no other read is equal after the first point."""
        self.reads.append(read)
        return len(self.reads) - 1

    def add(self, read: Read, gathered: Mapping[Symbol, Size]) -> int:
        """`gathered` renumbers the index inputs in the read's map."""
        new = Read(read.value, tuple(e.substitute(gathered) for e in read.map), read.pad)
        if new.key() not in self.places:
            self.places[new.key()] = len(self.reads)
            self.reads.append(new)
        return self.places[new.key()]


_Numbered: TypeAlias = Callable[[int], Symbol]


def _moved(number: int) -> Symbol:
    """A stand-in for a producer's input while the consumer's inputs keep their own numbers."""
    return Symbol.counter(f"@in{number}")


def _numbering(
    places: Sequence[int], of: _Numbered = Symbol.gathered, to: _Numbered = Symbol.gathered
) -> dict[Symbol, Size]:
    """Map the symbol of each input k that remains to the symbol of the input at places[k]."""
    return {of(k): Expr.symbol(to(p)) for k, p in enumerate(places) if p >= 0}


def _merge_reads(
    consumer: NestOp, position: int, moved: list[Read], producer: NestOp, result: int,
    values: Mapping[Symbol, Size],
) -> NestOp:
    """Replace one of the consumer's reads by the producer's reads, each distinct read only once.

    In `moved` and `values`, `@in<k>` (`_moved`) are the producer's inputs and `in<k>` the
    consumer's.
    """
    reads = _Reads()
    own = reads_of(consumer)
    places: list[int] = []
    inner: list[int] = []
    for k, read in enumerate(own):
        if consumer.is_recurrence and k == 0:
            places.append(reads.add_state(read))
            continue
        if k != position:
            places.append(reads.add(read, _numbering(places)))
            continue
        for other in moved:
            gathered = {**_numbering(places), **_numbering(inner, of=_moved)}
            inner.append(reads.add(other, gathered))
        places.append(-1)
    block = Block(arg_types=[scalar_type(r.value) for r in reads.reads])
    arguments: list[SSAValue | None] = [block.args[p] if p >= 0 else None for p in places]
    if position < len(own):
        operands = [block.args[k] for k in inner]
        at = {a: Expr.of(e).substitute(_numbering(places)) for a, e in values.items()}
        computed = clone_body(producer.body.block, block, operands, {**_numbering(inner), **at})
        arguments[position] = computed[result]
    yielded = clone_body(consumer.body.block, block, [a for a in arguments if a is not None],
                         _numbering(places))
    block.add_op(YieldOp.of(*yielded))
    stored = [[e.substitute(_numbering(places)) for e in m] for m in consumer.output_maps]
    new = NestOp.of(
        consumer.axes, [r.value for r in reads.reads], [r.map for r in reads.reads],
        result_types(consumer), stored, combiners=consumer.combiner_names,
        pads=[r.pad for r in reads.reads], into=list(consumer.into), body=Region(block))
    return carry(consumer, new)


def through_view(
    map_: Sequence[Expr], target: Sequence[Expr], source: Sequence[Expr],
    extents: Mapping[Symbol, Expr], divide: bool = False,
) -> tuple[Expr, ...] | None:
    """Where element `map_` of a view with shape `target` lies in its source of shape `source`.

    Row-major order is kept, so equal runs of sizes correspond dim by dim. Within a run of equal
    products, the position is linearized and split again. None if divisions remain, unless `divide`,
    and for a source without elements whose view has no dim of size 0.
    """
    empty = next((at for at, size in zip(map_, target, strict=True) if size.constant == 0), None)
    if empty is not None:  # there is nothing to read, as long as the empty axis stays
        return tuple(empty if size.constant in (0, None) else Expr.of(0) for size in source)
    if any(size.constant == 0 for size in source):
        return None
    at: list[Expr] = []
    for run_target, run_source in _matching_runs(target, source):
        linear = Expr.of(0)
        for d in run_target:
            linear = linear * target[d] + map_[d]
        at += _delinearize(linear, [source[d] for d in run_source], extents)
    return None if has_calls(at) and not (has_calls(map_) or divide) else tuple(at)


def _delinearize(linear: Expr, shape: Sequence[Expr], extents: Mapping[Symbol, Expr]) -> list[Expr]:
    if len(shape) == 1:
        return [linear]
    at: list[Expr] = []
    for d, size in enumerate(shape):
        stride = product(shape[d + 1:])
        part = simplify(linear // stride, extents)
        if any(s.constant != 1 for s in shape[:d]):  # a padded read may lie outside
            part = simplify(part % size, extents)
        at.append(Expr.of(0) if size.constant == 1 else part)
    return at


def _matching_runs(
    target: Sequence[Expr], source: Sequence[Expr]
) -> list[tuple[list[int], list[int]]]:
    """Split two shapes of equal products into the shortest runs of equal products."""
    runs: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(target) or j < len(source):
        left: list[int] = []
        right: list[int] = []
        a, b = Expr.of(1), Expr.of(1)
        while (not left and not right) or a != b:
            smaller = (a.constant or 0) <= (b.constant or 0) if a.constant and b.constant else None
            take_left = i < len(target) and (j >= len(source) or _should_grow(a, b, smaller))
            if take_left:
                a = a * target[i]
                left.append(i)
                i += 1
            elif j < len(source):
                b = b * source[j]
                right.append(j)
                j += 1
            else:  # products that are equal only through run-time sizes: one run of everything
                return [(list(range(len(target))), list(range(len(source))))]
        runs.append((left, right))
    return runs


def _should_grow(a: Expr, b: Expr, smaller: bool | None) -> bool:
    """Whether to extend the target's run rather than the source's."""
    if smaller is not None:
        return smaller
    quotient, rest = b.divide(a)  # b == a * quotient: the target is the slower one
    return not rest.terms and bool(quotient.terms)
