"""`loop-join-recomputed`: products that read the same matrix each compute it again for themselves.

    %p = call @contract_0(%q, %k, %l)        nests (i, j, reduce d) (i, j)
    %s = call @contract_1(%g, %v, %p, %t)    nests (i, j, reduce e) (i, j)
    %x = call @contract_2(%s, %k)            nests (i, d, reduce j)
    %y = call @contract_3(%s, %q)            nests (j, d, reduce i)
    %z = call @contract_4(%p, %g)            nests (j, e, reduce i)
    ->
    %x = call @again_2(%q, %k, %l, %g, %v, %t)       (i, j, reduce d) (i, j) ... (i, d, reduce j)
    %z, %y = call @again_4(%q, %k, %l, %g, %v, %t)   (i, j, reduce d) (i, j) ... (j, d, reduce i)
                                                                                 (j, e, reduce i)

This is the backward pass of attention: %p and %s, as large as the scores, are never in memory. The
products of the first kernel loop over j for a block of i, those of the second over i for a block
of j. Products that loop over the same axis share a kernel, so that it computes a tile of %p and %s
once for both. Nothing here knows about attention.

Enters: kernels, each called once, as `loop-outline` leaves them. Leaves: the same, except that
contractions whose factors other contractions compute are joined with these, on targets that ask for
it (`Rules.joins_recomputed`). That is done for all readers of a matrix or for none, since otherwise
the matrix would still be written. Reductions between the products are left where they are.

Each element is computed by the same operations as before; only sums may be in another order. But
powers of e become powers of two (`passes.rewrites.loop.known_powers`), except under `--exact`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field
from math import prod
from typing import ClassVar

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from dialects.loop import CallOp, KernelOp, NestOp
from dialects.records import dataclass
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.kinds import is_contraction
from passes.analyses.loop.online import sources_of
from passes.analyses.loop.private import private_values
from passes.base import StrataContext, StrataPass
from passes.loop.join_online import OnlineChain, move_views
from passes.reasons import FASTER_APART, Reason, legality, price
from passes.rewrites.chains.chain import Program, calls_in
from passes.rewrites.loop.arrange_online import inline_masks
from passes.rewrites.loop.conditions import simplify_conditions
from passes.rewrites.loop.known_powers import drop_decided, use_known_powers
from passes.rewrites.loop.nests import plain_axes, reads_of, rename_axes, replace_nest
from passes.rewriting import erase

MANY = 1 << 20
"""What counts as a size that only a run knows."""


@dataclass(frozen=True)
class LoopJoinRecomputed(StrataPass):
    """Fuse contractions with the contractions that compute their factors."""

    name = "loop-join-recomputed"

    across: bool = True
    """As of `loop-join-rows`."""

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        if context.rules is None:
            return
        calls = calls_in(module)
        program = Program.of(module, calls, self.across)
        found = [(c, self._kernel(context, c)) for c in chains(program, calls)]
        kernels = {c.last: kernel for c, kernel in found if kernel is not None}
        for group in groups(complete([c for c, _ in found if c.last in kernels])):
            if context.allowance.take(group[0].last, self.name):
                for chain in group:
                    chain.replace(kernels.pop(chain.last))
        for kernel in kernels.values():
            kernel.erase()
        _erase_unused(program, calls)

    def _kernel(self, context: StrataContext, chain: RecomputedChain) -> KernelOp | None:
        """The joined kernel; None if it is not wanted."""
        assert context.rules is not None
        if chain.is_narrow:  # known before the kernel is built
            self._refuse(context, chain, price(
                "what is computed again is no wider than any of its factors"))
            return None
        if context.rules.never("joins_recomputed"):
            self._refuse(context, chain, FASTER_APART)
            return None
        chain.find_computed(context.weights)
        kernel = chain.kernel(exact=context.exact)
        if private_values(kernel):
            self._refuse(context, chain, legality(
                "a nest reads elsewhere than another one makes what it reads"))
        elif not context.rules.joins_recomputed(kernel):
            self._refuse(context, chain, FASTER_APART)
        else:
            return kernel
        kernel.erase()
        return None

    def _refuse(self, context: StrataContext, chain: RecomputedChain, fault: Reason) -> None:
        context.refuse_chain(self, chain.calls, "not joined with what it reads", fault)


def _erase_unused(program: Program, calls: Sequence[CallOp]) -> None:
    """Erase the calls of kernels whose results nothing reads any longer."""
    for call in reversed(calls):
        if call.parent is not None and not any(r.uses for r in call.results):
            kernel = program.kernel(call)
            if kernel is not None:
                erase(call)
                erase(kernel)


# ---------------------------------------------------------------------- finding chains
@dataclass
class RecomputedChain(OnlineChain):
    """Contractions that sum over the same axis (`ends`), and all that computes their factors."""

    kind: ClassVar[str] = "again"

    walked: frozenset[Symbol] = frozenset()
    ends: list[CallOp] = field(default_factory=list[CallOp])

    @classmethod
    def into(cls, call: CallOp, program: Program) -> RecomputedChain | None:
        """The chain that computes a factor of a contraction, another contraction's result."""
        if not program.has_contraction(call) or not program.may_join(call):
            return None
        for seed in filter(program.has_contraction, program.producers([call])):
            chain = cls(program, call, ends=[call])
            chain.admit(call, {})
            if chain.begin(seed):
                chain.grow()
                return chain
        return None

    def begin(self, seed: CallOp) -> bool:
        """Choose the axes from how the last call reads a result: at its rows, and along the axes
        that it sums over."""
        if not self.program.may_join(seed):
            return False
        nest = next(n for n in self.kernel_of(self.last).nests if is_contraction(n))
        summed = {self.names[self.last, a.name] for a in nest.reduce_axes}
        shared = {*self.shared_axes(seed, self.kernel_of(seed)).values()}
        self.walked, self.rows = frozenset(shared & summed), shared - summed
        return bool(summed) and summed <= shared and bool(self.rows) and (
            self._finishes(self.last)) and self.accepts(seed)

    def _finishes(self, end: CallOp) -> bool:
        """Whether only elementwise nests read what an end sums over the axes that are walked, since
        these follow the loop."""
        own = {name for (call, name), joint in self.names.items()
               if call is end and joint in self.walked}
        return all(n.is_elementwise or not own & sums_behind(n) for n in self.kernel_of(end).nests)

    def grow(self) -> None:
        self.add_producers()
        self.calls.sort(key=lambda c: self.program.places[c])

    def accepts(self, call: CallOp) -> bool:
        """Add a producer that computes an element for each row and step, from products."""
        if not self.program.may_join(call) or call.parent is not self.last.parent:
            return False
        if not self.program.may_share([*self.calls, call]):
            return False
        kernel = self.kernel_of(call)
        shared = self.shared_axes(call, kernel)
        if {*shared.values()} != {*self.rows, *self.walked} or not _computes_at(kernel, shared):
            return False
        if not self._leads_from_product(call):
            return False
        self.admit(call, shared)
        return True

    def _leads_from_product(self, call: CallOp) -> bool:
        return self.program.has_contraction(call) or any(
            self._leads_from_product(p) for p in self.program.producers([call])
            if self.program.may_join(p) and not self.program.is_reduction(p))

    def roles(self) -> Iterator[tuple[CallOp, Symbol]]:
        """The axes of the producers that the chain walks."""
        return ((call, own) for (call, own), joint in self.names.items()
                if joint in self.walked and call not in self.ends)

    def take(self, other: RecomputedChain) -> bool:
        """Let another chain's last call end this one as well, if it loops over the same axes."""
        end = other.last
        if end.parent is not self.last.parent or not (
                self.program.may_share([*self.calls, end])) or not (
                {*self.roles()} & {*other.roles()}) or not all(
                self.is_later(use.operation) for r in end.results for use in r.uses):
            return False
        ties = {other.names[call, own]: self.names[call, own] for call, own in other.names
                if (call, own) in self.names and call not in other.ends}
        shared = {own: ties[joint] for (call, own), joint in other.names.items()
                  if call is end and joint in ties}
        if {*shared.values()} != {*self.rows, *self.walked}:
            return False
        self.admit(end, shared)
        self.ends.append(end)
        self.grow()
        return True

    @property
    def is_narrow(self) -> bool:
        """Whether what is computed again is no wider than any of its factors."""
        extents, inner = dict[Symbol, Expr](), list[int]()
        for call in self.calls:
            kernel = self.kernel_of(call)
            names = {axis: self.names[call, axis] for axis in kernel.axes}
            extents |= {names[axis]: extent for axis, extent in kernel.axes.items()}
            inner += [extents[names[a.name]].constant or 0
                      for n in kernel.nests if is_contraction(n)
                      for a in n.reduce_axes if names[a.name] not in self.walked]
        steps = prod(extents[a].constant or MANY for a in self.walked)
        return bool(inner) and steps <= min(inner)

    # ------------------------------------------------------------------ the joined kernel
    def returned(self) -> list[SSAValue]:
        return [r for call in self.calls if call in self.ends for r in call.results]

    def arrange(self, kernel: KernelOp, *, exact: bool) -> None:
        inline_masks(kernel, self.rows)
        for nest in kernel.nests:
            simplify_conditions(nest)
            drop_decided(nest)
        if not exact:
            use_known_powers(kernel)
        share_axes(kernel, {*self.rows, *self.walked})
        finish_last(kernel, self.walked)

    def replace(self, kernel: KernelOp) -> None:
        for value in (r for call in self.ends for r in call.results if call is not self.last):
            move_views(value, self.last)
        self.insert(kernel)
        for call in self.ends:
            erase(call)
            erase(self.kernel_of(call))


