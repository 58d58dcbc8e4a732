"""Chains of kernels that walk the same rows, and the kernel that computes a whole chain.

    %s = call @contract_0(%q, %k)      nests (i, j, reduce d) (i, j)
    %p = call @reduce_1(%s)            nests (i, reduce j) (i, j) (i, reduce j) (i, j)
    %y = call @contract_2(%p, %v)      nests (i, d, reduce j)

A chain ends in a contraction and leads from another one through a reduction. Its axes get joint
names; the rows are those over which everything in it is parallel. `loop-join-rows` and
`loop-join-online` say which calls a chain accepts, and how its kernel is arranged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import ClassVar, NamedTuple, Self

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue

from dialects.loop import CallOp, KernelOp, NestOp, YieldOp
from dialects.records import dataclass
from dialects.strata.types import TensorType
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import location_names, merge_locations, set_location
from passes.analyses.loop.kinds import is_contraction
from passes.analyses.loop.private import private_values
from passes.analyses.loop.runs import common_rows
from passes.rewrites.loop.delay_divisions import delay_divisions
from passes.rewrites.loop.nests import Read, reads_of, rename_axes
from passes.rewrites.loop.separate_walks import separate_walks
from passes.rewriting import erase, functions


def calls_in(module: ModuleOp) -> list[CallOp]:
    """All calls of kernels, in order."""
    return [op for func in functions(module) for op in func.body.block.ops
            if isinstance(op, CallOp)]


@dataclass(frozen=True)
class Program:
    """All calls in order, and by name the kernels that exactly one of them calls."""

    kernels: Mapping[str, KernelOp]
    places: Mapping[CallOp, int]
    across: bool = True
    """Whether a chain leads through several nodes of the model."""
    known: dict[KernelOp, _Kind] = field(default_factory=dict["KernelOp", "_Kind"])

    @staticmethod
    def of(module: ModuleOp, calls: Sequence[CallOp], across: bool) -> Program:
        counts = Counter(c.kernel.data for c in calls)
        kernels = {op.sym_name.data: op for op in module.body.block.ops
                   if isinstance(op, KernelOp) and counts[op.sym_name.data] == 1}
        return Program(kernels, {c: n for n, c in enumerate(calls)}, across)

    def kernel(self, call: CallOp) -> KernelOp | None:
        return self.kernels.get(call.kernel.data)

    def producers(self, calls: Sequence[CallOp]) -> list[CallOp]:
        """The calls that compute what these read, the latest first."""
        found = {v.owner for c in calls for v in c.inputs
                 if isinstance(v.owner, CallOp) and v.owner in self.places}
        return sorted(found, key=lambda c: -self.places[c])

    def kind(self, call: CallOp) -> _Kind:
        """What is known of a call's kernel."""
        kernel = self.kernel(call)
        if kernel is None:
            return _Kind(False, False, False)
        if kernel not in self.known:
            self.known[kernel] = _Kind.of(kernel)
        return self.known[kernel]

    def may_share(self, calls: Sequence[CallOp]) -> bool:
        """Whether calls may be one kernel: if chains stay within a node, all nests are parts of
        it."""
        if self.across:
            return True
        kernels = [kernel for call in calls if (kernel := self.kernel(call)) is not None]
        first, *others = [{*location_names(nest)} for k in kernels for nest in k.nests]
        return bool(first.intersection(*others))

    def has_contraction(self, call: CallOp) -> bool:
        return self.kind(call).has_contraction

    def is_reduction(self, call: CallOp) -> bool:
        """Whether the call reduces without contracting."""
        return self.kind(call).is_reduction

    def may_join(self, call: CallOp) -> bool:
        """Whether the kernel holds only nests, is not joined yet, and uses its caller's sizes."""
        kernel = self.kernel(call)
        return kernel is not None and self.kind(call).is_plain and (
            [Expr.symbol(s) for s in kernel.size_names] == list(call.sizes.data))


class _Kind(NamedTuple):
    """What chains ask of a kernel, found once."""

    has_contraction: bool
    is_reduction: bool
    is_plain: bool
    """Whether it holds only nests that may be joined, and is not joined yet."""

    @staticmethod
    def of(kernel: KernelOp) -> _Kind:
        nests = kernel.nests
        contracts = any(map(is_contraction, nests))
        plain = all(isinstance(op, NestOp | YieldOp) for op in kernel.body.block.ops) and not any(
            n.into or n.is_scatter or n.is_scan or n.is_recurrence for n in nests) and all(
            isinstance(v.owner, NestOp) for v in kernel.yielded) and not private_values(kernel)
        return _Kind(contracts, not contracts and any(n.reduce_axes for n in nests), plain)


