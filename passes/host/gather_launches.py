"""host-gather-launches: launches that can be one follow each other.

    host.launch @product(%x, %w, %a)          host.copy %c, %u
    host.launch @sum(%a, %q)                  host.launch @product(%x, %w, %a)
    host.copy %c, %u                   -->    host.launch @product(%x, %v, %b)
    host.launch @product(%x, %v, %b)          host.launch @sum(%a, %q)
    host.launch @sum(%b, %u)                  host.launch @sum(%b, %u)

A launch moves up to the last one of its kind (`passes/analyses/host/neighbours.py`), with copies
that it needs, if nothing on the way reads what it writes or writes what it accesses. It does not
move far, since its results need memory from then on. What writes a result of the function stays
below readers of arguments that a caller may give up for it.

Enters: a `host.func` whose buffers do not share memory yet, and kernels with schedules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import BlockArgument, Operation

from dialects.host import CopyOp, FuncOp, LaunchOp, host_functions
from passes.analyses.host.neighbours import (
    NAMES,
    NOTHING,
    Accesses,
    Kind,
    accesses_of,
    kinds_of,
)
from passes.analyses.host.storage import kernels_of
from passes.base import StrataContext, StrataPass

REACH = 8
"""The most launches that a launch passes on its way up."""


class HostGatherLaunches(StrataPass):
    """Put independent launches of one kind next to each other."""

    name = "host-gather-launches"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        kernels = kernels_of(module)
        kinds = kinds_of(kernels, context) if context.facts.programs > 1 else {}
        for func in host_functions(module) if kinds else ():
            known = {op: accesses_of(op, kernels) for op in func.body.block.ops}
            order = _Order(list(known), known, kinds, len(func.input_names))
            if order.gather() and context.allowance.take(func, self.name):
                _arrange(func, order.ops)


def _arrange(func: FuncOp, ops: Sequence[Operation]) -> None:
    for op in ops:
        op.detach()
    func.body.block.add_ops(ops)


class _Order:
    """The operations of a function, in a new order."""

    def __init__(
        self, ops: list[Operation], known: Mapping[Operation, Accesses | None],
        kinds: Mapping[str, Kind], inputs: int,
    ) -> None:
        self.ops, self._known, self._kinds, self._inputs = ops, known, kinds, inputs

    def gather(self) -> bool:
        """Move launches up. Returns whether any moved."""
        moved, first = False, 0
        while first < len(self.ops):
            kind = self._kind(self.ops[first])
            last = first if kind is None else self._gather_after(first, kind)
            moved |= last > first
            first = last + 1
        return moved

    def _kind(self, op: Operation) -> Kind | None:
        return self._kinds.get(op.kernel.data) if isinstance(op, LaunchOp) else None

    def _gather_after(self, first: int, kind: Kind) -> int:
        """Move launches of a kind behind a first one; the place of the last of them."""
        last, passed, at = first, 0, first
        while passed <= REACH and at + 1 < len(self.ops):
            at += 1
            op = self.ops[at]
            if self._known[op] is None:
                break
            moving = self._moving(first, at) if self._kind(op) == kind else None
            if moving is not None:
                first, last = self._move(moving, first, last, at)
            else:
                passed += isinstance(op, LaunchOp)
        return last

    def _moving(self, first: int, at: int) -> list[int] | None:
        """The places of a launch and of what it needs, which can go up; None if it cannot."""
        moving, own = [at], self._known[self.ops[at]] or NOTHING
        for place in range(at - 1, first - 1, -1):
            op = self.ops[place]
            other = self._known[op]
            if isinstance(op, NAMES):
                if any(op.results[0] in self.ops[k].operands for k in moving):
                    moving.append(place)
            elif other is None or own.conflicts(other) or self._may_donate(other, own):
                if not isinstance(op, CopyOp) or other is None:
                    return None
                moving.append(place)
                own = own.with_(other)
        return moving[::-1]

    def _move(self, moving: list[int], first: int, last: int, at: int) -> tuple[int, int]:
        """Move a launch behind the last one of its kind, and what it needs before the first."""
        launch, needed = self.ops[at], [self.ops[k] for k in moving[:-1]]
        names = [op for op in self.ops[first:at + 1] if op in needed]
        rest = [op for op in self.ops[first:at + 1] if op not in needed and op is not launch]
        split = last - first + 1 - sum(first <= k <= last for k in moving[:-1])
        self.ops[first:at + 1] = [*names, *rest[:split], launch, *rest[split:]]
        return first + len(names), first + len(names) + split

    def _may_donate(self, reader: Accesses, writer: Accesses) -> bool:
        """Whether one writes a result for which a caller may give up what the other reads."""
        written = {v.type for v in writer.written if isinstance(v, BlockArgument)}
        return any(v.type in written for v in reader.read
                   if isinstance(v, BlockArgument) and v.index < self._inputs)
