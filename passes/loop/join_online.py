"""`loop-join-online`: fuse a chain of kernels into one that keeps no intermediate (online softmax).

    %s = call @contract_0(%q, %k)      nests (i, j, reduce d) (i, j)
    %p = call @reduce_1(%s)            nests (i, reduce j) (i, j) (i, reduce j) (i, j)
    %y = call @contract_2(%p, %v)      nests (i, d, reduce j)
    ->
    %y = call @online_2(%q, %k, %v)    nests (i, j, reduce d) (i, j) (i, reduce j)
                                             (i, j) (i, reduce j) (i, d, reduce j) (i, d)

Enters: kernels, each called once, as `loop-outline` leaves them. Leaves: the same, except that a
chain from a contraction through a maximum and sums to another contraction is one kernel, on targets
that ask for it (`Rules.joins_online`). All nests of that kernel share a single loop over j,
because its sums are online: they are rescaled whenever the running maximum grows
(`passes.analyses.loop.online`). To make this possible, the division moves from the factors of the
last contraction to its results.

Does nothing under `--exact`, because rescaled sums round differently from what the operators say.
For the same reason, values that half-precision operators would round in between stay in f32. Only
the factors of the last contraction are rounded: they get the type of what they are multiplied by.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import field
from typing import ClassVar

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from dialects.loop import CallOp, KernelOp, NestOp, ViewOp
from dialects.records import dataclass
from dialects.strata.weights import WeightStore
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.online import adds_logarithm, running_maximum, waits_for
from passes.analyses.loop.private import private_values
from passes.analyses.loop.runs import common_rows
from passes.base import StrataContext, StrataPass
from passes.loop.join_rows import Chain, Program, calls_in
from passes.reasons import FASTER_APART, Reason, legality
from passes.rewrites.loop.arrange_online import arrange_online, is_widening
from passes.rewrites.loop.computed import (
    Count,
    count_nest,
    count_of,
    is_cheap,
    is_computed,
    is_repetition,
    may_be_inlined,
)
from passes.rewrites.loop.concatenations import (
    is_selected_factor,
    is_selection,
    select_where_read,
)
from passes.rewrites.loop.delay_factors import factor_of
from passes.rewrites.loop.shared_heads import share_heads
from passes.rewrites.loop.triangles import Triangle, triangle_nest, triangle_of
from passes.rewriting import erase

NOT_JOINED = "not joined online"


@dataclasses.dataclass(frozen=True)
class LoopJoinOnline(StrataPass):
    """Fuse chains of kernels into one with online sums."""

    name = "loop-join-online"

    across: bool = True
    """As of `loop-join-rows`."""

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        if context.rules is None or context.exact:
            return
        calls = calls_in(module)
        program = Program.of(module, calls, self.across)
        for call in calls:
            if call.parent is not None:
                self._join(context, program, call)

    def _join(self, context: StrataContext, program: Program, call: CallOp) -> None:
        chain = OnlineChain.ending_in(call, program)
        if chain is None:
            return
        assert context.rules is not None
        if context.rules.never("joins_online"):
            context.refuse(self, call, NOT_JOINED, FASTER_APART)
            return
        chain.find_computed(context.weights)
        kernel = chain.kernel(exact=context.exact)
        if any(map(is_selected_factor, kernel.nests)) and not context.rules.selects_factors(kernel):
            kernel.erase()
            chain.leave_selections()
            kernel = chain.kernel(exact=context.exact)
        fault = misfit(kernel)
        if fault is None and not context.rules.joins_online(kernel):
            fault = FASTER_APART
        if fault:
            context.refuse(self, call, NOT_JOINED, fault)
            kernel.erase()
        elif context.allowance.take(call, self.name):
            chain.replace(kernel)
        else:
            kernel.erase()


@dataclass
class OnlineChain(Chain):
    """Two contractions, and everything between them along the axis that the last one sums over.

    Elementwise nests over the rows are included. Other inputs are read from where they were before
    they were widened or repeated.
    """

    kind: ClassVar[str] = "online"
    sums_while_walking: ClassVar[bool] = True

    triangles: dict[SSAValue, Triangle] = field(default_factory=dict[SSAValue, Triangle])
    counts: dict[SSAValue, Count] = field(default_factory=dict[SSAValue, Count])
    """Constants that are computed instead of loaded."""
    masks: list[CallOp] = field(default_factory=list[CallOp])
    """Calls whose results are recomputed at their readers, in the order of the function."""
    read: set[CallOp] = field(default_factory=set[CallOp])
    """Calls that could not be recomputed, so that their results are loaded."""

    def grow(self) -> None:
        super().grow()
        while (found := next((c for c in self.program.producers(self.calls)
                              if c not in self.calls and self._is_moving(c)), None)) is not None:
            self.admit(found, {})

    def accepts(self, call: CallOp) -> bool:
        if not self.program.may_join(call):
            return False
        closed = sum(map(self.program.has_contraction, self.calls)) > 1
        fits = all(n.is_elementwise for n in self.kernel_of(call).nests) or (
            not closed and self._walks(call))
        return fits and super().accepts(call)

    def may_leave(self, value: SSAValue) -> bool:
        """Whether it has one element for a row, and others read it after the last call."""
        call = value.owner
        assert isinstance(call, CallOp)
        kernel, block = self.kernel_of(call), call.parent_block()
        made = kernel.yielded[next(k for k, r in enumerate(call.results) if r is value)]
        if not isinstance(made.owner, NestOp) or block is None or not (
                self.program.is_reduction(call)):
            return False
        axes = {s for e in made.owner.stored_at(made) for s in e.symbols}
        return axes <= set(common_rows(kernel)) and all(
            self.is_later(use.operation) for use in value.uses)

    def is_later(self, reader: Operation) -> bool:
        """Whether a reader of a result is in the chain or follows its last call, through views."""
        if isinstance(reader, ViewOp):
            return all(self.is_later(use.operation) for r in reader.results for use in r.uses)
        if isinstance(reader, CallOp):
            places = self.program.places
            return reader in self.calls or places.get(reader, -1) > places[self.last]
        return reader.next_op is None

    def _walks(self, call: CallOp) -> bool:
        """Whether a producer iterates over the axis that the last call sums over."""
        summed = {self.names[self.last, a.name] for nest in self.kernel_of(self.last).nests
                  for a in nest.reduce_axes}
        return summed <= set(self.shared_axes(call, self.kernel_of(call)).values())

    def _is_moving(self, call: CallOp) -> bool:
        """Whether a call only widens elements, multiplies them by a constant, repeats them, or
        copies parts of a concatenation.

        Repeated heads of keys are the usual case, and new keys behind those of a cache.
        """
        if not self.program.may_join(call) or any(
                use.operation not in self.calls for r in call.results for use in r.uses):
            return False
        if not self.program.may_share([*self.calls, call]):
            return False
        return all(is_widening(n) or is_repetition(n) or is_selection(n) or factor_of(n) is not None
                   for n in self.kernel_of(call).nests)

    def leave_selections(self) -> None:
        """Read concatenations that are copied before."""
        self.calls = [c for c in self.calls if not all(map(is_selection, self.kernel_of(c).nests))]

    def find_computed(self, weights: WeightStore) -> None:
        """Find what is computed instead of loaded, before the kernel is built."""
        for call in self.calls:
            self._find(call, weights)
        self.masks.sort(key=lambda c: self.program.places[c])

    def _find(self, reader: CallOp, weights: WeightStore) -> None:
        for value in reader.inputs:
            if value.owner in self.parts() or not self._may_be_inlined(value):
                continue
            if (triangle := triangle_of(value, weights)) is not None:
                self.triangles[value] = triangle
            elif (count := count_of(value, weights)) is not None:
                self.counts[value] = count
            elif isinstance(call := value.owner, CallOp) and call not in self.read and (
                    self._may_be_mask(call)):
                self._find_mask(call, weights)

    def _may_be_mask(self, call: CallOp) -> bool:
        return (self.program.may_join(call) and is_cheap(self.kernel_of(call))
                and self.program.may_share([*self.calls, call])
                and all(map(self._may_be_inlined, call.results)))

    def _may_be_inlined(self, value: SSAValue) -> bool:
        """Whether every reader in the chain may compute a value itself."""
        readers = [(self.kernel_of(c), k) for c in self.calls
                   for k, v in enumerate(c.inputs) if v is value]
        return all(may_be_inlined(kernel, kernel.body.block.args[k])
                   for kernel, k in readers)

    def _find_mask(self, call: CallOp, weights: WeightStore) -> None:
        """Recompute a mask, if what it is computed from is recomputed too or is loaded anyway."""
        before = dict(self.triangles), dict(self.counts), list(self.masks)
        self._find(call, weights)
        made = {*self.triangles, *self.counts, *(r for c in self.masks for r in c.results),
                *(v for c in self.calls for v in c.inputs)}
        if is_computed(call, made):
            self.names |= {(call, axis): self.fresh() for axis in self.kernel_of(call).axes}
            self.masks.append(call)
        else:
            self.triangles, self.counts, self.masks = before
            self.read.add(call)

    def parts(self) -> list[CallOp]:
        return [*self.masks, *self.calls]

    def inputs(self) -> list[SSAValue]:
        return [v for v in super().inputs() if v not in self.triangles and v not in self.counts]

    def constants(self, block: Block) -> dict[SSAValue, SSAValue]:
        nests = {v: triangle_nest(v, x, (self.fresh(), self.fresh()))
                 for v, x in self.triangles.items()}
        nests |= {v: count_nest(v, x, self.fresh()) for v, x in self.counts.items()}
        block.add_ops(nests.values())
        return {v: nest.results[0] for v, nest in nests.items()}

    def replace(self, kernel: KernelOp) -> None:
        for value in (r for call in self.calls for r in call.results if call is not self.last):
            move_views(value, self.last)
        super().replace(kernel)
        for call in reversed(self.masks):
            if not any(r.uses for r in call.results):
                erase(self.kernel_of(call))
                erase(call)

    def arrange(self, kernel: KernelOp, *, exact: bool) -> None:
        arrange_online(kernel, self.rows)
        share_heads(kernel)
        select_where_read(kernel)
        _put_last(kernel, self.rows)


def _put_last(kernel: KernelOp, rows: Collection[Symbol]) -> None:
    """Let nests over rows that only the caller reads follow the sums that they read."""
    for nest in kernel.nests:
        if nest.is_elementwise and {a.name for a in nest.axes} <= set(rows) and not any(
                isinstance(use.operation, NestOp) for r in nest.results for use in r.uses):
            nest.detach()
            kernel.body.block.insert_op_after(nest, kernel.nests[-1])


def move_views(value: SSAValue, after: Operation) -> None:
    """Let the views of a value follow a call, as what reads them does."""
    block = after.parent_block()
    assert block is not None
    for view in [use.operation for use in value.uses if isinstance(use.operation, ViewOp)]:
        view.detach()
        block.insert_op_after(view, after)
        for result in view.results:
            move_views(result, view)


def misfit(kernel: KernelOp) -> Reason | None:
    """Why a joined kernel cannot be computed in a single walk, or None."""
    if private_values(kernel):
        return legality("a nest reads elsewhere than another one makes what it reads")
    walked = {a.name for nest in kernel.nests if running_maximum(nest) for a in nest.reduce_axes}
    if not walked:
        return legality("no sum follows a running maximum")
    for nest in kernel.nests:
        if not walked & {a.name for a in nest.axes}:
            if any(isinstance(v.owner, NestOp) and v.owner.combiner_names == ["max"]
                   and not adds_logarithm(nest, v) for v in nest.inputs):
                return legality("the maximum itself is needed")
            continue
        running = running_maximum(nest)
        if nest.is_reduction and waits_for(nest, walked, running):
            return legality("a reduction waits for another one")
        if any(v in kernel.yielded for v in nest.results) and not (
                walked <= {a.name for a in nest.reduce_axes}):
            return legality("it returns what it makes on the way")
    return None
