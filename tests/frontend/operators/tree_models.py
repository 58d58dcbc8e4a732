"""Random tree ensembles, as graphs of nodes, and what they mean, row by row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from dialects.strata.types import Array

DOMAIN = "ai.onnx.ml"
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ",
         "BRANCH_MEMBER")
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
GRID = np.array([-np.inf, -2.5, -1.0, -0.0, 0.0, 1e-30, 1.0, 2.5, np.inf])
"""The numbers of which features and bounds are drawn, so that they are often equal."""


@dataclass
class Leaf:
    votes: dict[int, float]


@dataclass
class Split:
    feature: int
    mode: str
    value: float
    true: Split | Leaf
    false: Split | Leaf
    missing: bool = False
    members: Array = field(default_factory=lambda: np.zeros(0))

    def holds(self, x: Any) -> bool:
        """As the operator is specified."""
        if np.isnan(x) and self.missing:
            return True
        match self.mode:
            case "BRANCH_LEQ":
                return bool(x <= self.value)
            case "BRANCH_LT":
                return bool(x < self.value)
            case "BRANCH_GTE":
                return bool(x >= self.value)
            case "BRANCH_GT":
                return bool(x > self.value)
            case "BRANCH_EQ":
                return bool(x == self.value)
            case "BRANCH_NEQ":
                return bool(x != self.value)
            case _:
                return bool((self.members == x).any())


def leaf_of(tree: Split | Leaf, row: Array) -> Leaf:
    while isinstance(tree, Split):
        tree = tree.true if tree.holds(row[tree.feature]) else tree.false
    return tree


def scores(trees: list[Split | Leaf], x: Array, targets: int, aggregate: str) -> Array:
    """The scores of rows before base values and transforms."""
    result = np.zeros((len(x), targets))
    for k, row in enumerate(x):
        leaves = [leaf_of(tree, row) for tree in trees]
        for target in range(targets):
            votes = [leaf.votes[target] for leaf in leaves if target in leaf.votes]
            result[k, target] = _combined(votes, len(trees), aggregate)
    return result


def _combined(votes: list[float], trees: int, aggregate: str) -> float:
    if aggregate in ("MIN", "MAX"):
        return (min if aggregate == "MIN" else max)(votes, default=0.0)
    return sum(votes) / (trees if aggregate == "AVERAGE" else 1)


# ---------------------------------------------------------------------- drawing
@dataclass(frozen=True)
class Kind:
    """What an ensemble is made of. `votes`: of each leaf, one, all or some; `turn`: those of each
    tree for one target in turn. `dtype`: of features, bounds and weights."""

    trees: int = 5
    leaves: int = 12
    features: int = 4
    targets: int = 1
    votes: str = "all"
    modes: tuple[str, ...] = MODES[:1]
    missing: float = 0.0
    aggregate: str = "SUM"
    dtype: Any = np.float32
    chain: bool = False


def drawn(kind: Kind, rng: np.random.Generator) -> list[Split | Leaf]:
    return [_tree(kind, k, int(rng.integers(1, kind.leaves + 1)), rng) for k in range(kind.trees)]


def _tree(kind: Kind, number: int, leaves: int, rng: np.random.Generator) -> Split | Leaf:
    if leaves == 1:
        return Leaf(_votes(kind, number, rng))
    mode, left = str(rng.choice(kind.modes)), 1 if kind.chain else int(rng.integers(1, leaves))
    members = rng.choice(GRID, int(rng.integers(0, 7))).astype(kind.dtype)
    value = kind.dtype(np.nan if rng.random() < 0.02 else rng.choice(GRID))
    return Split(int(rng.integers(kind.features)), mode, value,
                _tree(kind, number, left, rng), _tree(kind, number, leaves - left, rng),
                bool(rng.random() < kind.missing), members)


def _votes(kind: Kind, number: int, rng: np.random.Generator) -> dict[int, float]:
    match kind.votes:
        case "turn":
            chosen = [number % kind.targets]
        case "one":
            chosen = [int(rng.integers(kind.targets))]
        case "some":
            chosen = np.flatnonzero(rng.random(kind.targets) < 0.6).tolist()
        case _:
            chosen = list(range(kind.targets))
    return {k: float(kind.dtype(rng.integers(-8, 9))) for k in chosen}  # sums of such are exact


def rows(kind: Kind, count: int, rng: np.random.Generator) -> Array:
    x = rng.choice(GRID, (count, kind.features))
    x[rng.random(x.shape) < 0.1] = np.nan
    return x.astype(kind.dtype)


# ---------------------------------------------------------------------- models
def regressor(kind: Kind, trees: list[Split | Leaf], **more: Any) -> onnx.ModelProto:
    """A TreeEnsembleRegressor, which has no sets."""
    return _model(helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain=DOMAIN, n_targets=kind.targets,
        aggregate_function=kind.aggregate, **named(kind, trees, "target"), **more), kind, 3,
        TensorProto.FLOAT)


def named(kind: Kind, trees: list[Split | Leaf], what: str) -> dict[str, Any]:
    """Attributes that list nodes by tree and number, in no particular order."""
    nodes: list[tuple[Any, ...]] = []
    votes: list[tuple[int, int, int, float]] = []
    for number, tree in enumerate(trees):
        todo, count = [(tree, 0)], 1
        while todo:
            node, own = todo.pop()
            if isinstance(node, Leaf):
                nodes.append((number, own, 0, "LEAF", 0.0, 0, 0, 0))
                votes += [(number, own, k, w) for k, w in node.votes.items()]
                continue
            nodes.append((number, own, node.feature, node.mode, node.value, count, count + 1,
                          int(node.missing)))
            todo += [(node.true, count), (node.false, count + 1)]
            count += 2
    names = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids",
             "missing_value_tracks_true")
    found = {f"nodes_{name}": list(column)
             for name, column in zip(names, zip(*nodes[::-1], strict=True), strict=True)}
    columns = zip(*votes, strict=True) if votes else [()] * 4
    found |= {f"{what}_{name}": list(column) for name, column in zip(
        ("treeids", "nodeids", "ids", "weights"), columns, strict=True)}
    for name in ("nodes_values", f"{what}_weights") if kind.dtype == np.float64 else ():
        found[f"{name}_as_tensor"] = numpy_helper.from_array(
            np.array(found.pop(name), np.float64), name)
    return found


def ensemble(kind: Kind, trees: list[Split | Leaf], **more: Any) -> onnx.ModelProto:
    """A TreeEnsemble, whose leaves have one vote each and whose roots are tests."""
    tests, leaves = list[Split](), list[Leaf]()
    places = dict[int, int]()

    def place(node: Split | Leaf) -> int:
        if id(node) not in places:
            places[id(node)] = len(leaves) if isinstance(node, Leaf) else len(tests)
            if isinstance(node, Leaf):
                leaves.append(node)
            else:
                tests.append(node)
                place(node.true)
                place(node.false)
        return places[id(node)]

    roots = [place(tree if isinstance(tree, Split) else Split(0, MODES[0], 0.0, tree, tree))
             for tree in trees]
    sets = [[*t.members.tolist(), np.nan] for t in tests if t.mode == MODES[-1]]
    number = {mode: k for k, mode in enumerate(MODES)}
    given = {"nodes_splits": [t.value for t in tests],
             "leaf_weights": [next(iter(leaf.votes.values())) for leaf in leaves]}
    if sets:
        given["membership_values"] = [x for part in sets for x in part]
    tensors = {name: numpy_helper.from_array(np.array(values, kind.dtype), name)
               for name, values in given.items()}
    node = helper.make_node(
        "TreeEnsemble", ["x"], ["y"], domain=DOMAIN, n_targets=kind.targets, tree_roots=roots,
        aggregate_function=AGGREGATES.index(kind.aggregate),
        nodes_modes=numpy_helper.from_array(
            np.array([number[t.mode] for t in tests], np.uint8), "modes"),
        nodes_featureids=[t.feature for t in tests],
        nodes_truenodeids=[places[id(t.true)] for t in tests],
        nodes_falsenodeids=[places[id(t.false)] for t in tests],
        nodes_trueleafs=[int(isinstance(t.true, Leaf)) for t in tests],
        nodes_falseleafs=[int(isinstance(t.false, Leaf)) for t in tests],
        nodes_missing_value_tracks_true=[int(t.missing) for t in tests],
        leaf_targetids=[next(iter(leaf.votes)) for leaf in leaves], **tensors, **more)
    type_ = helper.np_dtype_to_tensor_dtype(np.dtype(kind.dtype))
    return _model(node, kind, 5, type_)


def _model(node: onnx.NodeProto, kind: Kind, version: int, type_: int) -> onnx.ModelProto:
    dtype = helper.np_dtype_to_tensor_dtype(np.dtype(kind.dtype))
    x = helper.make_tensor_value_info("x", dtype, ["n", kind.features])
    outputs = [helper.make_tensor_value_info(node.output[0], type_, ["n", kind.targets])]
    graph = helper.make_graph([node], "trees", [x], outputs)
    return helper.make_model(graph, opset_imports=[
        helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, version)], ir_version=10)
