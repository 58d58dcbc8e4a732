"""Inputs of a model that have a default, which compilation takes for a constant.

onnxruntime takes other contents for them at any call (an initializer that is an input as well, from
IR version 4 on). Here they are constants, with which weights can be packed and folded, unless
options name them. A module tells of them in the attribute `strata.defaults`: name -> `3x2`, its
sizes as `--shape` takes them. So a call that brings such an input anyway is told what to do.
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
    """What a call does wrong that gives these inputs, of which some have defaults."""
    return [Problem(f"input '{name}' has a default in the model, which was compiled as a constant",
                    hint=f"name it when compiling: shapes={{{name!r}: {_list(sizes)}}} "
                         f"(--shape {name}={sizes}) makes it an input, "
                         f"constants={{{name!r}: ARRAY}} gives it other contents")
            for name, sizes in defaults.items() if name in {*names}]


def _list(sizes: str) -> list[int]:
    return [int(size) for size in sizes.split("x") if size]
