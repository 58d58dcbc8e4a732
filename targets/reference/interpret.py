"""Executes a module at any level: a function over tensors, or a host function with its kernels."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp

from dialects.graph.interpret import evaluate_func
from dialects.host import FuncOp as HostFuncOp
from dialects.host import host_function
from dialects.host.interpret import interpret_host
from dialects.semantics.evaluation import EvaluationContext
from dialects.semantics.ring import Ring
from dialects.strata.func import FuncOp, main_function
from dialects.strata.types import Array
from dialects.strata.weights import WeightStore


def interpret(
    module: ModuleOp, weights: WeightStore, inputs: Sequence[Array], ring: Ring | None = None
) -> list[Array]:
    """The outputs in model order. `ring`: compute in it instead of in floats, with residues as
    inputs and outputs. Raises EvaluationError if the inputs do not fit.
    """
    if is_tensor_level(module):
        context = EvaluationContext(weights=weights, carry=None if ring is None else ring.wrap)
        return evaluate_func(main_function(module), inputs, context)
    return interpret_host(module, inputs, weights, carry=None if ring is None else ring.view)


def model_function(module: ModuleOp) -> FuncOp | HostFuncOp:
    """The function that is the model, at any level. Raises ValueError if there is none."""
    return main_function(module) if is_tensor_level(module) else host_function(module)


def is_tensor_level(module: ModuleOp) -> bool:
    """Whether the model is still a function over tensors, at graph or loop level."""
    return any(isinstance(op, FuncOp) for op in module.body.block.ops)