# ---------------------------------------------------------------------- finding a chain
@dataclass
class Chain:
    """Calls whose kernels have rows in common, and the joint names of their axes."""

    kind: ClassVar[str] = "rows"
    """The prefix of the joined kernel's name."""
    sums_while_walking: ClassVar[bool] = False
    """Whether a contraction sums over an axis while others of the chain walk it."""

    program: Program
    last: CallOp
    calls: list[CallOp] = field(default_factory=list[CallOp])
    """In the order of the function; `last` comes last."""
    names: dict[tuple[CallOp, Symbol], Symbol] = field(
        default_factory=dict[tuple[CallOp, Symbol], Symbol])
    rows: set[Symbol] = field(default_factory=set[Symbol])
    count: int = 0

    @classmethod
    def ending_in(cls, call: CallOp, program: Program) -> Self | None:
        """The chain that ends in a contraction and leads from another one through a reduction.

        None if there is no such chain.
        """
        if not program.has_contraction(call):
            return None
        for seed in filter(program.is_reduction, program.producers([call])):
            chain = cls(program, call)
            chain.admit(call, {})
            chain.rows = set(chain.names.values())
            if program.may_join(call) and chain.accepts(seed):
                chain.grow()
                if any(map(program.has_contraction, chain.before(seed))):
                    return chain
        return None

    def kernel_of(self, call: CallOp) -> KernelOp:
        return self.program.kernels[call.kernel.data]

    def grow(self) -> None:
        """Add all that the chain may compute."""
        self.add_producers()

    def add_producers(self) -> None:
        """Add every producer that fits, until none is left."""
        refused: set[CallOp] = set()
        while (found := next((p for p in self.program.producers(self.calls)
                              if p not in self.calls and p not in refused), None)) is not None:
            if not self.accepts(found):
                refused.add(found)

    def before(self, call: CallOp) -> list[CallOp]:
        """The calls of the chain on whose results a call depends, directly or indirectly."""
        found: list[CallOp] = [call]
        for later in found:
            found += [p for p in self.program.producers([later])
                      if p in self.calls and p not in found]
        return found[1:]

    def accepts(self, call: CallOp) -> bool:
        """Add a producer if only the chain reads it and it walks all of the chain's rows."""
        if not self.program.may_join(call) or not all(map(self.may_leave, self.left(call))):
            return False
        if not self.program.may_share([*self.calls, call]):
            return False
        kernel = self.kernel_of(call)
        shared = self.shared_axes(call, kernel)
        parallel = common_rows(kernel)
        rows = self.rows & {joint for own, joint in shared.items() if own in parallel}
        starts = len(self.calls) == 1
        if not rows or (rows != self.rows and not starts):
            return False
        self.rows = rows
        self.admit(call, shared)
        return True

    def left(self, call: CallOp) -> list[SSAValue]:
        """The results of a call that others than the chain read."""
        return [r for r in call.results if any(u.operation not in self.calls for u in r.uses)]

    def may_leave(self, value: SSAValue) -> bool:
        """Whether the joined kernel may return what a call before the last one computes."""
        return False

    def returned(self) -> list[SSAValue]:
        """What the joined kernel returns: the last results, and those that others read."""
        return [*self.last.results, *(r for c in self.calls if c is not self.last
                                      for r in self.left(c))]

    def admit(self, call: CallOp, shared: Mapping[Symbol, Symbol]) -> None:
        """Add a call; its kernel's axes get their joint name, or a fresh one if not shared."""
        for axis in self.kernel_of(call).axes:
            self.names[call, axis] = shared.get(axis) or self.fresh()
        self.calls.insert(0, call)

    def fresh(self) -> Symbol:
        self.count += 1
        return Symbol.axis(f"i{self.count - 1}")

    def shared_axes(self, call: CallOp, kernel: KernelOp) -> dict[Symbol, Symbol]:
        """A producer's axes, mapped to the axes of the chain at which its results are read."""
        ties: dict[Symbol, set[Symbol | None]] = {}
        extents = kernel.axes
        for reader, nest, read, k in self._reads_of_results(call):
            maker = kernel.yielded[k].owner
            assert isinstance(maker, NestOp)
            stored = maker.stored_at(kernel.yielded[k])
            for at, place in zip(read.map, stored, strict=True):
                if place.as_symbol is not None:
                    ties.setdefault(place.as_symbol, set()).add(
                        self._tie(reader, nest, read, at, extents[place.as_symbol]))
        shared = {own: joint for own, found in ties.items()
                  if len(found) == 1 and (joint := next(iter(found))) is not None}
        return {own: joint for own, joint in shared.items()
                if list(shared.values()).count(joint) == 1}

    def _tie(
        self, reader: CallOp, nest: NestOp, read: Read, at: Expr, extent: Expr
    ) -> Symbol | None:
        """The joint name of the axis that reads a dim, if reader and producer can share it."""
        axis = next((a for a in nest.axes if a.name == at.as_symbol), None)
        if axis is None or axis.extent != extent or read.pad is not None or (
                axis.reduce and is_contraction(nest) and not self.sums_while_walking):
            return None
        return self.names[reader, axis.name]

    def _reads_of_results(self, call: CallOp) -> Iterator[tuple[CallOp, NestOp, Read, int]]:
        """(reader, its nest, the read, number of the result) for all reads inside the chain."""
        results: list[SSAValue] = list(call.results)
        for reader in self.calls:
            kernel = self.kernel_of(reader)
            arguments: dict[SSAValue, SSAValue] = dict(
                zip(kernel.body.block.args, reader.inputs, strict=True))
            for nest in kernel.nests:
                for read in reads_of(nest):
                    source = arguments.get(read.value)
                    if source is not None and source in results:
                        yield reader, nest, read, results.index(source)

    # ------------------------------------------------------------------ joining it
    def kernel(self, *, exact: bool) -> KernelOp:
        """The kernel that computes the last call's results."""
        inputs = self.inputs()
        last = self.kernel_of(self.last)
        sizes = {s: None for c in self.parts() for s in self.kernel_of(c).size_names}
        number = last.sym_name.data.rpartition("_")[2]
        kernel = KernelOp.of(f"{self.kind}_{number}", [v.type for v in inputs], list(sizes))
        block = kernel.body.block
        values: dict[SSAValue, SSAValue] = dict(zip(inputs, block.args, strict=True))
        for old, new in values.items():
            new.name_hint = old.name_hint
        values |= self.constants(block)
        for call in self.parts():
            values |= self._inline(call, block, values)
        block.add_op(YieldOp.of(*(values[r] for r in self.returned())))
        merge_locations(kernel, [last, *map(self.kernel_of, self.parts()), *kernel.nests])
        set_location(kernel, kernel)
        self.arrange(kernel, exact=exact)
        return kernel

    def arrange(self, kernel: KernelOp, *, exact: bool) -> None:
        """Let the kernel's nests share loops where they can."""
        if not exact:
            delay_divisions(kernel, self.rows)
        separate_walks(kernel, self.rows)

    def constants(self, block: Block) -> dict[SSAValue, SSAValue]:
        """Values that the kernel computes at its beginning instead of loading them."""
        return {}

    def inputs(self) -> list[SSAValue]:
        """The values that the chain reads from outside."""
        own = {r for c in self.parts() for r in c.results}
        return list(dict.fromkeys(v for c in self.parts() for v in c.inputs if v not in own))

    def parts(self) -> list[CallOp]:
        """The calls whose nests make up the kernel, in order."""
        return self.calls

    def _inline(
        self, call: CallOp, block: Block, values: Mapping[SSAValue, SSAValue]
    ) -> dict[SSAValue, SSAValue]:
        """Append the nests of a call's kernel; its results, as values of the new kernel."""
        kernel = self.kernel_of(call)
        inside: dict[SSAValue, SSAValue] = {
            a: values[v] for a, v in zip(kernel.body.block.args, call.inputs, strict=True)}
        names = {axis: joint for (c, axis), joint in self.names.items() if c is call}
        for nest in kernel.nests:
            new = rename_axes(nest, names)
            for k, operand in enumerate(nest.operands):
                new.operands[k] = inside[operand]
            inside |= zip(nest.results, new.results, strict=True)
            block.add_op(new)
        return {r: inside[v] for r, v in zip(call.results, kernel.yielded, strict=True)}

    def replace(self, kernel: KernelOp) -> None:
        """Call the new kernel in place of the chain, and erase the chain's kernels."""
        self.insert(kernel)
        for call in reversed(self.calls):
            erase(call)
            erase(self.kernel_of(call))

    def insert(self, kernel: KernelOp) -> None:
        """Call the new kernel before the last call, for all readers of the chain's results."""
        last = self.kernel_of(self.last)
        module = last.parent_block()
        assert module is not None
        module.insert_op_before(kernel, last)
        results = self.returned()
        types = [r.type for r in results if isinstance(r.type, TensorType)]
        call = CallOp.of(kernel.sym_name.data, self.inputs(),
                         [Expr.symbol(s) for s in kernel.size_names], types)
        call.location = kernel.location
        block = self.last.parent_block()
        assert block is not None
        block.insert_op_before(call, self.last)
        for old, new in zip(results, call.results, strict=True):
            new.name_hint = old.name_hint
            old.replace_all_uses_with(new)
