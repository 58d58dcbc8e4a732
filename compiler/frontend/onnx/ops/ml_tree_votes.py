"""What the trees of an ensemble vote for each target.

    keys = integers in the order of the features                          [n, columns]
    for each group of trees:  at = descend(keys, nodes, roots)            [n, parts, trees]
                              parts = sum of weights[at] over the trees   [n, parts]
    scores = sum of all parts
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops.ml_tree_groups import Group, by_target, grouped
from compiler.frontend.onnx.ops.ml_tree_layout import Layout, laid_out
from compiler.frontend.onnx.ops.ml_tree_tables import Trees, distinct, within
from compiler.frontend.onnx.ops.ml_tree_tests import comparisons, key_dtype, never
from compiler.frontend.values import Value
from dialects.graph.base import GraphOp
from dialects.graph.bits import BitcastOp
from dialects.graph.reduce import ReduceMaxOp, ReduceMinOp
from dialects.graph.trees import DescendOp
from dialects.strata import types as t
from dialects.strata.types import Array
from dialects.symbolic.expr import Expr

AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
FEW_VOTES, SPARSE = 4, 4
"""Leaves with so few votes, each at most one per SPARSE targets, store targets instead of rows."""


@dataclass(frozen=True)
class Scores:
    """Scores [n, targets], and where at least one leaf voted; None: everywhere."""

    scores: Value
    voted: Value | None


@dataclass(frozen=True)
class _Walk:
    """The descent of the rows of x through the trees."""

    n: Node
    trees: Trees
    layout: Layout
    keys: Value
    nodes: Value
    dtype: np.dtype[Any]
    """The type of weights and scores."""

    def nodes_at(self, group: Group) -> Value:
        """The nodes that end the descents of a group: i64[n, ..., trees]."""
        roots = self.n.constant(group.trees)
        if not group.steps:
            return roots.broadcast([self.keys.shape[0], *roots.shape])
        return self.n(DescendOp, self.keys, self.nodes, roots, steps=group.steps)

    def leaves_at(self, group: Group) -> Value:
        """The numbers of the leaves: i32[n, ..., trees]."""
        return f.gather(self.n.constant(self.layout.leaves), self.nodes_at(group), axis=0)


def votes(n: Node, x: Value, trees: Trees, aggregate: str, *, who: bool = False) -> Scores:
    """The scores of the rows of x; `who`: whether it matters where no leaf votes for a target."""
    walk = _walk(n, x, trees)
    if aggregate in ("MIN", "MAX"):
        return _extrema(walk, aggregate)
    total = _sums(walk)
    if aggregate == "AVERAGE":
        total = total / len(trees.roots)
    voted = _voted(walk) if who else None
    return Scores(total, voted)


# ---------------------------------------------------------------------- keys
def _walk(n: Node, x: Value, trees: Trees) -> _Walk:
    features = x.shape[1].constant
    if features is None:  # rows of another length are an error of the model
        features = 1 + int(trees.features.max(initial=0))
        x = x.part(1, 0, features)
    within(trees.features, features, "nodes_featureids")
    tests = comparisons(trees, x.type.dtype, features)
    low = bool((tests.columns >= features).any())
    columns = 1 << (features * (1 + low) - 1).bit_length()
    layout = laid_out(tests, trees.roots, columns, trees.leaves)
    keys = _keys(n, x, low, columns).cast(t.element_of(layout.nodes.dtype))
    return _Walk(n, trees, layout, keys, n.constant(layout.nodes), x.type.dtype)


def _keys(n: Node, x: Value, low: bool, columns: int) -> Value:
    """The keys of features, with NaN above all numbers; with `low`, then those with NaN below.
    Further columns are zeros."""
    dtype = key_dtype(x.type.dtype)
    most = int(np.iinfo(dtype).max)
    bits = n(BitcastOp, x, to=t.element_of(dtype))
    keys, nan = f.where(bits < 0, bits ^ most, bits), f.is_nan(x)
    parts = [f.where(nan, end, keys) for end in ([most, never(dtype)] if low else [most])]
    rest = columns - sum(part.shape[1].constant or 0 for part in parts)
    if rest:
        parts.append(n.scalar(0, keys).broadcast([x.shape[0], Expr.of(rest)]))
    return f.concat(parts, axis=1)


# ---------------------------------------------------------------------- sums
def _sums(walk: _Walk) -> Value:
    """The sums of votes: [n, targets]."""
    trees, layout, targets = walk.trees, walk.layout, walk.trees.targets
    owners = _targets_of(trees, layout) if targets > 1 else None
    chosen = None if owners is None else by_target(layout.depths, owners, targets, layout.empty)
    if chosen is not None:
        return _total(walk, (_weighed(walk, group) for group in chosen))
    groups = grouped(layout.depths, layout.sizes, layout.empty)
    if targets > 1:
        return _total(walk, (_rows(walk, group) for group in groups))
    sums = [f.reduce_sum(_weighed(walk, group), axes=[1]) for group in groups]
    return _total(walk, (x.reshape([x.shape[0], 1]) for x in sums))


def _total(walk: _Walk, parts: Iterable[Value]) -> Value:
    """The sum of scores [n, targets]; zeros if there are no trees."""
    found = list(parts)
    if found:
        return f.total(found)
    zero = walk.n.constant(np.zeros((), walk.dtype))
    return zero.broadcast([walk.keys.shape[0], Expr.of(walk.trees.targets)])


def _targets_of(trees: Trees, layout: Layout) -> Array | None:
    """For each tree the only target that its leaves vote for; None if one votes for several."""
    counts = np.bincount(trees.votes.leaves, minlength=trees.leaves + 1)
    if layout.is_shared or counts.max(initial=0) > 1:
        return None
    targets = np.full(trees.leaves + 1, -1)
    targets[trees.votes.leaves] = trees.votes.targets
    voted, owners = targets[layout.leaves], layout.owners
    first, last = np.full(len(trees.roots) + 1, trees.targets), np.full(len(trees.roots) + 1, -1)
    np.minimum.at(first, owners[voted >= 0], voted[voted >= 0])
    np.maximum.at(last, owners, voted)
    is_single = (first == last) | (last < 0)
    return np.maximum(last[:-1], 0) if is_single.all() else None


def _weighed(walk: _Walk, group: Group) -> Value:
    """The sums of the only votes of leaves over the trees of a group: [n, parts]."""
    weights = np.zeros(walk.trees.leaves + 1, walk.dtype)
    weights[walk.trees.votes.leaves] = walk.trees.votes.weights
    table = walk.n.constant(weights[walk.layout.leaves])
    return f.reduce_sum(f.gather(table, walk.nodes_at(group), axis=0), axes=[2])


def _rows(walk: _Walk, group: Group) -> Value:
    """The sums of votes for several targets over the trees of a group: [n, targets]."""
    trees = walk.trees
    counts = np.bincount(trees.votes.leaves, minlength=trees.leaves + 1)
    most = int(counts.max(initial=0))
    if most <= FEW_VOTES and SPARSE * most <= trees.targets:
        terms = [_compared(walk, group, k) for k in range(max(most, 1))]
        found = f.total(terms)
    else:
        table = walk.n.constant(_dense(walk, 0))
        found = f.gather(table, walk.leaves_at(group), axis=0)
    return f.reduce_sum(f.reduce_sum(found, axes=[2]), axes=[1])


def _compared(walk: _Walk, group: Group, number: int) -> Value:
    """The votes of this number of each leaf, 0 for all other targets: [n, parts, trees, targets].
    """
    n, trees, chosen = walk.n, walk.trees, walk.trees.votes
    starts = np.searchsorted(chosen.leaves, chosen.leaves)
    those = np.arange(len(chosen.leaves)) - starts == number
    ids = np.full(trees.leaves + 1, -1, np.int32)
    weights = np.zeros(trees.leaves + 1, walk.dtype)
    ids[chosen.leaves[those]] = chosen.targets[those]
    weights[chosen.leaves[those]] = chosen.weights[those]
    at = walk.nodes_at(group)
    at = at.reshape([*at.shape, 1])
    own, weight = (f.gather(n.constant(column[walk.layout.leaves]), at, axis=0)
                   for column in (ids, weights))
    targets = n.constant(np.arange(trees.targets, dtype=np.int32))
    return f.where(f.equal(own, targets), weight, 0)


def _dense(walk: _Walk, missing: float) -> Array:
    """The weights [leaves + 1, targets], `missing` where there is no vote."""
    trees = walk.trees
    table = np.full((trees.leaves + 1, trees.targets), missing, walk.dtype)
    table[trees.votes.leaves, trees.votes.targets] = trees.votes.weights
    return table


# ---------------------------------------------------------------------- extrema
def _extrema(walk: _Walk, aggregate: str) -> Scores:
    """The least or the greatest weights for each target; 0 where no leaf votes."""
    trees, layout, is_least = walk.trees, walk.layout, aggregate == "MIN"
    groups = grouped(layout.depths, layout.sizes, None)
    if not groups:
        return Scores(_total(walk, []), None)
    n, op = walk.n, ReduceMinOp if is_least else ReduceMaxOp
    table = n.constant(_dense(walk, np.inf if is_least else -np.inf))
    parts = [_over_trees(walk, group, table, op) for group in groups]
    scores = reduce(f.minimum if is_least else f.maximum, parts)
    if len(trees.votes.leaves) == trees.leaves * trees.targets:
        return Scores(scores, None)
    voted = _has_votes(walk, groups)
    return Scores(f.where(voted, scores, 0), voted)


def _over_trees(walk: _Walk, group: Group, table: Value, op: type[GraphOp]) -> Value:
    """The rows of a table for the leaves of a group, reduced to [n, targets]."""
    found = f.gather(table, walk.leaves_at(group), axis=0)
    for axis in (2, 1):
        found = walk.n(op, found, axes=[axis], keepdims=False)
    return found


def _has_votes(walk: _Walk, groups: Sequence[Group]) -> Value:
    """Whether a leaf votes for each target: bool [n, targets]."""
    trees = walk.trees
    table = np.zeros((trees.leaves + 1, trees.targets), np.bool_)
    table[trees.votes.leaves, trees.votes.targets] = True
    constant = walk.n.constant(table)
    return f.any_of(_over_trees(walk, group, constant, ReduceMaxOp) for group in groups)


def _voted(walk: _Walk) -> Value | None:
    """Where at least one leaf votes for each target; None if that is certain for all of them."""
    trees, layout, count = walk.trees, walk.layout, len(walk.trees.roots)
    owners = np.full(trees.leaves + 1, count)
    owners[layout.leaves] = layout.owners
    pairs, numbers = np.unique(
        owners[trees.votes.leaves] * trees.targets + trees.votes.targets, return_counts=True)
    own = np.bincount(owners[:-1], minlength=count + 1)
    certain = pairs[numbers == own[pairs // trees.targets]] % trees.targets
    if not layout.is_shared and len(distinct(certain)) == trees.targets:
        return None
    return _has_votes(walk, grouped(layout.depths, layout.sizes, None))
