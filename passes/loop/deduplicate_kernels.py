"""loop-deduplicate-kernels: merge kernels that differ only in names.

    %a = loop.call @k0(%x) sizes(b, 2*b)              %a = loop.call @k0(%x) sizes(b, 2*b)
    %b = loop.call @k1(%y) sizes(n, m)                %b = loop.call @k0(%y) sizes(m, n)
    loop.kernel @k0(%p: f32[s, t]) sizes(s, t)  -->   loop.kernel @k0(%p: f32[s, t]) sizes(s, t)
    loop.kernel @k1(%q: f32[u, v]) sizes(v, u)

`Canonical` defines what counts as a name. The first of the equal kernels is kept. Kernels with
different schedules are not merged. Calls of one kernel with the same operands become one call: the
phases of a transposed convolution read one packed copy of the data. Works on the loop level, and
but for calls on the host level (`host.launch`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from dialects.host import FuncOp as HostFuncOp
from dialects.host import LaunchOp
from dialects.loop import CallOp
from dialects.strata.func import FuncOp
from dialects.strata.types import SizesAttr
from dialects.text.syntax import location, location_names, merge_locations
from dialects.walking import walked
from passes.analyses.loop.canonical import Canonical, with_equals
from passes.base import StrataContext, StrataPass
from passes.rewriting import erase


class LoopDeduplicateKernels(StrataPass):
    """Merge kernels that differ only in names."""

    name = "loop-deduplicate-kernels"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        first: dict[Hashable, Canonical] = {}
        equal: dict[Operation, list[Operation]] = {}
        merged: dict[str, tuple[Canonical, Canonical]] = {}
        for op in with_equals(module):
            this = Canonical.of(op)
            kept = first.setdefault(this.key, this)
            if kept is not this and context.allowance.take(op, self.name):
                merged[op.sym_name.data] = (this, kept)
                equal.setdefault(kept.kernel, []).append(op)
        for kernel, others in equal.items():
            _stand_for_all(kernel, others)
            for op in others:
                erase(op)
        for call in _calls(module):
            if call.kernel.data in merged:
                _redirect(call, *merged[call.kernel.data])
        for func in module.body.block.ops:
            if isinstance(func, FuncOp):
                _merge_calls(context, func)


def _stand_for_all(kernel: Operation, others: Sequence[Operation]) -> None:
    """Let a kernel, and each operation inside it, also stand for the nodes of the others."""
    for same in zip(*map(walked, (kernel, *others)), strict=True):
        names = dict.fromkeys(name for op in same for name in location_names(op))
        same[0].location = location(*names)


def _merge_calls(context: StrataContext, func: FuncOp) -> None:
    """Replace a call by an earlier one of the same kernel with the same operands and sizes."""
    first: dict[Hashable, CallOp] = {}
    for call in [op for op in func.body.block.ops if isinstance(op, CallOp)]:
        kept = first.setdefault((call.kernel.data, tuple(call.operands), call.sizes), call)
        if kept is not call and context.allowance.take(call, "loop-deduplicate-kernels"):
            for old, new in zip(call.results, kept.results, strict=True):
                old.replace_all_uses_with(new)
            merge_locations(kept, [call])
            erase(call)


def _calls(module: ModuleOp) -> list[CallOp | LaunchOp]:
    return [op for func in module.body.block.ops if isinstance(func, FuncOp | HostFuncOp)
            for op in func.body.block.ops if isinstance(op, CallOp | LaunchOp)]


def _redirect(call: CallOp | LaunchOp, old: Canonical, new: Canonical) -> None:
    """Call the kept kernel; its size parameters are the same sizes in another order."""
    values = dict(zip(old.parameters, call.sizes.data, strict=True))
    call.properties["kernel"] = new.kernel.sym_name
    call.properties["sizes"] = SizesAttr(tuple(values[p] for p in new.parameters))
