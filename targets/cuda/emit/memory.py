"""Memory accesses: `block.load`, `block.store`, `block.index`, `block.valid`.

    %x = block.load %X[%r, %c + t0] check [1] pad -inf : tile<64xf32>

becomes

    x = tl.load(X + (r*1000 + (c + r64)), mask=(c + r64 < 1000), other=-float("inf"))

If the address does not depend on a tile dim, the tile is loaded once along it and broadcast.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from xdsl.ir import Operation

from dialects.block import ConvertOp, FullOp, IndexOp, LoadOp, MapOp, StoreOp, ValidOp
from dialects.block.programs import tile_type
from dialects.strata import types as t
from dialects.strata.types import BufferType, buffer_type
from dialects.symbolic.digits import recomposed
from dialects.symbolic.expr import Call, Expr
from dialects.symbolic.ranges import is_nonnegative
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Kind, Symbol
from targets.cuda.emit.context import Context
from targets.cuda.emit.index import inside_conditions
from targets.cuda.emit.values import (
    Shape,
    Value,
    broadcast,
    check_tile,
    in_parentheses,
    number_text,
    widen,
)

_CALM = (ConvertOp, FullOp, IndexOp, MapOp, ValidOp)
"""Operations that access no memory."""


def emit_load(op: LoadOp, context: Context) -> None:
    buffer, tile = buffer_type(op.buffer), tile_type(op.result)
    check_tile(tile.shape, "block.load")
    where = context.indices(op.exprs, tile.shape, op.indices, op.index_dims)
    start, offset = _offsets(op, context, where)
    mask = _mask(op, context, buffer, where)
    shape = broadcast([offset.shape, mask.shape])
    arguments = [_address(start, offset, shape)]
    truth = buffer.element == t.i1  # booleans are bytes in memory
    if mask.text:
        native = op.buffer in context.native
        pad = number_text(op.pad_value, t.i8 if truth else t.f32 if native else tile.element)
        arguments += [f"mask={mask.text}", f"other={pad}"]
    if op in context.streamed:
        arguments.append('eviction_policy="evict_first"')
    text = f"tl.load({', '.join(arguments)})"
    loaded = Value(f"{text} != 0" if truth else text, shape)
    context.bind(op.result, Value(widen(loaded, tile.shape), tile.shape), "x")


def _offsets(op: LoadOp, context: Context, where: Sequence[Value]) -> tuple[str, Value]:
    """A pointer, and the positions of a tile relative to it.

    With moving pointers, the pointer in a loop includes the loop's counter, so that the positions
    of each thread stay constant.
    """
    buffer, shape = buffer_type(op.buffer), tile_type(op.result).shape
    name = context.values[op.buffer].text
    parts = [_split(e, op) for e in op.exprs] if context.moving_pointers and context.loops else []
    if not parts or not all(any(e.terms for e in part) for part in zip(*parts, strict=True)):
        return name, _offset(op, shape, context, where)
    start, offset = (
        context.offset(buffer, context.indices(exprs, shape, op.indices, op.index_dims))
        for exprs in zip(*parts, strict=True))
    return f"({_address(name, start, ())})", offset


def _offset(
    op: LoadOp | StoreOp, shape: Shape, context: Context, where: Sequence[Value]
) -> Value:
    """The positions of a tile in its buffer.

    Terms that cancel between indices are left out, such as the start of a row and its distance to
    an aligned address, and digits of one axis in neighbouring dims are that axis again. Triton sees
    neither, and would miss that addresses are aligned or lie side by side.
    """
    buffer = buffer_type(op.buffer)
    strides = [product(buffer.shape[dim + 1:]) for dim in range(len(op.exprs))]
    if any(s.constant is None for s in strides) or context.is_wide(buffer):
        return context.offset(buffer, where)
    terms = [e * s for e, s in zip(op.exprs, strides, strict=True)]
    total = recomposed(sum(terms, Expr.of(0)))
    if {m for m, _ in total.terms} == {m for e in terms for m, _ in e.terms}:
        return context.offset(buffer, where)
    [offset] = context.indices([total], shape, op.indices, op.index_dims)
    return offset


def _split(expr: Expr, op: LoadOp) -> tuple[Expr, Expr]:
    """The terms of an index that are uniform over the tile, and the others."""
    gathered = {Symbol.operand(k) for k, dims in enumerate(op.index_dims.data) if dims.data}
    moving = Expr.of(0)
    for monomial, factor in expr.terms:
        term = Expr(((monomial, factor),))
        if not any(s in gathered or s.kind is Kind.PLACE for s in term.symbols):
            moving = moving + term
    return moving, expr - moving


def emit_store(op: StoreOp, context: Context) -> None:
    buffer, tile = buffer_type(op.buffer), tile_type(op.value)
    where = context.indices(op.exprs, tile.shape, op.indices, op.index_dims)
    offset = _offset(op, tile.shape, context, where)
    mask = _mask(op, context, buffer, where)
    value = context.values[op.value].text
    stored = f"{in_parentheses(value)}.to(tl.int8)" if buffer.element == t.i1 else value
    arguments = [_address(context.values[op.buffer].text, offset, tile.shape), stored]
    if mask.text:
        arguments.append(f"mask={mask.text}")
    if op.combiner is None:
        context.writer.line(f"tl.store({', '.join(arguments)})")
    else:
        context.writer.line(f"tl.atomic_add({', '.join(arguments)}, sem='relaxed')")


def stores_last(ops: Iterable[Operation]) -> Iterator[Operation]:
    """Operations of a block in their order, but stores after the loads that may follow them.

    ptxas moves no load across a store, since it does not know that buffers differ, and programs
    would wait for memory once more after each store. A store waits for what reads or adds to its
    own buffer, and for loops.
    """
    waiting: list[StoreOp] = []
    for op in ops:
        if isinstance(op, StoreOp) and op.combiner is None:
            waiting.append(op)
            continue
        reads = isinstance(op, LoadOp) and all(op.buffer is not s.buffer for s in waiting)
        if not (reads or isinstance(op, _CALM)):
            yield from waiting
            waiting.clear()
        yield op
    yield from waiting


def emit_index(op: IndexOp, context: Context) -> None:
    shape = tile_type(op.result).shape
    check_tile(shape, "block.index")
    [value] = context.indices([op.expr.data], shape, op.indices, op.index_dims)
    context.bind(op.result, Value(_of_shape(value, shape), shape, value.low, value.high), "i")


def emit_valid(op: ValidOp, context: Context) -> None:
    shape = tile_type(op.result).shape
    check_tile(shape, "block.valid")
    value, bound = context.indices([op.expr.data, op.bound.data], shape, op.indices)
    both = broadcast([value.shape, bound.shape])
    below = Value(f"{value.text} < {bound.text}", both)
    context.bind(op.result, Value(_of_shape(below, shape), shape), "valid")


def _of_shape(value: Value, shape: Shape) -> str:
    """The text with the tile's shape; a plain Python number becomes a tensor."""
    if value.text.isdigit():
        return f"tl.full({list(shape)}, {value.text}, tl.int32)"
    return widen(value, shape)


