"""Which nests share a kernel: the groups that `loop-outline` describes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.ir import Operation, SSAValue

from dialects.loop import Axis, NestOp
from dialects.strata.func import FuncOp
from dialects.strata.types import shape_of
from dialects.symbolic.expr import Expr
from dialects.symbolic.ranges import is_at_most
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.kinds import is_contraction, is_plain_reduction
from passes.analyses.loop.nodes import of_one_node
from passes.base import Facts, StrataContext, StrataPass
from passes.rewrites.loop.nests import (
    body_size,
    digits_of,
    gathered_inputs,
    reads_of,
    rename_axes,
    replace_nest,
    substitute_axes,
)
from passes.rewriting import SizeDefinitions

_UNMATCHED = Symbol.counter("@unmatched")
"""A stand-in for an axis that matches no axis of a group."""

Digits = list[tuple[Symbol, int, Expr]]
"""The axes of an expression such as 4*i + j, as (name, step, extent); see `digits_of`."""

MIN_ROWS = 4
"""With fewer rows than this, a kernel would have too little to do in parallel."""

MAX_ALONE = 1 << 14
"""The most elements that a single program computes besides its reductions: in a reduction without
rows, in a row whose reductions walk another axis, or in a row with an axis of its own where there
are too few rows to keep the machine busy."""

MAX_REDUCED = 64
"""The most results per row to which the last states of recurrences are reduced as they arrive."""

MAX_OPERATIONS = 256
"""More operations than this in one kernel would compile slowly and gain nothing."""


@dataclass(eq=False)
class Group:
    """Nests that one kernel computes, with joint names for their axes."""

    nests: list[NestOp] = field(default_factory=list[NestOp])
    renamed: list[NestOp] = field(default_factory=list[NestOp])
    extents: dict[Symbol, Expr] = field(default_factory=dict[Symbol, Expr])
    before: set[Group] = field(default_factory=set["Group"])
    """Groups whose results this one reads."""
    after: set[Group] = field(default_factory=set["Group"])
    """Groups that read results of this one."""
    number: int = 0
    """Groups are numbered as they are created."""
    operations: int = 0
    """The number of operations in the bodies of the nests."""
    between: Operation | None = None
    """The view or call that a group without nests stands for."""
    rank: int = 0
    """Larger than the rank of every group that comes before this one."""

    @property
    def has_contraction(self) -> bool:
        return any(is_contraction(n) for n in self.renamed)

    def produced(self, value: SSAValue) -> tuple[Expr, ...] | None:
        """Where the group stores `value`, in its own axis names; None if it does not compute it."""
        for nest, renamed in zip(self.nests, self.renamed, strict=True):
            for k, result in enumerate(nest.results):
                if result is value:
                    return renamed.output_maps[k]
        return None

    def add(self, nest: NestOp, names: dict[Symbol, Symbol]) -> None:
        renamed = rename_axes(nest, names)
        self.nests.append(nest)
        self.renamed.append(renamed)
        self.extents |= {a.name: a.extent for a in renamed.axes}
        self.operations += body_size(nest)

    def wait_for(self, groups: Iterable[Group]) -> None:
        """Order this group after others, and update the ranks of all groups after it."""
        for other in groups:
            self.before.add(other)
            other.after.add(self)
        raised: list[Group] = [self]
        while raised:
            group = raised.pop()
            least = 1 + max((b.rank for b in group.before), default=-1)
            if group.rank < least:
                group.rank = least
                raised += group.after

    def waits_for(self, other: Group) -> bool:
        """Whether this group depends on a result of the other, directly or indirectly."""
        todo: list[Group] = [self]
        seen: set[Group] = {self}
        while todo:
            current = todo.pop()
            if current is other:
                return True
            new = {b for b in current.before - seen if b.rank >= other.rank}
            seen |= new
            todo += new
        return False

    def takes(self, source: Group) -> bool:
        """Whether another group computes nothing but elements, and this one could, too."""
        nests = [*self.nests, *source.nests]
        return bool(self.nests and source.nests) and all(
            n.is_elementwise for n in source.nests) and not any(
            n.is_scatter or n.is_recurrence or n.is_scan or n.into for n in nests)

    def take(self, source: Group, names: dict[Symbol, Symbol]) -> None:
        """Compute the nests of another group, which this one reads, before its own."""
        self.nests = [*source.nests, *self.nests]
        self.renamed = [*(rename_axes(n, names) for n in source.renamed), *self.renamed]
        for nest in source.renamed:
            nest.erase()
        self.extents |= {names[n]: extent for n, extent in source.extents.items()}
        self.operations += source.operations
        readers = source.after - {self}
        for other in [*source.before, *source.after]:
            other.before.discard(source)
            other.after.discard(source)
        self.before.discard(source)
        self.wait_for(source.before)
        for reader in readers:
            reader.wait_for([self])
        source.nests, source.renamed, source.before, source.after = [], [], set(), set()

    def rows(self) -> set[Symbol] | None:
        """The parallel axes that all of its reductions have; None if it has no reductions."""
        found = [_wide(n.parallel_axes) for n in self.renamed if n.reduce_axes]
        return set[Symbol].intersection(*found) if found else None


def _latest(groups: Iterable[Group]) -> list[Group]:
    return sorted(groups, key=lambda g: g.number, reverse=True)


def _wide(axes: Iterable[Axis]) -> set[Symbol]:
    """The names of axes longer than 1."""
    return {a.name for a in axes if a.extent.constant != 1}


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
        for group in [*_latest(sources), *_latest(self.siblings(nest) - sources)]:
            aligned, others = in_digits(group, nest), sources - {group}
            names = self.fit(group, aligned)
            waits = names is not None and any(o.waits_for(group) for o in others)
            if waits:
                self.keep_apart(group, nest, "another input of it waits for that kernel")
            if names is not None and not waits:
                if aligned is not nest:
                    replace_nest(nest, aligned)
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
        for source in _latest(group.before):
            names = self.inverse(group, source) if group.takes(source) else None
            if names is not None and not any(
                    b.waits_for(source) for b in group.before - {source}) and not any(
                    refusal(group, nest, names, self.facts) for nest in source.renamed):
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

        Tensors that one kernel computes at the same points, such as partial sums, count as one.
        """
        if not is_plain_reduction(nest):
            return set()
        readers = {use.operation for v in nest.inputs for alike in self.computed_with(v)
                   for use in alike.uses} & self.group_of.keys()
        groups = {self.group_of[r] for r in readers
                  if isinstance(r, NestOp) and is_plain_reduction(r)}
        return {g for g in groups if not g.has_contraction
                and _wide(nest.axes) <= (self.match_axes(g, nest) or {}).keys()}

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
            self.keep_apart(group, nest, "a view or a call lies between them")
            return None
        if not self.across and not of_one_node(group.nests[0], nest):
            return None
        names = self.match_axes(group, nest)
        if names is None:
            self.refuse(group, nest, "it reads the producer's result at other points")
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

    def refuse(self, group: Group, nest: NestOp, reason: str) -> None:
        self.context.remark(self.pass_, nest, f"not fused: {reason}")
        self.keep_apart(group, nest, reason)

    def keep_apart(self, group: Group, nest: NestOp, reason: str) -> None:
        """Record the reason for each pair of the nest and what the group computes."""
        makers = [v.owner for v in group.between.operands] if group.between else group.nests
        for maker in makers:
            if isinstance(maker, Operation):
                self.context.keep_apart(maker, nest, reason)


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


