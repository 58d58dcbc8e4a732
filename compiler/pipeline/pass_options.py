"""The options of a pass, checked before it is made: names with a suggestion, values by type."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, get_type_hints

from compiler.suggestions import hint_for

if TYPE_CHECKING:
    from xdsl.passes import ModulePass
    from xdsl.utils.arg_spec import ArgSpec

_WORDS = {bool: "true or false", int: "an integer", float: "a number", str: "a text",
          tuple[int, ...]: "integers, with commas", tuple[str, ...]: "texts, with commas"}


def option_faults(class_: type[ModulePass], spec: ArgSpec) -> list[tuple[str, str]]:
    """What is wrong with the options of a spec, each with a hint; empty if nothing is."""
    hints = get_type_hints(class_) if spec.parameters else {}
    fields = {_shown(f.name): f for f in dataclasses.fields(class_)}
    found: list[tuple[str, str]] = []
    for key, values in spec.parameters.items():
        field = fields.get(_shown(key))
        if field is None:
            hint = hint_for(_shown(key), fields) if fields else "it has no options"
            found.append((f"{class_.name} has no option '{_shown(key)}'", hint))
        elif not _fits(values, hints[field.name]):
            found.append((f"the option {_shown(key)} of {class_.name} is "
                          f"{type_words(hints[field.name])}, not {_text(values)}", ""))
    given = {_shown(key) for key in spec.parameters}
    needed = sorted(set(map(_shown, class_.required_fields())) - given)
    return found + [(f"{class_.name} needs the option '{name}'", f"add {{{name}=...}}")
                    for name in needed]


def type_words(type_: Any) -> str:
    """A field's type as a person says it."""
    return _WORDS.get(type_, str(type_))


def _shown(name: str) -> str:
    return name.replace("_", "-")


def _text(values: tuple[Any, ...]) -> str:
    return ", ".join(str(v).lower() if isinstance(v, bool) else str(v) for v in values) or "nothing"


def _fits(values: tuple[Any, ...], type_: Any) -> bool:
    """Whether values have a type; types that are not listed here are left to xDSL."""
    single = {bool: (bool,), int: (int,), float: (int, float), str: (str,)}
    several = {tuple[int, ...]: int, tuple[str, ...]: str}
    if type_ in single:
        return len(values) == 1 and type(values[0]) in single[type_]
    return type_ not in several or all(type(v) is several[type_] for v in values)
