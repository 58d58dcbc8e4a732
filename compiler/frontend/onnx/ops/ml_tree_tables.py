"""The trees of an ensemble, from the two forms of attributes that ai.onnx.ml has for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from dialects.strata.types import Array

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ",
         "BRANCH_MEMBER")
"""How a test compares. Its number is the index in this list."""
MEMBER = MODES.index("BRANCH_MEMBER")


@dataclass(frozen=True)
class Votes:
    """The weight of a leaf for a target, for each pair that has one; ordered by leaf and target."""

    leaves: Array
    targets: Array
    weights: Array

    @staticmethod
    def of(leaves: Array, targets: Array, weights: Array, count: int) -> Votes:
        """Several weights of a leaf for the same of `count` targets are added."""
        pairs, inverse = np.unique(leaves * count + targets, return_inverse=True)
        total = np.zeros(len(pairs), weights.dtype)
        np.add.at(total, inverse, weights)
        return Votes(pairs // count, pairs % count, total)


@dataclass(frozen=True)
class Trees:
    """All trees: tests, and leaves with votes. As a root or child, k is a test, -1 - k a leaf."""

    features: Array  # i64 per test
    values: Array
    modes: Array  # indices into MODES
    true: Array  # i64, the child if the comparison holds
    false: Array  # i64, the child if it does not
    missing: Array  # bool: whether NaN goes to the true child
    members: Sequence[Array]  # for each test of mode BRANCH_MEMBER, its set
    roots: Array  # i64 per tree
    leaves: int
    targets: int
    votes: Votes


def distinct(values: Array) -> Array:
    """The values in order, each once. Sorting is faster here than NumPy's table of hashes."""
    ordered = np.sort(values)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


def within(places: Array, count: int, what: str) -> Array:
    """Indices. Raises Fault if one is not from 0 to count - 1."""
    if len(places) and not (places.min() >= 0 and places.max() < count):
        raise Fault(f"{what} must be from 0 to {count - 1}, not {places.min()} to {places.max()}")
    return places


def _ints(n: Node, name: str, count: int) -> Array:
    found = np.array(n.ints(name), np.int64)
    if len(found) != count:
        raise Fault(f"{name} has {len(found)} entries instead of {count}")
    return found


def _floats(n: Node, name: str, count: int) -> Array:
    """The list of that name, or the tensor `name_as_tensor`."""
    tensor = n.tensor(f"{name}_as_tensor")
    found = n.singles(name) if tensor is None else tensor.reshape(-1)
    if len(found) != count:
        raise Fault(f"{name} has {len(found)} entries instead of {count}")
    return found


def _missing(n: Node, count: int) -> Array:
    name = "nodes_missing_value_tracks_true"
    return _ints(n, name, count).astype(np.bool_) if n.ints(name) else np.zeros(count, np.bool_)


# ---------------------------------------------------------------------- nodes by tree and number
class _Names:
    """Finds nodes by tree and number."""

    def __init__(self, owners: Array, numbers: Array):
        self.owners, self.numbers = distinct(owners), distinct(numbers)
        keys = self._keys(owners, numbers)
        self.order = np.argsort(keys, kind="stable")
        self.keys = keys[self.order]

    @property
    def are_distinct(self) -> bool:
        return bool((self.keys[1:] != self.keys[:-1]).all())

    def find(self, owners: Array, numbers: Array) -> Array:
        """The places of nodes in the table; -1 for those that it does not have."""
        keys = self._keys(owners, numbers)
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[place] == keys, self.order[place], -1)

    def _keys(self, owners: Array, numbers: Array) -> Array:
        """One number per pair; -1 for unknown pairs."""
        owner, number = _rank(self.owners, owners), _rank(self.numbers, numbers)
        return np.where((owner < 0) | (number < 0), -1, owner * len(self.numbers) + number)


def _rank(known: Array, values: Array) -> Array:
    place = np.minimum(np.searchsorted(known, values), len(known) - 1)
    return np.where(known[place] == values, place, -1)


