"""loop-unroll-loops: calls of a loop's body take the place of the loop, one for each iteration.

    %h = strata.loop @step at k trip 3 carried(%h0) with(%w)      %h1 = loop.call @k0(%h0, %w) sizes(0)
                                                                  %h2 = loop.call @k0(%h1, %w) sizes(1)
    strata.func @step(%0: f32[8], %1: f32[8, 8]) sizes(k) {  -->  %h = loop.call @k0(%h2, %w) sizes(2)
      %2 = loop.call @k0(%0, %1) sizes(k)
      strata.return %2
    }

A loop is run by the host, which waits for nothing but has to launch each kernel by itself. A
program without loops is launched as a whole by targets that can do that, and its intermediates lie
in one arena. All iterations launch the same kernels, so nothing is compiled for it.

Enters: kernels that are final. A loop is unrolled if its trip count is a constant, no condition ends
it before, no size depends on an iteration, its body only launches kernels, and the target launches
that many at once (`Facts.unrolled_launches`). Stacked values are none: `graph-carry-stacks` has
turned them into carried ones.
"""  # noqa: E501

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from dialects.graph.constant import ConstantOp
from dialects.graph.foreign import ForeignKernelOp
from dialects.loop import CallOp, EmptyOp, ViewOp
from dialects.strata.callees import function_of
from dialects.strata.control import LoopOp
from dialects.strata.func import FuncOp, ReturnOp
from dialects.strata.sizes import AssumeOp, defined_sizes
from dialects.strata.types import TensorType
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from passes.base import StrataContext, StrataPass
from passes.graph.fix_sizes import replace_sizes
from passes.rewriting import erase, functions

_LAUNCHED = (CallOp, ForeignKernelOp)
_PLAIN = (*_LAUNCHED, ConstantOp, ViewOp, EmptyOp, AssumeOp, ReturnOp)


class LoopUnrollLoops(StrataPass):
    """Replace loops whose trip count is known by their iterations."""

    name = "loop-unroll-loops"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        most = context.facts.unrolled_launches
        if not most:
            return
        done = set[str]()
        while loops := [op for func in functions(module) for op in func.body.block.ops
                        if isinstance(op, LoopOp) and _launches(op) in range(1, most + 1)]:
            for loop in loops:
                if not context.allowance.take(loop, self.name):
                    return
                done.add(loop.body.data)
                _unroll(loop)
        _erase_uncalled(module, done)


def _launches(loop: LoopOp) -> int:
    """How many launches the iterations are; 0 if the loop has to stay."""
    body = function_of(loop, loop.body.data)
    trip = None if loop.trip is None else loop.trip.data.constant
    if trip is None or loop.condition is not None or loop.stacked or defined_sizes(loop):
        return 0
    if _given_sizes(loop, body) is None or not all(
            isinstance(op, _PLAIN) for op in body.body.block.ops):
        return 0
    return trip * sum(isinstance(op, _LAUNCHED) for op in body.body.block.ops)


def _given_sizes(loop: LoopOp, body: FuncOp) -> dict[Symbol, Expr] | None:
    """The body's own sizes, which shapes of its arguments bind, as the caller's; None if they are
    not the same in every iteration."""
    known = {*body.caller_sizes}
    found: dict[Symbol, Expr] = {}
    for given, argument in zip((*loop.carried, *loop.inputs), body.body.block.args, strict=True):
        assert isinstance(given.type, TensorType) and isinstance(argument.type, TensorType)
        for size, own in zip(given.type.shape, argument.type.shape, strict=True):
            name = own.as_symbol
            if name is not None and name not in known and found.setdefault(name, size) != size:
                return None
    returned = [v.type for v in body.return_op.operands]
    arguments = [a.type for a in body.body.block.args][:len(returned)]
    return found if returned == arguments else None


def _unroll(loop: LoopOp) -> None:
    body = function_of(loop, loop.body.data)
    sizes, trip = _given_sizes(loop, body), loop.trip
    assert sizes is not None and trip is not None
    shared: dict[Operation, SSAValue] = {}
    carried = list(loop.carried)
    for step in range(trip.data.constant or 0):
        carried = _iteration(loop, body, [*carried, *loop.inputs],
                             {**sizes, loop.step_symbol: Expr.of(step)}, shared)
    for result, value in zip(loop.results, carried, strict=True):
        result.replace_all_uses_with(value)
    erase(loop)


def _iteration(
    loop: LoopOp, body: FuncOp, given: list[SSAValue], sizes: dict[Symbol, Expr],
    shared: dict[Operation, SSAValue],
) -> list[SSAValue]:
    """Insert the operations of one iteration before the loop; returns what it carries on.
    `shared`: the constants, which all iterations have in common."""
    block = loop.parent_block()
    assert block is not None
    copy = body.clone()
    replace_sizes(copy, sizes)
    for argument, value in zip(list(copy.body.block.args), given, strict=True):
        argument.replace_all_uses_with(value)
    values = list(copy.return_op.operands)
    originals = [op for op in body.body.block.ops if isinstance(op, ConstantOp)]
    copies = [op for op in copy.body.block.ops if isinstance(op, ConstantOp)]
    for original, constant in zip(originals, copies, strict=True):
        there = shared.get(original)
        if there is None:
            shared[original] = constant.result
        else:
            values = [there if v is constant.result else v for v in values]
            constant.result.replace_all_uses_with(there)
            erase(constant)
    for op in list(copy.body.block.ops):
        if not isinstance(op, ReturnOp):
            op.detach()
            block.insert_op_before(op, loop)
    erase(copy.return_op)
    return values


def _erase_uncalled(module: ModuleOp, names: set[str]) -> None:
    """Erase bodies that no other loop calls."""
    called = {name for func in functions(module) for op in func.body.block.ops
              if isinstance(op, LoopOp) for name in op.callees}
    for func in functions(module):
        if func.sym_name.data in names - called:
            module.body.block.erase_op(func)
