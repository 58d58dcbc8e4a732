"""`dataclass` and `NamedTuple` as the standard library's, for classes that are defined faster.

The standard decorator writes and compiles up to six methods for each class: two thirds of the time
in which our modules were imported. Here it writes `__init__` alone, when the first record is made:
most classes that a compilation imports have none. All classes share the other methods. That a
frozen record does not change is left to the type checker, so that frozen records are also made
faster. The text is compiled once for all classes of as many fields.

The standard `NamedTuple` compiles each annotation and the text of `__new__`, and makes two classes.
Here `__new__` is written for the first tuple of a class, and annotations stay texts.
"""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from operator import attrgetter
from reprlib import recursive_repr
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform, overload

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
    defaults: dict[bool, dict[str, Any]] = {False: {}, True: {}}
    names: dict[str, str] = {}
    lines: list[str] = []
    for k, field in enumerate(dataclasses.fields(made)):
        name = given = f"_{k}"
        names[name] = field.name
        if field.default_factory is not dataclasses.MISSING:
            known[f"_make{k}"] = field.default_factory
            given = f"_make{k}() if {name} is _missing else {name}" if field.init else f"_make{k}()"
        if field.init:
            by_name = field.kw_only is True
            taken[by_name].append(name)
            if given != name or field.default is not dataclasses.MISSING:
                defaults[by_name][field.name] = field.default  # missing, if there is a factory
        if field.init or "(" in given:
            lines.append(f"  {put.format(name, given)}")
    if hasattr(made, "__post_init__"):
        lines.append("  self.__post_init__()")
    arguments = [*taken[False], *(["*", *taken[True]] if taken[True] else [])]
    text = "\n".join([f"def __init__({', '.join(arguments)}):", *(lines or ["  pass"])])
    init = _function(text, names, known, tuple(defaults[False].values()))
    init.__kwdefaults__ = defaults[True]
    init.__qualname__ = f"{made.__qualname__}.__init__"
    return init


def _function(
    text: str, names: Mapping[str, str], known: dict[str, Any], defaults: tuple[Any, ...]
) -> FunctionType:
    """The function that a text defines, in which names stand for those of the fields.

    Functions of many classes differ in these names alone. Their text is compiled once.
    """
    def renamed(parts: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([names.get(p, p) if type(p) is str else p for p in parts])

    code = _compiled(text)
    own = code.replace(co_varnames=renamed(code.co_varnames), co_names=renamed(code.co_names),
                       co_consts=renamed(code.co_consts))
    return FunctionType(own, known, code.co_name, defaults)


@cache
def _compiled(text: str) -> CodeType:
    """The code of the one function that a text defines."""
    [code] = [c for c in compile(text, "<string>", "exec").co_consts if isinstance(c, CodeType)]
    return code


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


# ---------------------------------------------------------------------- named tuples
if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple  # type checkers know no other
else:

    class _NamedTuples(type):
        """The type of classes of named tuples. A class whose base is `NamedTuple` itself has the
        annotated fields; a class that is derived from such a class has the same ones."""

        def __new__(cls, name: str, bases: tuple[type, ...], members: dict[str, Any]) -> type:
            if len(bases) != 1 or bases[0].__base__ is not tuple:  # `NamedTuple`, or derived
                return super().__new__(cls, name, bases, members)
            fields = tuple(members.get("__annotations__", ()))
            defaults = {field: members.pop(field) for field in fields if field in members}
            getters = dict(zip(fields, _getters(-(-len(fields) // 16)), strict=False))
            made = super().__new__(cls, name, bases, {
                "__slots__": (), **members, **getters,
                "_fields": fields, "_field_defaults": defaults, "__match_args__": fields})
            made.__new__ = staticmethod(_first_new(made))
            return made

    class NamedTuple(tuple, metaclass=_NamedTuples):
        """The base of classes of named tuples."""

        __slots__ = ()
        _fields: tuple[str, ...] = ()
        _field_defaults: Mapping[str, Any] = {}

        @classmethod
        def _make(cls, values: Iterable[Any]) -> Any:
            """The tuple of these values. Raises TypeError if there are more or fewer than fields.
            """
            made = tuple.__new__(cls, values)
            if len(made) != len(cls._fields):
                raise TypeError(f"expected {len(cls._fields)} arguments, got {len(made)}")
            return made

        def _replace(self, /, **values: Any) -> Any:
            """The same tuple with other values of some fields. Raises ValueError for names that are
            no fields."""
            made = self._make(map(values.pop, self._fields, self))
            if values:
                raise ValueError(f"got unexpected field names: {list(values)!r}")
            return made

        def _asdict(self) -> dict[str, Any]:
            """Name of a field -> its value."""
            return dict(zip(self._fields, self, strict=True))

        def __getnewargs__(self) -> tuple[Any, ...]:
            """The arguments with which a pickled or copied tuple is made again."""
            return tuple(self)

        def __repr__(self) -> str:
            shown = ", ".join(f"{name}={value!r}"
                              for name, value in zip(self._fields, self, strict=True))
            return f"{type(self).__name__}({shown})"

    @cache
    def _getters(sixteens: int) -> tuple[Any, ...]:
        """What reads the first field, the second and so on: those of the standard library, which
        any class of tuples may have, are faster than properties."""
        standard = namedtuple("standard", [f"field{k}" for k in range(16 * sixteens)])
        return tuple([vars(standard)[name] for name in standard._fields])

    def _first_new(made: type[Any]) -> Callable[..., Any]:
        """The `__new__` that makes the first tuple of a class, and then the class's own."""
        def new(cls: type[Any], /, *arguments: object, **named: object) -> Any:
            own = _new_of(made)
            made.__new__ = staticmethod(own)
            return own(cls, *arguments, **named)

        return new

    def _new_of(made: type[Any]) -> Callable[..., Any]:
        """The `__new__` for the fields of a class, as the standard library's."""
        names = {f"_{k}": field for k, field in enumerate(made._fields)}
        taken = ", ".join(names)
        text = f"def __new__(_cls, {taken}): return _new(_cls, ({taken}{',' * (len(names) == 1)}))"
        new = _function(text, names, {"_new": tuple.__new__},
                        tuple(made._field_defaults.values()))
        new.__qualname__ = f"{made.__qualname__}.__new__"
        return new
