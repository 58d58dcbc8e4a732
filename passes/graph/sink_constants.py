"""graph-sink-constants: move constants that branches and loop bodies receive into those functions.

    %w = graph.constant ... : f32[8, 8]                   %h = strata.loop @step at k trip n
    %h = strata.loop @step at k trip n                            carried(%h0) with() : f32[b, 8]
            carried(%h0) with(%w) : f32[b, 8]      -->

    strata.func @step(%h: f32[b, 8], %w: f32[8, 8])       strata.func @step(%h: f32[b, 8])
                                                            %w = graph.constant ... : f32[8, 8]

There the constant can be folded, and packed for the products that read it, once instead of in every
call. Only functions with a single call site are changed. Assumes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from xdsl.dialects.builtin import ArrayAttr, ModuleOp

from dialects.graph.constant import ConstantOp
from dialects.strata.control import IfOp, LoopOp
from dialects.strata.func import FuncOp
from dialects.text.syntax import set_location
from passes.base import StrataContext, StrataPass
from passes.rewriting import functions


class GraphSinkConstants(StrataPass):
    """Move constant operands of control flow into the functions that it calls."""

    name = "graph-sink-constants"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        by_name = {f.sym_name.data: f for f in functions(module)}
        calls = Counter(n for f in by_name.values() for op in _controls(f) for n in op.callees)
        todo = [f for name, f in by_name.items() if name not in calls]
        while todo:  # callers first, because a constant that has sunk may sink further
            for op in _controls(todo.pop()):
                called = [by_name[name] for name in op.callees if name in by_name]
                if all(calls[name] == 1 and name in by_name for name in op.callees) and (
                        context.allowance.take(op, self.name)):
                    _sink(op, called)
                todo += called


def _controls(func: FuncOp) -> Iterator[IfOp | LoopOp]:
    return (op for op in func.body.block.ops if isinstance(op, IfOp | LoopOp))


def _sink(op: IfOp | LoopOp, bodies: Sequence[FuncOp]) -> None:
    """Give the functions that an operation calls their own copies of its constant operands."""
    first = len(op.operands) - len(op.inputs)
    kept = list(op.operands)
    for k in reversed(range(first, len(kept))):
        constant, from_end = kept[k].owner, len(kept) - k
        if isinstance(constant, ConstantOp) and all(
                f.body.block.args[-from_end].type == constant.type for f in bodies):
            for body in bodies:
                _own(body, len(body.body.block.args) - from_end, constant)
            del kept[k]
    op.operands = kept


def _own(func: FuncOp, place: int, constant: ConstantOp) -> None:
    """Replace an argument of a function by a copy of a constant."""
    block = func.body.block
    copy = ConstantOp.of_value(constant.value, constant.type)
    set_location(copy, constant)
    assert block.first_op is not None
    block.insert_op_before(copy, block.first_op)
    copy.result.name_hint = block.args[place].name_hint or constant.result.name_hint
    block.args[place].replace_all_uses_with(copy.result)
    block.erase_arg(block.args[place])
    names = list(func.inputs.data)
    del names[place]
    func.properties["inputs"] = ArrayAttr(names)
