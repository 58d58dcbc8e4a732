"""`isinstance` for our operations and attributes is a question of inheritance, which runs no Python
code.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest
from xdsl.dialects.builtin import ModuleOp, i1
from xdsl.ir import Attribute, Dialect, Operation

from dialects.classes import PlainClass
from dialects.registry import dialect_loaders


def own(dialect: Dialect) -> list[type[Operation] | type[Attribute]]:
    """The classes of a dialect that are ours: some hold operations of xDSL."""
    return [class_ for class_ in (*dialect.operations, *dialect.attributes)
            if class_.__module__.startswith("dialects.")]


@pytest.mark.parametrize("load", dialect_loaders().values(), ids=dialect_loaders())
def test_all_operations_and_attributes_are_plain_classes(load: Callable[[], Dialect]) -> None:
    classes = own(load())
    assert classes
    assert {class_ for class_ in classes if type(class_) is not PlainClass} == set()


def test_answers_are_those_of_inheritance() -> None:
    ours = [class_ for load in dialect_loaders().values() for class_ in own(load())]
    for class_ in ours:
        for asked in ours:
            assert issubclass(class_, asked) is (asked in class_.__mro__)
        assert not isinstance(ModuleOp([]), class_)
        assert not isinstance(i1, class_)
        assert issubclass(class_, Operation) is not issubclass(class_, Attribute)


def test_a_question_runs_no_python_code() -> None:
    classes = [class_ for load in dialect_loaders().values() for class_ in own(load())]
    called: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.append(frame.f_code.co_name)

    module = ModuleOp([])
    sys.setprofile(note)
    try:
        found = [class_ for class_ in classes if isinstance(module, class_)]
    finally:
        sys.setprofile(None)
    assert not found
    assert set(called) <= {"<listcomp>"}  # which Python 3.11 calls
