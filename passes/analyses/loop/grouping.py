"""Which nests share a kernel: the groups that `loop-outline` describes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from xdsl.ir import Operation, SSAValue

from dialects.loop import Axis, NestOp, ViewOp
from dialects.strata.func import FuncOp
from dialects.strata.types import shape_of
from dialects.symbolic.expr import Expr
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import location_names, of_one_node
from passes.analyses.loop.groups import Group, latest, wide
from passes.analyses.loop.kinds import is_contraction, is_plain_reduction
from passes.analyses.loop.pairs import is_second
from passes.analyses.loop.refusals import refusal
from passes.base import StrataContext, StrataPass
from passes.reasons import Reason, legality, rule
from passes.rewrites.loop.nests import (
    digits_of,
    reads_of,
    replace_nest,
    substitute_axes,
)
from passes.rewriting import SizeDefinitions

Digits = list[tuple[Symbol, int, Expr]]
"""The axes of an expression such as 4*i + j, as (name, step, extent); see `digits_of`."""
WAITS = legality("another input of it waits for that kernel")
APART = rule("kernels are formed of single nodes, without the group `fuse`")


class Grouping:
    """Assigns every nest of a function to a group, in program order."""

    def __init__(
        self, func: FuncOp, pass_: StrataPass, context: StrataContext, across: bool = True
    ):
        """`across`: whether nests of different nodes of the model may share a kernel."""
        self.func, self.pass_, self.context, self.across = func, pass_, context, across
        self.definitions = SizeDefinitions.of(func.body.block)
        self.group_of: dict[Operation, Group] = {}
        self.groups: list[Group] = []
        self.names = 0
        self.facts = context.facts

    def run(self) -> list[Group]:
        for op in list(self.func.body.block.ops):
            if isinstance(op, NestOp):
                self.place(op)
            elif op.operands:
                self.follow(op)
        for group in self.groups:
            self.take_sources(group)
        return [g for g in self.groups if g.nests]

    def follow(self, op: Operation) -> None:
        """Give a view or call between nests a group of its own, which only keeps the order."""
        self.group_of[op] = self.new_group(self.sources(op))
        self.group_of[op].between = op

    def new_group(self, sources: set[Group]) -> Group:
        group = Group(number=len(self.groups))
        group.wait_for(sources)
        self.groups.append(group)
        return group

    def sources(self, op: Operation) -> set[Group]:
        owners = [*(v.owner for v in op.operands), *self.definitions.used_by(op)]
        return {self.group_of[o] for o in owners
                if isinstance(o, Operation) and o in self.group_of}

    def place(self, nest: NestOp) -> None:
        sources = self.sources(nest)
        if nest.is_scatter:  # whose group takes nothing any more
            for group in latest(sources):
                self.take_sources(group)
            sources = self.sources(nest)
        for group in [*latest(sources), *latest(self.siblings(nest) - sources)]:
            aligned, others = in_digits(group, nest), sources - {group}
            names = self.fit(group, aligned)
            waits = [o for o in others if o.waits_for(group)] if names is not None else []
            if waits:
                self.keep_apart(group, nest, WAITS.about(names_of(latest(waits)[0])))
            if names is not None and not waits:
                if aligned is not nest:
                    replace_nest(nest, aligned)
                self.keep_together(group, aligned, joined_as(group, aligned))
                group.add(aligned, names)
                group.wait_for(others)
                self.group_of[aligned] = group
                return
            if aligned is not nest:
                aligned.erase()
        group = self.new_group(sources)
        group.add(nest, {a.name: self.fresh() for a in nest.axes})
        self.group_of[nest] = group

    def take_sources(self, group: Group) -> None:
        """Let a group compute what it reads at the same points, if other groups computed it."""
        for source in latest(group.before):
            names = self.inverse(group, source) if group.takes(source) else None
            if names is not None and not any(
                    b.waits_for(source) for b in group.before - {source}) and not any(
                    refusal(group, nest, names, self.facts) for nest in source.renamed):
                for nest in group.nests:
                    self.keep_together(source, nest, "computed where it is read")
                self.group_of |= dict.fromkeys(source.nests, group)
                group.take(source, names)

    def inverse(self, group: Group, source: Group) -> dict[Symbol, Symbol] | None:
        """Source axis -> group axis, such that the group reads where the source stores."""
        names: dict[Symbol, Symbol] = {}
        for read in (r for nest in group.renamed for r in reads_of(nest)):
            stored = source.produced(read.value)
            if stored is not None and (read.pad is not None or not _match(
                    read.map, stored, group.extents, source.extents, names)):
                return None
        found = {theirs: mine for mine, theirs in names.items()}
        wide = {n for n, extent in source.extents.items() if extent.constant != 1}
        if not wide <= found.keys() or (not self.across and not of_one_node(
                group.nests[0], source.nests[0])):
            return None
        return {n: found.get(n) or self.fresh() for n in source.extents}

    def siblings(self, nest: NestOp) -> set[Group]:
        """The groups that reduce all of a tensor that this reduction reads, along the same axes.

        Tensors that one kernel computes at the same points, such as partial sums, count as one. Of
        a product, those of another product of the same rows (`pairs.py`).
        """
        if self.facts.paired_rows and is_contraction(nest):
            readers = {use.operation for v in nest.inputs for use in v.uses}
            return {self.group_of[r] for r in readers & self.group_of.keys() if isinstance(
                r, NestOp) and r is not nest and is_contraction(r) and self.is_pair(r, nest)}
        if not is_plain_reduction(nest):
            return set()
        readers = {use.operation for v in nest.inputs for alike in self.computed_with(v)
                   for use in alike.uses} & self.group_of.keys()
        groups = {self.group_of[r] for r in readers
                  if isinstance(r, NestOp) and is_plain_reduction(r)}
        return {g for g in groups if not g.has_contraction
                and wide(nest.axes) <= (self.match_axes(g, nest) or {}).keys()}

    def is_pair(self, other: NestOp, nest: NestOp) -> bool:
        """Whether a product can share the kernel of another one, which has a group."""
        group = self.group_of[other]
        names = self.match_axes(group, nest)
        return names is not None and is_second(group, nest, names, self.facts.paired_rows)

    def computed_with(self, value: SSAValue) -> list[SSAValue]:
        """The tensors, this one included, that its kernel computes at the same points."""
        group = self.group_of.get(value.owner) if isinstance(value.owner, NestOp) else None
        if group is None:
            return [value]
        return [r for n in group.nests for r in n.results
                if shape_of(r) == shape_of(value) and group.produced(r) == group.produced(value)]

    def fresh(self) -> Symbol:
        self.names += 1
        return Symbol.axis(f"i{self.names - 1}")

    def fit(self, group: Group, nest: NestOp) -> dict[Symbol, Symbol] | None:
        """Names for the nest's axes with which it can join; None, with a remark, if it cannot."""
        if not group.nests:
            self.keep_apart(group, nest, lies_between(group))
            return None
        if not self.across and not of_one_node(group.nests[0], nest):
            self.keep_apart(group, nest, APART)
            return None
        names = self.match_axes(group, nest)
        if names is None:
            self.refuse(group, nest, legality("it reads the producer's result at other points"))
            return None
        if reason := refusal(group, nest, names, self.facts):
            self.refuse(group, nest, reason)
            return None
        return {a.name: names.get(a.name) or self.fresh() for a in nest.axes}

    def match_axes(self, group: Group, nest: NestOp) -> dict[Symbol, Symbol] | None:
        """Nest axis -> group axis, such that results are read at the point where they are computed.
        """
        names: dict[Symbol, Symbol] = {}
        extents = {a.name: a.extent for a in nest.axes}
        for read in reads_of(nest):
            stored = group.produced(read.value)
            if stored is None:
                continue
            if read.pad is not None or not _match(
                    read.map, stored, extents, group.extents, names):
                return None
        self._match_shared_reads(group, nest, names)
        return names

    def _match_shared_reads(
        self, group: Group, nest: NestOp, names: dict[Symbol, Symbol]
    ) -> None:
        """Match the remaining axes by inputs that both nests read with the same index map."""
        extents = {a.name: a.extent for a in nest.axes}
        for mine in reads_of(nest):
            alike = self.computed_with(mine.value)
            for theirs in (r for other in group.renamed for r in reads_of(other)):
                if theirs.value in alike:
                    trial = dict(names)
                    if _match(mine.map, theirs.map, extents, group.extents, trial):
                        names.update(trial)
        free = [a for a in nest.axes if a.name not in names and a.extent.constant != 1]
        left = [n for n, e in group.extents.items()
                if n not in names.values() and e.constant != 1]
        if len(free) == len(left) == 1 and free[0].extent == group.extents[left[0]]:
            names[free[0].name] = left[0]

    def refuse(self, group: Group, nest: NestOp, reason: Reason) -> None:
        self.context.refuse(self.pass_, nest, "not fused", reason)
        self.keep_apart(group, nest, reason)

    def keep_together(self, group: Group, nest: NestOp, reason: str) -> None:
        """Record the reason for each pair of the nest and what it reads of the group."""
        read = {value.owner for value in nest.inputs}
        for maker in group.nests:
            if maker in read:
                self.context.keep_together(maker, nest, reason)

    def keep_apart(self, group: Group, nest: NestOp, reason: Reason) -> None:
        """Record the reason for each pair of the nest and what the group computes."""
        for maker in self.makers(group):
            self.context.keep_apart(maker, nest, reason._replace(by=self.pass_.name))

    def makers(self, group: Group) -> Iterator[Operation]:
        """What computes a group's values: nests, also those behind views, or a call."""
        if not isinstance(group.between, ViewOp):
            yield from [group.between] if group.between else group.nests
            return
        for value in group.between.operands:
            if isinstance(value.owner, NestOp):
                yield value.owner
            elif isinstance(value.owner, Operation) and value.owner in self.group_of:
                yield from self.makers(self.group_of[value.owner])


