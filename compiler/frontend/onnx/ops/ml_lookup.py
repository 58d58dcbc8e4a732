"""Lookups of elements among constant keys: in a table if the keys are close to each other, else by
a binary search, which is the descent of one tree."""

from __future__ import annotations

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.onnx.node import Node
from compiler.frontend.values import Value
from dialects.graph.activation import ClipOp
from dialects.graph.bits import BitcastOp
from dialects.graph.trees import DescendOp
from dialects.strata import types as t
from dialects.strata.types import Array

FEW = 16
"""So few keys are compared one by one."""
SPREAD, LEAST = 8, 1 << 12
"""A table may have this many entries per key, and in any case LEAST."""


def found_among(n: Node, x: Value, keys: Array, values: Array, default: Array) -> Value:
    """The value of the first key that an element equals, else the default. NaN equals NaN."""
    if _are_close(keys):
        return _from_table(n, x, *_distinct(keys, values), default)
    x, keys = _as_integers(n, x, keys)
    keys, values = _distinct(keys, values)
    if not len(keys):
        return n.constant(default).broadcast(x.shape)
    if len(keys) > FEW:
        return _searched(n, x, keys, values, default)
    result = n.constant(default)
    for key, value in zip(keys, values, strict=True):
        result = f.where(f.equal(x, int(key)), n.constant(value), result)
    return result.broadcast(x.shape)


def _distinct(keys: Array, values: Array) -> tuple[Array, Array]:
    """The keys in order, and the value of the first of equal keys."""
    keys, first = np.unique(keys, return_index=True)
    return keys, values[first]


def _are_close(keys: Array) -> bool:
    """Whether keys are more than a few whole numbers, so close that a table of all is small."""
    if len(keys) <= FEW or not np.isfinite(keys).all() or (keys != np.floor(keys)).any():
        return False
    return float(keys.max()) - float(keys.min()) < max(SPREAD * len(keys), LEAST)


def _as_integers(n: Node, x: Value, keys: Array) -> tuple[Value, Array]:
    """Integers that are equal where elements and keys are."""
    if keys.dtype.kind != "f":
        return x, keys
    dtype = np.dtype(f"i{keys.itemsize}")
    nan = np.array(np.nan, keys.dtype).view(dtype)
    bits = n(BitcastOp, x, to=t.element_of(dtype))
    bits = f.where(f.is_nan(x), int(nan), f.where(f.equal(x, 0), 0, bits))
    own = np.where(np.isnan(keys), nan, np.where(keys == 0, 0, keys.view(dtype)))
    return bits, own.astype(dtype)


def _from_table(n: Node, x: Value, keys: Array, values: Array, default: Array) -> Value:
    """One entry for each whole number from the first key to the last."""
    low, high = int(keys[0]), int(keys[-1])
    table = np.full(high - low + 1, default, default.dtype)
    table[keys.astype(np.int64) - low] = values
    inside = n(ClipOp, x, n.scalar(low, x), n.scalar(high, x), has_min=True, has_max=True)
    if t.is_float(x.element):
        inside = f.where(f.is_nan(x), low, inside)
    whole = inside.cast(t.i64)
    found = f.gather(n.constant(table), whole - low, axis=0)
    return f.where(f.equal(whole.cast(x.element), x), found, n.constant(default))


def _searched(n: Node, x: Value, keys: Array, values: Array, default: Array) -> Value:
    """Descend a full tree whose leaves are the keys, and compare with the key of the leaf.

    At level l, the node of the b-th part of the keys is 2^l + (b xor 1): both parts of a node are
    neighbours, with the larger keys first. The root is node 1.
    """
    wide = keys.astype(np.int32 if keys.itemsize <= 4 else np.int64)
    steps = (len(keys) - 1).bit_length()
    leaves = np.minimum(np.arange(1 << steps), len(keys) - 1)
    own = (1 << steps) + (np.arange(1 << steps) ^ 1)
    nodes = np.zeros((2 * len(leaves) + 1, 2), wide.dtype)  # the last one has no use
    for level in range(steps):
        parts, size = np.arange(1 << level), 1 << (steps - level)
        at = (1 << level) + (parts ^ 1 if level else parts)
        nodes[at, 0] = wide[leaves[parts * size + size // 2 - 1]]
        nodes[at, 1] = (2 << level) + 2 * parts
    column = x.cast(t.element_of(wide.dtype)).reshape([x.type.count, 1])
    at = n(DescendOp, column, n.constant(nodes), n.constant(np.ones(1, np.int64)), steps=steps)
    at = at.reshape(x.shape)
    hit = f.equal(column.reshape(x.shape), _at_nodes(n, wide[leaves], own, at))
    return f.where(hit, _at_nodes(n, values[leaves], own, at), n.constant(default))


def _at_nodes(n: Node, column: Array, own: Array, at: Value) -> Value:
    """What leaves hold, for the nodes that searches reached; `own`: the node of each leaf."""
    table = np.zeros(2 * len(column) + 1, column.dtype)
    table[own] = column
    return f.gather(n.constant(table), at, axis=0)
