"""Which online sums may have warps that only load: attention.

    %q = block.load %Q; block.full ...
    %m, %l, %o = block.for %k (...) {
      %x = block.load %K; %s = block.dot %q, %x, 0
      %w = maps, reductions of %s and of what is carried
      %y = block.load %V; %p = block.dot %w, %y, maps of %o; yield
    }
    block.load, block.index, block.valid, block.map, block.store

Factors are halves, in tiles that can be copied at once (`specialized/copied.py`), which nothing
else reads. The carried sums begin with zeros, and are scaled by numbers of their rows. What the
loop computes is the same however far beyond its end it goes: conditions in it say which scores
count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from dialects.block import (
    DotOp,
    ForOp,
    FullOp,
    IndexOp,
    KernelOp,
    LoadOp,
    MapOp,
    ReduceOp,
    StoreOp,
    ValidOp,
    YieldOp,
)
from dialects.strata import types as t
from dialects.symbolic.symbol import Symbol
from targets.cuda.emit.context import buffer_type, tile_type
from targets.cuda.emit.specialized.copied import Rectangle, rectangle
from targets.cuda.emit.specialized.kernel import GROUP_ROWS
from targets.cuda.errors import EmitError

_INSIDE = (FullOp, IndexOp, ValidOp, MapOp, ReduceOp)
_BEHIND = (LoadOp, IndexOp, ValidOp, MapOp, StoreOp)


def is_online(kernel: KernelOp) -> bool:
    """Whether a loop of a kernel has two products."""
    return any(sum(isinstance(op, DotOp) for op in loop.body.block.ops) == 2
               for loop in kernel.body.block.ops if isinstance(loop, ForOp))


@dataclass(frozen=True)
class Attention:
    """A kernel in that form.

    `scores`, `products`: the two products. `weights`: what is computed between them, `scaling`:
    what is done with the carried sums before they are added to, and `total`: which of the carried
    values these are. `row_axis`: the axis of the grid that says which rows a program has.
    """

    loop: ForOp
    scores: DotOp
    products: DotOp
    weights: Sequence[Operation]
    scaling: Sequence[Operation]
    total: int
    before: Sequence[Operation]
    behind: Sequence[Operation]
    queries: Rectangle
    keys: Rectangle
    values: Rectangle
    row_axis: int


def attention_form(kernel: KernelOp) -> Attention:
    """Raises EmitError, saying what is in the way."""
    around = [op for op in kernel.body.block.ops if not isinstance(op, YieldOp)]
    loops = [op for op in around if isinstance(op, ForOp)]
    _need(len(loops) == 1, "one loop")
    [loop] = loops
    inside = [op for op in loop.body.block.ops if not isinstance(op, YieldOp)]
    scores, products = (op for op in inside if isinstance(op, DotOp))
    zeros, queries = scores.c.owner, scores.a.owner
    _need(isinstance(zeros, FullOp) and zeros.number == 0 and isinstance(queries, LoadOp),
          "scores that are products of what is loaded")
    total = _total(loop, products)
    scaling = _users(loop.body.block.args[1 + total], inside, products)
    factors = [scores.b.owner, products.b.owner]
    weights = [op for op in inside
               if op not in (scores, products, zeros, *factors) and op not in scaling]
    place = around.index(loop)
    before = [op for op in around[:place] if op not in (queries, zeros)]
    behind = around[place + 1:]
    strange = [op.name for ops, kinds in ((before, FullOp), (weights, _INSIDE), (behind, _BEHIND))
               for op in ops if not isinstance(op, kinds)]
    _need(not strange, f"none of {', '.join(strange)}")
    found = Attention(loop, scores, products, weights, scaling, total, before, behind,
                      *(_factor(v) for v in (scores.a, scores.b, products.b)),
                      row_axis=_row_axis(kernel, scores.a))
    _check(found, kernel)
    return found


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise EmitError(f"warps that only load need, beside online sums, {what}")


def _total(loop: ForOp, products: DotOp) -> int:
    """Which of the carried values the sums of products are."""
    found = [k for k, v in enumerate(loop.yielded) if v is products.result]
    _need(len(found) == 1 and len(list(products.result.uses)) == 1, "sums that are carried")
    [total] = found
    first = loop.carried[total].owner
    _need(isinstance(first, FullOp) and first.number == 0, "sums that begin with zeros")
    return total


def _users(value: SSAValue, ops: Sequence[Operation], products: DotOp) -> list[Operation]:
    """What uses a value, or what is made of it, before products are added to it."""
    found, made = list[Operation](), {value}
    for op in ops:
        if op is not products and made & set(op.operands):
            _need(isinstance(op, MapOp), "sums that are scaled only")
            found.append(op)
            made |= set(op.results)
    _need(products.c in made and products.a not in made, "sums that are added to")
    uses = {use.operation for v in made for use in v.uses}
    _need(uses <= {*found, products}, "sums that nothing else reads")
    return found


def _factor(value: SSAValue) -> Rectangle:
    load = value.owner
    found = rectangle(load, tile_type(value).shape) if isinstance(load, LoadOp) else None
    if found is None or not isinstance(load, LoadOp) or load.pad_value != 0 or (
            len(list(load.buffer.uses)) != 1 or len(list(value.uses)) != 1):
        raise EmitError("warps that only load need tiles of matrices that nothing else reads, "
                        "zeros around them")
    _need(buffer_type(load.buffer).element in (t.f16, t.bf16), "factors that are halves")
    return found


def _row_axis(kernel: KernelOp, queries: SSAValue) -> int:
    """The axis of the grid that the first dim of a tile lies along."""
    load = queries.owner
    assert isinstance(load, LoadOp)
    named = {Symbol.operand(k): v for k, v in enumerate(load.indices)}
    [along] = [e for e in load.exprs if Symbol.place(0) in e.symbols] or [None]
    ids = [v for name, v in named.items() if along is not None and name in along.symbols]
    axes = [k for k, v in enumerate(kernel.program_ids) if v in ids]
    _need(len(axes) == len(ids) == 1, "rows along one axis of programs")
    return axes[0]


def _check(form: Attention, kernel: KernelOp) -> None:
    rows = tile_type(form.scores.result).shape[0]
    _need(rows == GROUP_ROWS, f"tiles of {GROUP_ROWS} rows, not {rows}")
    row = kernel.program_ids[form.row_axis]
    _need(not any(row in r.indices for r in (form.keys, form.values)),
          "keys and values that all rows read")
    made = {r for op in form.scaling for r in op.results} | {
        form.loop.body.block.args[1 + form.total]}
    beside = [v for op in form.scaling for v in op.operands if v not in made]
    beside += [v for k, v in enumerate(form.loop.results) if k != form.total]
    _need(all(len(tile_type(v).shape) == 1 for v in beside), "one number of each row")
    loop = form.loop
    _need(loop.lower.data.constant is not None and bool(loop.step.data.constant),
          "steps of a known length, from a known one")