def names_of(group: Group) -> list[str]:
    """The model's nodes that a group computes, or those of the view or call that it stands for."""
    operations = [group.between] if group.between else group.nests
    return list(dict.fromkeys(name for op in operations for name in location_names(op)))


def lies_between(group: Group) -> Reason:
    """That a nest reads what a view makes of a result, or what a call returns."""
    assert group.between is not None
    return legality(f"a {group.between.name} lies between them").about(names_of(group))


def joined_as(group: Group, nest: NestOp) -> str:
    """As what a nest joins a group that computes what it reads."""
    if is_contraction(nest):
        return "a product of the same rows, or of what the kernel computes"
    if group.has_contraction:
        return "an epilogue, on the elements of its contraction"
    if nest.reduce_axes:
        return "a reduction of what the kernel computes"
    return "on the same elements" if group.rows() is None else "on the rows of its reduction"


def in_digits(group: Group, nest: NestOp) -> NestOp:
    """Split the axes of an elementwise nest like those of a contraction that stores at 4*i + j.

    The nest reads that result along one axis, as with channels in groups. Any other nest is
    returned unchanged.
    """
    if nest.reduce_axes or nest.is_scatter or not group.has_contraction:
        return nest
    extents = {a.name: a.extent for a in nest.axes}
    split: dict[Symbol, Digits] = {}
    for read in reads_of(nest):
        for at, expr in zip(read.map, group.produced(read.value) or (), strict=False):
            mine, digits = at.as_symbol, _digits(expr, group.extents) or []
            if mine in extents and len(digits) > 1 and extents[mine] == product(
                    extent for _, _, extent in digits):
                split[mine] = [(mine.followed_by(f"_{axis.name}"), step, extent)
                               for axis, step, extent in digits]
    axes = [new for a in nest.axes for new in (
        [Axis(name, extent) for name, _, extent in split[a.name]] if a.name in split else [a])]
    values = {mine: sum((Expr.symbol(name) * step for name, step, _ in digits), Expr.of(0))
              for mine, digits in split.items()}
    return substitute_axes(nest, axes, values) if split else nest


