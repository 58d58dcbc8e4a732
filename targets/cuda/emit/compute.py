"""Tile operations: `block.full`, `map`, `reduce`, `dot`, `convert`, `all_reduce`.

    %y = block.map (%a[0, 1], %b[1]) : tile<128x64xf32> { addf; mulf; yield }

becomes `y = (a + b[None, :]) * a`: a value with one use becomes part of its user's expression.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from xdsl.dialects.arith import ConstantOp
from xdsl.dialects.builtin import FloatAttr, IntegerAttr
from xdsl.ir import Attribute, Operation, SSAValue

from dialects.block import (
    AllReduceOp,
    ConvertOp,
    DotOp,
    FullOp,
    KernelOp,
    LoadOp,
    MapOp,
    ReduceOp,
    ScanOp,
    YieldOp,
)
from dialects.block.programs import tile_type
from dialects.strata import types as t
from targets.cuda.emit.branches import branch_off, choice_of, only_for, unrounded
from targets.cuda.emit.context import Context
from targets.cuda.emit.forms import INVERTED, QUICK_ROWS, Form, joined_forms
from targets.cuda.emit.helpers import helper_of
from targets.cuda.emit.scalar import CASTS, NATIVE_FLOATS, Row, render, row_of
from targets.cuda.emit.sorts import sorted_text
from targets.cuda.emit.values import (
    Shape,
    Value,
    broadcast,
    check_tile,
    dtype_text,
    in_parentheses,
    number_text,
    place,
    rounded,
    typed_number,
    widen,
)
from targets.cuda.errors import EmitError

_INLINE = 60
"""The longest text of a value that becomes part of its only user's expression."""


def emit_full(op: FullOp, context: Context) -> None:
    tile = tile_type(op.result)
    check_tile(tile.shape, "block.full")
    text = typed_number(op.number, tile.element, tile.shape)
    context.bind(op.result, Value(text, tile.shape), "full")


def emit_convert(op: ConvertOp, context: Context) -> None:
    """Triton chooses register layouts itself, so the value stays the same."""
    context.values[op.result] = context.values[op.value]


# ---------------------------------------------------------------------- map
@dataclass(frozen=True)
class Scalar:
    """A value in a map's body; `literal` if it is a number that may be written without a type."""

    value: Value
    literal: float | bool | None = None


def emit_map(op: MapOp, context: Context) -> None:
    shape = op.result_type.shape
    check_tile(shape, "block.map")
    scalars: dict[SSAValue, Scalar] = {}
    for argument, value, dims in zip(op.body.block.args, op.inputs, op.dim_lists, strict=True):
        scalars[argument] = Scalar(place(context.values[value], dims, len(shape)))
    forms = {} if context.options.exact else joined_forms(op.body.block, context.full)
    replaced = {other for form in forms.values() for other in form.replaced}
    choices = {v: c for v in op.yielded if (c := choice_of(op, unrounded(v))) is not None
               } if context.branches else {}
    late = only_for(choices)
    for inner in op.body.block.ops:
        if not isinstance(inner, YieldOp) and inner not in replaced and inner not in late:
            _emit_scalar(inner, scalars, forms.get(inner), context)

    def whole(value: SSAValue) -> Value:
        for inner in late:
            if inner not in replaced and inner.results[0] not in scalars:
                _emit_scalar(inner, scalars, forms.get(inner), context)
        return scalars[value].value

    for result, value in zip(op.results, op.yielded, strict=True):
        choice = choices.get(value)
        if choice is not None and scalars[choice.usual].value.shape == shape:
            usual = _converted(scalars[choice.usual], choice.usual, value)
            _emit_result(result, value, usual, shape, context)
            branch_off(result, choice, partial(whole, value), context)
        else:
            whole(value)
            _emit_result(result, value, scalars[value], shape, context)


def _converted(scalar: Scalar, value: SSAValue, rounded: SSAValue) -> Scalar:
    """A value in the type of the one that is rounded from it."""
    if value.type == rounded.type or scalar.literal is not None:
        return scalar
    text = f"{scalar.value.atom}.to({dtype_text(rounded.type)})"
    return replace(scalar, value=Value(text, scalar.value.shape))


