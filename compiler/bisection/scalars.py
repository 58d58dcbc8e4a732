"""The scalar operation of a kernel whose code computes something else than it means.

Each kind of operation in the bodies of a kernel is compiled in a nest of its own,

    %y = loop.nest (i0: 61) ins(%x0[i0], %x1[i0]) { arith.addf }

and runs on random numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, Operation, Region

from compiler.bisection.outcome import CODE, RIGHT, Outcome
from compiler.bisection.quiet import QuietCompiler
from compiler.diagnostics import kind_and_text
from compiler.measuring.comparison import worst
from compiler.pipeline.state import State
from compiler.pipeline.steps import PIPELINE
from dialects import block
from dialects.loop import Axis, NestOp, YieldOp
from dialects.semantics.scalar import is_scalar
from dialects.strata.func import MAIN, FuncOp
from dialects.strata.types import ELEMENTS, Array, dtype_of, is_float, tensor
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import location_names
from targets.reference.interpret import interpret

if TYPE_CHECKING:
    from compiler.bisection.trials import Trials

COUNT = 61
"""The number of elements, which no register divides."""


def first_wrong(trials: Trials, name: str) -> Outcome:
    """The first scalar operation of the kernel `name` with wrong code; right if none is."""
    last = len(trials.planned) if trials.begun.kind == RIGHT else 0
    lowered = trials.lowered(last)
    if lowered.kind != RIGHT:
        return lowered
    state = trials.at(last)
    kernel = next(op for op in state.module.body.block.ops
                  if isinstance(op, block.KernelOp) and op.sym_name.data == name)
    for op in _distinct(kernel):
        nodes = location_names(op) or location_names(kernel)
        suspect = Outcome("crash", "", CODE, trials.compilation.target.name, operation=op.name,
                          kernel=name, nodes=nodes)
        trials.phases.tell(suspect)
        if text := _fault(trials, op):
            return replace(suspect, kind="wrong", text=text)
    return Outcome(step=CODE)


def _distinct(kernel: Operation) -> Iterator[Operation]:
    """One operation of each kind that can be compiled alone."""
    known: set[tuple[object, ...]] = set()
    for op in kernel.walk():
        types = [v.type for v in (*op.operands, *op.results)]
        key = (op.name, *types, *sorted(map(str, op.properties.items())))
        if is_scalar(op) and op.operands and key not in known and {*types} <= {*ELEMENTS}:
            known.add(key)
            yield op


def _fault(trials: Trials, op: Operation) -> str:
    """What is wrong with an operation's code; empty if nothing is."""
    module, inputs = _alone(op), _numbers(op)
    options = replace(trials.options, passes="default", schedule=None, start=None)
    compilation = QuietCompiler(trials.model, options)
    context = trials.state.context.clone()
    state = State(module, context, trials.model, "loop", (_FIRST,))
    want = interpret(module, context.weights, inputs)
    try:
        compilation.run_to(state, None)
        got = compilation.load(state).run(inputs)
    except Exception as error:  # whatever a faulty target raises
        return kind_and_text(error)
    error, wrong = worst(got, want)
    return "" if wrong is None else f"its code is off by {error:.1e}"


_FIRST = next(step.name for step in PIPELINE if step.level == "loop")


def _alone(op: Operation) -> ModuleOp:
    """A module at loop level with a nest that does nothing else."""
    axis = Axis(Symbol.axis("i0"), Expr.of(COUNT))
    types = [tensor(v.type, [COUNT]) for v in op.operands]
    func = FuncOp.of(MAIN, [f"x{k}" for k in range(len(types))], types)
    body = Block(arg_types=[v.type for v in op.operands])
    new = op.clone()
    new.operands = body.args
    body.add_ops([new, YieldOp.of(new.results[0])])
    place = [[Expr.symbol(axis.name)]]
    nest = NestOp.of([axis], list(func.body.block.args), place * len(types),
                     [tensor(op.results[0].type, [COUNT])], place, body=Region(body))
    func.body.block.add_op(nest)
    func.finish(["y"], nest.results)
    return ModuleOp([func])


def _numbers(op: Operation) -> list[Array]:
    random = np.random.default_rng(0)

    def make(element: Attribute) -> Array:
        dtype = dtype_of(element)
        if is_float(element):
            return random.standard_normal(COUNT).astype(dtype)
        most = 2 if dtype == np.bool_ else 100
        return np.asarray(random.integers(0 if most == 2 else 1, most, COUNT), dtype)

    return [make(v.type) for v in op.operands]
