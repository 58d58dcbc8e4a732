"""Marks the functions that lower operations, and collects them.

    @lowers(TransposeOp)
    def transpose(op: TransposeOp, at: Rewriter) -> SSAValue:
        ...

A rule inserts nests through `at` and returns the value to use instead of the operation's result.
The modules of this folder are found by scanning it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, TypeVar, cast

from xdsl.ir import Operation, SSAValue

from dialects.graph.base import GraphOp
from dialects.text.syntax import location_name
from passes.base import PassError
from passes.rewriting import Rewriter, Rule

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
    """Operation class -> its lowering. `plugins` are modules that add lowerings to ours."""
    own = [importlib.import_module(f"passes.graph_to_loop.{entry.name}")
           for entry in pkgutil.iter_modules([str(Path(__file__).parent)])]
    found: dict[type[Operation], list[Rule]] = {}
    for module in (*own, *plugins):
        for function in vars(module).values():
            for op in getattr(function, _MARK, ()):
                rule = _checked(function) if module in plugins else function
                found.setdefault(op, []).append(rule)
    return found


def _checked(rule: FunctionType) -> Rule:
    """A plugin's lowering; raises PassError, with its file and line, if it returns no values."""
    @wraps(rule)
    def call(op: Operation, at: Rewriter) -> Any:
        result: object = rule(op, at)
        single = not isinstance(result, list | tuple)
        values = [result] if single else cast("Sequence[object]", result)
        if all(isinstance(v, SSAValue) for v in values) and len(values) == len(op.results):
            return values
        code, kind = rule.__code__, type(values[0]).__name__ if single else "several"
        raise PassError("graph-to-loop", [(location_name(op), (
            f"{rule.__name__} must return the value to use instead of {op.name}, but returned "
            f"{kind} ({code.co_filename}, line {code.co_firstlineno})"))])

    return call
