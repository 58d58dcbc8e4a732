"""The table of nodes that `graph.descend` walks.

    [roots of all trees] [no, yes] [no, yes] ...      both children of a test are neighbours

A node is a copy of a test or leaf for each way that leads there: what it holds is small, and its
children are shared. A search through a set, which is a graph and not a tree, is therefore stored
like any other test. The nodes of a tree are neighbours, those near its root first. A last node, to
which nothing leads, makes child + 1 a node for every child, as the proof of bounds expects.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from compiler.frontend.faults import Fault
from compiler.frontend.onnx.ops.ml_tree_tests import Tests, never
from dialects.strata.types import Array


@dataclass(frozen=True)
class Layout:
    """The nodes of trees; tree t has the root t. Root `empty` is a leaf without votes."""

    nodes: Array  # [nodes, 3] of the type of the keys: bound, column, child
    leaves: Array  # i32 per node, the number of the leaf; that of `empty` for other nodes
    owners: Array  # i64 per node, a tree that it belongs to; the number of trees for `empty`
    is_shared: bool  # whether trees share nodes
    depths: Array  # i64 per tree, the most steps to a leaf
    sizes: Array  # i64 per tree, the number of its nodes
    empty: int


def laid_out(tests: Tests, roots: Array, features: int, leaves: int) -> Layout:
    """The layout of tests. The keys that NaN passes are in columns after all others."""
    levels, owners, is_shared = _levels(tests, roots)
    heights = _heights(tests, levels)
    order = np.lexsort((levels, owners))
    order = order[levels[order] >= 0]
    places = np.zeros(len(levels), np.int64)
    places[order] = len(roots) + 1 + 2 * np.arange(len(order))
    targets = np.concatenate([
        roots, [-1 - leaves], np.stack([tests.no[order], tests.yes[order]], 1).reshape(-1),
        [-1 - leaves]])
    is_leaf = targets < 0
    nodes = np.empty((len(targets), 3), tests.bounds.dtype)
    columns = tests.features + features * tests.low
    nodes[:, 0] = np.where(is_leaf, never(nodes.dtype), _taken(tests.bounds, targets))
    nodes[:, 1] = np.where(is_leaf, 0, _taken(columns, targets))
    nodes[:, 2] = np.where(is_leaf, np.arange(len(targets)), _taken(places, targets))
    nodes[-1, 2] = len(roots)
    own = np.where(is_leaf, -1 - targets, leaves).astype(np.int32)
    depths = np.where(roots < 0, 0, _taken(heights, roots))
    sizes = 1 + 2 * np.bincount(owners[order], minlength=len(roots))
    trees = np.concatenate([np.arange(len(roots) + 1), np.repeat(owners[order], 2), [len(roots)]])
    return Layout(nodes, own, trees, is_shared, depths, sizes, len(roots))


def _taken(column: Array, targets: Array) -> Array:
    """The entries of tests; any entry for leaves."""
    return column[np.maximum(targets, 0)] if len(column) else np.zeros(len(targets), column.dtype)


def _levels(tests: Tests, roots: Array) -> tuple[Array, Array, bool]:
    """For each test the most steps from a root, and a tree that it belongs to; -1 if no tree
    reaches it. And whether a test belongs to several trees."""
    levels, owners = np.full((2, len(tests.bounds)), -1, np.int64)
    at, trees = roots[roots >= 0], np.flatnonzero(roots >= 0)
    is_shared, level = False, 0
    while len(at):
        if level >= len(levels):
            raise Fault("its trees have a cycle")
        before, owners[at] = owners[at], trees
        is_shared |= bool(((before >= 0) & (before != trees) | (owners[at] != trees)).any())
        at = np.unique(at)
        levels[at] = level
        kids, trees = np.concatenate([tests.no[at], tests.yes[at]]), np.tile(owners[at], 2)
        at, trees, level = kids[kids >= 0], trees[kids >= 0], level + 1
    return levels, owners, is_shared


def _heights(tests: Tests, levels: Array) -> Array:
    """For each test, the most steps to a leaf."""
    heights = np.zeros(len(levels), np.int64)
    for at in _by_level(levels):
        ways = [np.where(way < 0, 0, heights[np.maximum(way, 0)])
                for way in (tests.no[at], tests.yes[at])]
        heights[at] = 1 + np.maximum(*ways)
    return heights


def _by_level(levels: Array) -> Iterator[Array]:
    """The tests of each level, the last level first."""
    order = np.argsort(levels, kind="stable")
    ends = np.searchsorted(levels[order], np.arange(int(levels.max(initial=-1)) + 2))
    for first, last in reversed(list(pairwise(ends.tolist()))):
        yield order[first:last]