def _emit_result(
    result: SSAValue, value: SSAValue, scalar: Scalar, shape: Shape, context: Context
) -> None:
    if scalar.literal is not None:
        text = typed_number(scalar.literal, value.type, shape)
        context.bind(result, Value(text, shape), "y")
        return
    if scalar.value.text.isidentifier() and scalar.value.shape == shape:
        context.values[result] = scalar.value
        return
    context.bind(result, Value(widen(scalar.value, shape), shape), "y")


def _emit_scalar(
    op: Operation, scalars: dict[SSAValue, Scalar], form: Form | None, context: Context
) -> None:
    result = op.results[0]
    if isinstance(op, ConstantOp):
        number = _number(op)
        scalars[result] = Scalar(Value(typed_number(number, result.type)), number)
        return
    operands = [scalars[v] for v in (op.operands if form is None else [form.operand])]
    if form is not None and form.row is None:
        text, shape = operands[0].value.text, operands[0].value.shape
    else:
        text, shape = _expression(op, None if form is None else form.row, operands, context)
    users = [use.operation for use in result.uses]
    if text.isidentifier() or (
            len(users) == 1 and (len(text) <= _INLINE or isinstance(users[0], YieldOp))):
        scalars[result] = Scalar(Value(text, shape))
        return
    name = context.writer.fresh(result.name_hint or "v")
    context.writer.line(f"{name} = {text}")
    scalars[result] = Scalar(Value(name, shape))


def _number(op: ConstantOp) -> float | bool:
    match op.value:
        case FloatAttr():
            return op.value.value.data
        case IntegerAttr():
            return op.value.value.data
        case _:
            raise EmitError(f"arith.constant of {op.value} is not a number")


def _expression(
    op: Operation, row: Row | None, operands: list[Scalar], context: Context
) -> tuple[str, Shape]:
    shape = broadcast([s.value.shape for s in operands])
    result = op.results[0].type
    if op.name in CASTS:
        [operand] = operands
        _check_interpreted(op, context)
        return CASTS[op.name](operand.value.atom, op.operands[0].type, result), shape
    row, element = row or _row_of(op, operands, context), op.operands[-1].type
    text = render(row, _operand_texts(row, operands, element), element, result)
    if row.helper is not None and row.helper in text:
        context.helpers.add(helper_of(row.helper, str(element)))
    return text, shape


def _row_of(op: Operation, operands: Sequence[Scalar], context: Context) -> Row:
    """The row of an operation; a quick one if its f32 result is soon rounded."""
    result, quick = op.results[0], QUICK_ROWS.get(op.name)
    if quick is None or context.options.exact or result in context.full or result.type != t.f32:
        return row_of(op)
    dividend, divisor = (prod(s.value.shape) for s in (operands[0], operands[-1]))
    return INVERTED if op.name == "arith.divf" and divisor < dividend else quick


def _check_interpreted(op: Operation, context: Context) -> None:
    """Raises EmitError for NaN and infinities of narrow floats, which Triton's interpreter treats
    as numbers."""
    decodes = op.name == "arith.extf" and t.is_narrow_float(op.operands[0].type)
    if decodes and context.options.interpreted:
        raise EmitError(f"Triton's interpreter does not convert {op.operands[0].type}: pass "
                        "--interpret to `lower`, too, so that block-expand-floats converts it")


def _operand_texts(row: Row, operands: list[Scalar], element: Attribute) -> list[str]:
    """Operands in the type in which the operation computes.

    Literals stay untyped next to a typed operand (in a select: next to another branch).
    """
    decisive = operands[1:] if row.is_select else operands
    wide = row.widens(element)
    bare = row.takes_literals(element) and any(s.literal is None for s in decisive)
    return [_literal_text(s.literal, element, wide, bare) if s.literal is not None
            else f"{s.value.atom}.to(tl.float32)" if wide else s.value.text for s in operands]


