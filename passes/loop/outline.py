"""`loop-outline`: group nests into kernels.

Enters: a function of nests, views and constants. Leaves: a function that calls `loop.kernel`s. Each
kernel is computed by one launch, and no nest remains outside a kernel.

    %a = nest (m, n, reduce k)   %y = nest (m, n) ins(%a)   ->   %y = loop.call @contract_0(...)

There are five kinds of group. They depend on what the nests are, never on the operator:
- a contraction, followed by elementwise nests over exactly its parallel axes (the epilogue). Of few
  rows, a second contraction joins if the epilogue reads both (`passes/analyses/loop/pairs.py`);
- reductions over the same rows, with elementwise nests over rows or elements of rows (softmax).
  There may be few rows, or only one, where the target computes them faster than it launches another
  kernel. Reductions that only read the same tensor in the same way belong here, too (the sum of a
  tensor and the sum of its squares);
- a recurrence, followed by elementwise nests over its last states, and by reductions of these, if
  each has few results for a row (the descent of trees, and the sum of their votes);
- elementwise nests over one domain (several results);
- a scatter, either alone or with the nests that compute at the places where it writes.
Nests of a group that read each other's results do so at the same point, so one program can compute
a tile of all of them. No cycle arises: a group never depends on anything that depends on the group.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from dialects.loop import CallOp, KernelOp, YieldOp
from dialects.records import dataclass
from dialects.strata.func import FuncOp
from dialects.strata.types import TensorType
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Kind, Symbol
from dialects.text.syntax import merge_locations, set_location
from passes.analyses.loop.grouping import Grouping
from passes.analyses.loop.groups import Group
from passes.analyses.loop.kinds import kind_of
from passes.base import StrataContext, StrataPass
from passes.rewrites.loop.nests import index_exprs, rename_axes
from passes.rewriting import SizeDefinitions, functions


@dataclass(frozen=True)
class LoopOutline(StrataPass):
    """Group nests into kernels and call them."""

    name = "loop-outline"

    across: bool = True
    """Whether nests of different nodes of the model share kernels."""

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        for func in functions(module):
            groups = Grouping(func, self, context, self.across).run()
            allowed = [g for g in groups if context.allowance.take(g.nests[-1], self.name)]
            _outline(module, func, allowed)


def _outline(module: ModuleOp, func: FuncOp, groups: list[Group]) -> None:
    first = sum(isinstance(op, KernelOp) for op in module.body.block.ops)
    for number, group in enumerate(groups, first):
        func.body.block.insert_op_before(_make_kernel(module, group, number), group.nests[-1])
    for group in groups:
        for nest in reversed(group.nests):
            nest.detach()
            nest.erase()
    _sort(func.body.block)


def _make_kernel(module: ModuleOp, group: Group, number: int) -> CallOp:
    """Add the kernel of a group to the module; the call, whose results already replace the old."""
    name = f"{kind_of(group.renamed)}_{number}"
    inside = {r for n in group.nests for r in n.results}
    inputs = list(dict.fromkeys(
        v for n in group.nests for v in n.operands if v not in inside))
    own = {*group.nests, *group.renamed}
    results = [r for n in group.nests for r in n.results if any(
        use.operation not in own and use.operation.parent is not None for use in r.uses)]
    sizes = sorted(_size_names(group, [*inputs, *results]))
    kernel = KernelOp.of(name, [v.type for v in inputs], sizes)
    _fill(kernel.body.block, group, inputs, results)
    merge_locations(kernel, group.nests)
    set_location(kernel, kernel)
    module.body.block.add_op(kernel)
    types = [r.type for r in results if isinstance(r.type, TensorType)]
    call = CallOp.of(name, inputs, [Expr.symbol(s) for s in sizes], types)
    call.location = kernel.location
    for old, new in zip(results, call.results, strict=True):
        new.name_hint = old.name_hint
        old.replace_uses_with_if(new, lambda use: use.operation not in own)
    return call


def _fill(
    block: Block, group: Group, inputs: Sequence[SSAValue], results: Sequence[SSAValue]
) -> None:
    """Copy the nests into the kernel, with axes named i0, i1 ... in order of appearance."""
    values: dict[SSAValue, SSAValue] = dict(zip(inputs, block.args, strict=True))
    for old, new in zip(inputs, block.args, strict=True):
        new.name_hint = old.name_hint
    order = {name: Symbol.axis(f"i{k}") for k, name in enumerate(group.extents)}
    for old, renamed in zip(group.nests, group.renamed, strict=True):
        nest = rename_axes(renamed, order)
        for k, operand in enumerate(nest.operands):
            nest.operands[k] = values[operand]
        block.add_op(nest)
        values |= zip(old.results, nest.results, strict=True)
        renamed.erase()
    block.add_op(YieldOp.of(*(values[r] for r in results)))


def _size_names(group: Group, values: Sequence[SSAValue]) -> set[Symbol]:
    """Every size symbol of a group: in extents, index expressions, bodies and types."""
    exprs = [e for v in values if isinstance(v.type, TensorType) for e in v.type.shape]
    for nest in group.renamed:
        exprs += [e for m in [*nest.input_maps, *nest.output_maps] for e in m]
        exprs += [a.extent for a in nest.axes] + index_exprs(nest)
        exprs += [e for r in nest.results if isinstance(r.type, TensorType) for e in r.type.shape]
    return {s for e in exprs for s in e.symbols if s.kind in (Kind.SIZE, Kind.COMPUTED)}


def _sort(block: Block) -> None:
    """Sort operations so that values and sizes are defined before they are used."""
    ops = list(block.ops)
    definitions = SizeDefinitions.of(block)
    placed: set[Operation] = set()
    order: list[Operation] = []
    for op in ops:
        stack = [op]
        while stack:
            top = stack[-1]
            needed = [*(v.owner for v in top.operands), *definitions.used_by(top)]
            missing = [o for o in needed if isinstance(o, Operation) and o not in placed]
            if top in placed:
                stack.pop()
            elif missing:
                stack += missing
            else:
                placed.add(top)
                order.append(top)
                stack.pop()
    for op in ops:
        op.detach()
    block.add_ops(order)
