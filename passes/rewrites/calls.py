"""The operations of shared functions take the place of calls.

    %b = strata.call @layer number 0 of ["m0"] (%x)         %w0 = graph.constant {... "a.w"}
    %d = strata.call @layer number 1 of ["m1"] (%b)         %b = graph.matmul %x, %w0
                                                     -->    %w1 = graph.constant {... "b.w"}
    strata.func @layer(%x: f32[n, 8]) ... {                 %d = graph.matmul %b, %w1
      %w = graph.constant {value = #strata.weights<...>}
      %y = graph.matmul %x, %w
      strata.return %y
    }

Each call's constants are its own weights, and each operation has the name of its own model node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple, TypeAlias

from xdsl.dialects.builtin import LocationAttr, ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from dialects.graph.constant import ConstantOp
from dialects.strata.control import CallOp
from dialects.strata.func import FuncOp
from dialects.strata.types import WeightsAttr
from dialects.text.syntax import location, location_names, merged, names_in
from dialects.walking import walked
from passes.events import Provenance
from passes.rewriting import erase, functions

Known: TypeAlias = dict[int, dict[str, None]]
"""The nodes that locations name, by identity."""


def called(module: ModuleOp) -> dict[str, list[CallOp]]:
    """The calls of each shared function, in order."""
    found: dict[str, list[CallOp]] = {}
    for func in functions(module):
        for op in func.body.block.ops:
            if isinstance(op, CallOp):
                found.setdefault(op.callee.data, []).append(op)
    return found


class Inlining:
    """Puts the operations of a function in the place of its calls. `nodes`: those of all calls."""

    def __init__(self, function: FuncOp, calls: Sequence[CallOp]):
        self.function, self.names_of_first = function, calls[0].node_names
        self.nodes = {name for call in calls for name in call.node_names}
        self.known = Known()
        self.shared: dict[tuple[int, SSAValue], SSAValue] = {}
        """The copies of constants that are the same in all calls, in each block."""

    def inline(self, call: CallOp) -> list[Operation]:
        """Replace a call by what the function computes. Returns the new operations."""
        own = dict(zip(self.names_of_first, call.node_names, strict=True))
        return self._inline(call, _Names(own, self.nodes, self.known))

    def _inline(self, call: CallOp, names: _Names) -> list[Operation]:
        block, function = call.parent_block(), self.function
        assert block is not None
        values: dict[SSAValue, SSAValue] = dict(
            zip(function.body.block.args, call.inputs, strict=True))
        copies: list[Operation] = []
        copy: Operation = call
        for op in function.body.block.ops:
            if op is function.return_op:
                continue
            there = self.shared.get((id(block), op.results[0])) if op.results else None
            if there is not None:  # a copy that all calls share
                values[op.results[0]] = there
                _share(there.owner, op, names)
                continue
            copy = op.clone(values)
            _make_own(copy, call, names)
            block.insert_op_before(copy, call)
            copies.append(copy)
            if isinstance(op, ConstantOp) and not op.varies:
                self.shared[id(block), op.result] = copy.results[0]
        named = {*names.own.values()}
        others = [name for name in location_names(call) if name not in named]
        copy.location = merged(copy.location, location(*others))  # nodes without one in call 0
        for old, new in zip(call.results, function.return_op.operands, strict=True):
            old.replace_all_uses_with(values[new])
        erase(call)
        return copies


def stand_for_all(kernels: Iterable[Operation], calls: Sequence[CallOp]) -> None:
    """Let what is inside a shared function's kernels stand for the nodes of all of its calls. Until
    then, it stands for those of the first one."""
    alike: dict[str, dict[str, None]] = {}
    for call in calls:
        for first, own in zip(calls[0].node_names, call.node_names, strict=True):
            alike.setdefault(first, {})[own or first] = None
    known: dict[int, tuple[LocationAttr, LocationAttr]] = {}
    for op in (inner for kernel in kernels for inner in walked(kernel)):
        place = op.location
        if id(place) not in known:
            names = dict.fromkeys(n for name in names_in(place) for n in alike.get(name, (name,)))
            known[id(place)] = place, location(*names)
        op.location = known[id(place)][1]


def explain_gone(provenance: Provenance, calls: Iterable[CallOp], first: Sequence[str]) -> None:
    """Say of the nodes of all calls why they have no operations, as it is known of the first's."""
    known = [(k, provenance.gone[name]) for k, name in enumerate(first) if name in provenance.gone]
    for call in calls if known else ():
        own = call.node_names
        names = dict(zip(first, own, strict=True))
        for k, reason in known:
            provenance.gone.setdefault(own[k], _renamed(reason, names))


def _renamed(reason: str, names: Mapping[str, str]) -> str:
    return re.sub(r"'([^']*)'", lambda match: f"'{names.get(match[1], match[1])}'", reason)


class _Names(NamedTuple):
    """The nodes of a call, by those of the first call; and those of all calls."""

    own: Mapping[str, str]
    all: Set[str]
    known: Known

    def of(self, op: Operation) -> LocationAttr:
        """The location of a copy in this call.

        A constant may stand for the nodes of all calls. What reads it has the names of all, too,
        and stands for those of this call only.
        """
        there = _names_of(op.location, self.known)
        if isinstance(op, ConstantOp) and all(
                self.own[name] in there for name in self.own.keys() & there.keys()):
            return op.location
        kept = [name for name in there if name in self.own or name not in self.all]
        names = dict.fromkeys(self.own.get(name, name) for name in kept)
        return op.location if names.keys() == there.keys() else location(*names)


def _share(copy: Operation | Block, op: Operation, names: _Names) -> None:
    """Let the copy of a constant also stand for the nodes of another call."""
    if isinstance(copy, Operation):
        copy.location = merged(copy.location, names.of(op))


def _make_own(op: Operation, call: CallOp, names: _Names) -> None:
    """Give a copy the weight and the model node of its call."""
    if isinstance(op, ConstantOp) and isinstance(op.value, WeightsAttr):
        op.value = op.value.of_call(call.place)
    for inner in walked(op):
        inner.location = names.of(inner)


def _names_of(place: LocationAttr, known: Known) -> dict[str, None]:
    """The nodes that a location names, looked up once for all calls."""
    found = known.get(id(place))
    if found is None:
        found = known[id(place)] = dict.fromkeys(names_in(place))
    return found
