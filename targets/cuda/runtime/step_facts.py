"""Steps of host functions in a form that JSON can represent: their fields, each by its form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

from dialects.strata.array_type import ArrayType, read_size, size_facts
from dialects.symbolic.expr_syntax import symbol_of
from dialects.symbolic.symbol import Symbol
from targets.cuda.runtime.planned import PlannedKernel


class Form(NamedTuple):
    """How a field is written, and read back."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]

    @property
    def listed(self) -> Form:
        """The form of a tuple of such fields."""
        def write(values: Iterable[Any]) -> list[Any]:
            return list(map(self.write, values))

        def read(facts: Iterable[Any]) -> tuple[Any, ...]:
            return tuple(map(self.read, facts))

        return Form(write, read)

    @property
    def optional(self) -> Form:
        """The form of such a field that may be None."""
        def write(value: Any) -> Any:
            return None if value is None else self.write(value)

        def read(facts: Any) -> Any:
            return None if facts is None else self.read(facts)

        return Form(write, read)


def _text(symbol: Symbol) -> str:
    return symbol.text


NUMBER, TEXT = Form(int, int), Form(str, str)
SIZE, SYMBOL = Form(size_facts, read_size), Form(_text, symbol_of)
TYPE = Form(ArrayType.facts, ArrayType.read)


class StepFacts:
    """A step that is made of its fields alone. `forms`: their forms, in the order of the fields."""

    forms: ClassVar[Mapping[str, Form]]

    def facts(self, kernels: Mapping[PlannedKernel, int]) -> list[Any]:
        """All fields, as JSON can represent them. `kernels`: the numbers of the kernels."""
        return [form.write(getattr(self, name)) for name, form in self.forms.items()]

    @classmethod
    def read(cls, facts: Sequence[Any], kernels: Sequence[PlannedKernel]) -> Self:
        """The inverse of `facts`."""
        return cls(*[form.read(f) for form, f in zip(cls.forms.values(), facts, strict=True)])
