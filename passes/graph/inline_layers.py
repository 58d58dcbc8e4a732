"""graph-inline-layers: a shared function whose borders cost something takes the place of its calls.

    %b = strata.call @layer number 0 of ["m0"] (%x)         %t = graph.transpose %x
    %d = strata.call @layer number 1 of ["m1"] (%b)         %a = graph.exp %t
                                                     -->    %c = graph.exp %a
    strata.func @layer(%x: f32[n, m]) ... {                 %d = graph.transpose %c
      %t = graph.transpose %x
      %a = graph.exp %t
      %y = graph.transpose %a
      strata.return %y
    }

`graph-call-layers` has cut the model before anything was simplified. This pass, which comes after
the last rules, puts three of the calls into a copy of the calling function: the first two and the
last. If a rule applies there, or operations of two layers are equal, or another place of the layer
is a better border, then calls are not worth what they save. `graph-share-layers` looks for
other borders later. Assumes that no rule applies to the module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from dialects.graph.constant import ConstantOp
from dialects.strata.control import CallOp
from dialects.strata.func import FuncOp
from passes.allowance import Allowance
from passes.analyses.graph.repetition import Steps
from passes.base import StrataContext, StrataPass
from passes.events import Provenance
from passes.graph.cse import merge_equal
from passes.graph.simplify import simplify
from passes.rewrites.calls import Inlining, called, explain_gone
from passes.rewriting import functions


class GraphInlineLayers(StrataPass):
    """Undo calls whose borders cost something."""

    name = "graph-inline-layers"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        by_name = {f.sym_name.data: f for f in functions(module)}
        for name, calls in called(module).items():
            if _is_worth_calling(by_name[name], calls, context):
                continue
            if not context.allowance.take(by_name[name], self.name):
                return
            inlining = Inlining(by_name[name], calls)
            explain_gone(context.provenance, calls[1:], inlining.names_of_first)
            callers = dict.fromkeys(call.parent_op() for call in calls)
            for call in calls:
                inlining.inline(call)
            module.body.block.erase_op(by_name[name])
            for caller in callers:
                assert isinstance(caller, FuncOp)
                simplify(caller, context)


def _is_worth_calling(
    function: FuncOp, calls: Sequence[CallOp], context: StrataContext
) -> bool:
    """Whether the calls of a function cost nothing but their borders' names. Calls in several
    functions, which only texts have, are no equal layers."""
    if len({call.parent_op() for call in calls}) > 1:
        return False
    module, caller = function.parent_op(), calls[0].parent_op()
    assert isinstance(module, ModuleOp) and isinstance(caller, FuncOp)
    trial = module.clone()
    own = called(trial)[function.sym_name.data]
    copy = next(f for f in functions(trial) if f.sym_name == function.sym_name)
    without_effect = replace(context, weights=context.weights.copy(), observers=(), noted={},
                             provenance=Provenance(), allowance=Allowance(), apart={},
                             together={})
    merge_equal(copy.body.block, without_effect)  # what a layer has twice is no border's cost
    inlining = Inlining(copy, own)
    bodies = [[op for op in inlining.inline(call) if not isinstance(op, ConstantOp)]
              for call in dict.fromkeys((own[0], own[1], own[-1]))]
    around = bodies[0][0].parent_op()
    assert isinstance(around, FuncOp)
    if simplify(around, without_effect) or any(
            not isinstance(op, ConstantOp) for op in merge_equal(
                around.body.block, without_effect)):
        return False
    return _is_well_cut(around, bodies)


def _is_well_cut(function: FuncOp, bodies: Sequence[Sequence[Operation]]) -> bool:
    """Whether no other border between the first two of equal parts would be better."""
    ops = [op for op in function.body.block.ops if not isinstance(op, ConstantOp)]
    steps = Steps(ops, [None] * len(ops))
    border, length = steps.places[bodies[1][0]], len(bodies[0])
    return steps.is_best_border(border, length)
