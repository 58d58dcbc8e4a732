"""Lowers a model for several compilations at once, as long as they have one module.

The passes of a comparison's variants differ from those of a strategy, the trunk, in one group. Up
to the first pass by which two modules differ, they are lowered as one; from there on a copy is
lowered by the passes of the variant, its branch:

    trunk             a  b  g  c  g  d        g: passes of the group; the first changes nothing here
    branch without g  .  .     .     d        a copy from before the second g

A pass that only one of the two has, and that changes nothing, is no difference. A branch without
any difference is the trunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from xdsl.dialects.builtin import ModuleOp

from compiler.diagnostics import StrataError
from compiler.faults import CompilerFault
from compiler.measuring.work import Watch
from compiler.pipeline.driver import Compiler
from compiler.pipeline.plan import PlannedStep
from compiler.pipeline.state import State
from compiler.programs.collection import rare_collections
from dialects.walking import walked

if TYPE_CHECKING:
    from compiler.pipeline.steps import Step

Failure: TypeAlias = StrataError | CompilerFault


@dataclass(eq=False)
class Lowering:
    """A compilation under way. `at`: how many of its passes have run, or would change nothing."""

    name: str
    compilation: Compiler
    watch: Watch
    """One of the compilation's instruments."""
    planned: Sequence[PlannedStep] = ()
    at: int = 0

    @property
    def next(self) -> Step | None:
        """The next step; None at the end."""
        return self.planned[self.at].step if self.at < len(self.planned) else None

    @property
    def left(self) -> list[Step]:
        return [item.step for item in self.planned[self.at:]]

    def plan(self, state: State) -> None:
        self.planned = self.compilation.planned = self.compilation.plan(state, None)

    def step(self, state: State) -> None:
        """Run the next pass. Raises StrataError or CompilerFault."""
        self.compilation.observed_step(state, self.planned, self.at)
        self.at += 1

    @rare_collections()
    def finish(self, state: State) -> None:
        """Run what is left. Raises StrataError or CompilerFault."""
        while self.next is not None:
            self.step(state)
        for instrument in self.compilation.instruments:
            instrument.finish(state)


@dataclass
class Trunk:
    """The module that a compilation, and all `branches` so far, have in common."""

    own: Lowering
    state: State
    branches: list[Lowering]

    def __post_init__(self) -> None:
        for lowering in (self.own, *self.branches):
            lowering.plan(self.state)

    def lowered(self) -> Iterator[tuple[Lowering, State | Failure | None]]:
        """Each branch with its final module, or why it has none; None: that of the trunk.

        Raises StrataError or CompilerFault if a pass of the trunk fails; the branches that are left
        have no module then.
        """
        while self.branches:
            for branch in [b for b in self.branches if b.left == self.own.left]:
                yield self._parted(branch, None if _loads_alike(branch, self.own) else (
                    self._copied(branch)))
            for branch in [*self.branches]:
                parted = self._after_additions(branch)
                if parted is not None:
                    yield self._parted(branch, parted)
            if self.branches and self.own.next is not None:
                yield from self._grow()

    def _grow(self) -> Iterator[tuple[Lowering, State | Failure | None]]:
        """Run the next pass of the trunk; branches that leave it out part if it changes anything.
        """
        step = self.own.next
        without = {b: self._copied(b) for b in self.branches if b.next != step}
        changed = self._changes(self.own, self.state)
        for branch in [*self.branches]:
            if branch not in without:
                branch.at += 1
            elif changed:
                yield self._parted(branch, without[branch])

    def _after_additions(self, branch: Lowering) -> State | Failure | None:
        """The branch's module after the first change by passes that the trunk does not have here;
        None if there is no change."""
        while branch.next not in (None, self.own.next) and (
                self.own.next is None or self.own.next in branch.left):
            copy = self._copied(branch)
            try:
                if self._changes(branch, copy):
                    return copy
            except (StrataError, CompilerFault) as error:
                return error
        return None

    def _parted(
        self, branch: Lowering, state: State | Failure | None
    ) -> tuple[Lowering, State | Failure | None]:
        """The branch and what its remaining passes make of its module."""
        self.branches.remove(branch)
        if isinstance(state, State):
            try:
                branch.finish(state)
            except (StrataError, CompilerFault) as error:
                return branch, error
        return branch, state

    def _copied(self, branch: Lowering) -> State:
        """A copy of the trunk's module, with what the branch's compilation asks its target."""
        parts, context = branch.compilation.parts, self.state.context.clone()
        context.weights = self.state.context.weights.copy()
        context.facts, context.rules = parts.facts, parts.scheduling
        branch.watch.resume(self.own.watch)
        return replace(self.state, module=self.state.module.clone(), context=context)

    @staticmethod
    @rare_collections()
    def _changes(lowering: Lowering, state: State) -> bool:
        """Run the next pass. Returns whether it has changed the module."""
        before = contents_of(state.module)
        lowering.step(state)
        return not are_same(before, contents_of(state.module))


def _loads_alike(branch: Lowering, trunk: Lowering) -> bool:
    """Whether the target makes the same program of equal modules."""
    return branch.compilation.parts.options == trunk.compilation.parts.options


def contents_of(module: ModuleOp) -> list[object]:
    """All that a module consists of. Attributes are never changed, only replaced, so a module with
    the same objects in their places is as it was; one with others may still be equal to it."""
    found: list[object] = []
    for op in walked(module):
        found += (op, op.parent, op.location, *op.operands, *op.successors)
        for name, attribute in (*op.properties.items(), *op.attributes.items()):
            found += (name, attribute)
        for value in (*op.results, *(a for r in op.regions for b in r.blocks for a in b.args)):
            found += (value, value.type, value.name_hint)
    return found


def are_same(before: Sequence[object], after: Sequence[object]) -> bool:
    """Whether these are the same objects."""
    return len(before) == len(after) and all(a is b for a, b in zip(before, after, strict=True))
