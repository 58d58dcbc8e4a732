"""`dialects.records.dataclass` against the standard library's, of which it is a faster form."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import pickle
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field, fields, replace
from functools import partial
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
    # Since 3.13, records of the library that hold one and the same NaN differ; ours are equal.
    same_nan = [] if sys.version_info >= (3, 13) else [One(nan), One(nan)]
    return [
        [Empty(), Empty()],
        [One(1), One(1), One(2), One((1,)), *same_nan],
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


@dataclasses.dataclass(frozen=True)
class Refusing:
    """As xDSL's passes are."""

    x: int = 1


def _derived(define: Define) -> Any:
    @define(frozen=True)
    class Inherited(Refusing):
        y: str = "b"
        parts: list[int] = field(default_factory=list[int], compare=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "x", self.x + 1)

    return Inherited


def test_records_with_a_frozen_base_refuse_changes() -> None:
    ours, theirs = _derived(dataclass), _derived(dataclasses.dataclass)
    assert _texts([ours(), ours(3, y="c")]) == _texts([theirs(), theirs(3, y="c")])
    assert ours(3) == ours(3, parts=[1]) != ours(4) and hash(ours(3)) == hash(ours(3))
    assert replace(ours(3), y="d") == ours(4, "d")
    for record in (ours(), theirs()):
        with pytest.raises(dataclasses.FrozenInstanceError):
            record.x = 5
        with pytest.raises(dataclasses.FrozenInstanceError):
            del record.y


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


def _outcome(make: Callable[[], Any]) -> str:
    try:
        return repr(make())
    except (TypeError, ValueError) as error:
        return str(error).partition("<locals>.")[2] or str(error)


@pytest.mark.parametrize("arguments", [(), (1,), (1, 2.0), (1, 2.0, "h", [4]), (1, 2, 3, 4, 5)],
                         ids=str)
@pytest.mark.parametrize("named", [{}, {"x": 7}, {"apart": [8], "hidden": "n"}, {"made": 3},
                                   {"unknown": 1}], ids=str)
def test_records_take_the_arguments_that_the_standard_librarys_take(
    arguments: tuple[Any, ...], named: dict[str, Any]
) -> None:
    """The first record of a class as the second one, and with the same messages."""
    ours, theirs = (_families(define) for define in (dataclass, dataclasses.dataclass))
    for mine, other in zip(ours, theirs, strict=True):
        expected = _outcome(partial(type(other[0]), *arguments, **named))
        for _ in range(2):
            assert _outcome(partial(type(mine[0]), *arguments, **named)) == expected


def test_the_first_record_of_a_class_is_made_as_the_others() -> None:
    @dataclass
    class Base:
        x: int
        items: list[int] = field(default_factory=list[int])
        doubled: int = field(init=False)

        def __post_init__(self) -> None:
            self.doubled = 2 * self.x

    @dataclass
    class Derived(Base):
        y: int = 1

        def __post_init__(self) -> None:
            super().__post_init__()
            self.doubled += self.y

    class Plain(Derived):
        pass

    class Counting(Base):
        def __init__(self, x: int) -> None:
            super().__init__(x)
            self.doubled += 100

    first, second = Derived(1), Derived(1)
    assert first == second and first.doubled == 3 and first.items is not second.items
    assert [Plain(2, y=5).doubled, Base(3).doubled, Counting(4).doubled] == [9, 6, 108]
    assert replace(first, x=4).doubled == 9
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        Base()  # type: ignore[call-arg]


@pytest.mark.parametrize("round_", range(3))
def test_first_records_are_made_by_several_threads(round_: int) -> None:
    @dataclass
    class Many:
        x: int
        y: tuple[int, ...] = ()

    start = threading.Barrier(4, timeout=30)

    def make(k: int) -> Many:
        start.wait()
        return Many(k, y=(k,))

    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(make, range(4))] == [Many(k, (k,)) for k in range(4)]


def test_a_record_inside_itself_has_a_text() -> None:
    ring = Ring()
    ring.inner = ring
    assert repr(ring) == "Ring(inner=...)"
