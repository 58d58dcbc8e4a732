"""Samples of the operators of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import numpy_helper

from tests.frontend.onnx_models import C, F, Op, f, i32, i64, op

X = f(5, 3)
_RANDOM = np.random.default_rng(7)


def ml(op_type: str, *operands: Any, opsets: Sequence[int] = (1, 3), **more: Any) -> Op:
    return op(op_type, *operands, opsets=opsets, domain="ai.onnx.ml", open_sizes=(5,), **more)


def _numbers(*shape: int, low: float = -1.0, high: float = 1.0) -> list[float]:
    return _RANDOM.uniform(low, high, shape).astype(np.float32).reshape(-1).tolist()


def _tensor(values: Any, dtype: Any = np.float32) -> Any:
    return numpy_helper.from_array(np.array(values, dtype), "t")


FEATURES = [
    ml("Scaler", X, offset=[1.0, 2.0, 3.0], scale=[0.5, 2.0, -1.0]), ml("Scaler", X, offset=[1.0],
                                                                        scale=[2.0]),
    ml("Scaler", i64(5, 3), offset=[0.5] * 3, scale=[2.0] * 3),
    *[ml("Normalizer", np.float32([[1.0, -2.0, 3.0], [0.0, 0.0, 0.0]]), norm=name)
      for name in ("MAX", "L1", "L2")],
    ml("Normalizer", i32(5, 3, low=1), norm="L2"), ml("Normalizer", f(5), norm="L1"),
    ml("Binarizer", X, threshold=0.5),
    ml("ArrayFeatureExtractor", f(5, 4), C([3, 0])), ml("ArrayFeatureExtractor", f(4), C([[1, 2]])),
    ml("ArrayFeatureExtractor", i64(5, 2, 4), C([3])),
    ml("FeatureVectorizer", X, f(5, 2), inputdimensions=[3, 2]),
    ml("FeatureVectorizer", i32(5, 3), i32(5, 1), inputdimensions=[2, 3]),
    ml("Imputer", np.float32([[1.0, np.nan], [np.nan, 2.0]]), replaced_value_float=np.nan,
       imputed_value_floats=[5.0, 7.0]),
    ml("Imputer", i64(5, 3), replaced_value_int64=0, imputed_value_int64s=[9]),
    ml("OneHotEncoder", i64(5, 2), cats_int64s=[0, 3, -1]),
    ml("OneHotEncoder", f(5), cats_int64s=[0, 1, 2]),
    ml("LabelEncoder", i64(5, 3), opsets=(2, 4), keys_int64s=[0, 1, -2], values_int64s=[7, 8, 9]),
    ml("LabelEncoder", i64(5, 3), opsets=(2, 4), keys_int64s=[3, 1, 2], values_floats=[0.5, 8, 9],
       default_float=2.5),
    ml("LabelEncoder", np.float32([1.0, np.nan, 2.0]), opsets=(4,), keys_floats=[2.0, np.nan],
       values_int64s=[7, 8], default_int64=3),
    ml("LabelEncoder", i64(5), opsets=(4,), keys_tensor=_tensor([1, 2], np.int64),
       values_tensor=_tensor([0.5, 1.5], np.float64), default_tensor=_tensor([-9], np.float64)),
]

_W3 = {"coefficients": _numbers(3, 3), "intercepts": _numbers(3)}
_W1 = {"coefficients": _numbers(1, 3), "intercepts": _numbers(1)}
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")

LINEAR = [
    ml("LinearRegressor", X, **_W1), ml("LinearRegressor", X, targets=3, **_W3),
    ml("LinearRegressor", X, coefficients=_W1["coefficients"]),
    *[ml("LinearRegressor", X, targets=3, post_transform=name, **_W3) for name in TRANSFORMS[:4]],
    *[ml("LinearRegressor", X, post_transform=name, **_W1) for name in ("LOGISTIC", "SOFTMAX")],
    ml("LinearRegressor", f(5, 3, low=0, high=1), post_transform="PROBIT",
       coefficients=[0.2, 0.2, 0.2], intercepts=[0.1]),
    *[ml("LinearClassifier", X, outputs=2, classlabels_ints=[4, 2, 9], post_transform=name, **_W3)
      for name in TRANSFORMS[:4]],
    *[ml("LinearClassifier", X, outputs=2, classlabels_ints=[4, 2], post_transform=name, **_W1)
      for name in ("NONE", "LOGISTIC", "SOFTMAX")],
    ml("LinearClassifier", i64(5, 3), outputs=2, classlabels_ints=[4, 2, 9], **_W3),
]

_KERNELS = (("LINEAR", [0.0, 0.0, 0.0]), ("POLY", [0.5, 1.0, 2.0]), ("RBF", [0.3, 0.0, 0.0]),
            ("SIGMOID", [0.2, 0.1, 0.0]))
_VECTORS = {"support_vectors": _numbers(6, 3), "coefficients": _numbers(6), "rho": [0.3]}


_LINEAR_KERNEL = {"kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 0.0]}


def _svc(classes: int, **more: Any) -> Op:
    """Two support vectors per class."""
    pairs = classes * (classes - 1) // 2
    return ml("SVMClassifier", X, outputs=2, classlabels_ints=list(range(4, 4 + classes)),
              **_LINEAR_KERNEL | more,
              vectors_per_class=[2] * classes, support_vectors=_numbers(2 * classes, 3),
              coefficients=_numbers(classes - 1, 2 * classes), rho=_numbers(pairs))


def _chances(classes: int) -> dict[str, list[float]]:
    pairs = classes * (classes - 1) // 2
    return {"prob_a": _numbers(pairs, low=-2, high=-1), "prob_b": _numbers(pairs)}


SVM = [
    *[ml("SVMRegressor", X, n_supports=6, kernel_type=name, kernel_params=values, tolerance=1e-4,
         **_VECTORS) for name, values in _KERNELS],
    ml("SVMRegressor", X, n_supports=6, one_class=1, kernel_type="RBF",
       kernel_params=[0.3, 0.0, 0.0], **_VECTORS),
    ml("SVMRegressor", X, coefficients=_numbers(3), rho=[0.2], **_LINEAR_KERNEL),
    *[_svc(3, kernel_type=name, kernel_params=values, tolerance=1e-4) for name, values in _KERNELS],
    *[_svc(2, post_transform=name) for name in ("NONE", "LOGISTIC", "SOFTMAX")],
    *[_svc(classes, tolerance=1e-4, **_chances(classes)) for classes in (2, 3, 7)],
    _svc(4, kernel_type="RBF", kernel_params=[0.3, 0.0, 0.0], tolerance=1e-4, **_chances(4)),
    ml("SVMClassifier", X, outputs=2, classlabels_ints=[4, 2, 9], coefficients=_numbers(3, 3),
       rho=[0.1], **_LINEAR_KERNEL),
    ml("SVMClassifier", X, outputs=2, classlabels_ints=[4, 2], coefficients=_numbers(2, 3),
       rho=[0.1], post_transform="SOFTMAX", **_LINEAR_KERNEL),
]


# ---------------------------------------------------------------------- trees
_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def _forest(
    kind: str, targets: Sequence[int], trees: int = 3, depth: int = 3, low: float = -1.0,
    modes: Sequence[str] = _MODES[:1], several: bool = True,
) -> dict[str, Any]:
    """Full trees, the last one a single leaf. Leaves vote for all targets, or for one in turn."""
    names = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    votes: dict[str, list[Any]] = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(trees):
        inner = 2 ** depth - 1 if tree + 1 < trees else 0
        for node in range(2 * inner + 1):
            leaf = node >= inner
            row = (tree, node, 0 if leaf else int(_RANDOM.integers(3)),
                   "LEAF" if leaf else modes[node % len(modes)],
                   float(np.float32(_RANDOM.integers(-3, 4))),
                   0 if leaf else 2 * node + 1, 0 if leaf else 2 * node + 2)
            for name, value in zip(names, row, strict=True):
                columns[name].append(value)
            for target in (targets if several else [targets[node % len(targets)]]) if leaf else ():
                for name, value in zip(votes, (tree, node, target, _numbers(1, low=low)[0]),
                                       strict=True):
                    votes[name].append(value)
    return {f"nodes_{k}": v for k, v in columns.items()} | {f"{kind}_{k}": v
                                                            for k, v in votes.items()}


def _regressor(*targets: int, x: Any = X, **more: Any) -> Op:
    shape = {k: more.pop(k) for k in ("depth", "low", "modes", "several", "trees") if k in more}
    return ml("TreeEnsembleRegressor", x, n_targets=max(targets) + 1,
              **_forest("target", targets, **shape), **more)


def _classifier(labels: Sequence[int], ids: Sequence[int], **more: Any) -> Op:
    shape = {k: more.pop(k) for k in ("depth", "low", "modes", "several", "trees") if k in more}
    return ml("TreeEnsembleClassifier", X, outputs=2, classlabels_int64s=labels,
              **_forest("class", ids, **shape), **more)


WHOLE = _RANDOM.integers(-3, 4, (5, 3)).astype(np.float32)

TREES = [
    _regressor(0), _regressor(0, depth=5, trees=7), _regressor(0, 1, base_values=[0.5, -2.0]),
    *[_regressor(0, 1, 2, aggregate_function=name) for name in ("AVERAGE", "MIN", "MAX")],
    *[_regressor(0, 1, 2, aggregate_function=name, several=False) for name in ("SUM", "MIN")],
    *[_regressor(0, x=WHOLE, modes=[name]) for name in _MODES[:4]],
    _regressor(0, x=WHOLE, modes=_MODES, depth=4), _regressor(0, x=WHOLE, modes=_MODES[4:]),
    *[_regressor(0, 1, 2, post_transform=name) for name in TRANSFORMS[1:4]],
    *[_regressor(0, post_transform=name) for name in ("LOGISTIC", "SOFTMAX")],
    _regressor(0, x=np.float32([[np.nan, 0.0, 1.0], [1.0, np.nan, np.nan]]), trees=2,
       nodes_missing_value_tracks_true=[1, 0, 1, 0, 0, 1, 1, *[0] * 9]),
    _regressor(0, x=F((5, 3), -3, 3, np.float64)),
    *[_classifier([4, 2, 9], [0, 1, 2], post_transform=name) for name in TRANSFORMS[:4]],
    _classifier([4, 2, 9], [0, 1, 2], several=False, base_values=[0.1, 0.5, -0.3]),
    _classifier([4, 2, 9], [0, 1, 2], several=False),
    *[_classifier([4, 2], [which], low=low, post_transform=name)
      for which in (0, 1) for low in (0.0, -1.0) for name in ("NONE", "LOGISTIC", "SOFTMAX")],
    *[_classifier([4, 2], [which], base_values=[0.2]) for which in (0, 1)],
    _classifier([0, 1], [0, 1], low=0.0), _classifier([0, 1], [0, 1]),
]


_ENSEMBLE = {
    "tree_roots": [0, 2], "nodes_featureids": [0, 1, 2],
    "nodes_modes": _tensor([0, 3, 4], np.uint8),
    "nodes_splits": _tensor([0.5, -1.0, 1.0]), "nodes_truenodeids": [1, 0, 3],
    "nodes_trueleafs": [0, 1, 1], "nodes_falsenodeids": [2, 1, 4], "nodes_falseleafs": [1, 1, 1],
    "leaf_targetids": [0, 1, 0, 1, 1], "leaf_weights": _tensor([1.0, 2.0, 3.0, 4.0, 5.0]),
}
_SETS = _ENSEMBLE | {"nodes_modes": _tensor([6, 0, 6], np.uint8), "nodes_featureids": [0, 1, 0],
                     "membership_values": _tensor([1.0, 2.0, -2.0, np.nan, 0.0, np.nan])}

ENSEMBLES = [
    *[ml("TreeEnsemble", X, opsets=(5,), n_targets=2, aggregate_function=k, **_ENSEMBLE)
      for k in range(4)],
    ml("TreeEnsemble", X, opsets=(5,), n_targets=2, post_transform=3, **_ENSEMBLE),
    ml("TreeEnsemble", np.arange(-7, 8, dtype=np.float32).reshape(5, 3) % 5 - 2, opsets=(5,),
       n_targets=2, **_SETS),
]

SAMPLES = [*FEATURES, *LINEAR, *SVM, *TREES, *ENSEMBLES]
