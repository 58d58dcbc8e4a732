"""Operators on single elements: what they take, and what they require of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.solver.domains import ABOVE_ONE, FEW, NONZERO, POSITIVE, SMALL, UNIT, is_float
from tests.fuzz.solver.draft import ALL, ANY, BOOL, FLOATS, Domain, Draft, Impossible, Value

Attributes = Callable[[Draft], dict[str, Any]]


def alpha(draft: Draft) -> dict[str, Any]:
    return {} if draft.chance(0.3) else {"alpha": float(draft.choose((0.125, 0.5, 1.5)))}


def hard_sigmoid(draft: Draft) -> dict[str, Any]:
    return {} if draft.chance() else {"alpha": 0.25, "beta": 0.375}


def shrink(draft: Draft) -> dict[str, Any]:
    return {"bias": draft.choose((0.0, 1.5)), "lambd": draft.choose((0.0, 1.25))}


def gelu(draft: Draft) -> dict[str, Any]:
    return {"approximate": "tanh"} if draft.chance() else {}


def infinities(draft: Draft) -> dict[str, Any]:
    return {} if draft.chance() else {"detect_negative": draft.integer(0, 1),
                                      "detect_positive": draft.integer(0, 1)}


def swish(draft: Draft) -> dict[str, Any]:
    return {} if draft.chance() else {"alpha": 1.5}


UNARY: dict[str, tuple[Domain, Attributes | None]] = {
    "Abs": (ANY, None), "Acos": (UNIT, None), "Acosh": (ABOVE_ONE, None), "Asin": (UNIT, None),
    "Asinh": (ANY, None), "Atan": (ANY, None), "Atanh": (UNIT, None), "BitwiseNot": (ANY, None),
    "Ceil": (ANY, None), "Celu": (ANY, alpha), "Cos": (ANY, None), "Cosh": (SMALL, None),
    "Elu": (ANY, alpha), "Erf": (ANY, None), "Exp": (SMALL, None), "Floor": (ANY, None),
    "Gelu": (ANY, gelu), "HardSigmoid": (ANY, hard_sigmoid), "HardSwish": (ANY, None),
    "Identity": (ANY, None), "LeakyRelu": (ANY, alpha), "Log": (POSITIVE, None),
    "Mish": (ANY, None), "Neg": (ANY, None), "Not": (ANY, None), "Reciprocal": (NONZERO, None),
    "Relu": (ANY, None), "Round": (ANY, None), "Selu": (ANY, None), "Shrink": (ANY, shrink),
    "Sigmoid": (ANY, None), "Sign": (ANY, None), "Sin": (ANY, None), "Sinh": (SMALL, None),
    "Softplus": (ANY, None), "Softsign": (ANY, None), "Sqrt": (POSITIVE, None),
    "Swish": (ANY, swish), "Tan": (UNIT, None), "Tanh": (ANY, None),
    "ThresholdedRelu": (ANY, alpha),
}
TESTS = {"IsNaN": None, "IsInf": infinities}
BINARY: dict[str, Domain] = {"Add": ANY, "Sub": ANY, "Mul": ANY, "Div": NONZERO}
LOGIC = ("And", "Or", "Xor")
COMPARISONS = ("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")
BITWISE = ("BitwiseAnd", "BitwiseOr", "BitwiseXor")


def unary(draft: Draft) -> None:
    name = draft.choose(list(UNARY))
    domain, attributes = UNARY[name]
    x = draft.pick(draft.allowed(name), domain=domain)
    more = attributes(draft) if attributes else {}
    draft.node(name, [x], x.dtype, x.shape, **more)


def unary_of(draft: Draft, x: Value) -> Value:
    """Some elementwise function of a given value, of the same type and shape."""
    names = [n for n, (domain, _) in UNARY.items()
             if domain == ANY and x.dtype in draft.allowed(n)]
    if not names:
        raise Impossible
    name = draft.choose(names)
    more = UNARY[name][1]
    return draft.node(name, [x], x.dtype, x.shape, **(more(draft) if more else {}))


def test_kind(draft: Draft) -> None:
    name = draft.choose(list(TESTS))
    x = draft.pick(draft.allowed(name))
    more = TESTS[name]
    draft.node(name, [x], BOOL, x.shape, **(more(draft) if more else {}))


def binary(draft: Draft) -> None:
    name = draft.choose(list(BINARY))
    _of_two(draft, name, BINARY[name])


def _of_two(draft: Draft, name: str, domain: Domain = ANY, **attributes: Any) -> None:
    x = draft.pick(draft.allowed(name))
    y, shape = draft.partner(x)
    if domain == ANY and draft.chance(0.3):
        x, y = y, x
    draft.node(name, [x, draft.within(y, domain)], x.dtype, shape, **attributes)


def logic(draft: Draft) -> None:
    _of_two(draft, draft.choose(LOGIC))


def bitwise(draft: Draft) -> None:
    _of_two(draft, draft.choose(BITWISE))


def comparison(draft: Draft) -> None:
    name = draft.choose(COMPARISONS)
    x = draft.pick(draft.allowed(name))
    y, shape = draft.partner(x)
    draft.node(name, [x, y], BOOL, shape)


def modulo(draft: Draft) -> None:
    x = draft.pick(draft.allowed("Mod"))
    y, shape = draft.partner(x)
    fmod = 1 if is_float(x.dtype) else draft.integer(0, 1)
    draft.node("Mod", [x, draft.within(y, NONZERO)], x.dtype, shape, fmod=fmod)


def power(draft: Draft) -> None:
    x = draft.pick([t for t in draft.allowed("Pow") if t in draft.allowed("Pow", 1)])
    x = draft.within(x, FEW if x.dtype.kind in "iu" else POSITIVE)
    if draft.chance(0.6):
        exponent = draft.choose((0, 1, 2, 3) if x.dtype.kind in "iu" else (-1, 0.5, 2, 3, 0, 1.5))
        draft.node("Pow", [x, draft.constant(exponent, x.dtype)], x.dtype, x.shape)
        return
    y, shape = draft.partner(x)
    y = draft.within(y, FEW if x.dtype.kind in "iu" else SMALL)
    draft.node("Pow", [x, y], x.dtype, shape)


def shift(draft: Draft) -> None:
    x = draft.pick([t for t in draft.allowed("BitShift") if t.kind == "u"])
    y = draft.placeholder(x.dtype, x.shape if draft.chance() else ())
    draft.node("BitShift", [x, y], x.dtype, x.shape, direction=draft.choose(("LEFT", "RIGHT")))


def variadic(draft: Draft) -> None:
    name = draft.choose(("Min", "Max", "Sum", "Mean"))
    x = draft.pick(draft.allowed(name))
    operands, shape = [x], x.shape
    for _ in range(draft.integer(0, 2)):
        y, _ = draft.partner(x)
        shape = draft.broadcast(shape, y.shape)
        operands.append(y)
    draft.node(name, operands, x.dtype, shape)


def where(draft: Draft) -> None:
    x = draft.pick(draft.allowed("Where", 1))
    y, shape = draft.partner(x)
    condition = draft.like(BOOL, [1 if draft.chance(0.2) else d for d in shape])
    draft.node("Where", [condition, x, y], x.dtype, shape)


def clip(draft: Draft) -> None:
    x = draft.pick(draft.allowed("Clip"))
    low, high = (0, 3) if x.dtype.kind == "u" else (-2, 1.5 if is_float(x.dtype) else 2)
    bounds = [draft.constant(v, x.dtype) if draft.chance(0.7) else "" for v in (low, high)]
    draft.node("Clip", [x, *(bounds if bounds[1] else bounds[:1])], x.dtype, x.shape)


def prelu(draft: Draft) -> None:
    x = draft.pick(draft.allowed("PRelu"), 1)
    rank = draft.integer(0, x.rank)
    shape = [1 if draft.chance(0.4) else d for d in x.shape[x.rank - rank:]]
    draft.node("PRelu", [x, draft.placeholder(x.dtype, shape)], x.dtype, x.shape)


def cast(draft: Draft) -> None:
    """To any type; floats outside the range of integers are nobody's business."""
    x = draft.pick(ALL)
    dtype = draft.choose([t for t in ALL if t != x.dtype])
    if is_float(x.dtype) and dtype.kind in "iu":
        if draft.special:
            raise Impossible
        x = _bounded(draft, x, dtype)
    draft.node("Cast", [x], dtype, x.shape, to=_number(dtype))


def _bounded(draft: Draft, x: Value, dtype: np.dtype[Any]) -> Value:
    low = 0 if dtype.kind == "u" else -100
    bounds = [draft.constant(v, x.dtype) for v in (low, 100)]
    if x.dtype not in draft.allowed("Clip"):
        raise Impossible
    return draft.node("Clip", [x, *bounds], x.dtype, x.shape, keep=False)


def _number(dtype: np.dtype[Any]) -> int:
    from onnx import helper

    return helper.np_dtype_to_tensor_dtype(dtype)


def cast_like(draft: Draft) -> None:
    x, like = draft.pick(FLOATS), draft.pick(FLOATS)
    if draft.opset < 15:
        raise Impossible
    draft.node("CastLike", [x, like], like.dtype, x.shape)


SPECS = {unary: 8, binary: 8, test_kind: 0.5, logic: 1, bitwise: 1, comparison: 1.5, modulo: 1,
         power: 1, shift: 0.5, variadic: 1.5, where: 1.5, clip: 1, prelu: 0.7, cast: 2,
         cast_like: 0.3}
