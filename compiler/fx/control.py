"""Branches and loops, as PyTorch's higher-order operators `cond` and `while_loop`.

    %y = strata.if %c then @f else @g (%x)     ->     cond(c, f, g, (x,))[0]
    %y = strata.loop @f at k trip 3            ->     while_loop(test, f, (k, x), ())[1]
        carried(%x) with()

A function becomes a GraphModule of its own, which is an attribute of the module. It captures
nothing: sizes and constants of its caller are arguments, too. A loop carries the number of its
iterations as a tensor, and what it stacks as a tensor of all iterations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import add, getitem
from typing import Any

from compiler.frontend.torch.library import torch_module
from compiler.fx.writer import Unwritable, Writer, writes
from dialects.graph.constant import ConstantOp
from dialects.strata import types as t
from dialects.strata.callees import ControlOp, function_of
from dialects.strata.control import IfOp, LoopOp
from dialects.strata.func import FuncOp
from dialects.strata.types import TensorType, tensor_type
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol


@writes(IfOp)
def branch(w: Writer, op: IfOp) -> list[Any]:
    functions = [function_of(op, name) for name in op.callees]
    captured = Captured.of(w, functions)
    graphs: list[Any] = []
    for func in functions:
        body = Body(w)
        given = body.placeholders("x", len(op.inputs))
        captured.enter(body.writer)
        graphs.append(body.finish(body.writer.results_of(func, given)))
    operands = (*(w.values[v] for v in op.inputs), *captured.nodes)
    made = w.graph.call_function(torch_module().ops.higher_order.cond, (
        w.operand(op), *graphs, operands))
    return [w.graph.call_function(getitem, (made, k)) for k in range(len(op.results))]


@writes(LoopOp)
def loop(w: Writer, op: LoopOp) -> list[Any]:
    """Carried values are the number of iterations, the condition if there is one, what the loop
    carries, and what it stacks."""
    func, trip = function_of(op, op.body.data), None if op.trip is None else op.trip.data
    stacked = [tensor_type(v) for v in op.stacked]
    if stacked and trip is None:
        raise Unwritable("it stacks values, and its number of iterations has no bound")
    first, count = int(op.condition is not None), len(op.carried)
    begin = [w.call("full.default", [], 0, dtype=torch_module().int64),
             *([] if op.condition is None else [own(w, w.values[op.condition])]),
             *(own(w, w.values[v]) for v in op.carried),
             *(_empty_stack(w, type_, w.size(trip)) for type_ in stacked if trip is not None)]
    inputs = [w.values[v] for v in op.inputs]
    captured = Captured.of(w, [func], [op.step_symbol])
    known = None if trip is None else trip.constant
    limit = [] if trip is None or known is not None else [_tensor(w, w.number(trip))]

    test = Body(w)
    at, *rest = test.placeholders("carried", len(begin))
    test.placeholders("x", len(inputs))
    captured.enter(test.writer)
    conditions = rest[:first]
    if known is not None:
        conditions.append(test.writer.call("lt.Scalar", at, known))
    conditions += [test.writer.call("lt.Tensor", at, bound)
                   for bound in test.placeholders("limit", len(limit))]
    while len(conditions) > 1:
        conditions = [test.writer.call("bitwise_and.Tensor", *conditions)]

    body = Body(w)
    at, *rest = body.placeholders("carried", len(begin))
    fixed = body.placeholders("x", len(inputs))
    captured.enter(body.writer)
    body.placeholders("limit", len(limit))
    body.writer.counts[op.step_symbol] = at
    made = body.writer.results_of(func, [*rest[first:first + count], *fixed])
    stacks = [body.writer.call("index_put.default", stack, [at], value) for stack, value in zip(
        rest[first + count:], made[first + count:], strict=True)]
    following = [body.writer.call("add.Scalar", at, 1), *made[:first + count], *stacks]

    call = w.graph.call_function(torch_module().ops.higher_order.while_loop, (
        test.finish(conditions, alone=True), body.finish(following), tuple(begin),
        (*inputs, *captured.nodes, *limit)))
    ends = [w.graph.call_function(getitem, (call, k)) for k in range(len(begin))]
    return [*ends[1 + first:1 + first + count], *(
        _made(w, op, ends[0], stack) for stack in ends[1 + first + count:])]


def _tensor(w: Writer, number: Any) -> Any:
    """A number, or a tensor of it, as a tensor i64[]."""
    zero = w.call("full.default", [], 0, dtype=torch_module().int64)
    return w.graph.call_function(add, (zero, number))


def _empty_stack(w: Writer, type_: TensorType, trip: Any) -> Any:
    zero = False if type_.element == t.i1 else 0
    return w.call("full.default", [trip, *w.shape(type_.shape[1:])], zero, dtype=w.dtype_of(type_))


def _made(w: Writer, op: LoopOp, count: Any, stack: Any) -> Any:
    """The entries of the iterations that there were."""
    if op.condition is None:
        return stack
    return w.call("slice.Tensor", stack, 0, 0, w.call("_local_scalar_dense.default", count))


# ---------------------------------------------------------------------- functions
@dataclass(frozen=True)
class Captured:
    """What functions use of their caller: sizes and constants, with the caller's nodes."""

    sizes: Sequence[Symbol]
    are_counts: Sequence[bool]
    constants: Sequence[ConstantOp]
    nodes: Sequence[Any]

    @staticmethod
    def of(w: Writer, functions: Sequence[FuncOp], step: Sequence[Symbol] = ()) -> Captured:
        sizes = list(dict.fromkeys(s for f in functions for s in f.caller_sizes if s not in step))
        constants = list(dict.fromkeys(c for f in functions for c in _constants(f)))
        are_counts = [s in w.counts for s in sizes]
        nodes = [w.counts[s] if is_count else _shaped(w, s)
                 for s, is_count in zip(sizes, are_counts, strict=True)]
        return Captured(sizes, are_counts, constants, [*nodes, *(w.constant(c) for c in constants)])

    def enter(self, w: Writer) -> None:
        """Add placeholders for it."""
        for symbol, is_count in zip(self.sizes, self.are_counts, strict=True):
            node = w.graph.placeholder(f"size_{len(w.counts) + len(w.sizes)}")
            if is_count:
                w.counts[symbol] = node
            else:
                w.sizes[symbol] = w.call("sym_size.int", node, 0)
        for k, constant in enumerate(self.constants):
            w.constants[constant] = w.graph.placeholder(f"constant_{k}")


