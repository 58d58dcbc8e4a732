"""The first operation that computes something else than before a pass.

For passes that do not count rewrites: operations before and after are matched by the nodes of the
model that they stand for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.ir import Operation

from compiler.bisection.outcome import RIGHT, Outcome
from compiler.measuring.comparison import worst
from dialects import block, loop
from dialects.graph.interpret import evaluate_func
from dialects.host.interpret import execute_kernel, interpret_host
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.assumptions import AccessError
from dialects.strata.binding import EvaluationError
from dialects.strata.func import main_function
from dialects.strata.types import Array, TensorType
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import location_names
from targets.reference.interpret import is_tensor_level

if TYPE_CHECKING:
    from compiler.bisection.trials import Trials
    from dialects.strata.weights import WeightStore

Values = tuple[str, tuple[str, ...], Sequence[Array]]
"""An operation, its nodes, and what it computes."""


def first_changed(trials: Trials, step: int) -> Outcome:
    """The first operation after a step that differs from the same nodes' before it."""
    lowered = trials.lowered(step)
    if lowered.kind != RIGHT:
        return lowered
    states = trials.at(step - 1), trials.at(step)
    try:
        before, after = ([*_values(s.module, s.context.weights, trials.verify.inputs)]
                         for s in states)
    except (EvaluationError, AccessError, ValueError, ArithmeticError, LookupError):
        return Outcome(step=step)
    known = {nodes: arrays for _, nodes, arrays in before}
    for operation, nodes, arrays in after:
        if nodes in known and _differ(arrays, known[nodes]):
            return Outcome("wrong", "", step, operation=operation, nodes=nodes)
    return Outcome(step=step)


def _differ(got: Sequence[Array], want: Sequence[Array]) -> bool:
    alike = [a.shape for a in got] == [a.shape for a in want]
    return alike and worst(got, want)[1] is not None


def _values(
    module: ModuleOp, weights: WeightStore, inputs: Sequence[Array]
) -> Iterator[Values]:
    return (_of_tensors if is_tensor_level(module) else _of_launches)(module, weights, inputs)


def _of_tensors(
    module: ModuleOp, weights: WeightStore, inputs: Sequence[Array]
) -> Iterator[Values]:
    """The operations of the model's function: all of their results become results of it."""
    func = main_function(module)
    ops = [op for op in func.body.block.ops if op is not func.return_op and op.results
           and all(isinstance(r.type, TensorType) for r in op.results)]
    results = [r for op in ops for r in op.results]
    func.return_op.operands = results
    func.properties["result_types"] = ArrayAttr([r.type for r in results])
    arrays = iter(evaluate_func(func, inputs, EvaluationContext(weights=weights)))
    for op in ops:
        yield op.name, tuple(location_names(op)), [next(arrays) for _ in op.results]


def _of_launches(
    module: ModuleOp, weights: WeightStore, inputs: Sequence[Array]
) -> Iterator[Values]:
    """The launches of kernels, and all of their buffers."""
    found: list[Values] = []

    def run(kernel: Operation, buffers: Sequence[Array], sizes: dict[Symbol, int]) -> None:
        execute_kernel(kernel, buffers, sizes)
        assert isinstance(kernel, block.KernelOp | loop.KernelOp)
        found.append((f"{kernel.name} @{kernel.sym_name.data}", tuple(location_names(kernel)),
                      [np.array(b) for b in buffers]))

    interpret_host(module, inputs, weights, run)
    return iter(found)
