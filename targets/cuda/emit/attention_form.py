"""Which kernels with an online softmax may use warp specialization: attention.

    %q = block.load %Q; block.full ...
    %m, %l, %o = block.for %k (...) {
      %x = block.load %K; %s = block.dot %q, %x, 0
      %w = maps, reductions of %s and of what is carried
      %y = block.load %V; %p = block.dot %w, %y, maps of %o; yield
    }
    block.load, block.index, block.valid, block.map, block.store

The factors are 16-bit floats, in tiles that TMA can copy (`specialized/copied.py`), and nothing
else reads them. The carried sums start with zeros and are scaled by one number per row. The loop
may run beyond its end without changing the result, because conditions inside it decide which scores
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
)
from dialects.block.programs import tile_type
from dialects.strata import types as t
from dialects.strata.types import buffer_type
from dialects.symbolic.symbol import Symbol
from targets.cuda.emit.specialized.copied import Rectangle, rectangle
from targets.cuda.emit.specialized.kernel import GROUP_ROWS
from targets.cuda.errors import EmitError
from targets.walking import operations

_INSIDE = (FullOp, IndexOp, ValidOp, MapOp, ReduceOp)
_EPILOGUE = (LoadOp, IndexOp, ValidOp, MapOp, StoreOp)


def is_online(kernel: KernelOp) -> bool:
    """Whether a loop of the kernel has two products."""
    return any(sum(isinstance(op, DotOp) for op in loop.body.block.ops) == 2
               for loop in kernel.body.block.ops if isinstance(loop, ForOp))


@dataclass(frozen=True)
class Attention:
    """A kernel of that form.

    `scores`, `products`: the two products. `weights`: the operations between them. `scaling`: the
    operations that scale the carried sums before the next products are added. `total`: the position
    of those sums among the carried values. `row_axis`: the grid axis that selects a program's rows.
    """

    loop: ForOp
    scores: DotOp
    products: DotOp
    weights: Sequence[Operation]
    scaling: Sequence[Operation]
    total: int
    before: Sequence[Operation]
    epilogue: Sequence[Operation]
    queries: Rectangle
    keys: Rectangle
    values: Rectangle
    row_axis: int


def attention_form(kernel: KernelOp) -> Attention:
    """The form of a kernel. Raises EmitError, which says what does not fit."""
    around = [*operations(kernel.body.block)]
    loops = [op for op in around if isinstance(op, ForOp)]
    _need(len(loops) == 1, "one loop")
    [loop] = loops
    inside = [*operations(loop.body.block)]
    scores, products = (op for op in inside if isinstance(op, DotOp))
    zeros, queries = scores.c.owner, scores.a.owner
    _need(isinstance(zeros, FullOp) and zeros.number == 0 and isinstance(queries, LoadOp),
          "scores that multiply loaded factors")
    total = _total(loop, products)
    scaling = _users(loop.body.block.args[1 + total], inside, products)
    factors = [scores.b.owner, products.b.owner]
    weights = [op for op in inside
               if op not in (scores, products, zeros, *factors) and op not in scaling]
    place = around.index(loop)
    before = [op for op in around[:place] if op not in (queries, zeros)]
    epilogue = around[place + 1:]
    parts = (before, FullOp), (weights, _INSIDE), (epilogue, _EPILOGUE)
    unsupported = [op.name for ops, kinds in parts for op in ops if not isinstance(op, kinds)]
    _need(not unsupported, f"a kernel without {', '.join(unsupported)}")
    found = Attention(loop, scores, products, weights, scaling, total, before, epilogue,
                      *(_factor(v) for v in (scores.a, scores.b, products.b)),
                      row_axis=_row_axis(kernel, scores.a))
    _check(found, kernel)
    return found


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise EmitError(f"warp specialization of attention needs {what}")


def _total(loop: ForOp, products: DotOp) -> int:
    """The position of the sums of products among the carried values."""
    found = [k for k, v in enumerate(loop.yielded) if v is products.result]
    _need(len(found) == 1 and len(list(products.result.uses)) == 1, "sums that the loop carries")
    [total] = found
    first = loop.carried[total].owner
    _need(isinstance(first, FullOp) and first.number == 0, "sums that start with zeros")
    return total


def _users(value: SSAValue, ops: Sequence[Operation], products: DotOp) -> list[Operation]:
    """The operations that use a value, or a result of such an operation, before the product."""
    found, made = list[Operation](), {value}
    for op in ops:
        if op is not products and made & set(op.operands):
            _need(isinstance(op, MapOp), "sums that are only scaled")
            found.append(op)
            made |= set(op.results)
    _need(products.c in made and products.a not in made, "sums to which products are added")
    uses = {use.operation for v in made for use in v.uses}
    _need(uses <= {*found, products}, "sums that nothing else reads")
    return found


def _factor(value: SSAValue) -> Rectangle:
    load = value.owner
    found = rectangle(load, tile_type(value).shape) if isinstance(load, LoadOp) else None
    if found is None or not isinstance(load, LoadOp) or load.pad_value != 0 or (
            len(list(load.buffer.uses)) != 1 or len(list(value.uses)) != 1):
        raise EmitError("warp specialization of attention needs tiles of matrices that nothing "
                        "else reads, padded with zeros")
    _need(buffer_type(load.buffer).element in (t.f16, t.bf16), "factors of 16-bit floats")
    return found


def _row_axis(kernel: KernelOp, queries: SSAValue) -> int:
    """The grid axis along which the first dim of a tile lies."""
    load = queries.owner
    assert isinstance(load, LoadOp)
    named = {Symbol.operand(k): v for k, v in enumerate(load.indices)}
    [along] = [e for e in load.exprs if Symbol.place(0) in e.symbols] or [None]
    ids = [v for name, v in named.items() if along is not None and name in along.symbols]
    axes = [k for k, v in enumerate(kernel.program_ids) if v in ids]
    _need(len(axes) == len(ids) == 1, "rows along one axis of the grid")
    return axes[0]


def _check(form: Attention, kernel: KernelOp) -> None:
    rows = tile_type(form.scores.result).shape[0]
    _need(rows == GROUP_ROWS, f"tiles of {GROUP_ROWS} rows, not {rows}")
    row = kernel.program_ids[form.row_axis]
    _need(not any(row in r.indices for r in (form.keys, form.values)),
          "keys and values that all rows read")
    made = {r for op in form.scaling for r in op.results} | {
        form.loop.body.block.args[1 + form.total]}
    factors = [v for op in form.scaling for v in op.operands if v not in made]
    factors += [v for k, v in enumerate(form.loop.results) if k != form.total]
    _need(all(len(tile_type(v).shape) == 1 for v in factors), "one number per row")
    loop = form.loop
    _need(loop.lower.data.constant is not None and bool(loop.step.data.constant),
          "a loop with a static step and a static lower bound")
