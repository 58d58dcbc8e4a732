"""The table of nodes that `graph.descend` walks.

    [roots of all trees] [no, yes] [no, yes] ...      both children of a test are neighbours

A node is a copy of a test or leaf for each way that leads there: what it holds is small, and its
children are shared. A search through a set, which is a graph and not a tree, is therefore stored
like any other test. The nodes of a tree are neighbours, and so are those of a subtree. A last node,
to which nothing leads, makes child + 1 a node for every child, as the proof of bounds expects.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from compiler.frontend.faults import Fault
from compiler.frontend.onnx.ops.ml_tree_tables import distinct
from compiler.frontend.onnx.ops.ml_tree_tests import Tests, never
from dialects.strata.types import Array

ALIGNED = 8
"""The first pair of nodes has a multiple of this number, so that few pairs cross cache lines."""


@dataclass(frozen=True)
class Layout:
    """The nodes of trees; tree t has the root t. Root `empty` is a leaf without votes."""

    nodes: Array  # [nodes, 2]: bound, and child * columns + column
    leaves: Array  # i32 per node, the number of the leaf; that of `empty` for other nodes
    owners: Array  # i64 per node, a tree that it belongs to; the number of trees for `empty`
    is_shared: bool  # whether trees share nodes
    depths: Array  # i64 per tree, the most steps to a leaf
    sizes: Array  # i64 per tree, the number of its nodes
    empty: int


def laid_out(tests: Tests, roots: Array, columns: int, leaves: int) -> Layout:
    """The layout of tests. Bounds are widened if numbers of nodes and columns need more bits."""
    levels, owners, is_shared = _levels(tests, roots)
    heights, sizes = _heights_and_sizes(tests, levels)
    order = np.lexsort((_preorder(tests, levels, sizes), owners))
    order = order[levels[order] >= 0]
    first = -(-(len(roots) + 1) // ALIGNED) * ALIGNED
    places = np.zeros(len(levels), np.int64)
    places[order] = first + 2 * np.arange(len(order))
    pairs = np.stack([tests.no[order], tests.yes[order]], 1).reshape(-1)
    empty = -1 - leaves
    targets = np.concatenate([roots, np.full(first - len(roots), empty), pairs, [empty]])
    trees = np.concatenate([np.arange(first), np.repeat(owners[order], 2), [len(roots)]])
    own = np.where(targets < 0, -1 - targets, leaves).astype(np.int32)
    depths = np.where(roots < 0, 0, _taken(heights, roots))
    counts = 1 + 2 * np.bincount(owners[order], minlength=len(roots))
    return Layout(_nodes(tests, targets, places, columns, len(roots)), own,
                  np.minimum(trees, len(roots)), is_shared, depths, counts, len(roots))


def _nodes(tests: Tests, targets: Array, places: Array, columns: int, empty: int) -> Array:
    """The nodes that stand for tests, whose children have these places, and for leaves."""
    is_leaf = targets < 0
    children = np.where(is_leaf, np.arange(len(targets)), _taken(places, targets))
    children[-1] = empty
    column = np.where(is_leaf, 0, _taken(tests.columns, targets))
    bounds = np.where(is_leaf, never(tests.bounds.dtype), _taken(tests.bounds, targets))
    nodes = np.stack([bounds, children * columns + column], axis=1)
    fits = len(targets) * columns <= np.iinfo(tests.bounds.dtype).max
    return nodes.astype(tests.bounds.dtype if fits else np.int64)


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
        at = distinct(at)
        levels[at] = level
        kids, trees = np.concatenate([tests.no[at], tests.yes[at]]), np.tile(owners[at], 2)
        at, trees, level = kids[kids >= 0], trees[kids >= 0], level + 1
    return levels, owners, is_shared


def _heights_and_sizes(tests: Tests, levels: Array) -> tuple[Array, Array]:
    """For each test, the most steps to a leaf, and the number of tests of its subtree."""
    heights, sizes = np.zeros((2, len(levels)), np.int64)
    for at in _by_level(levels)[::-1]:
        no, yes = tests.no[at], tests.yes[at]
        heights[at] = 1 + np.maximum(_of_tests(heights, no), _of_tests(heights, yes))
        sizes[at] = 1 + _of_tests(sizes, no) + _of_tests(sizes, yes)
    return heights, sizes


def _of_tests(column: Array, ways: Array) -> Array:
    """The entries of children that are tests; 0 for leaves."""
    return np.where(ways < 0, 0, column[np.maximum(ways, 0)])


def _preorder(tests: Tests, levels: Array, sizes: Array) -> Array:
    """The place of each test in its tree: before its subtree, of which the larger part comes first.

    Most rows take that way, so that they often go on in the same cache line.
    """
    places = np.zeros(len(levels), np.int64)
    for at in _by_level(levels):
        no, yes = tests.no[at], tests.yes[at]
        left, right = _of_tests(sizes, no), _of_tests(sizes, yes)
        for way, other in ((no, np.where(left < right, right, 0)),
                           (yes, np.where(left < right, 0, left))):
            inner = way >= 0
            places[way[inner]] = (places[at] + 1 + other)[inner]
    return places


def _by_level(levels: Array) -> list[Array]:
    """The tests of each level."""
    order = np.argsort(levels, kind="stable")
    ends = np.searchsorted(levels[order], np.arange(int(levels.max(initial=-1)) + 2))
    return [order[first:last] for first, last in pairwise(ends.tolist())]
