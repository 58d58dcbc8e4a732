"""graph-dce: erase operations whose results are unused.

    %a = graph.exp %x            -->
    strata.return %x                   strata.return %x

Sizes that nothing uses are erased as well, and so are control-flow operations whose results and
sizes are unused, and functions that are no longer called.

Weights that no constant refers to any more stay in the store, because other modules share it.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation

from dialects.strata.control import ControlOp
from dialects.strata.sizes import defined_sizes
from dialects.symbolic.symbol import Symbol
from dialects.walking import walked
from passes.base import StrataContext, StrataPass
from passes.events import UNUSED, Rewrite
from passes.rewriting import (
    emit,
    erase,
    erase_unused,
    functions,
    is_unused,
    makes_choices,
    used_sizes,
)


class GraphDce(StrataPass):
    """Erase unused operations, in one walk from the end."""

    name = "graph-dce"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        for func in functions(module):
            _erase_unused_sizes(func.body.block, context)
            erase_unused(func.body.block, context)
        _erase_uncalled(module, context)


def _erase_unused_sizes(block: Block, context: StrataContext) -> None:
    """Erase operations whose results and sizes are not used after them."""
    if not any(map(defined_sizes, block.ops)):
        return
    used: set[Symbol] = set()
    for op in reversed(list(block.ops)):
        names = defined_sizes(op)
        unused = is_unused(op) or (names and not used & {*names} and _has_no_users(op)
                                   and not makes_choices(op))
        if unused and context.allowance.take(op, UNUSED):
            emit(context, Rewrite(UNUSED, [op]))
            erase(op)
        else:
            used |= used_sizes(op)


def _has_no_users(op: Operation) -> bool:
    return all(r.first_use is None for r in op.results)


def _erase_uncalled(module: ModuleOp, context: StrataContext) -> None:
    """Erase functions that the model's function does not call, directly or indirectly."""
    by_name = {f.sym_name.data: f for f in functions(module)}
    reached, todo = set[str](), ["main"]
    while todo:
        name = todo.pop()
        if name in by_name and name not in reached:
            reached.add(name)
            todo += [n for op in by_name[name].body.block.ops if isinstance(op, ControlOp)
                     for n in op.callees]
    for name in by_name.keys() - reached if "main" in reached else ():
        if context.allowance.take(by_name[name], UNUSED):
            emit(context, Rewrite(UNUSED, walked(by_name[name])))
            erase(by_name[name])
