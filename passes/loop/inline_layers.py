"""loop-inline-layers: the kernels of a shared function take the place of each of its calls.

    %b = strata.call @layer number 0 of ["m0"] (%x)         %w0 = graph.constant {... "a.w"}
    %d = strata.call @layer number 1 of ["m1"] (%b)         %b = loop.call @k0(%x, %w0)
                                                     -->    %w1 = graph.constant {... "b.w"}
    strata.func @layer(%x: f32[n, 8]) ... {                 %d = loop.call @k0(%b, %w1)
      %w = graph.constant {value = #strata.weights<...>}
      %y = loop.call @k0(%x, %w)
      strata.return %y
    }

From here on, a module is what it would be without shared functions (`passes/rewrites/calls.py`),
and what is inside a kernel stands for the nodes of all calls. Assumes that kernels are final, so
that none is transformed again for each call.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from dialects.loop import CallOp, KernelOp
from passes.base import StrataContext, StrataPass
from passes.rewrites.calls import Inlining, called, explain_gone, stand_for_all
from passes.rewriting import functions


class LoopInlineLayers(StrataPass):
    """Put the kernels of shared functions in the place of their calls."""

    name = "loop-inline-layers"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        by_name = {f.sym_name.data: f for f in functions(module)}
        kernels = {op.sym_name.data: op for op in module.body.block.ops if isinstance(op, KernelOp)}
        for name, calls in called(module).items():
            used = {op.kernel.data: None for op in by_name[name].walk() if isinstance(op, CallOp)}
            stand_for_all([kernels[kernel] for kernel in used], calls)
            inlining = Inlining(by_name[name], calls)
            explain_gone(context.provenance, calls[1:], inlining.names_of_first)
            for call in calls:
                if context.allowance.take(call, self.name):
                    inlining.inline(call)
            if not context.allowance.is_spent:
                module.body.block.erase_op(by_name[name])
