"""ai.onnx.ml: operators that combine, replace and encode features."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops.contrib import SOME
from compiler.frontend.onnx.ops.ml import ml_op, refuse_texts, rows
from compiler.frontend.onnx.ops.ml_lookup import found_among
from compiler.frontend.values import Value
from dialects.strata import types as t
from dialects.strata.types import Array
from dialects.symbolic.expr import Expr


@ml_op("ArrayFeatureExtractor", ranks=(SOME,))
def array_feature_extractor(n: Node, x: Value, places: Value) -> Value:
    """The entries of the last dim at these indices. A tensor of one dim is one row."""
    whole = x if x.rank > 1 else x.reshape([1, x.shape[0]])
    n.require(0, places, whole.shape[-1])
    flat = places.reshape([places.type.count])
    return f.gather(whole, flat, axis=whole.rank - 1)


@ml_op("FeatureVectorizer")
def feature_vectorizer(n: Node, *xs: Value) -> Value:
    """The features of all inputs, concatenated in f32.

    Each input is cut, or padded with zeros, to its size in inputdimensions.
    """
    sizes = n.ints("inputdimensions") or [None] * len(xs)
    if len(sizes) != len(xs):
        raise Fault(f"inputdimensions has {len(sizes)} entries for {len(xs)} inputs")
    columns = [_sized(n, rows(x), size) for x, size in zip(xs, sizes, strict=True)]
    return f.concat(columns, axis=1)


def _sized(n: Node, x: Value, size: int | None) -> Value:
    [given] = n.known_ints(n.of_sizes([x.shape[1]]), "numbers of features")
    if size is None or given == size:
        return x
    if given > size:
        return x.part(1, 0, size)
    zeros = n.scalar(0, x).broadcast([x.shape[0], Expr.of(size - given)])
    return f.concat([x, zeros], axis=1)


@ml_op("Imputer")
def imputer(n: Node, x: Value) -> Value:
    """Replace a value, which may be NaN, by one number for all features, or one per feature."""
    kind = ("imputed_value_floats", "replaced_value_float") if t.is_float(x.element) else (
        "imputed_value_int64s", "replaced_value_int64")
    new = n.floats(kind[0]) if t.is_float(x.element) else n.ints(kind[0])
    old = n.real(kind[1]) if t.is_float(x.element) else n.integer(kind[1])
    if not new:
        raise Fault(f"{kind[0]} is missing for {x.type.short}")
    missing = f.is_nan(x) if np.isnan(old) else f.equal(x, old)
    return f.where(missing, n.constant(np.array(new).astype(x.type.dtype)), x)


@ml_op("OneHotEncoder")
def one_hot_encoder(n: Node, x: Value) -> Value:
    """[..., categories] in f32; all zeros for unknown categories."""
    refuse_texts(n, "cats_strings")
    if not n.flag("zeros", True):
        raise Fault("zeros = 0, which fails on unknown categories, is not supported",
                    "set the attribute zeros to 1")
    categories = n.constant(np.array(n.ints("cats_int64s"), np.int64))
    whole = x.cast(t.i64)
    return f.equal(whole.reshape([*x.shape, 1]), categories).cast(t.f32)


# ---------------------------------------------------------------------- labels
@ml_op("LabelEncoder", since=2)
def label_encoder(n: Node, x: Value) -> Value:
    """The value of the key that an element equals, else the default. NaN equals NaN."""
    refuse_texts(n, "keys_strings", "values_strings", "default_string")
    keys, values = _list(n, "keys"), _list(n, "values")
    if keys is None or values is None or keys.shape != values.shape or keys.ndim != 1:
        raise Fault("it needs keys and values, in equal numbers")
    if t.is_float(x.element) != (keys.dtype.kind == "f"):
        raise Fault(f"its keys are {keys.dtype}, but its input is {x.type.short}; both must be "
                    "floats, or both integers")
    return found_among(n, x, keys.astype(x.type.dtype), values, _default(n, values.dtype))


def _list(n: Node, name: str) -> Array | None:
    """The keys or values, from the attribute that holds them; None if there is none."""
    if n.has(f"{name}_tensor"):
        return n.tensor(f"{name}_tensor")
    if n.has(f"{name}_int64s"):
        return np.array(n.ints(f"{name}_int64s"), np.int64)
    return np.array(n.floats(f"{name}_floats"), np.float32) if n.has(f"{name}_floats") else None


def _default(n: Node, dtype: np.dtype[Any]) -> Array:
    """The value for elements that equal no key: by default -1 or -0.0."""
    given = n.tensor("default_tensor")
    if given is not None:
        return given.reshape(()).astype(dtype)
    if dtype.kind == "f":
        return np.array(n.real("default_float", -0.0)).astype(dtype)
    return np.array(n.integer("default_int64", -1)).astype(dtype)


@ml_op("LabelEncoder", "CategoryMapper")
def text_encoder(n: Node, x: Value) -> NoReturn:
    """Raise Fault: the operator encodes strings as integers or decodes them."""
    raise Fault("strings are not supported", "export the model without string labels")


@ml_op("ZipMap")
def zip_map(n: Node, x: Value) -> NoReturn:
    """Raise Fault: the result would be a list of dictionaries, one per row."""
    raise Fault("maps are not supported", "export the model without ZipMap, for instance with "
                "skl2onnx's option zipmap=False; the scores are then a plain tensor")
