"""loop-inline-layers: the kernels of a shared function take the place of each of its calls.

    %b = strata.call @layer number 0 of ["m0"] (%x)         %w0 = graph.constant {... "a.w"}
    %d = strata.call @layer number 1 of ["m1"] (%b)         %b = loop.call @k0(%x, %w0)
                                                     -->    %w1 = graph.constant {... "b.w"}
    strata.func @layer(%x: f32[n, 8]) ... {                 %d = loop.call @k0(%b, %w1)
      %w = graph.constant {value = #strata.weights<...>}
      %y = loop.call @k0(%x, %w)
      strata.return %y
    }

From here on, a module is what it would be without `graph-share-layers`: each call's constants are
its own weights, and each operation has the name of its own model node. Assumes that kernels are
final, so that none is transformed again for each call.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import NamedTuple, TypeAlias

from xdsl.dialects.builtin import LocationAttr, ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from dialects.graph.constant import ConstantOp
from dialects.strata.control import CallOp
from dialects.strata.func import FuncOp
from dialects.strata.types import WeightsAttr
from dialects.text.syntax import location, location_names, merged, names_in
from dialects.walking import walked
from passes.base import StrataContext, StrataPass
from passes.rewriting import erase, functions

Known: TypeAlias = dict[int, dict[str, None]]
"""The nodes that locations name, by identity."""


class LoopInlineLayers(StrataPass):
    """Put the kernels of shared functions in the place of their calls."""

    name = "loop-inline-layers"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        by_name = {f.sym_name.data: f for f in functions(module)}
        layers, known = dict[str, _Layer](), Known()
        for op in (op for func in by_name.values() for op in func.body.block.ops):
            if isinstance(op, CallOp):
                layers.setdefault(op.callee.data, _Layer(op, known)).add(op)
        for func in by_name.values():
            shared: dict[SSAValue, SSAValue] = {}
            for op in list(func.body.block.ops):
                if isinstance(op, CallOp) and context.allowance.take(op, self.name):
                    layer = layers[op.callee.data]
                    _inline(op, by_name[op.callee.data], layer.names_in(op), shared)
        if not context.allowance.is_spent:
            for name in layers:
                module.body.block.erase_op(by_name[name])


class _Layer:
    """The calls of a function. `nodes`: those of all calls."""

    def __init__(self, first: CallOp, known: Known):
        self.first, self.known, self.nodes = first, known, set[str]()

    def add(self, call: CallOp) -> None:
        self.nodes |= {*call.names_of(self.first).values()}

    def names_in(self, call: CallOp) -> _Names:
        return _Names(call.names_of(self.first), self.nodes, self.known)


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


def _inline(
    call: CallOp, function: FuncOp, names: _Names, shared: dict[SSAValue, SSAValue],
) -> None:
    """Copy a function's operations before a call, which is replaced by what they return.

    `shared`: the copies of constants that are the same in all calls of a function.
    """
    values = {**shared, **dict(zip(function.body.block.args, call.inputs, strict=True))}
    block = call.parent_block()
    assert block is not None
    copy: Operation = call
    for op in function.body.block.ops:
        if op is function.return_op:
            continue
        if op.results and op.results[0] in values:  # a copy that all calls share
            _share(values[op.results[0]].owner, op, names)
            continue
        copy = op.clone(values)
        _make_own(copy, call, names)
        block.insert_op_before(copy, call)
        if isinstance(op, ConstantOp) and not op.varies:
            shared[op.result] = copy.results[0]
    named = {*names.own.values()}
    others = [name for name in location_names(call) if name not in named]
    copy.location = merged(copy.location, location(*others))  # nodes that call 0 has no pair for
    for old, new in zip(call.results, function.return_op.operands, strict=True):
        old.replace_all_uses_with(values[new])
    erase(call)


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