def read_named(n: Node, kind: str, targets: int) -> Trees:
    """The trees of a TreeEnsembleRegressor (kind target) or a TreeEnsembleClassifier (kind class).
    """
    owners = np.array(n.ints("nodes_treeids"), np.int64)
    count = len(owners)
    numbers = _ints(n, "nodes_nodeids", count)
    if not count:
        raise Fault("its trees have no nodes")
    names = _Names(owners, numbers)
    if not names.are_distinct:
        raise Fault("a node is defined twice")
    modes = _modes(n, count)
    leaf = modes < 0
    ways = [_children(n, name, owners, leaf, names)
            for name in ("nodes_truenodeids", "nodes_falsenodeids")]
    inner, is_root = np.logical_not(leaf), np.ones(count, np.bool_)
    for way in ways:
        is_root[way[inner]] = False
    roots = np.flatnonzero(is_root)
    if len(distinct(owners[roots])) < len(names.owners):
        raise Fault("its trees have a cycle")
    split = np.where(leaf, np.negative(np.cumsum(leaf)), np.cumsum(inner) - 1)
    return Trees(
        _ints(n, "nodes_featureids", count)[inner], _floats(n, "nodes_values", count)[inner],
        modes[inner], split[ways[0]][inner], split[ways[1]][inner], _missing(n, count)[inner], [],
        split[roots], int(leaf.sum()), targets, _named_votes(n, kind, targets, names, split))


def _modes(n: Node, count: int) -> Array:
    """The numbers of the modes; -1 for leaves."""
    texts = n.texts("nodes_modes")
    known = {name: k for k, name in enumerate(MODES[:MEMBER])} | {"LEAF": -1}
    unknown = set(texts) - known.keys()
    if unknown or len(texts) != count:
        raise Fault(f"nodes_modes must have {count} entries, one per node, and has {len(texts)}; "
                    f"of these, {sorted(unknown)} are unknown")
    return np.array([known[text] for text in texts], np.int64)


def _children(n: Node, name: str, owners: Array, leaf: Array, names: _Names) -> Array:
    """The children that an attribute names, as places in the table; 0 for leaves."""
    found = np.where(leaf, 0, names.find(owners, _ints(n, name, len(owners))))
    return within(found, len(owners), f"the nodes that {name} name")


def _named_votes(n: Node, kind: str, targets: int, names: _Names, split: Array) -> Votes:
    """The votes of leaves. Weights of other nodes are never reached."""
    owners = np.array(n.ints(f"{kind}_treeids"), np.int64)
    numbers, ids = (_ints(n, f"{kind}_{name}", len(owners)) for name in ("nodeids", "ids"))
    given = _floats(n, f"{kind}_weights", len(owners))
    at = within(names.find(owners, numbers), len(split), f"the nodes that {kind}_nodeids name")
    within(ids, targets, f"{kind}_ids")
    used = split[at] < 0
    return Votes.of(-1 - split[at][used], ids[used], given[used], targets)


# ---------------------------------------------------------------------- separate nodes and leaves
def read_numbered(n: Node) -> Trees:
    """The trees of a TreeEnsemble, which lists leaves separately."""
    modes, values = n.tensor("nodes_modes"), n.tensor("nodes_splits")
    weights, targets = n.tensor("leaf_weights"), n.integer("n_targets", 1)
    if modes is None or values is None or weights is None or len(values) != len(modes):
        raise Fault("nodes_modes and nodes_splits, one per node, and leaf_weights must be given")
    count, leaves = len(modes), len(weights)
    within(modes.astype(np.int64), len(MODES), "nodes_modes")
    roots = within(np.array(n.ints("tree_roots"), np.int64), count, "tree_roots")
    ids = within(_ints(n, "leaf_targetids", leaves), targets, "leaf_targetids")
    return Trees(
        _ints(n, "nodes_featureids", count), values, modes.astype(np.int64),
        _ways(n, "true", count, leaves), _ways(n, "false", count, leaves), _missing(n, count),
        _members(n, int((modes == MEMBER).sum())), roots, leaves, targets,
        Votes.of(np.arange(leaves), ids, weights, targets))


def _ways(n: Node, way: str, count: int, leaves: int) -> Array:
    """The children of all nodes: a node as its index, leaf k as -1 - k."""
    ends = _ints(n, f"nodes_{way}leafs", count).astype(np.bool_)
    places = _ints(n, f"nodes_{way}nodeids", count)
    within(places[~ends], count, f"nodes_{way}nodeids of nodes")
    within(places[ends], leaves, f"nodes_{way}nodeids of leaves")
    return np.where(ends, -1 - places, places)


def _members(n: Node, count: int) -> list[Array]:
    """The sets of `membership_values`, which NaNs separate, for so many tests."""
    given = n.tensor("membership_values")
    sets = list[Array]() if given is None else [
        part[~np.isnan(part)] for part in np.split(given, np.flatnonzero(np.isnan(given)))]
    if sets and not len(sets[-1]):  # what follows the last NaN
        sets.pop()
    if len(sets) < count:
        raise Fault("membership_values has fewer sets than there are nodes of mode BRANCH_MEMBER")
    return sets[:count]