def _computes_at(kernel: KernelOp, shared: Collection[Symbol]) -> bool:
    """Whether nests have no parallel axes but these, and sum nothing but products."""
    extents = kernel.axes
    return all((n.is_elementwise or is_contraction(n)) and all(
        a.name in shared or extents[a.name].constant == 1 for a in n.parallel_axes)
        for n in kernel.nests)


def chains(program: Program, calls: Sequence[CallOp]) -> list[RecomputedChain]:
    """All chains, the last ones first; those that loop over the same axes are one."""
    found: list[RecomputedChain] = []
    for call in reversed(calls):
        chain = RecomputedChain.into(call, program)
        if chain is not None and not any(other.take(chain) for other in found):
            found.append(chain)
    return found


def complete(found: Sequence[RecomputedChain]) -> list[RecomputedChain]:
    """The chains after which nothing reads what they compute again."""
    wanted = list(found)
    while True:
        inside = {call for chain in wanted for call in chain.calls}
        left = [c for c in wanted if all(
            use.operation in inside for call in c.calls if call not in c.ends
            for r in call.results for use in r.uses)]
        if len(left) == len(wanted):
            return left
        wanted = left


def groups(found: Sequence[RecomputedChain]) -> list[list[RecomputedChain]]:
    """Chains that compute the same calls again, together."""
    made: list[list[RecomputedChain]] = []
    for chain in found:
        calls = {*chain.calls}
        same = [g for g in made if any(calls & {*c.calls} for c in g)]
        apart = [g for g in made if not any(calls & {*c.calls} for c in g)]
        made = [*apart, [*(c for g in same for c in g), chain]]
    return made


