"""`dialects.records.dataclass` against the standard library's, of which it is a faster form."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import pickle
from collections.abc import Callable
from dataclasses import field, fields, replace
from typing import Any

import pytest

from dialects.records import dataclass

Define = Callable[..., Any]


def _families(define: Define, **options: bool) -> list[list[Any]]:
    """Instances of classes of many forms, those of one class in a list."""
    @define(**options)
    class Empty:
        pass

    @define(**options)
    class One:
        x: object

    @define(**options)
    class Many:
        x: int
        y: float = 0.5
        hidden: str = field(default="h", repr=False)
        apart: list[int] = field(default_factory=list[int], compare=False)
        made: int = field(init=False, default=3)

    @define(**options)
    class Derived(Many):
        z: object = None

    @define(**options)
    class Own:
        x: int

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return self is other

        def __hash__(self) -> int:
            return 5

    nan = float("nan")
    return [
        [Empty(), Empty()],
        [One(1), One(1), One(2), One((1,)), One(nan), One(nan)],
        [Many(1), Many(1, 0.5), Many(1, 0.25), Many(1, hidden="other"), Many(1, apart=[1])],
        [Derived(1), Derived(1, z=2), Derived(1)],
        [Own(1), Own(1)],
    ]


OPTIONS = [{}, {"frozen": True}, {"eq": False}, {"frozen": True, "eq": False}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_records_are_those_of_the_standard_library(options: dict[str, bool]) -> None:
    ours, theirs = _families(dataclass, **options), _families(dataclasses.dataclass, **options)
    for mine, other in zip(ours, theirs, strict=True):
        for a, b in itertools.product(range(len(mine)), repeat=2):
            assert (mine[a] == mine[b]) == (other[a] == other[b])
            assert _hash_is_shared(mine[a], mine[b]) == _hash_is_shared(other[a], other[b])
        assert _texts(mine) == _texts(other)
        assert [f.name for f in fields(mine[0])] == [f.name for f in fields(other[0])]
        assert _pattern(mine[0]) == _pattern(other[0])


def _texts(records: list[Any]) -> list[str]:
    return [repr(r) for r in records]


def _pattern(record: object) -> object:
    return vars(type(record))["__match_args__"]


def _hash_is_shared(a: object, b: object) -> bool | str:
    try:
        return hash(a) == hash(b)
    except TypeError as error:
        return str(error).split()[0]


def test_records_of_other_classes_are_not_equal() -> None:
    [[empty, *_], [one, *_], [many, *_], [derived, *_], *_] = _families(dataclass)
    assert len({id(r) for r in (empty, one, many, derived)}) == 4
    assert not any(a == b for a, b in itertools.combinations((empty, one, many, derived, 1), 2))


@dataclass(frozen=True)
class Point:
    x: int
    others: tuple[Point, ...] = ()


@dataclass
class Ring:
    inner: object = None


def test_records_are_replaced_copied_and_pickled() -> None:
    point = Point(1, (Point(2),))
    assert replace(point, x=3) == Point(3, (Point(2),))
    assert copy.copy(point) == copy.deepcopy(point) == pickle.loads(pickle.dumps(point)) == point
    assert len({point, Point(1, (Point(2),)), Point(1)}) == 2
    match point:
        case Point(x, (Point(y),)):
            assert (x, y) == (1, 2)
        case _:
            pytest.fail("the record matches no pattern")


def test_a_record_inside_itself_has_a_text() -> None:
    ring = Ring()
    ring.inner = ring
    assert repr(ring) == "Ring(inner=...)"
