"""block-prove-bounds: prove, assume or check that every access stays inside its buffer.

    host.launch @k(%x, %y) sizes(n, k)            strata.assume k <= n
                                                  host.launch @k(%x, %y) sizes(n, k)
    block.kernel @k(%x: f32[n], ..) grid(%p: k)
      %v = block.load %x[%p]                -->     %v = block.load %x[%p] assumed [0]
      %i = block.load %ids[%p]                      %i = block.load %ids[%p]
      %w = block.load %x[%i]                        %w = block.load %x[%i] check [0]

Enters: host functions and kernels as they will become code. Leaves: every index of every load and
store is one of the following:

- proven to be inside its dim for all sizes from 0 on, and for all data;
- inside because of what the caller assumes: `assumed`. A condition that depends only on sizes
  becomes an assumption at its node, before the launch;
- checked: an out-of-bounds load reads the padding, and an out-of-bounds store writes nothing.

A proof may use the ranges of programs, loops and tiles, the possible values of loaded indices, and
assumptions on sizes (`passes/analyses/block/bounds.py`). Views, copies and launches are checked
first (`passes/rewrites/block/shapes.py`). No earlier pass is trusted: where one forgot an
assumption, it is added here. Another assumption makes sure that no number computed from sizes
overflows 64 bits (`passes/rewrites/block/magnitudes.py`). With `--check`, nothing is proven here,
so that `block-check-accesses` reports a wrong access, which a check would silently replace by
padding.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from dialects.block import KernelOp
from dialects.block.accesses import Access
from dialects.host import FuncOp, LaunchOp, host_functions
from dialects.records import dataclass
from dialects.strata.sizes import AssumeOp
from dialects.strata.types import SizesAttr
from dialects.symbolic.inequalities import Prover
from dialects.text.syntax import location_name, set_location
from passes.analyses.block.bounds import Judge, Numbers, shape_facts
from passes.analyses.block.contents import Contents, Kernel
from passes.analyses.block.ends import Ends
from passes.analyses.block.needs import Need, need_of
from passes.analyses.block.scalar_ranges import ANYTHING
from passes.analyses.block.value_ranges import Values
from passes.base import StrataContext, StrataPass
from passes.rewrites.block.calls import Calls
from passes.rewrites.block.magnitudes import forget_magnitudes, limit_magnitudes
from passes.rewrites.block.shapes import check_shapes, facts_before


class BlockProveBounds(StrataPass):
    """Prove, assume or check that accesses stay inside their buffers."""

    name = "block-prove-bounds"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        kernels = {op.sym_name.data: Kernel.of(op) for op in module.body.block.ops
                   if isinstance(op, KernelOp)}
        for function in host_functions(module):
            forget_magnitudes(function)
        if not context.facts.checks_accesses:
            self._prove(context, module, kernels)
        for function in host_functions(module):
            limit_magnitudes(function, kernels)

    def _prove(
        self, context: StrataContext, module: ModuleOp, kernels: Mapping[str, Kernel]
    ) -> None:
        launches: dict[str, list[_Launch]] = defaultdict(list)
        calls = Calls.of(list(host_functions(module)))
        for function in host_functions(module):
            check_shapes(function, {name: k.op for name, k in kernels.items()}, calls)
            contents = Contents(function, kernels, context.weights)
            for op in function.body.block.ops:
                if isinstance(op, LaunchOp) and op.kernel.data in kernels:
                    launches[op.kernel.data].append(_Launch(op, function, contents))
        for name, kernel in kernels.items():
            for access in _settle(kernel, launches[name]):
                context.remark(self, access.op, f"checked: {_told(access)}")


@dataclass
class _Launch:
    """A launch of a kernel, and what is known at that point."""

    op: LaunchOp
    function: FuncOp
    contents: Contents
    needs: dict[Need, Operation] = field(default_factory=dict[Need, Operation])
    """Assumptions to add, and the operations that need them."""

    def judge(self, kernel: Kernel) -> Judge:
        """The prover for accesses of this launch, with everything that is assumed so far."""
        sizes = kernel.sizes(self.op)
        facts = [*shape_facts(kernel, sizes), *facts_before(self.function, self.op),
                 *(n.fact for n in self.needs)]
        return Judge(self.contents.values_of(self.op), sizes, facts)

    def assume(self) -> None:
        """Insert the assumptions before the launch."""
        for need, op in self.needs.items():
            assume = AssumeOp.of(need.left, "<=", need.right)
            set_location(assume, op if location_name(op) else self.op)
            self.function.body.block.insert_op_before(assume, self.op)


def _settle(kernel: Kernel, launches: Sequence[_Launch]) -> Iterator[Access]:
    """Settle all accesses of a kernel; yields those that get a check."""
    assumed: dict[Operation, list[int]] = defaultdict(list)
    if not (rest := list(_unproven(kernel))):
        return
    judges = [launch.judge(kernel) for launch in launches]
    for access in rest:
        before = [dict(launch.needs) for launch in launches]
        for k, launch in enumerate(launches):
            verdict = _verdict(access, judges[k], launch)
            if verdict == "checked":
                for other, needs in zip(launches, before, strict=True):
                    other.needs = needs
                access.op.checked([access.dim])
                yield access
                break
            if verdict == "needed":
                judges[k] = launch.judge(kernel)
        else:
            assumed[access.op].append(access.dim)
    for op, dims in assumed.items():
        op.properties["assumed"] = SizesAttr.of(dims)
    for launch in launches:
        launch.assume()


def _unproven(kernel: Kernel) -> Iterator[Access]:
    """The accesses that leave their buffers for some sizes, or may do so for some data."""
    numbers, ends = Numbers(kernel), Ends()
    values = Values(kernel.scope, lambda argument, last: ANYTHING)
    judge = Judge(values, {}, list(shape_facts(kernel, {})))
    for access in kernel.accesses:
        access.op.properties.pop("assumed", None)
        if not (access.is_checked or numbers.prove(access) or ends.prove(access)
                or judge.prove(access)):
            yield access


def _verdict(access: Access, judge: Judge, launch: _Launch) -> str:
    """`assumed` if assumptions suffice, `needed` if more were noted, or `checked` if none help."""
    prover, verdict = judge.prover(access), "assumed"
    for goal in judge.goals(access):
        prover.open.clear()
        if prover.is_nonnegative(goal):
            continue
        need = need_of(goal, prover, judge.facts, access.data.keys())
        if need is None:
            return "checked"
        launch.needs[need] = access.op
        prover, verdict = Prover(prover.ranges, [*judge.facts, need.fact]), "needed"
    return verdict


def _told(access: Access) -> str:
    index, size = access.index, access.size
    return f"index {index} may be out of bounds for dim {access.dim} of size {size}"

