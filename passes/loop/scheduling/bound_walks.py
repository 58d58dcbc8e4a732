"""loop-bound-walks: a small kernel finds which keys each block of rows may see, for attention.

    %y = loop.call @online_0(%q, %k, %v, %ids)
    -->
    %first, %last = loop.call @visible_0(%ids)           per block of rows (`visible.py`)
    %y = loop.call @online_0(%q, %k, %v, %ids, %first, %last)

    loop.kernel @online_0(...) schedule<grid i0 tile 64, ..., loop i1 tile 64> {
      loop.visible i1 from %first to %last [i0 floordiv 64]
      ...                                                scores as before: -inf where ids differ
    }

So programs leave out tiles that the entries of tables hide, such as those of other documents or of
padding, and all heads and layers share the search. Only masks that tables tell are searched:
where places alone hide scores, loops know it from `passes.analyses.loop.limits`.

Assumes that kernels have schedules, which say how many rows a block has, and that layers are
inlined, so that calls with the same tables share one search. Targets whose programs search the
mask for themselves (without `Facts.bounds_walks`) need no such kernel, nor does a schedule that
lets programs do so (the option `search`).
"""

from __future__ import annotations

from collections.abc import Hashable

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from dialects.loop import CallOp, KernelOp, VisibleOp
from dialects.strata.schedule import Schedule, ScheduleAttr
from dialects.strata.schedule_options import SEARCH
from dialects.strata.types import TensorType, i32, tensor
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import set_location
from passes.analyses.loop.canonical import Canonical
from passes.analyses.loop.level_order import with_sums_inside
from passes.analyses.loop.seen import Seen, seen_scores
from passes.base import StrataContext, StrataPass
from passes.rewrites.chains.chain import calls_in
from passes.rewrites.kernels.visible import Visible
from passes.rewriting import erase


class LoopBoundWalks(StrataPass):
    """Let a small kernel find what blocks of rows see along the keys."""

    name = "loop-bound-walks"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        if context.rules is None or not context.facts.bounds_walks:
            return
        kernels = [op for op in module.body.block.ops if isinstance(op, KernelOp)]
        searches: dict[str, tuple[KernelOp, list[int]]] = {}
        equal: dict[Hashable, KernelOp] = {}
        for kernel in kernels:
            found = _visible(kernel)
            if found is None or not context.allowance.take(kernel, self.name):
                continue
            number = kernel.sym_name.data.rpartition("_")[2]
            search = found.kernel(f"visible_{number}", kernel)
            canonical = Canonical.of(search)
            key = canonical.key, tuple(canonical.parameters)
            if key not in equal:
                schedule = with_sums_inside(search, context.rules.schedule(search))
                search.properties["schedule"] = ScheduleAttr(schedule)
                equal[key] = search
                module.body.block.insert_op_before(search, kernel)
            _take_places(kernel, found)
            arguments: list[SSAValue] = list(kernel.body.block.args)
            searches[kernel.sym_name.data] = equal[key], [
                arguments.index(v) for v in found.inputs]
        known: dict[Hashable, CallOp] = {}
        for call in calls_in(module):
            if call.kernel.data in searches:
                _call(call, *searches[call.kernel.data], known)


def _visible(kernel: KernelOp) -> Visible | None:
    """What a search can tell, if each program walks the keys for one block of rows."""
    seen = seen_scores(kernel)
    if seen is None or kernel.schedule is None or any(
            isinstance(op, VisibleOp) for op in kernel.body.block.ops):
        return None
    schedule = kernel.schedule.data
    if schedule.option(SEARCH):
        return None
    tiles = _blocks(seen, schedule)
    return None if tiles is None else Visible.of(seen, tiles)


def _blocks(seen: Seen, schedule: Schedule) -> dict[Symbol, int] | None:
    """How many rows a program computes along each axis; None if it would not leave out anything, or
    walks scores along several axes, all of which would have to."""
    rows = [a.name for a in seen.scores.axes if a.name != seen.axis]
    levels = {x.axis: [y for y in schedule.levels if y.axis == x.axis] for x in schedule.levels}
    walked = {*seen.walked} == {seen.axis} and seen.is_walked(schedule) and seen.has_trips(schedule)
    placed = all([x.kind for x in levels.get(a, ())] == ["grid"] for a in rows)
    return {a: levels[a][0].tile for a in rows} if walked and placed else None


def _take_places(kernel: KernelOp, found: Visible) -> None:
    """Give a kernel the places as its last inputs, and say what they are."""
    block, axes = kernel.body.block, found.axes
    type_ = tensor(i32, [a.extent for a in axes])
    first, last = (block.insert_arg(type_, len(block.args)) for _ in range(2))
    first.name_hint, last.name_hint = "first", "last"
    at = [Expr.symbol(a.name) // found.tiles[a.name] for a in axes]
    note = VisibleOp.of(found.seen.axis, first, last, at)
    set_location(note, found.seen.scores)
    first_op = block.first_op
    assert first_op is not None
    block.insert_op_before(note, first_op)


def _call(
    call: CallOp, search: KernelOp, numbers: list[int], known: dict[Hashable, CallOp]
) -> None:
    """Pass on what a search finds, which one call finds for all that read the same tables."""
    block = call.parent_block()
    assert block is not None
    inputs: list[SSAValue] = [call.inputs[k] for k in numbers]
    key = block, search.sym_name.data, tuple(inputs), call.sizes
    if key not in known:
        sizes = dict(zip(search.size_names, call.sizes.data, strict=True))
        types = [tensor(v.type.element, [e.substitute(sizes) for e in v.type.shape])
                 for v in search.yielded if isinstance(v.type, TensorType)]
        known[key] = found = CallOp.of(search.sym_name.data, inputs, call.sizes.data, types)
        set_location(found, search)
        for result, hint in zip(found.results, ("first", "last"), strict=True):
            result.name_hint = hint
        block.insert_op_before(found, call)
    types = [r.type for r in call.results if isinstance(r.type, TensorType)]
    new = CallOp.of(call.kernel.data, [*call.inputs, *known[key].results], call.sizes.data, types)
    set_location(new, call)
    block.insert_op_before(new, call)
    for old, result in zip(call.results, new.results, strict=True):
        result.name_hint = old.name_hint
        old.replace_all_uses_with(result)
    erase(call)