def _shaped(w: Writer, size: Symbol) -> Any:
    """A tensor [size, 0], by whose shape a function is told a size: integers may be constants when
    PyTorch traces it again, and constants are no arguments."""
    return w.call("full.default", [w.number(Expr.symbol(size)), 0], 0, dtype=torch_module().int64)


def _constants(func: FuncOp) -> Iterator[ConstantOp]:
    """The constants of a function and of those that it calls, but for single numbers."""
    for op in func.body.block.ops:
        if isinstance(op, ConstantOp) and op.result_tensors[0].rank:
            yield op
        elif isinstance(op, ControlOp):
            for name in op.callees:
                yield from _constants(function_of(op, name))


class Body:
    """A function that is being written for a caller."""

    def __init__(self, outer: Writer):
        fx = torch_module("torch.fx")
        self.outer = outer
        self.writer = Writer(fx.Graph(), torch_module().nn.Module(), outer.weights, True)
        self.writer.problems = outer.problems

    def placeholders(self, name: str, count: int) -> list[Any]:
        return [self.writer.graph.placeholder(f"{name}_{k}") for k in range(count)]

    def finish(self, results: Sequence[Any], alone: bool = False) -> Any:
        """The node of the caller that holds the function. `alone`: it returns its only result
        outside of a tuple."""
        nodes = tuple(own(self.writer, node) for node in results)
        self.writer.graph.output(nodes[0] if alone else nodes)
        made = torch_module("torch.fx").GraphModule(
            self.writer.root, self.writer.graph, class_name="Function")
        made.graph.lint()
        name = f"function_{len(list(self.outer.root.children()))}"
        self.outer.root.add_module(name, made)
        return self.outer.graph.get_attr(name)


def own(w: Writer, node: Any) -> Any:
    """A value in rows in memory of its own, as operators on functions need it."""
    return w.call("clone.default", node, memory_format=torch_module().contiguous_format)
