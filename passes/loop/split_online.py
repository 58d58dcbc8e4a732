"""`loop-split-online`: split the walk of online sums into parts when there are few rows (split-KV).

    %y = call @online_2(%q, %k, %v)
    ->
    %m, %l, %t = call @online_2(%q, %k, %v)       the maximum and the sums of each part
    %y = call @parts_2(%m, %l, %t)                n = max m,  sum l * exp(m - n) ...,  t / l

A sum of exp(x - m) becomes a sum relative to n, the maximum over all parts, when it is multiplied
by exp(m - n); see `passes.analyses.loop.online`. This keeps a GPU busy even for one row of a few
heads with a long cache of keys. The target chooses the length of the parts (`Rules.online_part`),
of which the last may be shorter: what it reads beyond the end counts as -inf. A second kernel adds
the parts, always in the same order. A part whose elements are all -inf contributes 0.

Enters: kernels, as `loop-join-online` leaves them. Leaves: kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, BlockArgument, Region, SSAValue

from dialects.loop import Axis, CallOp, KernelOp, NestOp, YieldOp, scalar_type
from dialects.strata.types import TensorType, tensor
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import set_location
from passes.analyses.loop.kinds import is_contraction
from passes.analyses.loop.numbers import constant
from passes.analyses.loop.online import Running, running_maximum, sources_of
from passes.base import StrataContext, StrataPass
from passes.rewrites.chains.chain import calls_in
from passes.rewrites.loop.nests import (
    Read,
    carry,
    reads_of,
    result_types,
    substitute_axes,
    with_reads,
)
from passes.rewrites.loop.uneven_parts import count_inside
from passes.rewriting import erase


class LoopSplitOnline(StrataPass):
    """Split the walk of online sums into parts that programs compute in parallel."""

    name = "loop-split-online"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        if context.rules is None or context.exact:
            return
        kernels = {op.sym_name.data: op for op in module.body.block.ops
                   if isinstance(op, KernelOp)}
        for call in calls_in(module):
            kernel = kernels[call.kernel.data]
            work = Work.of(kernel)
            size = 0 if work is None else context.rules.online_part(kernel)
            if work is None or not size or not _divides(work, size):
                continue
            if context.allowance.take(call, self.name):
                _replace(call, _Split(kernel, work, size))


def _divides(work: Work, size: int) -> bool:
    """Whether parts of a length are equal, or what is beyond the end can be told by its score."""
    return (work.axis.extent % size).constant == 0 or work.may_end_early


class Work(NamedTuple):
    """An online kernel: the nests that walk the axis or feed those that do, and the rest."""

    axis: Axis
    finder: NestOp
    sums: dict[NestOp, Running]
    walking: Sequence[NestOp]
    following: Sequence[NestOp]

    @property
    def scores(self) -> SSAValue | None:
        """The values whose maximum is found, where nests of the kernel compute them."""
        [*inputs], [*arguments] = self.finder.inputs, self.finder.body.block.args
        computed = len(inputs) == 1 and inputs[0].owner in self.walking
        return inputs[0] if computed and self.finder.yielded[0] is arguments[0] else None

    @property
    def may_end_early(self) -> bool:
        """Whether a weight of 0 hides what is beyond the end: values lie along the axis itself, and
        what is weighted is 0 where zeros are read."""
        if self.scores is None:
            return False
        name, maker = self.axis.name, self.scores.owner
        assert isinstance(maker, NestOp)
        before = {maker, *(v.owner for v in sources_of(maker))}
        return all(e == Expr.symbol(name) or name not in e.symbols for n in self.walking
                   for m in n.output_maps for e in m) and not any(
            isinstance(op, arith.DivfOp) or op.name.startswith("math.")
            for n in self.walking if n not in before and _reads_along(n, name)
            for op in n.body.block.ops)

    @staticmethod
    def of(kernel: KernelOp) -> Work | None:
        """None for a kernel without an online sum of products, and for one whose results need more
        than the maximum and the sums."""
        sums = {n: r for n in kernel.nests if (r := running_maximum(n)) is not None}
        finders = {r.maximum.owner for r in sums.values()}
        finder = finders.pop() if len(finders) == 1 else None
        if not isinstance(finder, NestOp) or len(finder.reduce_axes) != 1 or not any(
                map(is_contraction, sums)):
            return None
        [axis] = finder.reduce_axes
        made = {finder.results[0], *(n.results[0] for n in sums)}
        following = [n for n in kernel.nests if axis.name not in {a.name for a in n.axes}
                     and made & sources_of(n)]
        walking = [n for n in kernel.nests if n not in following]
        known = {*made, *kernel.body.block.args, *(r for n in following for r in n.results)}
        fits = all(v in known for n in following for v in n.inputs) and (
            all(v.owner in following for v in kernel.yielded))
        return Work(axis, finder, sums, walking, following) if fits else None


def _reads_along(nest: NestOp, name: Symbol) -> bool:
    """Whether a nest reads an argument of the kernel along an axis."""
    return any(isinstance(r.value, BlockArgument) and name in {s for e in r.map for s in e.symbols}
               for r in reads_of(nest))


class _Split(NamedTuple):
    kernel: KernelOp
    work: Work
    size: int

    @property
    def parts(self) -> Expr:
        return self.work.axis.extent.ceildiv(self.size)

    @property
    def _is_even(self) -> bool:
        return (self.work.axis.extent % self.size).constant == 0

    @property
    def _made(self) -> list[SSAValue]:
        """The values that the first kernel passes on, in its order."""
        return [self.work.finder.results[0], *(n.results[0] for n in self.work.sums)]

    @property
    def _axis(self) -> Axis:
        """The axis over the parts, as a reduce axis."""
        return Axis(self.work.axis.name, self.parts, True)

    # ------------------------------------------------------------------ the parts
    def first(self) -> KernelOp:
        """The kernel that computes the maximum and the sums of each part."""
        inputs = self.kernel.body.block.args
        kernel = self._empty(self.kernel.sym_name.data, [a.type for a in inputs])
        values: dict[SSAValue, SSAValue] = dict(
            zip(inputs, kernel.body.block.args, strict=True))
        for old, new in list(values.items()):
            new.name_hint = old.name_hint
        for nest in self.work.walking:
            for new in self._part(nest, values):
                values |= zip(nest.results, new.results, strict=True)
                kernel.body.block.add_op(new)
        self._finish(kernel, [values[v] for v in self._made])
        return kernel

    def _part(self, nest: NestOp, values: dict[SSAValue, SSAValue]) -> list[NestOp]:
        """A nest over one part. Each part has its own result of a reduction, and of a nest before
        the walk, so that all nests have the axis over the parts. If the last part is shorter, its
        scores beyond the end are -inf."""
        axis, size = self.work.axis, Expr.of(self.size)
        inner, outer = axis.name.followed_by("_part"), Axis(axis.name, self.parts)
        axes = [new for a in nest.axes for new in (
            (outer, Axis(inner, size, a.reduce)) if a.name == axis.name else (a,))]
        if outer not in axes:
            axes = [outer, *axes]
        moved = substitute_axes(nest, axes, {
            axis.name: Expr.symbol(axis.name) * size + Expr.symbol(inner)})
        reads = [Read(values[r.value], self._place(r.value, r.map), self._pad(r, inner))
                 for r in reads_of(moved)]
        types = [self._type(r) for r in nest.results]
        maps = [self._place(r, m) for r, m in zip(nest.results, moved.output_maps, strict=True)]
        new = carry(nest, with_reads(moved, reads, types, maps))
        if self._is_even or self.work.scores not in nest.results:
            return [new]
        found = [new]
        if new.is_reduction:
            found.append(carry(nest, _same(new)))
        room = axis.extent - Expr.symbol(axis.name) * size - Expr.symbol(inner)
        count_inside(found[-1].body.block, room, "max", axis.extent.constant is not None)
        return found

    def _pad(self, read: Read, inner: Symbol) -> float | bool | None:
        """What the read of an argument beyond the end of the axis yields; scores tell it later."""
        beyond = not self._is_even and isinstance(read.value, BlockArgument) and any(
            inner in e.symbols for e in read.map)
        return 0 if beyond and read.pad is None else read.pad

    def _is_of_part(self, value: SSAValue) -> bool:
        """Whether each part has its own value, since it lies across the axis or before the walk."""
        return value.owner in self.work.walking and isinstance(value.owner, NestOp) and not any(
            a.name == self.work.axis.name for a in value.owner.parallel_axes)

    def _place(self, value: SSAValue, map_: Sequence[Expr]) -> tuple[Expr, ...]:
        first = [Expr.symbol(self.work.axis.name)] if self._is_of_part(value) else []
        return (*first, *map_)

    def _type(self, value: SSAValue) -> TensorType:
        assert isinstance(value.type, TensorType)
        if not self._is_of_part(value):
            return self._lengthened(value)
        return tensor(value.type.element, [self.parts, *value.type.shape])

    def _lengthened(self, value: SSAValue) -> TensorType:
        """The type of a value that lies along the axis: all parts have equally many elements."""
        assert isinstance(value.type, TensorType)
        axis, maker = self.work.axis, value.owner
        if self._is_even or not isinstance(maker, NestOp) or maker not in self.work.walking:
            return value.type
        place = Expr.symbol(axis.name)
        [map_] = [m for r, m in zip(maker.results, maker.output_maps, strict=True) if r is value]
        return tensor(value.type.element, [self.parts * self.size if e == place else n
                                           for e, n in zip(map_, value.type.shape, strict=True)])

    # ------------------------------------------------------------------ their sum
    def second(self) -> KernelOp:
        """The kernel that combines the parts, and computes the results from the combined sums."""
        others = self.others
        number = self.kernel.sym_name.data.rpartition("_")[2]
        types = [*map(self._type, self._made), *(v.type for v in others)]
        kernel = self._empty(f"parts_{number}", types)
        arguments = list(kernel.body.block.args)
        parts = dict(zip(self._made, arguments, strict=False))
        values: dict[SSAValue, SSAValue] = dict(
            zip(others, arguments[len(parts):], strict=True))
        finder = self.work.finder
        values[finder.results[0]] = self._add(kernel, self._greatest(parts))
        for nest, running in self.work.sums.items():
            total = self._total(nest, running, parts, values[finder.results[0]])
            values[nest.results[0]] = self._add(kernel, total)
        for nest in self.work.following:
            reads = [Read(values[r.value], r.map, r.pad) for r in reads_of(nest)]
            values |= zip(nest.results, [self._add(kernel, with_reads(nest, reads))], strict=True)
        self._finish(kernel, [values[v] for v in self.kernel.yielded])
        return kernel

    @property
    def others(self) -> list[SSAValue]:
        """Kernel arguments that the nests after the sums read."""
        read = [v for n in self.work.following for v in n.inputs]
        return [a for a in self.kernel.body.block.args if a in read]

    def _empty(self, name: str, types: Sequence[Attribute]) -> KernelOp:
        kernel = KernelOp.of(name, types, self.kernel.size_names)
        set_location(kernel, self.kernel)
        return kernel

    def _finish(self, kernel: KernelOp, values: Sequence[SSAValue]) -> None:
        kernel.body.block.add_op(last := YieldOp.of(*values))
        set_location(last, self.kernel)

    def _add(self, kernel: KernelOp, nest: NestOp) -> SSAValue:
        kernel.body.block.add_op(nest)
        return nest.results[0]

    def _greatest(self, parts: Mapping[SSAValue, SSAValue]) -> NestOp:
        finder = self.work.finder
        [map_] = finder.output_maps
        block = Block(arg_types=[scalar_type(finder.results[0])])
        block.add_op(YieldOp.of(block.args[0]))
        _locate(block, finder)
        return carry(finder, NestOp.of(
            [*finder.parallel_axes, self._axis], [parts[finder.results[0]]],
            [self._place(finder.results[0], map_)], result_types(finder), [map_],
            combiners=finder.combiner_names, body=Region(block)))

    def _total(
        self, nest: NestOp, running: Running, parts: Mapping[SSAValue, SSAValue], greatest: SSAValue
    ) -> NestOp:
        """The sum over the parts of s * exp(m - n), where a part with m = -inf counts as 0."""
        maximum, [place] = running.maximum, self.work.finder.output_maps
        element = scalar_type(maximum)
        block = Block(arg_types=[element] * 3)
        total, part, whole = block.args
        block.add_ops([
            difference := arith.SubfOp(part, whole), power := running.function(difference.result),
            product := arith.MulfOp(total, power.result), zero := constant(0, element),
            least := constant(-np.inf, element),
            nothing := arith.CmpfOp(part, least.result, "oeq"),
            chosen := arith.SelectOp(nothing.result, zero.result, product.result),
            YieldOp.of(chosen.result)])
        _locate(block, nest)
        reads = [(parts[nest.results[0]], self._place(nest.results[0], nest.output_maps[0])),
                 (parts[maximum], self._place(maximum, place)), (greatest, tuple(place))]
        return carry(nest, NestOp.of(
            [*nest.parallel_axes, self._axis], [v for v, _ in reads], [m for _, m in reads],
            result_types(nest), nest.output_maps, combiners=["add"], body=Region(block)))


def _same(nest: NestOp) -> NestOp:
    """A nest of its own that copies what a reduction yields."""
    [type_], [map_] = result_types(nest), nest.output_maps
    block = Block(arg_types=[scalar_type(nest.results[0])])
    block.add_op(YieldOp.of(block.args[0]))
    _locate(block, nest)
    return NestOp.of(nest.parallel_axes, [nest.results[0]], [map_], [type_], [map_],
                     body=Region(block))


def _locate(block: Block, nest: NestOp) -> None:
    for op in block.ops:
        set_location(op, nest)


def _replace(call: CallOp, split: _Split) -> None:
    """Replace a call by calls of both kernels."""
    kernel, block = split.kernel, call.parent_block()
    module = kernel.parent_block()
    assert module is not None and block is not None
    first, second = split.first(), split.second()
    module.insert_ops_before([first, second], kernel)
    types = [v.type for v in first.yielded if isinstance(v.type, TensorType)]
    parts = CallOp.of(first.sym_name.data, call.inputs, call.sizes.data, types)
    inputs: dict[SSAValue, SSAValue] = dict(
        zip(kernel.body.block.args, call.inputs, strict=True))
    total = CallOp.of(
        second.sym_name.data, [*parts.results, *(inputs[a] for a in split.others)],
        call.sizes.data, [r.type for r in call.results if isinstance(r.type, TensorType)])
    for new in (parts, total):
        new.location = call.location
    block.insert_ops_before([parts, total], call)
    for old, new in zip(call.results, total.results, strict=True):
        new.name_hint = old.name_hint
        old.replace_all_uses_with(new)
    erase(call)
    erase(kernel)