def _literal_text(number: float | bool, element: Attribute, wide: bool, bare: bool) -> str:
    """A number, rounded to its own type even if the operation computes in f32."""
    number = rounded(number, element) if wide else number
    element = t.f32 if wide else element
    return number_text(number, element) if bare else typed_number(number, element)


# ---------------------------------------------------------------------- reduce
_BITS: dict[Attribute, str] = {t.f32: "tl.int32", t.f64: "tl.int64"}
"""Integer types of floats' bits. Triton 3.6 fails if it moves a reduction of values that a loop
loads and scans after that loop; a free bit cast in both directions hides the load from it."""


def emit_reduce(op: ReduceOp, context: Context) -> None:
    """Narrow types are reduced in f32 or i32, as Triton itself does, and converted back."""
    tile = tile_type(op.value)
    value = context.values[op.value]
    text, element = _computed(value.text, tile.element, op.combiner.data)
    if element in _BITS and any(isinstance(use.operation, ScanOp) for use in op.value.uses):
        text = f"{text}.to({_BITS[element]}, bitcast=True).to({dtype_text(element)}, bitcast=True)"
    text = _reduction(op, text, element, context)
    if element != tile.element:
        text = f"{text} != 0" if tile.element == t.i1 else f"{text}.to({dtype_text(tile.element)})"
    context.bind(op.result, Value(text, tile_type(op.result).shape), op.combiner.data)


def _computed(text: str, element: Attribute, combiner: str) -> tuple[str, Attribute]:
    """The operand, converted to the type of the reduction."""
    if element in (t.f16, t.bf16):
        return f"{text}.to(tl.float32)", t.f32
    if element in (t.i1, t.i8, t.i16) and combiner in ("add", "mul", "max", "min", "and", "or"):
        return f"{text}.to(tl.int32)", t.i32
    return text, element


def _reduction(op: ReduceOp, text: str, element: Attribute, context: Context) -> str:
    combiner, axis = op.combiner.data, op.axis
    if combiner == "add":
        return f"tl.sum({text}, {axis})"
    if combiner in ("max", "min"):
        return _extremum(combiner, text, element, axis, context)
    helper = {"mul": "times", "and": "both", "or": "either"}[combiner]
    context.helpers.add((helper, ""))
    return f"tl.reduce({text}, {axis}, {helper})"


def _extremum(
    combiner: str, text: str, element: Attribute, axis: int, context: Context
) -> str:
    if not t.is_float(element):
        return f"tl.{combiner}({text}, {axis})"
    if context.options.interpreted:  # its own max drops NaN, but is the only fast one
        nan = f"tl.max(({text} != {text}).to(tl.int32), {axis}) != 0"
        return f"tl.where({nan}, float(\"nan\"), tl.{combiner}({text}, {axis}))"
    helper = "larger" if combiner == "max" else "smaller"
    context.helpers.add((helper, ""))
    return f"tl.reduce({text}, {axis}, {helper})"


def emit_scan(op: ScanOp, context: Context) -> None:
    """Like `emit_reduce`, for scans, which are sums, products and sorts only."""
    tile = tile_type(op.value)
    if op.sorts:
        context.bind(op.result, Value(sorted_text(op, context), tile.shape), "sorted")
        return
    text, element = _computed(context.values[op.value].text, tile.element, op.combiner.data)
    if op.combiner.data not in _SCANS:
        raise EmitError(f"block.scan {op.combiner.data} has no form in Triton")
    text = f"{_SCANS[op.combiner.data]}({text}, {op.axis})"
    if element != tile.element:
        text = f"{text}.to({dtype_text(tile.element)})"
    context.bind(op.result, Value(text, tile.shape), "scan")


_SCANS = {"add": "tl.cumsum", "mul": "tl.cumprod"}


# ---------------------------------------------------------------------- dot
def is_native(value: SSAValue, context: Context) -> bool:
    """Whether a tile was loaded as narrow floats rather than as bytes that hold them."""
    return isinstance(value.owner, LoadOp) and value.owner.buffer in context.native


