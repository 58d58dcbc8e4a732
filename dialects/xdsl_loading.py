"""Imports xDSL so that its classes are made, and asked for, in less time.

xDSL defines 240 dataclasses when it is imported. For each, the standard library before Python 3.13
writes and compiles up to six methods one by one, and xDSL parses the textual formats of its own
operations. A compilation calls a tenth of these methods and none of the formats. Here both wait for
their first use. Each is then made by the same function from the same arguments, so xDSL's classes
behave as they would otherwise, whoever imported them first.

Operations, attributes and values are abstract base classes, for which `isinstance` runs Python
code, because a class may be registered as a subclass of another. A compilation asks 230,000 times.
No class is registered, so these get a metaclass that looks at inheritance alone.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from abc import ABCMeta
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any, Protocol

_MAKER = "_create_fn"
"""What compiles a method in the module `dataclasses` before Python 3.13. From then on, all methods
of a class are compiled at once."""

_CORE = "xdsl.ir.core"
_FORMATS = "xdsl.irdl.declarative_assembly_format"
_MODULES = ("xdsl.dialects.builtin", "xdsl.dialects.arith", "xdsl.dialects.math", "xdsl.parser",
            "xdsl.printer", "xdsl.rewriter")


_Metaclass: Any = type(Protocol)
"""That of abstract base classes which may also inherit from protocols."""


class _ByInheritance(_Metaclass):
    """The metaclass of abstract base classes that have no virtual subclasses."""

    __instancecheck__ = type.__instancecheck__
    __subclasscheck__ = type.__subclasscheck__


def load_xdsl() -> None:
    """Import the parts of xDSL that every compilation needs, unless xDSL is there already."""
    if "xdsl" in sys.modules:
        return
    with _later_methods():
        for class_ in vars(importlib.import_module(_CORE)).values():
            if type(class_) is ABCMeta and class_.__module__ == _CORE:
                class_.__class__ = _ByInheritance  # those that derive from it get the same
        formats: Any = importlib.import_module(_FORMATS).FormatProgram
        read = formats.from_str
        formats.from_str = staticmethod(partial(_LaterFormat, read))
        try:
            for name in _MODULES:
                importlib.import_module(name)
        finally:
            formats.from_str = staticmethod(read)


@contextmanager
def _later_methods() -> Generator[None]:
    """Dataclasses that are defined meanwhile get methods that compile themselves."""
    made: Callable[..., Any] | None = getattr(dataclasses, _MAKER, None)
    if made is None:
        yield
        return
    setattr(dataclasses, _MAKER, partial(_later, made))
    try:
        yield
    finally:
        setattr(dataclasses, _MAKER, made)


def _later(
    make: Callable[..., Any], name: str, *given: object, **named: object
) -> Callable[..., Any]:
    """A method that is made at its first call, and takes its place in the class then."""
    known: list[Callable[..., Any]] = []

    def method(self: Any, *arguments: object, **options: object) -> Any:
        if not known:
            made = make(name, *given, **named)
            made.__qualname__ = method.__qualname__
            known.append(made)
            for base in type(self).__mro__:
                if vars(base).get(name) is method:
                    setattr(base, name, made)
        return known[0](self, *arguments, **options)

    method.__name__ = name
    return method


class _LaterFormat:
    """The textual format of an operation, read when an operation is parsed or printed with it."""

    def __init__(self, read: Callable[..., Any], text: str, definition: object):
        self._read, self._text, self._definition = read, text, definition

    @cached_property
    def _program(self) -> Any:
        return self._read(self._text, self._definition)

    def parse(self, *arguments: object) -> Any:
        return self._program.parse(*arguments)

    def print(self, *arguments: object) -> None:
        self._program.print(*arguments)