def finish_last(kernel: KernelOp, walked: AbstractSet[Symbol]) -> None:
    """Let nests that read finished sums follow all nests of the loop, so that there is one loop."""
    for nest in kernel.nests:
        if nest.is_elementwise and walked & sums_behind(nest):
            nest.detach()
            kernel.body.block.insert_op_after(nest, kernel.nests[-1])


def sums_behind(nest: NestOp) -> set[Symbol]:
    """The axes over which the nests are summed that the nest reads, directly or not."""
    makers = [v.owner for v in sources_of(nest)]
    return {a.name for n in makers if isinstance(n, NestOp) for a in n.reduce_axes}


# ---------------------------------------------------------------------- axes
def share_axes(kernel: KernelOp, kept: Collection[Symbol]) -> None:
    """Give axes along which nests read an argument in the same way one name, so that a tile of it
    is loaded once."""
    while (pair := _alike(kernel, kept)) is not None:
        old, new = pair
        for nest in kernel.nests:
            if old in {a.name for a in nest.axes}:
                replace_nest(nest, rename_axes(nest, {old: new}))


def _alike(kernel: KernelOp, kept: Collection[Symbol]) -> tuple[Symbol, Symbol] | None:
    """Two axes, not among `kept`, that differ only in the nests that use them."""
    extents = kernel.axes
    together = [{a.name for a in nest.axes} for nest in kernel.nests]
    for argument in kernel.body.block.args:
        maps = [m for nest in kernel.nests for read in reads_of(nest) if read.value is argument
                if (m := plain_axes(read.map)) is not None]
        for first in maps:
            for second in maps:
                pairs = [(a, b) for a, b in zip(first, second, strict=True) if a != b]
                if len(pairs) != 1 or {*pairs[0]} & {*kept}:
                    continue
                [(new, old)] = pairs
                if extents[new] == extents[old] and not any({new, old} <= t for t in together):
                    return old, new
    return None

