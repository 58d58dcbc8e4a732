"""`dialects.records.NamedTuple` against the standard library's, of which it is a faster form."""

from __future__ import annotations

import copy
import inspect
import pickle
import threading
import typing
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dialects import records


def _classes(base: Any) -> list[Any]:
    """Classes of many forms: no field, one, several with and without defaults, and a derived one.
    """
    class Empty(base):
        pass

    class One(base):
        x: object

    class Many(base):
        """Numbers."""

        x: int
        y: float = 0.5
        names: tuple[str, ...] = ()

        @property
        def doubled(self) -> int:
            return 2 * self.x

        def moved(self, by: int) -> Any:
            return self._replace(x=self.x + by)

        def __str__(self) -> str:
            return f"x is {self.x}"

    class Derived(Many):
        def moved(self, by: int) -> Any:
            return super().moved(10 * by)

    return [Empty, One, Many, Derived]


OURS, STANDARD = (_classes(base) for base in (records.NamedTuple, typing.NamedTuple))
PAIRS = list(zip(OURS, STANDARD, strict=True))
ARGUMENTS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}), ((1,), {}), ((1, 2.5), {}), ((1, 2.5, ("a",)), {}), ((1, 2, 3, 4), {}),
    ((), {"x": 3}), ((3,), {"names": ("b",)}), ((3,), {"x": 3}), ((), {"z": 1})]


class Place(records.NamedTuple):
    """A class that pickled tuples can name."""

    row: int
    column: int = 7


def _made(cls: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    try:
        return cls(*arguments, **named)
    except TypeError as error:
        return str(error).partition("__new__()")[2]


@pytest.mark.parametrize(("ours", "standard"), PAIRS)
@pytest.mark.parametrize(("arguments", "named"), ARGUMENTS)
def test_the_same_tuples_are_made(
    ours: Any, standard: Any, arguments: tuple[Any, ...], named: dict[str, Any]
) -> None:
    found, expected = (_made(cls, arguments, named) for cls in (ours, standard))
    assert found == expected
    assert repr(found) == repr(expected)
    assert str(found) == str(expected)
    if isinstance(expected, tuple):
        made: Any = found
        assert made._asdict() == expected._asdict()  # type: ignore[attr-defined]
        assert hash(made) == hash(expected)
        assert copy.deepcopy(made) == made
        assert type(copy.copy(made)) is ours


@pytest.mark.parametrize(("ours", "standard"), PAIRS)
def test_classes_know_their_fields(ours: Any, standard: Any) -> None:
    for name in ("_fields", "_field_defaults", "__match_args__"):
        assert getattr(ours, name) == getattr(standard, name)
    assert hasattr(ours(*"a" * len(ours._fields)), "__dict__") == (ours.__name__ == "Derived")
    if ours._fields:
        assert ours._make("a" * len(ours._fields)).x == "a"
        assert inspect.isdatadescriptor(inspect.getattr_static(ours, "x"))


def test_methods_and_properties_stay() -> None:
    many, derived = OURS[2], OURS[3]
    assert many(3).doubled == 6
    assert many(3).moved(1) == (4, 0.5, ())
    assert derived(3).moved(1) == (13, 0.5, ())
    assert type(derived(3).moved(1)) is derived
    with pytest.raises(AttributeError):
        many(3).x = 4


def test_wrong_names_and_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"unexpected field names: \['z'\]"):
        OURS[1](1)._replace(z=2)
    with pytest.raises(TypeError, match="expected 3 arguments, got 1"):
        OURS[2]._make([1])


def test_tuples_are_pickled_and_matched() -> None:
    assert pickle.loads(pickle.dumps(Place(1))) == Place(1, 7)
    match Place(1):
        case Place(row, column=column):
            assert (row, column) == (1, 7)


def test_the_first_tuples_may_be_made_by_several_threads() -> None:
    for cls in [_classes(records.NamedTuple)[2] for _ in range(20)]:
        at_once = threading.Barrier(4)

        def make(cls: Any = cls, at_once: threading.Barrier = at_once) -> Any:
            at_once.wait()
            return cls(1)

        with ThreadPoolExecutor(4) as pool:
            assert [f.result() for f in [pool.submit(make) for _ in range(4)]] == [
                (1, 0.5, ())] * 4


def test_a_class_may_have_many_fields() -> None:
    names = [f"field{k}" for k in range(60)]
    wide: Any = type(records.NamedTuple)("Wide", (records.NamedTuple,), {
        "__annotations__": dict.fromkeys(names, "int")})
    made = wide(*range(60))
    assert [getattr(made, name) for name in names] == list(range(60))