_DOT_TYPES = frozenset((t.f16, t.bf16, t.f32, t.f64, t.i8, *NATIVE_FLOATS))
_DOT_EXTENT = 16
_DOT_DEPTH: dict[Attribute, int] = {t.i8: 32, **dict.fromkeys(NATIVE_FLOATS, 32)}
"""Element types whose summed dim must be longer."""


def emit_dot(op: DotOp, context: Context) -> None:
    a, b, c = (tile_type(v) for v in op.operands)
    _check_dot(op)
    texts = [context.values[v].text for v in (op.a, op.b)]
    if context.options.interpreted and a.element == t.bf16:
        texts = [f"{x}.to(tl.float32)" for x in texts]
    if (byte := NATIVE_FLOATS.get(a.element)) is not None:
        texts = [x if is_native(v, context) else f"{x}.to({byte}, bitcast=True)"
                 for x, v in zip(texts, (op.a, op.b), strict=True)]
    arguments = [*texts, context.values[op.c].text, f'input_precision="{op.precision.data}"',
                 f"out_dtype={dtype_text(c.element)}"]
    if 0 < context.promote <= a.shape[1] and a.element in NATIVE_FLOATS:
        arguments.append(f"max_num_imprecise_acc={context.promote}")
    text = f"tl.dot({', '.join(arguments)})"
    context.bind(op.result, Value(text, (a.shape[0], b.shape[1])), "acc")


def _check_dot(op: DotOp) -> None:
    """Raises EmitError for operands that tl.dot does not accept."""
    types = [tile_type(v) for v in op.operands]
    for type_ in types:
        check_tile(type_.shape, "block.dot")
        if type_.rank != 2 or min(type_.shape) < _DOT_EXTENT:
            raise EmitError(f"block.dot needs tiles of 2 dims of at least {_DOT_EXTENT} on CUDA, "
                            f"but has {type_.short}; choose larger tiles in the schedule")
    first, second, total = (type_.element for type_ in types)
    if first not in _DOT_TYPES or first != second or (first == t.i8) != (total == t.i32):
        raise EmitError(f"block.dot of {first} by {second} into {total} has no form in Triton; "
                        "contract with block.map and block.reduce instead")
    if types[0].shape[1] < _DOT_DEPTH.get(first, 0):
        raise EmitError(f"block.dot sums over at least {_DOT_DEPTH[first]} elements of {first} on "
                        f"CUDA, not {types[0].shape[1]}; choose larger tiles in the schedule")
    if any(op.is_unsigned(operand) for operand in (0, 1)):
        raise EmitError("block.dot multiplies only signed integers on CUDA; the pass "
                        "graph-sign-products makes them signed")


# ---------------------------------------------------------------------- other ranks
def exchanges_tiles(kernel: KernelOp) -> bool:
    """Whether programs of the kernel exchange tiles with other ranks."""
    return any(isinstance(op, AllReduceOp) for op in kernel.walk())


def emit_all_reduce(op: AllReduceOp, context: Context) -> None:
    """Raises EmitError in code that runs without a device."""
    if not context.options.has_instructions:
        raise EmitError("block.all_reduce exchanges tiles between devices: leave it to the library "
                        "with --without one-launch")
    tile = tile_type(op.value)
    check_tile(tile.shape, "block.all_reduce")
    size = stride = prod(tile.shape)
    places = list[str]()
    for dim, extent in enumerate(tile.shape):
        stride //= extent
        places.append(f"{context.position(dim, tile.shape).text} * {stride}")
    element, value = dtype_text(tile.element), context.values[op.value]
    x = f"{in_parentheses(widen(value, tile.shape))}.to({element}).to(tl.float32)"
    context.helpers.add(("sum_of_ranks", ""))
    count = op.group.data.size
    text = (f"sum_of_ranks({x}, {' + '.join(places)}, {context.ranks}, {count}, {size})"
            f".to({element})")
    context.bind(op.result, Value(text, tile.shape), "sum")
