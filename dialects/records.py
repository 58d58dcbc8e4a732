"""`dataclass` as the standard library's, for classes that are defined faster.

The standard decorator writes and compiles up to six methods for each class: two thirds of the time
in which our modules were imported. Here it writes `__init__` alone, when the first record is made:
most classes that a compilation imports have none. All classes share the other methods. That a
frozen record does not change is left to the type checker, so that frozen records are also made
faster.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, TypeVar, dataclass_transform, overload

T = TypeVar("T")


@overload
def dataclass(cls: type[T], /) -> type[T]: ...
@overload
def dataclass(*, frozen: bool = False, eq: bool = True) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(field_specifiers=(dataclasses.field,))
def dataclass(
    cls: type[T] | None = None, /, *, frozen: bool = False, eq: bool = True
) -> type[T] | Callable[[type[T]], type[T]]:
    """A class of records with the annotated fields. Methods that it defines itself stay.

    A class whose base is a frozen dataclass of the standard library refuses changes, as its base.
    """
    def define(cls: type[T]) -> type[T]:
        cls.__doc__ = cls.__doc__ or cls.__name__  # the standard decorator would look for arguments
        made = dataclasses.dataclass(
            init=False, repr=False, eq=False, frozen=_refuses_changes(cls))(cls)
        shared = {"__init__": _first_init(made), "__repr__": _text,
                  **(_comparison(made, frozen) if eq else {})}
        for name, method in shared.items():
            if vars(made).get(name) is None:
                setattr(made, name, method)
        return made

    return define if cls is None else define(cls)


def _refuses_changes(cls: type[Any]) -> bool:
    """Whether a base of a class is a frozen dataclass of the standard library."""
    return any(vars(base)["__dataclass_params__"].frozen
               for base in cls.__mro__ if "__dataclass_params__" in vars(base))


def _first_init(made: type[Any]) -> Callable[..., None]:
    """The `__init__` that makes the first record of a class, and then the class's own."""
    def init(self: Any, *arguments: object, **named: object) -> None:
        made.__init__ = own = _init_of(made)
        own(self, *arguments, **named)

    return init


def _init_of(made: type[Any]) -> Callable[..., None]:
    """The `__init__` for the fields of a class and of its bases, as the standard library's."""
    known: dict[str, Any] = {"_missing": dataclasses.MISSING, "_put": object.__setattr__}
    put = "_put(self, '{}', {})" if _refuses_changes(made) else "self.{} = {}"
    taken: dict[bool, list[str]] = {False: ["self"], True: []}
    lines: list[str] = []
    for k, field in enumerate(dataclasses.fields(made)):
        name, given = field.name, field.name
        if field.default_factory is not dataclasses.MISSING:
            known[f"_make{k}"] = field.default_factory
            given = f"_make{k}() if {name} is _missing else {name}" if field.init else f"_make{k}()"
            default = "=_missing"
        elif field.default is not dataclasses.MISSING:
            known[f"_default{k}"] = field.default
            default = f"=_default{k}"
        else:
            default = ""
        if field.init:
            taken[field.kw_only is True].append(f"{name}{default}")
        if field.init or "(" in given:
            lines.append(f"  {put.format(name, given)}")
    if hasattr(made, "__post_init__"):
        lines.append("  self.__post_init__()")
    arguments = [*taken[False], *(["*", *taken[True]] if taken[True] else [])]
    text = "\n".join([f"def __init__({', '.join(arguments)}):", *(lines or ["  pass"])])
    exec(text, known)
    init: Callable[..., None] = known["__init__"]
    init.__qualname__ = f"{made.__qualname__}.__init__"
    return init


def _comparison(made: type[Any], is_hashable: bool) -> dict[str, object]:
    """The methods that compare the fields."""
    names = [f.name for f in dataclasses.fields(made) if f.compare]
    values: Callable[[Any], tuple[object, ...]] = attrgetter(*names) if len(names) > 1 else (
        lambda record: tuple([getattr(record, name) for name in names]))

    def equal(self: Any, other: object) -> bool:
        return values(self) == values(other) if (
            other.__class__ is self.__class__) else NotImplemented

    def hashed(self: Any) -> int:
        return hash(values(self))

    return {"__eq__": equal, "__hash__": hashed if is_hashable else None}


@recursive_repr()
def _text(self: Any) -> str:
    shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}"
                      for f in dataclasses.fields(self) if f.repr)
    return f"{type(self).__qualname__}({shown})"
