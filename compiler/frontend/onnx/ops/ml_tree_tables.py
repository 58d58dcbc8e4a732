"""Tables of tree ensembles, from the two forms of attributes that ai.onnx.ml has for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from dialects.strata.types import Array

_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
_EQUAL = _MODES.index("BRANCH_EQ")
_MEMBER = 6


@dataclass(frozen=True)
class Trees:
    """All nodes of all trees, including the leaves. Both children of a leaf are the leaf itself."""

    features: Array  # i64 per node
    values: Array
    modes: Array  # i64, indices into _MODES
    true: Array  # i64, the child if the comparison holds
    false: Array  # i64, the child if it does not
    missing_true: Array  # bool: whether NaN goes to the true child
    weights: Array  # [nodes, targets], 0 except at leaves
    voted: Array  # bool [nodes, targets]: whether the leaf has a weight
    roots: Array  # i64 per tree
    depth: int


def _depth(true: Array, false: Array, leaf: Array, roots: Array) -> int:
    """The maximum number of steps from a root to a leaf. Raises Fault if there is a cycle."""
    at, depth = np.unique(roots), 0
    while True:
        at = at[~leaf[at]]
        if not len(at):
            return depth
        at = np.unique(np.concatenate([true[at], false[at]]))
        depth += 1
        if depth > len(true):
            raise Fault("its trees have a cycle")


def _within(places: Array, count: int, what: str) -> Array:
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
    found = np.array(n.floats(name), np.float32) if tensor is None else tensor.reshape(-1)
    if len(found) != count:
        raise Fault(f"{name} has {len(found)} entries instead of {count}")
    return found


def _missing(n: Node, count: int) -> Array:
    name = "nodes_missing_value_tracks_true"
    return _ints(n, name, count).astype(np.bool_) if n.ints(name) else np.zeros(count, np.bool_)


# ---------------------------------------------------------------------- nodes by tree and number
def read_named(n: Node, kind: str, targets: int) -> Trees:
    """The table of a TreeEnsembleRegressor (kind target) or a TreeEnsembleClassifier (kind class).
    """
    owners = np.array(n.ints("nodes_treeids"), np.int64)
    count = len(owners)
    numbers = _ints(n, "nodes_nodeids", count)
    places = {key: k for k, key in enumerate(zip(owners.tolist(), numbers.tolist(), strict=True))}
    if not count or len(places) < count:
        raise Fault("its trees have no nodes" if not count else "a node is defined twice")
    modes = n.texts("nodes_modes")
    unknown = set(modes) - {*_MODES, "LEAF"}
    if unknown or len(modes) != count:
        raise Fault(f"nodes_modes must have {count} entries, one per node, and has {len(modes)}; "
                    f"of these, {sorted(unknown)} are unknown")
    leaf = np.array([m == "LEAF" for m in modes])
    ways = [np.where(leaf, np.arange(count), _targets(n, name, owners, leaf, places))
            for name in ("nodes_truenodeids", "nodes_falsenodeids")]
    roots = np.setdiff1d(np.arange(count), np.concatenate([way[~leaf] for way in ways]))
    if set(owners[roots].tolist()) != set(owners.tolist()):
        raise Fault("its trees have a cycle")
    weights, voted = _named_weights(n, kind, targets, places)
    codes = np.array([0 if m == "LEAF" else _MODES.index(m) for m in modes], np.int64)
    return Trees(np.where(leaf, 0, _ints(n, "nodes_featureids", count)),
                 _floats(n, "nodes_values", count), codes, ways[0], ways[1], _missing(n, count),
                 weights, voted, roots, _depth(ways[0], ways[1], leaf, roots))


def _targets(
    n: Node, name: str, owners: Array, leaf: Array, places: dict[tuple[int, int], int]
) -> Array:
    """The children that an attribute names, as indices into the table; 0 for leaves."""
    wanted = zip(owners.tolist(), _ints(n, name, len(owners)).tolist(), leaf, strict=True)
    found = [0 if end else places.get((tree, number), -1) for tree, number, end in wanted]
    return _within(np.array(found, np.int64), len(owners), f"the nodes that {name} name")


def _named_weights(
    n: Node, kind: str, targets: int, places: dict[tuple[int, int], int]
) -> tuple[Array, Array]:
    """The weights of nodes, and whether a node has one: both [nodes, targets].

    Several weights of a leaf for the same target are added.
    """
    owners = np.array(n.ints(f"{kind}_treeids"), np.int64)
    numbers, ids = (_ints(n, f"{kind}_{name}", len(owners)) for name in ("nodeids", "ids"))
    given = _floats(n, f"{kind}_weights", len(owners))
    keys = zip(owners.tolist(), numbers.tolist(), strict=True)
    at = _within(np.array([places.get(key, -1) for key in keys], np.int64), len(places),
                 f"the nodes that {kind}_nodeids name")
    return _spread(at, _within(ids, targets, f"{kind}_ids"), given, (len(places), targets))


def _spread(at: Array, ids: Array, given: Array, shape: tuple[int, int]) -> tuple[Array, Array]:
    weights, voted = np.zeros(shape, given.dtype), np.zeros(shape, np.bool_)
    np.add.at(weights, (at, ids), given)
    voted[at, ids] = True
    return weights, voted


# ---------------------------------------------------------------------- separate nodes and leaves
@dataclass
class _Chain:
    """The columns of the table, to which nodes are appended that test one member of a set each."""

    columns: dict[str, list[Any]]

    def split(self, k: int, members: Array) -> None:
        """Replace node k by a chain of tests for equality, which share its true child."""
        after, last = self.columns["false"][k], k
        self.columns["modes"][k], self.columns["values"][k] = _EQUAL, members[0]
        for member in members[1:]:
            new = len(self.columns["modes"])
            for column in self.columns.values():
                column.append(column[k])
            self.columns["values"][new] = member
            self.columns["false"][last], last = new, new
        self.columns["false"][last] = after


def read_numbered(n: Node) -> Trees:
    """The table of a TreeEnsemble, which lists leaves separately.

    Leaves follow all other nodes in the table. Until they do, negative numbers refer to them.
    """
    modes, values = n.tensor("nodes_modes"), n.tensor("nodes_splits")
    weights = n.tensor("leaf_weights")
    if modes is None or values is None or weights is None or len(values) != len(modes):
        raise Fault("nodes_modes and nodes_splits, one per node, and leaf_weights must be given")
    count, leaves = len(modes), len(weights)
    ways = {way: _ways(n, way, count, leaves) for way in ("true", "false")}
    chain = _Chain({
        "modes": _within(modes.astype(np.int64), _MEMBER + 1, "nodes_modes").tolist(),
        "values": list(values), "features": _ints(n, "nodes_featureids", count).tolist(),
        "missing": _missing(n, count).tolist(), **{k: way.tolist() for k, way in ways.items()}})
    members = _members(n)
    for k in np.flatnonzero(modes == _MEMBER):
        if not members:
            raise Fault("membership_values has fewer sets than there are nodes of mode "
                        "BRANCH_MEMBER")
        chain.split(int(k), members.pop(0))
    return _with_leaves(n, chain, weights)


def _ways(n: Node, way: str, count: int, leaves: int) -> Array:
    """The children of all nodes: a node as its index, leaf k as -1 - k."""
    ends = _ints(n, f"nodes_{way}leafs", count).astype(np.bool_)
    places = _ints(n, f"nodes_{way}nodeids", count)
    _within(places[~ends], count, f"nodes_{way}nodeids of nodes")
    _within(places[ends], leaves, f"nodes_{way}nodeids of leaves")
    return np.where(ends, -1 - places, places)


def _members(n: Node) -> list[Array]:
    """The sets of `membership_values`, which NaNs separate. An empty set becomes [NaN].

    Nothing equals NaN, so that an empty set has no members.
    """
    given = n.tensor("membership_values")
    if given is None:
        return []
    cuts = np.flatnonzero(np.isnan(given))
    sets = np.split(given, cuts)
    plain = [s[~np.isnan(s)] for s in sets]
    if len(plain) > 1 and not len(plain[-1]):
        plain.pop()
    return [s if len(s) else np.array([np.nan], given.dtype) for s in plain]


def _with_leaves(n: Node, chain: _Chain, weights: Array) -> Trees:
    count, leaves = len(chain.columns["modes"]), len(weights)
    ids = _within(_ints(n, "leaf_targetids", leaves), n.integer("n_targets", 1), "leaf_targetids")
    own = np.arange(count, count + leaves)

    def way(name: str) -> Array:
        column = np.array(chain.columns[name], np.int64)
        return np.concatenate([np.where(column < 0, count - 1 - column, column), own])

    def padded(name: str, dtype: Any) -> Array:
        return np.concatenate([np.array(chain.columns[name], dtype), np.zeros(leaves, dtype)])

    spread, voted = _spread(own, ids, weights, (count + leaves, n.integer("n_targets", 1)))
    true, false = way("true"), way("false")
    own_leaf = np.arange(count + leaves) >= count
    roots = _within(np.array(n.ints("tree_roots"), np.int64), count, "tree_roots")
    return Trees(padded("features", np.int64), padded("values", weights.dtype),
                 padded("modes", np.int64), true, false, padded("missing", np.bool_), spread, voted,
                 roots, _depth(true, false, own_leaf, roots))
