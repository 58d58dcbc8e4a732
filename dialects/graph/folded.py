"""An operation on constants, as data that a program on disk can hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block
from xdsl.parser import Parser

from dialects.context import make_context
from dialects.graph.base import GraphOp
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.func import FuncOp
from dialects.strata.types import Array


def evaluated(op: GraphOp, operands: Sequence[Array]) -> list[Array]:
    """The results of an operation without sizes, contiguous."""
    results = op.evaluate(EvaluationContext(), *operands)
    found = results if isinstance(results, list | tuple) else [results]
    return [np.ascontiguousarray(a).reshape(np.shape(a)) for a in found]


class Folded(NamedTuple):
    """One result of an operation; a file has the text of a function around it."""

    op: GraphOp
    number: int
    on_carriers = True

    @staticmethod
    def of(op: GraphOp, number: int) -> Folded:
        """The computation of an operation, which may be erased later."""
        alone = op.clone({v: Block(arg_types=[v.type]).args[0] for v in op.operands})
        assert isinstance(alone, GraphOp)
        return Folded(alone, number)

    def __call__(self, *arrays: Array) -> Array:
        return evaluated(self.op, arrays)[self.number]

    def facts(self) -> list[Any]:
        """All fields, as JSON can represent them."""
        names = [f"x{k}" for k in range(len(self.op.operands))]
        func = FuncOp.of("main", names, list(self.op.operand_types))
        op = self.op.clone(dict(zip(self.op.operands, func.body.block.args, strict=True)))
        func.body.block.add_op(op)
        func.finish([f"y{k}" for k in range(len(op.results))], op.results)
        return [str(ModuleOp([func])), self.number]

    @staticmethod
    def read(facts: Sequence[Any]) -> Folded:
        """The inverse of `facts`. Raises ParseError for text that is no such function."""
        text, number = facts
        module = Parser(make_context(), text).parse_module()
        op = next(op for op in module.walk() if isinstance(op, GraphOp))
        return Folded(op, int(number))
