"""Executes a module at any level: a function over tensors, or a host function with its kernels.

A module with collective operations is the program of several ranks. All of them are executed in
threads of this process, so that a distributed program can be checked without devices. A program
that divides its inputs itself gets the same ones on all ranks. In others, each rank gets floats in
another order (`inputs_of_rank`): results of collective operations then depend on which rank gave
which operand.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import ModuleOp, StringAttr

from dialects.graph.collective import ShardOp
from dialects.graph.interpret import evaluate_func
from dialects.host import FuncOp as HostFuncOp
from dialects.host import host_function
from dialects.host.interpret import interpret_host
from dialects.ranks.attributes import world_of
from dialects.ranks.collectives import SHARD
from dialects.ranks.peers import Peers, run_ranks
from dialects.semantics.evaluation import EvaluationContext
from dialects.semantics.ring import Ring
from dialects.strata.func import FuncOp, main_function
from dialects.strata.types import Array
from dialects.strata.weights import WeightStore

_SHARD = StringAttr(SHARD)


def interpret(
    module: ModuleOp, weights: WeightStore, inputs: Sequence[Array], ring: Ring | None = None
) -> list[Array]:
    """The outputs in model order; of a module of several ranks, those of the first. `ring`: compute
    in it instead of in floats, with residues as inputs and outputs. Raises EvaluationError if the
    inputs do not fit.
    """
    count = world_of(module)
    if count == 1:
        return interpret_rank(module, weights, inputs, None, ring)
    divides = any(op.properties.get("kind") == _SHARD or isinstance(op, ShardOp)
                  for op in module.walk())
    return run_ranks(count, lambda peers: interpret_rank(
        module, weights, inputs if divides else inputs_of_rank(inputs, peers.rank), peers,
        ring))[0]


def interpret_rank(
    module: ModuleOp, weights: WeightStore, inputs: Sequence[Array], peers: Peers | None,
    ring: Ring | None = None,
) -> list[Array]:
    """The outputs of one rank, which exchanges operands with its peers."""
    if is_tensor_level(module):
        context = EvaluationContext(
            weights=weights, carry=None if ring is None else ring.wrap, peers=peers)
        return evaluate_func(main_function(module), inputs, context)
    return interpret_host(module, inputs, weights, carry=None if ring is None else ring.view,
                          peers=peers)


def inputs_of_rank(inputs: Sequence[Array], rank: int) -> list[Array]:
    """The inputs of a rank: those given, with all but integers moved on by `rank` elements."""
    return [a if a.dtype.kind in "iub" else np.roll(a, rank) for a in inputs]


def model_function(module: ModuleOp) -> FuncOp | HostFuncOp:
    """The function that is the model, at any level. Raises ValueError if there is none."""
    return main_function(module) if is_tensor_level(module) else host_function(module)


def is_tensor_level(module: ModuleOp) -> bool:
    """Whether the model is still a function over tensors, at graph or loop level."""
    return any(isinstance(op, FuncOp) for op in module.body.block.ops)
