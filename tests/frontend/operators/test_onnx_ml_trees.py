"""Tree ensembles of every shape, against their definition row by row."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

import compiler
from compiler.diagnostics import StrataError
from compiler.frontend import ImportedModel, MemoryModel, load_model
from dialects.block import ForOp, KernelOp, LoadOp, StoreOp, element_type
from dialects.graph import DescendOp
from dialects.graph.base import int_of
from dialects.strata import types as t
from dialects.strata.types import Array, TileType
from dialects.symbolic.symbol import Kind as SymbolKind
from targets.base import TargetOptions, find_target
from tests.frontend.onnx_models import run_imported
from tests.frontend.operators.tree_models import (
    AGGREGATES,
    MODES,
    Kind,
    Leaf,
    Split,
    drawn,
    ensemble,
    regressor,
    rows,
    scores,
)
from tests.lowering import lower

F64 = np.float64
KINDS = [
    *(Kind(modes=(mode,), missing=missing) for mode, missing in product(MODES, (0.0, 0.5))),
    Kind(modes=MODES, missing=0.3, trees=9, leaves=20), Kind(modes=MODES, missing=0.3, dtype=F64),
    Kind(leaves=1), Kind(trees=1, leaves=2), Kind(trees=1, leaves=30), Kind(trees=40, leaves=3),
    Kind(trees=70, leaves=40), Kind(leaves=60, chain=True), Kind(dtype=F64, features=1),
    *(Kind(targets=3, votes=votes, trees=trees, aggregate=aggregate)
      for votes, trees, aggregate in product(("turn", "one"), (7, 40), AGGREGATES)),
    Kind(targets=20, votes="one"), Kind(targets=20, votes="turn", trees=60),
    Kind(targets=20, votes="turn", trees=23), Kind(targets=70, votes="one", trees=3),
]
SEVERAL = [Kind(targets=targets, votes=votes, aggregate=aggregate)
           for votes, targets, aggregate in product(("some", "all"), (3, 9, 70), AGGREGATES)]
"""Leaves with several votes, which only the older operators have."""
COMPILED = [
    Kind(modes=MODES, missing=0.3, trees=9, leaves=20), Kind(modes=MODES, missing=0.3, dtype=F64),
    Kind(leaves=1), Kind(trees=1, leaves=30), Kind(trees=70, leaves=40),
    Kind(leaves=60, chain=True), Kind(targets=3, votes="turn", trees=40),
    Kind(targets=20, votes="one"), Kind(targets=70, votes="one", trees=3, aggregate="MIN"),
]


def check(model: onnx.ModelProto, expected: list[tuple[Array, Array]], **more: Any) -> None:
    run = compiler.compile(model, threads=1, cache="off", **more)
    for x, want in expected:
        [got] = run(x)
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def check_import(model: onnx.ModelProto, expected: list[tuple[Array, Array]]) -> None:
    found = imported(model)
    for x, want in expected:
        [got] = run_imported(found, {"x": x})
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def cases(kind: Kind, counts: tuple[int, ...] = (7, 1, 0, 33)) -> tuple[
        list[Split | Leaf], list[tuple[Array, Array]]]:
    """Trees, and inputs with the scores that they should have."""
    rng = np.random.default_rng([kind.trees, kind.leaves, kind.targets])
    trees = drawn(kind, rng)
    inputs = [rows(kind, count, rng) for count in counts]
    return trees, [(x, scores(trees, x, kind.targets, kind.aggregate)) for x in inputs]


# ---------------------------------------------------------------------- random ensembles
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_tree_ensemble_is_its_definition(kind: Kind):
    kind = replace(kind, votes="one") if kind.votes == "all" else kind
    trees, expected = cases(kind)
    check_import(ensemble(kind, trees), expected)


@pytest.mark.parametrize("kind", [k for k in KINDS if MODES[-1] not in k.modes] + SEVERAL, ids=str)
def test_a_regressor_is_its_definition(kind: Kind):
    trees, expected = cases(kind)
    check_import(regressor(kind, trees), expected)


@pytest.mark.parametrize("kind", COMPILED, ids=str)
def test_compiled_ensembles(kind: Kind):
    kind = replace(kind, votes="one") if kind.votes == "all" else kind
    trees, expected = cases(kind)
    check(ensemble(kind, trees), expected)


@pytest.mark.parametrize(("targets", "leaves"), [*product((2, 3), (3, 4, 5))])
def test_as_many_targets_as_levels(targets: int, leaves: int):
    """Steps of a descent and columns of the result are different axes, also of one size."""
    kind = Kind(targets=targets, leaves=leaves, trees=6, votes="all", chain=True)
    trees, expected = cases(kind)
    check(regressor(kind, trees), expected)


@pytest.mark.parametrize("target", ["reference", "cuda"])
@pytest.mark.parametrize("kind", [
    Kind(modes=MODES, missing=0.3), Kind(targets=3, votes="turn", dtype=F64),
    Kind(targets=5, votes="one", aggregate="MIN"),
], ids=str)
def test_other_targets_compute_the_same(kind: Kind, target: str):
    kind = replace(kind, votes="one") if kind.votes == "all" else kind
    trees, expected = cases(kind, (5, 1))
    if target == "cuda":
        pytest.importorskip("triton")
    check(ensemble(kind, trees), expected, target=target, interpret=target == "cuda")


# ---------------------------------------------------------------------- shapes of graphs
def test_trees_that_share_nodes():
    leaves = [Leaf({0: 1.0}), Leaf({1: 2.0}), Leaf({2: 4.0})]
    shared = Split(0, "BRANCH_LEQ", 0.0, leaves[0], leaves[1])
    first = Split(1, "BRANCH_GT", 1.0, shared, leaves[2])
    second = Split(1, "BRANCH_LT", -1.0, leaves[2], shared)
    kind = Kind(targets=3, features=2)
    trees: list[Split | Leaf] = [first, second, first, shared]
    x = rows(kind, 20, np.random.default_rng(0))
    check(ensemble(kind, trees), [(x, scores(trees, x, 3, "SUM"))])


@pytest.mark.parametrize("members", [0, 1, 2, 17, 300])
@pytest.mark.parametrize("missing", [False, True])
def test_large_sets(members: int, missing: bool):
    """A set of m members takes about log2 m steps, and not m."""
    kind, values = Kind(features=1), np.arange(members, dtype=np.float32) * 3 - 5
    test = Split(0, "BRANCH_MEMBER", 0.0, Leaf({0: 1.0}), Leaf({0: 2.0}), missing, values)
    x = np.append(np.arange(-20, 900), np.nan).astype(np.float32)[:, None]
    model = ensemble(kind, [test])
    check_import(model, [(x, scores([test], x, 1, "SUM"))])
    steps = [int_of(op.properties, "steps") for op in imported(model).module.walk()
             if isinstance(op, DescendOp)]
    assert max(steps) <= 3 + (2 * members + 1).bit_length()


def test_a_feature_that_does_not_exist():
    test = Split(2, "BRANCH_LEQ", 0.0, Leaf({0: 1.0}), Leaf({0: 2.0}))
    with pytest.raises(StrataError, match="nodes_featureids must be from 0 to 1"):
        imported(ensemble(Kind(features=2), [test]))


# ---------------------------------------------------------------------- the form of the program
def imported(model: onnx.ModelProto) -> ImportedModel:
    return load_model(MemoryModel("trees.onnx", model.SerializeToString()))


def lowered(kind: Kind, target: str) -> ModuleOp:
    """The program of an ensemble, with all its kernels on tiles."""
    found = imported(ensemble(kind, drawn(kind, np.random.default_rng(1))))
    context = find_target(target).bind(TargetOptions()).context(found.weights)
    list(lower(found.module, context))
    return found.module


FORMS = [
    (Kind(trees=40, leaves=30, votes="one"), 1), (Kind(trees=12, leaves=1, votes="one"), 0),
    (Kind(trees=60, leaves=30, targets=3, votes="turn"), 1),
    (Kind(trees=300, leaves=60, votes="one", missing=0.5, modes=MODES), 4),
    (Kind(trees=40, leaves=30, targets=5, votes="one", aggregate="MAX"), 1),
    (Kind(trees=40, leaves=30, votes="one", dtype=F64), 1),
]


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize(("kind", "walks"), FORMS, ids=lambda x: str(x))
def test_leaves_never_reach_memory(kind: Kind, walks: int, target: str):
    """A kernel that descends trees adds up their votes, and stores only sums. Few groups of depths
    have a kernel each; besides them, some kernels compute the keys and the sum of all parts."""
    module = lowered(kind, target)
    kernels = [op for op in module.walk() if isinstance(op, KernelOp)]
    descents = [k for k in kernels if any(_is_descent(op) for op in k.walk())]
    assert len(descents) <= walks and len(kernels) <= walks + 5
    stored = {element_type(op.value) for k in descents for op in k.walk()
              if isinstance(op, StoreOp)}
    assert t.i64 not in stored and t.i32 not in stored


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_no_step_of_a_descent_is_checked(target: str):
    """The tables prove that every node is one, and that every column is one."""
    module = lowered(FORMS[3][0], target)
    loops = [op for op in module.walk() if _is_descent(op)]
    loads = [op for loop in loops for op in loop.body.block.ops if isinstance(op, LoadOp)]
    data = [op for op in loads for d in op.checked_dims if any(
        s.kind is SymbolKind.OPERAND and isinstance(op.indices[s.number].type, TileType)
        for s in op.exprs[d].symbols)]
    assert loads and not data


def _is_descent(op: Operation) -> bool:
    """Whether a loop carries nodes: indices of its loads."""
    return isinstance(op, ForOp) and any(
        isinstance(inner, LoadOp) and set(inner.indices) & set(op.body.block.args[1:])
        for inner in op.body.block.ops)
