"""Which nodes of a model read which, through functions that several calls share.

    %a = call @layer(%x) 0     a node of call 1 reads the node that makes the function's result,
    %b = call @layer(%a) 1     by its name in call 0, and not each other node of call 0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from dialects.strata.control import CallOp
from dialects.strata.func import FuncOp
from dialects.text.syntax import location_names
from passes.rewrites.calls import called

Edge = tuple[str, str]
Makers = dict[SSAValue, Sequence[str]]


def edges_of(module: ModuleOp) -> list[Edge]:
    """The pairs of nodes of which the second reads the first, in order."""
    calls, functions = called(module), {
        op.sym_name.data: op for op in module.body.block.ops if isinstance(op, FuncOp)}
    found: dict[Edge, None] = {}

    def follow(function: FuncOp, inputs: Sequence[Sequence[str]], own: Mapping[str, str]
               ) -> list[Sequence[str]]:
        """The nodes that make a function's results. `inputs`: those that make its arguments;
        `own`: the names of a call's nodes by those in the function."""
        makers: Makers = dict(zip(function.body.block.args, inputs, strict=True))
        for op in function.body.block.ops:
            given = [makers.get(value, ()) for value in op.operands]
            if op is function.return_op:
                return given
            if isinstance(op, CallOp) and op.callee.data in functions:
                names = {inside: own.get(name, name) for inside, name in op.names_of(
                    calls[op.callee.data][0]).items()}
                makers |= zip(op.results, follow(functions[op.callee.data], given, names),
                              strict=True)
                continue
            mine = [own.get(name, name) for name in location_names(op)]
            found.update(dict.fromkeys(_between(given, mine)))
            makers |= dict.fromkeys(op.results, mine or [n for names in given for n in names])
        return []

    for name, function in functions.items():
        if name not in calls:
            follow(function, [()] * len(function.body.block.args), {})
    return [*found]


def _between(given: Sequence[Sequence[str]], mine: Sequence[str]) -> Iterator[Edge]:
    return ((first, second) for names in given for first in names for second in mine
            if first != second)
