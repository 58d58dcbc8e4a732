"""Shardings of every operator: each dim of each operand divided, and what all ranks then compute.

The samples of `tests/op_samples` are annotated (`graph.shard_as`) and partitioned. Whether a rule
keeps a dim divided or gathers it, every rank must get the result of one rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from dialects.graph.base import Build, ShapeError
from dialects.graph.collective import CollectiveOp, ShardAsOp
from dialects.ranks.mesh import Mesh
from dialects.ranks.peers import run_ranks
from dialects.strata.func import main_function
from dialects.strata.types import Array, tensor_type
from dialects.strata.weights import WeightStore
from passes.base import StrataContext
from passes.graph.partition import GraphPartition
from targets.reference.interpret import interpret_rank
from tests.op_samples.graph_samples import SAMPLES, Sample, build_module

Divided = tuple[tuple[int, int], ...]
"""Operands, and the dim of each that is divided."""
DISTINCT = list({s.label: s for s in SAMPLES if not issubclass(s.op, CollectiveOp)}.values())


def places(sample: Sample, count: int) -> Iterator[Divided]:
    """Each dim alone that `count` divides, and then one of each operand."""
    shapes = [a.shape for a in sample.arrays()]
    found = [(k, dim) for k, shape in enumerate(shapes) for dim, size in enumerate(shape)
             if size and size % count == 0]
    yield from ((place,) for place in found)
    for last in (False, True):
        firsts = {k: dim for k, dim in (found if last else found[::-1])}
        if len(firsts) > 1:
            yield tuple(firsts.items())


def divided(module: ModuleOp, chosen: Divided) -> None:
    func = main_function(module)
    first = func.body.block.first_op
    assert first is not None
    for number, dim in chosen:
        argument = func.body.block.args[number]
        users = list(argument.uses)
        axes = ["tp" if k == dim else "_" for k in range(tensor_type(argument).rank)]
        made = Build(first)(ShardAsOp, argument, axes=",".join(axes))
        for use in users:
            use.operation.operands[use.index] = made


def on_ranks(
    module: ModuleOp, inputs: Sequence[Array], weights: WeightStore, count: int
) -> list[list[Array]]:
    return run_ranks(count, lambda peers: interpret_rank(module, weights, inputs, peers))


def agree(sample: Sample, found: Array, wanted: Array) -> bool:
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return False
    if found.dtype.kind in "iub":
        return bool(np.array_equal(found, wanted))
    allowed = max(sample.allowed(found.dtype), 1e-5)
    return bool(np.allclose(found.astype(np.float64), wanted.astype(np.float64), allowed, allowed,
                            equal_nan=True))


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("part", range(8))
def test_every_rank_computes_what_one_does(part: int, count: int) -> None:
    wrong: list[str] = []
    for sample in DISTINCT[part::8]:
        module, inputs, context = build_module(sample, symbolic=False)
        wanted = interpret_rank(module, context.weights, inputs, None)
        for chosen in places(sample, count):
            module, inputs, context = build_module(sample, symbolic=False)
            divided(module, chosen)
            strata = StrataContext(weights=context.weights)
            strata.mesh = Mesh((("tp", count),))
            try:
                GraphPartition().run(strata, module)
                module.verify()
                found = on_ranks(module, inputs, context.weights, count)
            except (ShapeError, ValueError, AssertionError) as error:
                wrong.append(f"{sample.label} {chosen}: {error}")
                continue
            for results in found:
                if not all(agree(sample, a, b) for a, b in zip(results, wanted, strict=True)):
                    wrong.append(f"{sample.label} {chosen}")
                    break
    assert wrong == []


@pytest.mark.parametrize(("name", "dims", "kept"), [
    ("matmul", 2, True), ("add", 2, True), ("softmax", 2, True), ("top_k", 2, False)])
def test_rules_keep_what_they_can(name: str, dims: int, kept: bool) -> None:
    """Where the first of the operand's dims counts independent items, nothing is gathered before
    the end."""
    sample = next(s for s in DISTINCT if s.op.name == f"graph.{name}" and len(
        s.arrays()[0].shape) >= dims and s.arrays()[0].shape[0] % 2 == 0)
    module, _, context = build_module(sample, symbolic=False)
    divided(module, ((0, 0),))
    strata = StrataContext(weights=context.weights)
    strata.mesh = Mesh((("tp", 2),))
    GraphPartition().run(strata, module)
    ops = list(main_function(module).body.block.ops)
    place = next(k for k, op in enumerate(ops) if op.name == f"graph.{name}")
    before = [op for op in ops[:place] if isinstance(op, CollectiveOp) and op.KIND == "all_gather"]
    assert (not before) == kept