def _match(
    map_: Sequence[Expr], stored: Sequence[Expr], extents: dict[Symbol, Expr],
    group_extents: dict[Symbol, Expr], names: dict[Symbol, Symbol],
) -> bool:
    for at, expr in zip(map_, stored, strict=True):
        pairs = _pairs(at, expr, extents, group_extents)
        if pairs is None:
            return False
        for mine, theirs in pairs:
            if mine not in extents or extents[mine] != group_extents.get(theirs):  # or gathered
                return False
            if names.setdefault(mine, theirs) != theirs:
                return False
    return len(set(names.values())) == len(names)


def _pairs(
    at: Expr, expr: Expr, extents: dict[Symbol, Expr], group_extents: dict[Symbol, Expr]
) -> list[tuple[Symbol, Symbol]] | None:
    """The axes that must coincide for a read to be at the point where a result is stored."""
    mine, theirs = at.as_symbol, expr.as_symbol
    if mine is not None and theirs is not None:
        return [(mine, theirs)]
    if at.constant is not None:
        return [] if at == expr or _is_unit(expr, group_extents) else None
    read, stored = _digits(at, extents), _digits(expr, group_extents)
    if read is None or stored is None or [d[1:] for d in read] != [d[1:] for d in stored]:
        return None
    return [(a[0], b[0]) for a, b in zip(read, stored, strict=True)]


def _digits(expr: Expr, extents: Mapping[Symbol, Expr]) -> Digits | None:
    return digits_of(expr, [Axis(name, extent) for name, extent in extents.items()])


def _is_unit(expr: Expr, extents: dict[Symbol, Expr]) -> bool:
    return expr.as_symbol in extents and extents[expr.as_symbol].constant == 1
