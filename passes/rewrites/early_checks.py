"""Host functions that write copies of inputs check what they can before they write.

    host.copy %cache, %new                                strata.require 0 <= %at < 8192
    host.launch @scatter_0(%at, %row, %new, %new)   -->   host.copy %cache, %new
    strata.require 0 <= %at < 8192                        host.launch @scatter_0(...)

A caller may give such a copy the memory of its input, as for a cache of keys. A run that ends with
an error must then have left it alone. So requirements move up to the last operation that computes
their value. In all other functions they stay at the end, where threads wait anyway.
"""

from __future__ import annotations

from itertools import takewhile

from xdsl.ir import BlockArgument, Operation

from dialects import host
from dialects.strata.requirements import RequireOp
from passes.host.plan_buffers import seen_memory


def check_early(func: host.FuncOp) -> None:
    """Move the requirements of a host function up, if it begins with copies of inputs."""
    ops = list(func.body.block.ops)
    if not any(isinstance(op, host.CopyOp) and _updates_input(op, func) for op in ops):
        return
    for op in [op for op in ops if isinstance(op, RequireOp)]:
        _move_up(op)


def _updates_input(op: host.CopyOp, func: host.FuncOp) -> bool:
    return seen_memory(op.source) in func.input_arguments and (
        seen_memory(op.target) in func.output_arguments)


def _move_up(op: RequireOp) -> None:
    """Move a requirement behind the last operation that may write its value."""
    memory, block = seen_memory(op.values), op.parent
    assert block is not None
    before = list(takewhile(lambda other: other is not op, block.ops))
    views: list[Operation] = []
    while isinstance(view := (views or [op])[0].operands[0].owner, host.ViewOp):
        views.insert(0, view)
    writers = [other for other in before if other not in views and memory in (
        *other.results, *map(seen_memory, other.operands))]
    op.detach()
    if not isinstance(memory, BlockArgument):
        last = max((*writers, *views), key=before.index)
        block.insert_op_after(op, last)
        return
    for view in views:
        view.detach()
    block.insert_ops_before([*views, op], next(iter(block.ops)))
