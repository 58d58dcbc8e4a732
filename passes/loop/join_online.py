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

from collections.abc import Collection
from typing import ClassVar

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from dialects.loop import CallOp, KernelOp, NestOp, ViewOp
from dialects.records import dataclass
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import location_names
from passes.analyses.loop.online import adds_logarithm, running_maximum, waits_for
from passes.analyses.loop.private import private_values
from passes.analyses.loop.runs import common_rows
from passes.base import StrataContext, StrataPass
from passes.reasons import FASTER_APART, Reason, legality
from passes.rewrites.chains.chain import Program, calls_in
from passes.rewrites.chains.computing import ComputingChain
from passes.rewrites.loop.arrange_online import arrange_online, is_widening
from passes.rewrites.loop.computed import (
    is_repetition,
)
from passes.rewrites.loop.concatenations import (
    is_selected_factor,
    is_selection,
    select_where_read,
)
from passes.rewrites.loop.delay_factors import factor_of
from passes.rewrites.loop.shared_heads import share_heads

NOT_JOINED = "not joined online"


@dataclass(frozen=True)
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
            context.refuse_chain(self, chain.calls, NOT_JOINED, FASTER_APART)
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
            context.refuse_chain(self, chain.calls, NOT_JOINED, fault)
            kernel.erase()
        elif context.allowance.take(call, self.name):
            chain.replace(kernel)
        else:
            kernel.erase()


@dataclass
class OnlineChain(ComputingChain):
    """Two contractions, and everything between them along the axis that the last one sums over.

    Elementwise nests over the rows are included. Other inputs are read from where they were before
    they were widened or repeated.
    """

    kind: ClassVar[str] = "online"
    sums_while_walking: ClassVar[bool] = True

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

    def replace(self, kernel: KernelOp) -> None:
        for value in (r for call in self.calls for r in call.results if call is not self.last):
            move_views(value, self.last)
        super().replace(kernel)

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
                return legality("the maximum itself is needed").about(location_names(nest))
            continue
        running = running_maximum(nest)
        if nest.is_reduction and waits_for(nest, walked, running):
            return legality("a reduction waits for another one").about(location_names(nest))
        if any(v in kernel.yielded for v in nest.results) and not (
                walked <= {a.name for a in nest.reduce_axes}):
            return legality("it returns what it makes on the way").about(location_names(nest))
    return None
