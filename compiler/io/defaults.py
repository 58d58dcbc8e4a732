"""Inputs of a model with a default value, which compilation treats as constants.

Such an input is also an initializer (from IR version 4 on), and onnxruntime accepts other contents
at any call. Here it is a constant, so that weights can be packed and folded, unless the options
name it. A module lists these inputs in the attribute `strata.defaults`: name -> `3x2`, the sizes
in the form of `--shape`. The error for a call that passes such an input can then say what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from compiler.diagnostics import Problem

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

ATTRIBUTE = "strata.defaults"


def mark_defaults(module: ModuleOp, shapes: Mapping[str, Sequence[int]]) -> None:
    """Note the inputs that have become constants, with their shapes."""
    from xdsl.dialects.builtin import DictionaryAttr, StringAttr

    if shapes:
        module.attributes[ATTRIBUTE] = DictionaryAttr({
            name: StringAttr("x".join(map(str, shape))) for name, shape in shapes.items()})


def defaults_of(module: ModuleOp) -> dict[str, str]:
    """The inputs that have become constants, with their sizes."""
    from xdsl.dialects.builtin import DictionaryAttr, StringAttr

    found = module.attributes.get(ATTRIBUTE)
    if not isinstance(found, DictionaryAttr):
        return {}
    return {k: v.data for k, v in found.data.items() if isinstance(v, StringAttr)}


def default_problems(names: Iterable[str], defaults: Mapping[str, str]) -> list[Problem]:
    """The problems of a call that passes these inputs, of which some have defaults."""
    return [Problem(f"input '{name}' has a default in the model, which was compiled as a constant",
                    hint=f"name it when compiling: shapes={{{name!r}: {_list(sizes)}}} "
                         f"(--shape {name}={sizes}) makes it an input, "
                         f"constants={{{name!r}: ARRAY}} gives it other contents")
            for name, sizes in defaults.items() if name in {*names}]


def _list(sizes: str) -> list[int]:
    return [int(size) for size in sizes.split("x") if size]
