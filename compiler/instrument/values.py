"""The first operation that computes something else than before a pass.

Operations before and after are matched by the nodes of the model that they stand for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.ir import Operation

from dialects import block, loop
from dialects.graph.interpret import evaluate_func
from dialects.host.interpret import execute_kernel, interpret_host
from dialects.semantics.evaluation import EvaluationContext
from dialects.semantics.ring import Ring
from dialects.strata.assumptions import AccessError
from dialects.strata.binding import EvaluationError
from dialects.strata.func import main_function
from dialects.strata.types import Array, TensorType
from dialects.strata.weights import WeightStore
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import location_names
from targets.reference.interpret import is_tensor_level

Differ = Callable[[Sequence[Array], Sequence[Array]], bool]
FAILURES = (EvaluationError, AccessError, ValueError, ArithmeticError, LookupError)


@dataclass(frozen=True)
class Computed:
    """An operation, its nodes, and what it computes. `kernel`: the one that it is in, or empty."""

    operation: str
    nodes: tuple[str, ...]
    arrays: Sequence[Array]
    kernel: str = ""


@dataclass(frozen=True)
class Program:
    """A module that can be executed, in a ring or in floats."""

    module: ModuleOp
    weights: WeightStore
    ring: Ring | None = None

    def values(self, inputs: Sequence[Array]) -> Iterator[Computed]:
        """What its operations compute, in order. The module's results change."""
        tensors = is_tensor_level(self.module)
        return (self._of_tensors if tensors else self._of_launches)(inputs)

    def _of_tensors(self, inputs: Sequence[Array]) -> Iterator[Computed]:
        """The operations of the model's function: all of their results become results of it."""
        func = main_function(self.module)
        ops = [op for op in func.body.block.ops if op is not func.return_op and op.results
               and all(isinstance(r.type, TensorType) for r in op.results)]
        results = [r for op in ops for r in op.results]
        func.return_op.operands = results
        func.properties["result_types"] = ArrayAttr([r.type for r in results])
        carry = None if self.ring is None else self.ring.wrap
        context = EvaluationContext(weights=self.weights, carry=carry)
        arrays = iter(evaluate_func(func, inputs, context))
        for op in ops:
            made = [next(arrays) for _ in op.results]
            yield Computed(_name(op), tuple(location_names(op)), made, _kernel(op))

    def _of_launches(self, inputs: Sequence[Array]) -> Iterator[Computed]:
        """The launches of kernels, and all of their buffers."""
        found: list[Computed] = []

        def run(kernel: Operation, buffers: Sequence[Array], sizes: dict[Symbol, int]) -> None:
            execute_kernel(kernel, buffers, sizes)
            assert isinstance(kernel, block.KernelOp | loop.KernelOp)
            name = kernel.sym_name.data
            found.append(Computed(f"{kernel.name} @{name}", tuple(location_names(kernel)),
                                  [np.array(b) for b in buffers], name))

        carry = None if self.ring is None else self.ring.view
        interpret_host(self.module, inputs, self.weights, run, carry)
        return iter(found)


def first_change(
    before: Program, after: Program, inputs: Sequence[Array], differ: Differ
) -> Computed | None:
    """The first operation after a pass that differs from the same nodes' before it, or from the
    same kernel's if the nodes have moved. Of several operations for the same nodes, the last
    counts, because passes are free to compute it in other steps; and it may be any that they were
    computed with before.
    """
    try:
        old, new = list(before.values(inputs)), list(after.values(inputs))
    except FAILURES:
        return None
    known = dict[tuple[str, ...], list[Computed]]()
    for value in old:
        for key in _keys(value):
            known.setdefault(key, []).append(value)
    last = {key: value for value in new for key in _keys(value)}
    for value in new:
        key = next((key for key in _keys(value) if key in known), None)
        if key is not None and value is last[key] and _differs(value, known[key], differ):
            return value
    return None


def _differs(value: Computed, known: Sequence[Computed], differ: Differ) -> bool:
    """Whether there are values of its shapes, the last among them, and all of them differ."""
    if not _alike(value.arrays, known[-1].arrays):
        return False
    return all(differ(value.arrays, k.arrays) for k in known if _alike(value.arrays, k.arrays))


def _keys(value: Computed) -> list[tuple[str, ...]]:
    """What a value is known by, the best first: its nodes, the node of its result, its kernel."""
    kernel = [("", value.kernel)] if value.kernel else []
    return [value.nodes, value.nodes[:1], *kernel] if value.nodes else kernel


def _alike(got: Sequence[Array], want: Sequence[Array]) -> bool:
    return [a.shape for a in got] == [a.shape for a in want]


def _name(op: Operation) -> str:
    return f"{op.name} @{_kernel(op)}" if _kernel(op) else op.name


def _kernel(op: Operation) -> str:
    return op.kernel.data if isinstance(op, loop.CallOp) else ""
