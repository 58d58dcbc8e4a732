"""The tests of trees as comparisons of integers: key <= bound.

Floats are compared by their keys, integers in the same order. Every mode then is one comparison:

    x <= t    key <= last(t)                    x > t     not (x <= t)
    x < t     key <= first(t) - 1               x >= t    not (x < t)
    x == t    x <= t, and then not x < t        x != t    not (x == t)

first(t) and last(t) are the keys of numbers that equal t; they differ for zeros only. A set is a
binary search among the ends of its members. `not` swaps both children. NaN has two keys: one above
those of all numbers, with which it fails each comparison, and one below them, with which it passes.
A test reads the key that takes NaN to the right child.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from compiler.frontend.onnx.ops.ml_tree_tables import MEMBER, Trees, distinct
from dialects.strata.types import Array

_LEQ, _LT, _GTE, _GT, _EQ, _NEQ = range(MEMBER)


@dataclass(frozen=True)
class Tests:
    """Comparisons key <= bound, one per row, with the children as in `Trees`."""

    columns: Array  # i64, the column of keys: features, and then features whose NaN passes
    bounds: Array  # of the type of the keys
    yes: Array  # i64
    no: Array  # i64


def never(dtype: np.dtype[Any]) -> Any:
    """A bound that no number passes; it is the low key of NaN."""
    return np.iinfo(dtype).min


def key_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The integers that hold the keys of floats."""
    return np.dtype(f"i{dtype.itemsize}")


def _keys(values: Array) -> Array:
    """The keys of floats other than NaN."""
    bits = values.view(key_dtype(values.dtype))
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def _first(values: Array) -> Array:
    """The least key of numbers that equal a value."""
    return np.where(values == 0, -1, _keys(values)).astype(key_dtype(values.dtype))


def _last(values: Array) -> Array:
    """The greatest key of numbers that equal a value."""
    return np.where(values == 0, 0, _keys(values)).astype(key_dtype(values.dtype))


def comparisons(trees: Trees, dtype: np.dtype[Any], features: int) -> Tests:
    """The tests of trees on so many features of a float type."""
    values = trees.values.astype(dtype)
    low, tests = _in_order(trees, values)
    tests = _with_equality(trees, values, tests)
    rows = np.flatnonzero(trees.modes == MEMBER)
    for k, members in zip(rows.tolist(), trees.members, strict=True):
        tests = _with_members(tests, k, members.astype(dtype), bool(trees.missing[k]))
    columns = tests.columns.copy()
    columns[:len(low)] += features * low
    return replace(tests, columns=columns)


def _in_order(trees: Trees, values: Array) -> tuple[Array, Tests]:
    """Whether NaN passes; and the tests of order, and the first ones that equality needs."""
    modes, never_ = trees.modes, never(key_dtype(values.dtype))
    strict = (modes == _LT) | (modes == _GTE)
    bounds = np.where(strict, _first(values) - 1, _last(values)).astype(key_dtype(values.dtype))
    swapped = ((modes == _GTE) | (modes == _GT)) & ~np.isnan(values) | (modes == _NEQ)
    bounds = np.where(np.isnan(values), never_, bounds).astype(bounds.dtype)
    low = np.where(modes == _NEQ, False, trees.missing ^ swapped)
    ways = (trees.false, trees.true), (trees.true, trees.false)
    return low, Tests(trees.features, bounds, *(np.where(swapped, *way) for way in ways))


def _with_equality(trees: Trees, values: Array, tests: Tests) -> Tests:
    """Add what tests of equality go on to if x <= t: not x < t."""
    at = np.flatnonzero(((trees.modes == _EQ) | (trees.modes == _NEQ)) & ~np.isnan(values))
    if not len(at):
        return tests
    count = len(trees.modes)
    second = Tests(tests.columns[at], _first(values)[at] - 1, tests.no[at], tests.yes[at])
    yes = tests.yes.copy()
    yes[at] = np.arange(count, count + len(at))
    return _joined(replace(tests, yes=yes), second)


def _joined(*parts: Tests) -> Tests:
    columns = ([getattr(p, f.name) for p in parts] for f in fields(Tests))
    return Tests(*(np.concatenate(column) for column in columns))


# ---------------------------------------------------------------------- sets
def _with_members(tests: Tests, k: int, members: Array, missing: bool) -> Tests:
    """Replace test k by a search for x among the members of a set."""
    feature, yes, no = (int(column[k]) for column in (tests.columns, tests.yes, tests.no))
    cuts = _cuts(members)
    search = _Search(len(tests.bounds), [], cuts.tolist(), yes, no)
    root = search.between(0, len(cuts))
    first = (never(tests.bounds.dtype), yes if missing else no, root)
    if search.rows and not missing:  # test k begins the search, instead of looking for NaN
        first = search.rows.pop()
    rows = np.array(search.rows, np.int64).reshape(-1, 3)
    more = Tests(np.full(len(rows), feature), rows[:, 0].astype(tests.bounds.dtype), rows[:, 1],
                 rows[:, 2])
    changed = {name: getattr(tests, name).copy() for name in ("bounds", "yes", "no")}
    for name, value in zip(changed, first, strict=True):
        changed[name][k] = value
    return _joined(replace(tests, **changed), more)


def _cuts(members: Array) -> Array:
    """The last keys outside, inside, outside ... of the set, in ascending order."""
    ordered = distinct(members)
    return np.stack([_first(ordered) - 1, _last(ordered)], axis=1).reshape(-1)


@dataclass(frozen=True)
class _Search:
    """A binary search: tests are added to `rows`, as (bound, yes, no), and numbered from `start`.
    """

    start: int
    rows: list[tuple[int, int, int]]
    cuts: list[int]
    inside: int
    outside: int

    def between(self, first: int, last: int) -> int:
        """The child for a key above cuts[first - 1] and at most cuts[last]."""
        if first == last:
            return self.inside if first % 2 else self.outside
        middle = (first + last) // 2
        below, above = self.between(first, middle), self.between(middle + 1, last)
        self.rows.append((self.cuts[middle], below, above))
        return self.start + len(self.rows) - 1
