"""Marks the functions that lower operations, and finds them.

    @lowers(TransposeOp)
    def transpose(op: TransposeOp, at: Rewriter) -> SSAValue:
        ...

A rule inserts nests through `at` and returns the value to use instead of the operation's result.
Modules of this folder are found by scanning it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import ModuleType
from typing import TypeVar

from xdsl.ir import Operation

import passes.graph_to_loop
from dialects.graph.base import GraphOp
from passes.rewriting import Rule

_MARK = "lowered_operations"
_Function = TypeVar("_Function", bound=Callable[..., object])


def lowers(*ops: type[GraphOp]) -> Callable[[_Function], _Function]:
    """Mark a function as the lowering of operations."""
    def mark(function: _Function) -> _Function:
        setattr(function, _MARK, ops)
        return function
    return mark


@cache
def lowering_rules(
    plugins: tuple[ModuleType, ...] = ()
) -> Mapping[type[Operation], Sequence[Rule]]:
    """Operation class -> its one lowering. `plugins`: modules with lowerings besides ours."""
    own = [importlib.import_module(f"passes.graph_to_loop.{entry.name}")
           for entry in pkgutil.iter_modules(passes.graph_to_loop.__path__)]
    found: dict[type[Operation], list[Rule]] = {}
    for module in (*own, *plugins):
        for function in vars(module).values():
            for op in getattr(function, _MARK, ()):
                found.setdefault(op, []).append(function)
    return found