def refusal(
    group: Group, nest: NestOp, names: dict[Symbol, Symbol], facts: Facts
) -> str | None:
    """Why a nest whose axes match must not join, or None."""
    if is_contraction(nest):
        return "a contraction starts a kernel"
    if any(n.is_scatter for n in group.renamed) or (
            nest.is_scatter and not _says_only_where(group, nest)):
        return "a scatter is a kernel of its own"
    if nest.reduce_axes and any(n.is_scan for n in [nest, *group.renamed]) and group.rows() is not (
            None):
        return "a scan and another reduction need kernels of their own"
    if group.operations + body_size(nest) > MAX_OPERATIONS:
        return "the kernel would be too large"
    parallel = {names.get(a.name, _UNMATCHED) for a in nest.parallel_axes if a.extent.constant != 1}
    if group.has_contraction:
        main = next(n for n in group.renamed if is_contraction(n))
        same = not nest.reduce_axes and parallel == _wide(main.parallel_axes)
        return None if same else "an epilogue must work on the elements of its contraction"
    rows = group.rows()
    if nest.is_recurrence:
        return "a recurrence starts a kernel"
    if nest.reduce_axes and any(n.is_recurrence for n in group.renamed):
        return _refusal_of_states(group, nest, names)
    if nest.reduce_axes:
        rows = parallel if rows is None else rows
        if parallel != rows:
            return "it reduces over other axes"
        few_suffice = _are_at_most(facts.short_rows, group)
        if not (rows or few_suffice) or any(rows - _wide(n.axes) for n in group.renamed):
            return "no rows in common"
        return None if few_suffice or _enough(rows, group) else "too few rows"
    if rows is not None:
        count = product(a.extent for a in nest.parallel_axes)
        if not rows and not is_at_most(count, Expr.of(MAX_ALONE)):
            return "a single program would compute all of it"
        own = _own_elements(nest, names).constant or 0
        if own > MAX_ALONE:
            return "its rows are long, and no reduction of it runs along them"
        if own > 1 and _few_would_compute_it(rows, group, count, facts.programs):
            return "few programs would compute all of it"
        return None if rows <= parallel else "it does not keep the rows of the reduction"
    alike = parallel == _wide(group.renamed[0].axes) or _says_only_where_to_read(group, nest)
    return None if alike else "it works on other axes"


