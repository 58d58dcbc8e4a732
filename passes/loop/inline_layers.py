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
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp, NameLoc, StringAttr
from xdsl.ir import Operation, SSAValue

from dialects.graph.constant import ConstantOp
from dialects.strata.control import CallOp
from dialects.strata.func import FuncOp
from dialects.strata.types import WeightsAttr
from dialects.text.syntax import location_name
from dialects.walking import walked
from passes.base import StrataContext, StrataPass
from passes.rewriting import functions, replace


@dataclass(frozen=True)
class LoopInlineLayers(StrataPass):
    """Put the kernels of shared functions in the place of their calls."""

    name = "loop-inline-layers"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        by_name = {f.sym_name.data: f for f in functions(module)}
        firsts: dict[str, CallOp] = {}
        for func in by_name.values():
            shared: dict[SSAValue, SSAValue] = {}
            for op in list(func.body.block.ops):
                if isinstance(op, CallOp):
                    first = firsts.setdefault(op.callee.data, op)
                    _inline(op, by_name[op.callee.data], op.names_of(first), shared)
        for name in firsts:
            module.body.block.erase_op(by_name[name])


def _inline(
    call: CallOp, function: FuncOp, names: Mapping[str, str], shared: dict[SSAValue, SSAValue]
) -> None:
    """Copy a function's operations before a call, which is replaced by what they return.

    `shared`: the copies of constants that are the same in all calls of a function.
    """
    values = {**shared, **dict(zip(function.body.block.args, call.inputs, strict=True))}
    block = call.parent_block()
    assert block is not None
    for op in function.body.block.ops:
        if op is function.return_op or values.keys() & {*op.results}:
            continue
        copy = op.clone(values)
        _make_own(copy, call, names)
        block.insert_op_before(copy, call)
        if isinstance(op, ConstantOp) and not op.varies:
            shared[op.result] = copy.results[0]
    replace(call, [values[v] for v in function.return_op.operands])


def _make_own(op: Operation, call: CallOp, names: Mapping[str, str]) -> None:
    """Give a copy the weight and the model node of its call."""
    if isinstance(op, ConstantOp) and isinstance(op.value, WeightsAttr):
        op.value = op.value.of_call(call.place)
    for inner in walked(op):
        if location_name(inner) in names:
            assert isinstance(inner.location, NameLoc)
            name = StringAttr(names[location_name(inner)])
            inner.location = NameLoc(name, inner.location.location)
