"""What the emitter knows about a value: its Python text, its shape and, for integers, its range.

Triton broadcasts like NumPy, so a value may have extent 1 where its tile has more. `widen` expands
the shape where an operation needs it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import Float64Type
from xdsl.ir import Attribute

from dialects.strata import types as t
from dialects.symbolic.expr import Expr
from targets.cuda.errors import EmitError

Shape = tuple[int, ...]

_BYTES: tuple[Attribute, ...] = (t.i2, t.i4, t.i6, *t.NARROW_FLOATS)
"""Types held in bytes, whose lowest bits matter."""

_DTYPES: dict[Attribute, str] = {
    t.f16: "tl.float16", t.bf16: "tl.bfloat16", t.f32: "tl.float32", t.f64: "tl.float64",
    t.i1: "tl.int1", t.i8: "tl.int8", t.i16: "tl.int16", t.i32: "tl.int32", t.i64: "tl.int64",
    t.index: "tl.int32", **dict.fromkeys(_BYTES, "tl.int8"),
}
_POINTERS: dict[Attribute, str] = {
    t.f16: "*fp16", t.bf16: "*bf16", t.f32: "*fp32", t.f64: "*fp64", t.i1: "*i8", t.i8: "*i8",
    t.i16: "*i16", t.i32: "*i32", t.i64: "*i64", **dict.fromkeys(_BYTES, "*i8"),
}
NATIVE_POINTERS: dict[Attribute, str] = {t.f8E4M3FN: "*fp8e4nv", t.f8E5M2: "*fp8e5"}
"""Narrow floats that `tl.dot` accepts without a conversion."""


@dataclass(frozen=True)
class Value:
    """An expression in the generated source.

    `text` is the expression, `shape` its run-time shape (with extent 1 where it does not vary).
    `low` and `high` bound an integer, as expressions over sizes; None if nothing is known.
    """

    text: str
    shape: Shape = ()
    low: Expr | None = None
    high: Expr | None = None

    @property
    def atom(self) -> str:
        """The text, in parentheses unless it binds tighter than any operator."""
        return in_parentheses(self.text)


_ATOM = re.compile(r"[\w.]+(\[[^\[\]]*\])?|\d[\d.]*e-\d+|[\w.]+\([^()]*\)")


def in_parentheses(text: str) -> str:
    return text if _ATOM.fullmatch(text) or _is_enclosed(text) else f"({text})"


def _is_enclosed(text: str) -> bool:
    """Whether one pair of parentheses spans the text, possibly after a function's name."""
    start = re.match(r"[\w.]*\(", text)
    if start is None:
        return False
    depth = 1
    for position in range(start.end(), len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return position == len(text) - 1
    return False


def dtype_text(element: Attribute) -> str:
    """`tl.float32` for f32. Unsigned types become their signless counterparts."""
    try:
        return _DTYPES[t.signless(element)]
    except KeyError:
        raise EmitError(f"Triton has no element type {element}") from None


def pointer_type(element: Attribute) -> str:
    """`*fp32` for a buffer of f32; booleans are bytes in memory."""
    try:
        return _POINTERS[t.signless(element)]
    except KeyError:
        raise EmitError(f"Triton has no pointer to elements of type {element}") from None


def number_text(value: float | bool, element: Attribute) -> str:
    """A literal of an element type: the shortest text that yields the same number in it."""
    if not t.is_float(element):
        return str(bool(value)) if element == t.i1 else str(int(value))
    if t.is_narrow_float(element):
        return str(int(np.array(value, t.dtype_of(element)).view(np.int8)))
    number = float(value)
    if number != number:
        return 'float("nan")'
    if number in (float("inf"), float("-inf")):
        return 'float("inf")' if number > 0 else '-float("inf")'
    return repr(number) if isinstance(element, Float64Type) else _short_f32(number)


_LARGEST = float(np.finfo(np.float32).max)


def _short_f32(number: float) -> str:
    rounded = np.float32(number)
    if 1e-4 <= abs(number) < 1e6 or number == 0:
        return np.format_float_positional(rounded, unique=True, trim="0")
    text = np.format_float_scientific(rounded, unique=True, trim="0")
    # Triton takes what exceeds the largest f32, even by its last digit, for an f64
    return text if abs(float(text)) <= _LARGEST else repr(float(rounded))


def typed_number(value: float | bool, element: Attribute, shape: Shape = ()) -> str:
    """A tile filled with a number, or a scalar where a bare literal would get another type."""
    filled = t.f32 if element == t.bf16 else element  # some interpreters lack bf16 constants
    number = number_text(value, element)
    text = f"tl.full({list(shape)}, {number}, {dtype_text(filled)})"
    return text if filled == element else f"{text}.to({dtype_text(element)})"


def rounded(value: float | bool, element: Attribute) -> float:
    """The number rounded to its type."""
    return float(t.dtype_of(element).type(value))


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The shape of an operation on these; scalars adapt, and the others have equal rank."""
    ranked = [s for s in shapes if s]
    return tuple(max(dims) for dims in zip(*ranked, strict=True)) if ranked else ()


def widen(value: Value, shape: Shape) -> str:
    """The text of the value with exactly this shape."""
    if value.shape == shape:
        return value.text
    return f"tl.broadcast_to({value.text}, {list(shape)})"


def place(value: Value, dims: Sequence[int], rank: int) -> Value:
    """A tile whose dim k becomes dim `dims[k]` of a tile of `rank` dims: `x[:, None]`."""
    if not value.shape or tuple(dims) == tuple(range(rank)):
        return value
    text, order = value.atom, sorted(range(len(dims)), key=lambda k: dims[k])
    if order != list(range(len(dims))):
        text = f"tl.permute({value.text}, {order})"
    extents = {dims[k]: value.shape[k] for k in range(len(dims))}
    subscript = ", ".join(":" if d in extents else "None" for d in range(rank))
    if len(dims) != rank:
        text = f"{text}[{subscript}]"
    return Value(text, tuple(extents.get(d, 1) for d in range(rank)), value.low, value.high)


def check_tile(shape: Shape, name: str) -> None:
    """Raises EmitError, naming the operation, for dims that are not powers of two."""
    if any(n < 1 or n & (n - 1) for n in shape):
        dims = "x".join(map(str, shape))
        raise EmitError(f"{name} makes a tile of {dims}, but Triton needs powers of two; "
                        "change the tile sizes in the schedule")
