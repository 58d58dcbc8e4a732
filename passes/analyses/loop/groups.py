"""Groups of nests that one kernel computes, and their order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from xdsl.ir import Operation, SSAValue

from dialects.loop import Axis, NestOp
from dialects.records import dataclass
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.kinds import is_contraction
from passes.rewrites.loop.nests import (
    body_size,
    rename_axes,
)


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
        found = [wide(n.parallel_axes) for n in self.renamed if n.reduce_axes]
        return set[Symbol].intersection(*found) if found else None


def latest(groups: Iterable[Group]) -> list[Group]:
    return sorted(groups, key=lambda g: g.number, reverse=True)


def wide(axes: Iterable[Axis]) -> set[Symbol]:
    """The names of axes longer than 1."""
    return {a.name for a in axes if a.extent.constant != 1}
