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

from collections.abc import Mapping
from typing import TypeAlias

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
        firsts, known = dict[str, CallOp](), Known()
        for func in by_name.values():
            shared: dict[SSAValue, SSAValue] = {}
            for op in list(func.body.block.ops):
                if isinstance(op, CallOp) and context.allowance.take(op, self.name):
                    first = firsts.setdefault(op.callee.data, op)
                    _inline(op, by_name[op.callee.data], op.names_of(first), shared,
                            known)
        if not context.allowance.is_spent:
            for name in firsts:
                module.body.block.erase_op(by_name[name])


def _inline(
    call: CallOp, function: FuncOp, names: Mapping[str, str], shared: dict[SSAValue, SSAValue],
    known: Known,
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
            _share(values[op.results[0]].owner, op, names, known)
            continue
        copy = op.clone(values)
        _make_own(copy, call, names, known)
        block.insert_op_before(copy, call)
        if isinstance(op, ConstantOp) and not op.varies:
            shared[op.result] = copy.results[0]
    named = {*names.values()}
    others = [name for name in location_names(call) if name not in named]
    copy.location = merged(copy.location, location(*others))  # nodes that call 0 has no pair for
    for old, new in zip(call.results, function.return_op.operands, strict=True):
        old.replace_all_uses_with(values[new])
    erase(call)


def _share(
    copy: Operation | Block, op: Operation, names: Mapping[str, str], known: Known
) -> None:
    """Let the copy of a constant also stand for the nodes of another call."""
    if isinstance(copy, Operation):
        copy.location = merged(copy.location, _renamed(op.location, names, known))


def _make_own(op: Operation, call: CallOp, names: Mapping[str, str], known: Known) -> None:
    """Give a copy the weight and the model node of its call."""
    if isinstance(op, ConstantOp) and isinstance(op.value, WeightsAttr):
        op.value = op.value.of_call(call.place)
    for inner in walked(op):
        inner.location = _renamed(inner.location, names, known)


def _renamed(place: LocationAttr, names: Mapping[str, str], known: Known) -> LocationAttr:
    there = _names_of(place, known)
    found = names.keys() & there.keys()
    if all(names[name] in there for name in found):  # or it stands for the nodes of all calls
        return place
    return location(*dict.fromkeys(own for name in there if (own := names.get(name, name))))


def _names_of(place: LocationAttr, known: Known) -> dict[str, None]:
    """The nodes that a location names, looked up once for all calls."""
    found = known.get(id(place))
    if found is None:
        found = known[id(place)] = dict.fromkeys(names_in(place))
    return found
