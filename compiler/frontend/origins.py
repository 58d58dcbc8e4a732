"""The nodes of a model, for provenance: their names and operators, and where their results come
from if the import built no operation for them.

    Shape(x) -> Gather(0)     known when compiling: [batch]
    Identity(x)               alias of the input 'x'
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, cast

from xdsl.ir import Operation, SSAValue

from dialects.text.syntax import location_names

SHOWN = 4
"""How many known elements a reason shows."""


class ModelNode(NamedTuple):
    """A node: its name, as in locations, and its operator.

    `gone`: why it has no operation after the import; empty if it has some. `scope`: the module that
    it is part of, as `encoder.layer.3.attention`. `source`: the line of the user's code that makes
    it, as `model.py:12 in forward: return x + y`. Both are empty where the model does not tell.
    """

    name: str
    op: str
    gone: str = ""
    scope: str = ""
    source: str = ""


def node_of(
    name: str, op: str, results: Iterable[Any], scope: str = "", source: str = ""
) -> ModelNode:
    """The node with these results: values of the import, or what else an importer returns."""
    flat = list(_flattened(results))
    tensors = [value for value in flat if _is_value(value)]
    owners = [value.ssa.owner for value in tensors if value.ssa is not None]
    own = any(isinstance(o, Operation) and name in location_names(o) for o in owners)
    return ModelNode(name, op, "" if own else _reason(tensors, len(flat)), scope, source)


def _flattened(results: Any) -> Iterable[Any]:
    if isinstance(results, (list, tuple)):
        for result in cast("list[Any]", results):
            yield from _flattened(result)
    elif results is not None:
        yield results


def _is_value(value: Any) -> bool:
    return hasattr(value, "ssa") and hasattr(value, "contents")


def _reason(tensors: list[Any], count: int) -> str:
    """Why no operation with results of its own came from a node."""
    known = [value.contents for value in tensors if value.ssa is None]
    if known and all(contents is not None for contents in known):
        return f"known when compiling: {', '.join(map(_shown, known))}"
    ends = list(dict.fromkeys(_source(v.ssa) for v in tensors if v.ssa is not None))
    if ends:
        return f"alias of {', '.join(ends)}"
    return "it has no result that is a tensor of the run" if count else "it has no results"


def _shown(contents: Any) -> str:
    few = [str(e) for e in contents.reshape(-1)[:SHOWN]]
    return f"[{', '.join(few)}{', ...' if contents.size > SHOWN else ''}]"


def _source(value: SSAValue) -> str:
    if isinstance(value.owner, Operation):
        names = location_names(value.owner)
        return f"'{names[0]}'" if names else value.owner.name
    return f"the input '{value.name_hint or ''}'"
