"""Floats of 8 bits, and more of bfloat16: conversions, and what only moves such numbers."""

from __future__ import annotations

from typing import Any

from onnx import helper

from tests.fuzz.solver.draft import BF16, BOOL, F8, F16, F32, Draft, DType, Impossible, product
from tests.fuzz.solver.specs.elementwise import unary_of

WIDE = (F32, F32, BF16, F16)


def _number(dtype: DType) -> int:
    return helper.np_dtype_to_tensor_dtype(dtype)


def _since(draft: Draft, opset: int) -> None:
    if draft.opset < opset:
        raise Impossible


def to_narrow(draft: Draft) -> None:
    _since(draft, 19)
    x, dtype = draft.pick(WIDE), draft.choose(F8)
    saturate: dict[str, Any] = {} if draft.chance() else {"saturate": draft.integer(0, 1)}
    draft.node("Cast", [x], dtype, x.shape, to=_number(dtype), **saturate)


def from_narrow(draft: Draft) -> None:
    _since(draft, 19)
    x, dtype = draft.pick(F8), draft.choose(WIDE)
    draft.node("Cast", [x], dtype, x.shape, to=_number(dtype))


def from_narrow_like(draft: Draft) -> None:
    _since(draft, 19)
    x, like = draft.pick(F8), draft.pick(WIDE)
    draft.node("CastLike", [x, like], like.dtype, x.shape)


def moved(draft: Draft) -> None:
    """What only moves elements."""
    name = draft.choose(("Transpose", "Reshape", "Identity", "Unsqueeze", "Flatten"))
    x = draft.pick(draft.narrow(name))
    if name == "Transpose":
        perm = [int(k) for k in draft.random.permutation(x.rank)]
        draft.node(name, [x], x.dtype, [x.shape[k] for k in perm], perm=perm)
    elif name == "Reshape":
        draft.require(*(d >= 1 for d in x.shape))
        draft.node(name, [x, draft.constant([-1])], x.dtype, [product(x.shape)])
    elif name == "Unsqueeze":
        draft.node(name, [x, draft.constant([0])], x.dtype, [1, *x.shape])
    elif name == "Flatten":
        axis = draft.integer(0, x.rank)
        draft.node(name, [x], x.dtype, [product(x.shape[:axis]), product(x.shape[axis:])],
                   axis=axis)
    else:
        draft.node(name, [x], x.dtype, x.shape)


def tested(draft: Draft) -> None:
    name = draft.choose(("IsNaN", "IsInf"))
    x = draft.pick(draft.narrow(name))
    draft.node(name, [x], BOOL, x.shape)


def quantized(draft: Draft) -> None:
    """To 8 bits by a scale, and back."""
    _since(draft, 19)
    x = draft.pick(WIDE, 1)
    axis = draft.integer(0, x.rank - 1)
    dtype, size = draft.choose(F8), x.shape[axis]
    many = isinstance(size, int)
    shape = (size,) if isinstance(size, int) else ()
    scale = draft.constant(draft.random.choice((0.125, 0.25, 1.0), shape), x.dtype)
    zero = draft.constant(draft.random.choice((0.0,), shape), dtype)
    place: dict[str, Any] = {"axis": axis} if many else {}
    saturate: dict[str, Any] = {} if draft.chance() else {"saturate": draft.integer(0, 1)}
    q = draft.node("QuantizeLinear", [x, scale, zero], dtype, x.shape, **place, **saturate)
    if draft.chance(0.8):
        draft.node("DequantizeLinear", [q, scale, zero], x.dtype, x.shape, **place)


def between(draft: Draft) -> None:
    """A function of bfloat16 between two conversions, as mixed precision has it."""
    x = draft.pick((F32,))
    low = draft.node("Cast", [x], BF16, x.shape, keep=False, to=_number(BF16))
    y = unary_of(draft, low)
    draft.node("Cast", [y], F32, y.shape, to=_number(F32))


SPECS = {to_narrow: 2.5, from_narrow: 2.5, from_narrow_like: 0.5, moved: 2, tested: 0.7,
         quantized: 2, between: 2}