def _refusal_of_states(
    group: Group, nest: NestOp, names: dict[Symbol, Symbol]
) -> str | None:
    """Why a reduction must not join recurrences, whose last states it reduces, or None."""
    states = {a.name for n in group.renamed if n.is_recurrence for a in n.parallel_axes}
    others = {a.name for n in group.renamed if n.reduce_axes and not n.is_recurrence
              for a in n.reduce_axes}
    summed = {names.get(a.name, _UNMATCHED) for a in nest.reduce_axes}
    if not summed <= states or others not in (set(), summed):
        return "it reduces over other axes"
    if not is_at_most(_own_elements(nest, names), Expr.of(MAX_REDUCED)):
        return "each recurrence would wait for many sums"
    return None


def _says_only_where(group: Group, nest: NestOp) -> bool:
    """Whether a group only computes positions for a scatter whose updates never collide."""
    names = gathered_inputs(nest.output_maps[0])
    places = [nest.inputs[k] for k in names]
    made = [r for n in group.nests for r in n.results]
    in_order = nest.reduce_axes and not nest.unordered
    return not in_order and all(n.is_elementwise for n in group.nests) and all(
        r in places and r.has_one_use() for r in made)


def _says_only_where_to_read(group: Group, nest: NestOp) -> bool:
    """Whether a group only computes, for each row, places from which nobody but the nest reads."""
    places = gathered_inputs([e for m in nest.input_maps for e in m])
    made = {r for n in group.nests for r in n.results}
    readers = {(use.operation, use.index) for r in made for use in r.uses}
    return all(n.is_elementwise for n in group.nests) and all(
        op in group.nests or op in group.renamed or (op is nest and k in places)
        for op, k in readers) and any(op is nest for op, _ in readers)


def _own_elements(nest: NestOp, names: dict[Symbol, Symbol]) -> Expr:
    """The number of elements that a nest has per point of the axes that it shares."""
    return product(a.extent for a in nest.parallel_axes if a.name not in names)


def _enough(rows: set[Symbol], group: Group) -> bool:
    count = product(group.extents[r] for r in sorted(rows)).constant
    return count is None or count >= MIN_ROWS


def _few_would_compute_it(
    rows: set[Symbol], group: Group, elements: Expr, programs: int
) -> bool:
    """Whether rows are too few to keep the machine busy, and each has many elements."""
    count, total = product(group.extents[r] for r in rows).constant, elements.constant
    if not count or total is None:
        return False
    return count < programs and total > count * MAX_ALONE


def _are_at_most(most: int, group: Group) -> bool:
    """Whether a group walks at most `most` points."""
    return is_at_most(product(group.extents.values()), Expr.of(most))
