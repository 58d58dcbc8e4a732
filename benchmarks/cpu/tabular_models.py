"""Models of tabular data, drawn from a seed: ensembles of trees, SVMs, encoders, pipelines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

DOMAIN = "ai.onnx.ml"
OPSETS = (("", 21), (DOMAIN, 3))
TYPES: dict[Any, int] = {np.float32: TensorProto.FLOAT, np.float64: TensorProto.DOUBLE,
                         np.int64: TensorProto.INT64}
Draw = Callable[[np.random.Generator, int], np.ndarray]


@dataclass(frozen=True)
class Case:
    """A model with one input [n, features], and how rows of it are drawn."""

    name: str
    model: onnx.ModelProto
    rows: Draw
    tolerance: float = 1e-4
    """The absolute difference of scores from which numbers differ."""


def model_of(
    nodes: Sequence[onnx.NodeProto], features: int, outputs: Sequence[str], dtype: Any = np.float32,
    integers: Sequence[str] = ("label",),
) -> onnx.ModelProto:
    """A model of nodes that read x. `integers`: the outputs that hold i64."""
    x = helper.make_tensor_value_info("x", TYPES[dtype], ["n", features])
    found = [helper.make_tensor_value_info(
        name, TYPES[np.int64 if name in integers else np.float32], None) for name in outputs]
    graph = helper.make_graph(list(nodes), "tabular", [x], found)
    opsets = [helper.make_opsetid(*pair) for pair in OPSETS]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def ml(op_type: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Any:
    return helper.make_node(op_type, list(inputs), list(outputs), domain=DOMAIN, **attributes)


def normal(features: int, dtype: Any = np.float32, missing: float = 0.0) -> Draw:
    def draw(rng: np.random.Generator, count: int) -> np.ndarray:
        x = rng.standard_normal((count, features)).astype(dtype)
        x[rng.random(x.shape) < missing] = np.nan
        return x
    return draw


def whole(features: int, count: int, dtype: Any = np.int64) -> Draw:
    return lambda rng, rows: rng.integers(0, count, (rows, features)).astype(dtype)


# ---------------------------------------------------------------------- trees
@dataclass(frozen=True)
class Tree:
    """The tests of a tree: children are tests, or -1 - k for leaf k."""

    features: np.ndarray
    values: np.ndarray
    true: np.ndarray
    false: np.ndarray


def grown(rng: np.random.Generator, leaves: int, features: int, deep: bool) -> Tree:
    """A tree that grew by splitting any of its leaves; level by level unless `deep`."""
    ways = np.full((leaves - 1, 2), -1)
    free = [(0, 0), (0, 1)]
    for k in range(1, leaves - 1):
        parent, side = free.pop(int(rng.integers(len(free))) if deep else 0)
        ways[parent, side] = k
        free += [(k, 0), (k, 1)]
    ends = ways < 0
    ways[ends] = -1 - np.arange(leaves)
    return Tree(rng.integers(0, features, leaves - 1), rng.standard_normal(leaves - 1),
                ways[:, 0], ways[:, 1])


def ensemble(
    trees: int, leaves: int, features: int, *, outputs: int = 1, vectors: bool = False,
    dtype: Any = np.float32, classes: bool = False, deep: bool = True, seed: int = 0,
) -> Case:
    """Boosted trees, which vote for one output in turn, or with `vectors` a forest whose leaves
    vote for all outputs."""
    rng, kind = np.random.default_rng(seed), "class" if classes else "target"
    drawn = [grown(rng, leaves, features, deep) for _ in range(trees)]
    size, inner = 2 * leaves - 1, leaves - 1
    ids = np.tile(np.arange(size), trees)
    owners = np.repeat(np.arange(trees), size)

    def column(of: Callable[[Tree], np.ndarray], leaf: Any) -> np.ndarray:
        return np.concatenate([np.append(of(t), np.full(leaves, leaf)) for t in drawn])

    def child(way: np.ndarray) -> np.ndarray:
        return np.where(way < 0, inner - 1 - way, way)

    at = np.flatnonzero(ids >= inner)
    votes = outputs if vectors else 1
    targets = np.tile(np.arange(outputs), len(at)) if vectors else owners[at] % outputs
    attributes: dict[str, Any] = {
        "nodes_treeids": owners, "nodes_nodeids": ids,
        "nodes_featureids": column(lambda t: t.features, 0),
        "nodes_truenodeids": column(lambda t: child(t.true), 0),
        "nodes_falsenodeids": column(lambda t: child(t.false), 0),
        "nodes_modes": np.where(ids < inner, "BRANCH_LEQ", "LEAF"),
        f"{kind}_treeids": np.repeat(owners[at], votes),
        f"{kind}_nodeids": np.repeat(ids[at], votes), f"{kind}_ids": targets}
    attributes = {name: values.tolist() for name, values in attributes.items()}
    numbers = {"nodes_values": column(lambda t: t.values, 0.0),
               f"{kind}_weights": rng.standard_normal(len(targets)) / trees}
    for name, values in numbers.items():
        if dtype == np.float64:
            attributes[f"{name}_as_tensor"] = onnx.numpy_helper.from_array(values, name)
        else:
            attributes[name] = values.astype(np.float32).tolist()
    if classes:
        node = ml("TreeEnsembleClassifier", ["x"], ["label", "y"], post_transform="SOFTMAX",
                  classlabels_int64s=list(range(max(outputs, 2))), **attributes)
    else:
        node = ml("TreeEnsembleRegressor", ["x"], ["y"], n_targets=outputs, **attributes)
    name = f"{'classifier' if classes else 'forest' if vectors else 'boosted'}, {trees} trees of " \
           f"{leaves} leaves, {features} features" + (f", {outputs} outputs" if outputs > 1 else "")
    name += ", f64" if dtype == np.float64 else ""
    outs = ["label", "y"] if classes else ["y"]
    return Case(name, model_of([node], features, outs, dtype), normal(features, dtype))


# ---------------------------------------------------------------------- other models
def svm(kernel: str, vectors: int, features: int, classes: int = 0, seed: int = 0,
        chances: bool = False) -> Case:
    """A regressor, or a classifier of so many classes."""
    rng = np.random.default_rng(seed)
    numbers = lambda *shape: rng.standard_normal(shape).astype(np.float32).reshape(-1).tolist()  # noqa: E731
    shared: dict[str, Any] = {
        "kernel_type": kernel, "kernel_params": [1 / features, 0.5, 3.0],
        "support_vectors": numbers(vectors, features)}
    pairs = classes * (classes - 1) // 2
    if not classes:
        node = ml("SVMRegressor", ["x"], ["y"], n_supports=vectors, coefficients=numbers(vectors),
                  rho=[0.3], **shared)
    else:
        more = {"prob_a": [-1.0] * pairs, "prob_b": [0.1] * pairs} if chances else {}
        node = ml("SVMClassifier", ["x"], ["label", "y"], rho=numbers(pairs),
                  classlabels_ints=list(range(classes)),
                  vectors_per_class=[vectors // classes] * classes,
                  coefficients=numbers(classes - 1, vectors), **shared, **more)
    outputs = ["label", "y"] if classes else ["y"]
    name = f"SVM {kernel}, {vectors} vectors, {features} features" + (
        f", {classes} classes" if classes else "") + (", probabilities" if chances else "")
    return Case(name, model_of([node], features, outputs), normal(features),
                6e-3 if chances else 1e-4)  # onnxruntime finds probabilities by iteration


def linear(features: int, classes: int) -> Case:
    rng = np.random.default_rng(0)
    node = ml("LinearClassifier", ["x"], ["label", "y"], post_transform="SOFTMAX",
              coefficients=rng.standard_normal(features * classes).tolist(),
              intercepts=rng.standard_normal(classes).tolist(),
              classlabels_ints=list(range(classes)))
    return Case(f"LinearClassifier, {features} features, {classes} classes",
                model_of([node], features, ["label", "y"]), normal(features))


def single(name: str, draw: Draw, features: int, dtype: Any = np.float32, label: str = "",
           **attributes: Any) -> Case:
    """One operator with one result."""
    node = ml(name, ["x"], ["y"], **attributes)
    return Case(label or f"{name}, {features} features",
                model_of([node], features, ["y"], dtype, ["y"] if name == "LabelEncoder" else ()),
                draw)


def encoder(keys: int, dtype: Any) -> Case:
    """A LabelEncoder whose keys are not in order."""
    order = np.random.default_rng(0).permutation(3 * keys)[:keys]
    kind = "floats" if dtype == np.float32 else "int64s"
    given = {f"keys_{kind}": order.astype(dtype).tolist(), "values_int64s": list(range(keys))}
    return single("LabelEncoder", whole(8, 3 * keys, dtype), 8, dtype,
                  f"LabelEncoder, {keys} keys, {np.dtype(dtype).name}", **given)


def pipeline(trees: int, features: int) -> Case:
    """Imputer, scaler, and a classifier of boosted trees."""
    rng = np.random.default_rng(0)
    last = ensemble(trees, 31, features, classes=True, outputs=3).model.graph.node[0]
    last.input[0] = "b"
    nodes = [ml("Imputer", ["x"], ["a"], replaced_value_float=float("nan"),
                imputed_value_floats=rng.standard_normal(features).tolist()),
             ml("Scaler", ["a"], ["b"], offset=rng.standard_normal(features).tolist(),
                scale=[1.5] * features), last]
    return Case(f"Imputer, Scaler, classifier of {trees} trees",
                model_of(nodes, features, ["label", "y"]), normal(features, missing=0.1))


def cases() -> list[Case]:
    """All models."""
    few = [1.0] * 20
    return [
        *(ensemble(*sizes) for sizes in (
            (10, 8, 5), (100, 31, 20), (355, 31, 50), (1000, 63, 50), (1610, 63, 200),
            (2000, 255, 100), (100, 2000, 50))),
        ensemble(1000, 63, 50, dtype=np.float64), ensemble(355, 256, 20, deep=False),
        ensemble(300, 31, 30, classes=True, outputs=3),
        ensemble(900, 31, 50, classes=True, outputs=30), ensemble(100, 255, 30, outputs=10,
                                                                  vectors=True),
        svm("RBF", 500, 30), svm("LINEAR", 500, 30), svm("POLY", 500, 30), svm("SIGMOID", 500, 30),
        svm("RBF", 1000, 20, 2), svm("RBF", 1000, 20, 5, chances=True), linear(50, 10),
        linear(200, 30),
        single("Scaler", normal(20), 20, offset=few, scale=few),
        single("Imputer", normal(20, missing=0.1), 20, replaced_value_float=float("nan"),
               imputed_value_floats=few),
        *(single("Normalizer", normal(20), 20, label=f"Normalizer {kind}, 20 features", norm=kind)
          for kind in ("L1", "L2", "MAX")),
        single("Binarizer", normal(20), 20, threshold=0.5),
        single("OneHotEncoder", whole(4, 30), 4, np.int64, cats_int64s=list(range(30))),
        encoder(100, np.int64), encoder(5000, np.int64), encoder(1000, np.float32),
        pipeline(200, 30)]
