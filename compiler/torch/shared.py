"""Compiled graphs of this process, found by what the graphs say.

Dynamo compiles equal blocks of a model one by one where their classes or modules differ. Their
graphs are equal but for weights, so that code of the first is given the weights of the others.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from compiler.torch.identity import identity_of
from compiler.torch.parts import Part, Viewed
from compiler.torch.reordered import Reordered
from compiler.torch.weights import may_change

Code = Part | Reordered | Viewed

_known: weakref.WeakValueDictionary[str, Code] = weakref.WeakValueDictionary()


def find(key: str, weights: Mapping[str, Any]) -> Code | None:
    """Code for an equal graph, with these weights; None if there is none that takes them."""
    code = _known.get(key)
    return code and code.with_weights(weights, [n for n, v in weights.items() if may_change(v)])


def keep(key: str, code: object) -> None:
    """Let later graphs find code, as long as something uses it."""
    if isinstance(code, Code):
        _known[key] = code


def key_of(
    graph: Any, weights: Mapping[str, Any], options: Mapping[str, Any],
    donated: Sequence[int] = (), written: Sequence[int] = (),
) -> str:
    """What the code of a graph depends on, but for the contents of weights that may change.

    Empty for a graph that holds other things.
    """
    identity = identity_of(graph, weights)
    if "dump_dir" in options or not identity:
        return ""
    shown = repr(sorted(options.items(), key=lambda o: o[0]))
    return "\n".join([identity, shown, repr([[*donated], [*written]])])
