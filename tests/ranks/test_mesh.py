"""Models that are divided for a mesh: at every level, with all ranks in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from dialects.graph import AddOp, ConstantOp, MatmulOp, ReluOp, SoftmaxOp, TransposeOp
from dialects.graph.collective import AllReduceOp, CollectiveOp, ShardAsOp
from dialects.graph.shape import ReshapeOp
from dialects.host import CollectiveOp as HostCollectiveOp
from dialects.ranks.mesh import Mesh
from dialects.ranks.peers import run_ranks
from dialects.strata.binding import EvaluationError
from dialects.strata.func import FuncOp, main_function
from dialects.strata.types import Array, f32, tensor
from dialects.strata.weights import WeightStore
from dialects.symbolic.expr_syntax import expr_of
from dialects.symbolic.symbol import Symbol
from passes.base import PassError, StrataContext
from passes.graph.annotate_shards import GraphAnnotateShards
from passes.graph.partition import GraphPartition
from targets.cpu import TARGET
from targets.cuda import TARGET as CUDA
from targets.options import TargetOptions
from targets.reference.interpret import interpret_rank
from tests.lowering import lower

WIDTH, HEADS, ROWS = 24, 4, 6
CHECKED = ("import", "graph-annotate-shards", "graph-partition", "graph-dce", "graph-to-loop",
           "loop-schedule", "host-plan-buffers", "block-prove-bounds")


class Building:
    """A function under construction."""

    def __init__(self, shape: Sequence[int | str]) -> None:
        sizes = [expr_of(s) if isinstance(s, str) else s for s in shape]
        self.store, self.rng = WeightStore(), np.random.default_rng(0)
        self.func = FuncOp.of("main", ["x"], [tensor(f32, sizes)])
        self.x = self.func.body.block.args[0]

    def __call__(self, op: type, *operands: object, **attributes: object) -> object:
        made = op.of(*operands, **attributes)
        self.func.body.block.add_op(made)
        return made.results[0]

    def weight(self, *shape: int) -> object:
        array = self.rng.standard_normal(shape).astype(np.float32) / 4
        made = ConstantOp.of_array(array, self.store, "w")
        self.func.body.block.add_op(made)
        return made.result

    def finish(self, result: object) -> tuple[ModuleOp, WeightStore]:
        self.func.finish(["y"], [result])
        return ModuleOp([self.func]), self.store


def perceptron(width: int = 64, rows: int | str = ROWS) -> tuple[ModuleOp, WeightStore]:
    b = Building([rows, WIDTH])
    h = b(ReluOp, b(AddOp, b(MatmulOp, b.x, b.weight(WIDTH, width)), b.weight(width)))
    return b.finish(b(MatmulOp, h, b.weight(width, WIDTH)))


def attention(batch: int | str = 2, length: int | str = ROWS) -> tuple[ModuleOp, WeightStore]:
    b = Building([batch, length, WIDTH])
    sizes = list(b.x.type.shape)

    def heads(order: list[int]) -> object:
        made = b(MatmulOp, b.x, b.weight(WIDTH, WIDTH))
        split = b(ReshapeOp, made, shape=[*sizes[:2], HEADS, WIDTH // HEADS])
        return b(TransposeOp, split, perm=order)

    q, k, v = heads([0, 2, 1, 3]), heads([0, 2, 3, 1]), heads([0, 2, 1, 3])
    a = b(MatmulOp, b(SoftmaxOp, b(MatmulOp, q, k), axis=3), v)
    joined = b(ReshapeOp, b(TransposeOp, a, perm=[0, 2, 1, 3]), shape=sizes)
    return b.finish(b(AddOp, b.x, b(MatmulOp, joined, b.weight(WIDTH, WIDTH))))


MODELS = {"perceptron": perceptron, "attention": attention}
MESHES = ("tp=2", "dp=2", "dp=2,tp=2", "tp=2,dp=2", "tp=4")
LONG = ("sp=2", "sp=3", "dp=2,sp=2", "sp=2,tp=2")
RUNS = [*((model, mesh) for model in MODELS for mesh in MESHES), *(("attention", m) for m in LONG)]


def context_of(store: WeightStore, mesh: str, rank: int | None = None) -> StrataContext:
    # interpreted only; with 16 lanes, no weight of these models is padded
    context = TARGET.bind(TargetOptions(features="avx512")).context(store)
    context.mesh, context.rank = Mesh.parse(mesh), rank
    return context


def given(module: ModuleOp) -> Array:
    func = next(op for op in module.body.block.ops if isinstance(op, FuncOp))
    shape = func.body.block.args[0].type.static_shape
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("model", "mesh"), RUNS)
def test_all_ranks_compute_the_whole_model_at_every_level(model: str, mesh: str) -> None:
    module, store = MODELS[model]()
    x, context = given(module), context_of(store, mesh)
    [wanted] = interpret_rank(module, store, [x], None)
    count = Mesh.parse(mesh).world
    for step in chain(["import"], lower(module, context)):
        if step in CHECKED:
            for [found] in run_ranks(count, lambda peers: interpret_rank(
                    module, context.weights, [x], peers)):
                np.testing.assert_allclose(found, wanted, 1e-4, 1e-4)
    assert any(isinstance(op, HostCollectiveOp) for op in module.walk())


OPEN = {"rows": lambda: perceptron(rows="n"), "batch": lambda: attention("n"),
        "batch and length": lambda: attention("n", "k"), "length": lambda: attention(2, "k")}


@pytest.mark.parametrize(("model", "mesh"), [
    *((model, mesh) for model in OPEN for mesh in ("tp=2", "dp=2", "dp=2,tp=2")),
    *((model, mesh) for model in ("length", "batch and length") for mesh in ("sp=2", "dp=2,sp=2"))])
def test_open_sizes_stay_open(model: str, mesh: str) -> None:
    """One program for all sizes that are multiples of the ranks; others are refused."""
    module, store = OPEN[model]()
    wanted, weights = OPEN[model]()
    context, count = context_of(store, mesh), Mesh.parse(mesh).world
    steps = chain(["import"], lower(module, context))
    for step in steps:
        if step not in CHECKED:
            continue
        for n, k in ((2, 10), (4, 2), (6, 4)) if "sp" in mesh else ((2, 5), (4, 1), (6, 3)):
            x = _sized(wanted, n, k)
            [want] = interpret_rank(wanted, weights, [x], None)
            for [found] in run_ranks(count, lambda peers, x=x: interpret_rank(
                    module, context.weights, [x], peers)):
                np.testing.assert_allclose(found, want, 1e-4, 1e-4)
    exchanged = {op.group.data.name for op in module.walk() if isinstance(op, HostCollectiveOp)}
    assert exchanged == {axis for axis, _ in Mesh.parse(mesh).axes}
    if "sp" in mesh or ("dp" in mesh and model != "length"):
        with pytest.raises(EvaluationError, match="dim"):
            run_ranks(count, lambda peers: interpret_rank(
                module, context.weights, [_sized(wanted, 3, 5)], peers))


def _sized(module: ModuleOp, n: int, k: int) -> Array:
    """An input in which open sizes have these values."""
    shape = main_function(module).body.block.args[0].type.shape
    values = {Symbol.size("n"): n, Symbol.size("k"): k}
    return np.random.default_rng(n).standard_normal(
        [size.evaluate(values) for size in shape]).astype(np.float32)


@pytest.mark.parametrize(("model", "mesh"), RUNS)
def test_each_rank_holds_its_parts_of_weights(model: str, mesh: str) -> None:
    count, tp = Mesh.parse(mesh).world, Mesh.parse(mesh).size("tp")
    module, store = MODELS[model]()
    x = given(module)
    [wanted] = interpret_rank(module, store, [x], None)
    whole = sum(array.size for array in store.arrays.values())
    made: list[tuple[ModuleOp, StrataContext]] = []
    for rank in range(count):
        own, weights = MODELS[model]()
        context = context_of(weights, mesh, rank)
        list(lower(own, context))
        made.append((own, context))
        held = {op.value: op.type.count.constant for op in own.walk()
                if op.name == "host.constant"}
        assert sum(held.values()) <= whole / tp + 64
    for [found] in run_ranks(count, lambda peers: interpret_rank(
            made[peers.rank][0], made[peers.rank][1].weights, [x], peers)):
        np.testing.assert_allclose(found, wanted, 1e-4, 1e-4)


def test_long_sequences_only_gather_keys_and_values() -> None:
    module, store = attention()
    context = context_of(store, "sp=2")
    for pass_ in (GraphAnnotateShards(), GraphPartition()):
        pass_.apply(context, module)
    exchanges = [op for op in module.walk() if isinstance(op, CollectiveOp) and op.KIND != "shard"]
    assert [op.KIND for op in exchanges] == ["all_gather"] * 3  # keys, values, and the result
    assert max(op.result_tensors[0].count.constant for op in exchanges) == 2 * ROWS * WIDTH


@pytest.mark.parametrize(("model", "count"), [("perceptron", 1), ("attention", 1)])
def test_one_all_reduce_is_enough(model: str, count: int) -> None:
    """Columns of first products and rows of last ones are divided; nothing is gathered between."""
    module, store = MODELS[model]()
    context = context_of(store, "tp=2")
    for pass_ in (GraphAnnotateShards(), GraphPartition()):
        pass_.apply(context, module)
    exchanges = [op for op in module.walk() if isinstance(op, CollectiveOp)
                 and op.KIND != "shard"]
    assert [type(op) for op in exchanges] == [AllReduceOp] * count


@pytest.mark.parametrize("dim", [0, 1])
def test_a_sum_of_which_ranks_keep_parts_is_scattered(dim: int) -> None:
    """Products of a layer are divided by columns and rows, and positions between layers."""
    b = Building([2, 4, WIDTH])
    wide = b(ShardAsOp, b.weight(WIDTH, WIDTH), axes="_,tp")
    summed = b(MatmulOp, b(ReluOp, b(MatmulOp, b.x, wide)), b.weight(WIDTH, WIDTH))
    axes = ["tp" if k == dim else "_" for k in range(3)]
    module, store = b.finish(b(ReluOp, b(ShardAsOp, summed, axes=",".join(axes))))
    context, x = context_of(store, "tp=2"), given(module)
    [wanted] = interpret_rank(module, store, [x], None)
    list(lower(module, context))
    kinds = [op.kind.data for op in module.walk() if isinstance(op, HostCollectiveOp)]
    assert [k for k in kinds if k != "shard"] == ["reduce_scatter", "all_gather"]
    for [found] in run_ranks(2, lambda peers: interpret_rank(module, store, [x], peers)):
        np.testing.assert_allclose(found, wanted, 1e-4, 1e-4)


@pytest.mark.parametrize(("waits", "told"), [(0.0, "times as fast"), (1.0, "times as slow")])
def test_weights_are_divided_and_the_prediction_is_told(waits: float, told: str) -> None:
    """Where every exchange would cost more than it saves, too: memory may be the reason."""
    module, store = perceptron()
    context = context_of(store, "tp=2")
    context.facts = replace(context.facts, rates=replace(context.facts.rates, waits=waits))
    GraphAnnotateShards().apply(context, module)
    [remark] = context.remarks
    assert "1 products are divided for tp=2" in remark.text and told in remark.text


@pytest.mark.parametrize(("kbytes", "ms"), [(512, 0.015), (32 << 10, 0.14), (128 << 10, 0.46)])
def test_the_time_of_an_all_reduce_is_that_of_two_gpus(kbytes: int, ms: float) -> None:
    """Measured by NCCL on two GPUs of one host."""
    rates = CUDA.bind(TargetOptions(features="sm_90")).facts.rates
    assert rates.all_reduce(kbytes * 1024, 2) == pytest.approx(1e-3 * ms, rel=0.12)
    assert rates.all_reduce(kbytes * 1024, 1) == 0.0
    assert rates.all_gather(kbytes * 1024, 4) < rates.all_reduce(kbytes * 1024, 4)


@pytest.mark.parametrize(("made", "mesh", "message"), [
    (lambda: perceptron(rows=5), "dp=2", "dim 0, and its size 5 is no multiple of 2"),
    (lambda: perceptron(rows="n + 1"), "dp=2", r"size n \+ 1 is open and no size of its own"),
    (perceptron, "sp=2", "divides sequences, and no input is a batch of longer ones"),
    (lambda: attention(2, 5), "sp=2", "dim 1 of batches of sequences, and its size 5 is no"),
    (lambda: perceptron(width=63), "tp=5", "has columns that are no multiple of 5"),
])
def test_what_cannot_be_divided_is_named(made: object, mesh: str, message: str) -> None:
    module, store = made()
    with pytest.raises(PassError, match=message):
        GraphAnnotateShards().apply(context_of(store, mesh), module)


@pytest.mark.parametrize(("text", "message"), [
    ("pp=2", "'pp' is no axis"), ("tp", "the size of axis tp is ''"), ("tp=0", "'0', not a number"),
    ("tp=2,tp=2", "twice"), ("", "'' is no axis")])
def test_a_wrong_mesh_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Mesh.parse(text)


def test_groups_of_a_mesh() -> None:
    mesh = Mesh.parse("dp=2, tp=3")
    assert mesh.world == 6 and str(mesh) == "dp=2,tp=3"
    assert mesh.group("tp").parts == ((0, 1, 2), (3, 4, 5))
    assert mesh.group("dp").parts == ((0, 3), (1, 4), (2, 5))


def test_explain_names_exchanges() -> None:
    """What lies between kernels is told, with the nodes it comes from."""
    from compiler.explaining.pairs import links_of
    from dialects.block import KernelOp
    from dialects.host import host_function

    module, store = attention()
    context = context_of(store, "tp=2")
    context.facts = replace(context.facts, exchanged_elements=0)  # which moves them into kernels
    list(lower(module, context))
    kernels = {op.sym_name.data: op for op in module.walk() if isinstance(op, KernelOp)}
    reasons = [link.between for link in links_of(host_function(module), kernels) if link.between]
    assert any(r.text == "an exchange with other ranks lies between them" and r.of for r in reasons)