def _mask(
    op: LoadOp | StoreOp, context: Context, buffer: BufferType, where: Sequence[Value]
) -> Value:
    """The comparisons that checked dims still need, joined; an empty text if there are none."""
    tile = tile_type(op.result if isinstance(op, LoadOp) else op.value)
    found = list[Value]()
    for dim in op.checked_dims:
        place, size = where[dim], buffer.shape[dim]
        if size.constant is not None and (numerator := _numerator(op.exprs[dim])) is not None:
            [undivided] = context.indices(
                [numerator[0]], tile.shape, op.indices, op.index_dims)
            if undivided.low is not None and is_nonnegative(undivided.low):
                place, size = undivided, size * numerator[1]
        found += [Value(text, place.shape)
                  for text in inside_conditions(place, context.size(size))]
    text = " & ".join(condition.text for condition in found)
    if context.options.interpreted and len({len(c.shape) for c in found}) > 1:
        text = f"({text}) != 0"  # the interpreter widens a scalar boolean to int8
    return Value(text, broadcast([condition.shape for condition in found]))


def _numerator(expr: Expr) -> tuple[Expr, Expr] | None:
    """What a quotient divides, and by which positive constant: to compare it with as many times the
    size needs no division, and Triton then knows how many neighbours agree."""
    match expr.terms:
        case (((Call("floordiv", (numerator, divisor)),), 1),) if (divisor.constant or 0) > 0:
            return numerator, divisor
        case _:
            return None


def _address(buffer: str, offset: Value, shape: Shape) -> str:
    """Pointer plus offset, in the shape of the access."""
    if offset.text == "0" and not shape:
        return buffer
    return f"{buffer} + {in_parentheses(_of_shape(offset, shape) if shape else offset.text)}"
