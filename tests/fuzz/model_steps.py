"""The operators of random models: each step adds a node, or a few, to a model."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tests.fuzz.random_models import BOOL, FLOATS, INTEGERS, Impossible, RandomModel, Value
from tests.fuzz.random_models import element_kind as kind_of

I64, F32 = np.dtype("i8"), np.dtype("f4")
BOUNDED = {"Tanh": 1.0, "Sigmoid": 1.0, "Sin": 1.0, "Cos": 1.0, "Erf": 1.0, "Softsign": 1.0,
           "HardSigmoid": 1.0, "HardSwish": 0.0, "Elu": 0.0, "LeakyRelu": 0.0, "Gelu": 0.0,
           "Selu": 0.0, "Mish": 0.0, "ThresholdedRelu": 0.0, "Softplus": 0.0}
"""Functions with the bound of their results; 0 stands for about the operand's."""
CANCELLING = ("Gelu", "Mish")
"""Functions that are tiny differences for large negative numbers."""
JUMPS = ("Floor", "Ceil", "Round", "Sign")


# ---------------------------------------------------------------------- elementwise
def calm(m: RandomModel, x: Value) -> Value:
    """Numbers of at most 1, so that sums of products stay small."""
    if not x.is_float:
        return x
    return m.node(m.choose(["Tanh", "Sin", "Sigmoid"]), [x], x, keep=False, exact=False, bound=1.0)


def exact_unary(m: RandomModel) -> None:
    x = m.pick()
    ops = ["Abs", "Relu"] if x.dtype.kind in "iu" else ["Abs", "Relu", "Neg"]
    m.node("Neg" if x.dtype.kind == "i" and m.chance(0.3) else m.choose(ops), [x], x)


def smooth_unary(m: RandomModel) -> None:
    x, name = m.pick(kind="float"), m.choose(list(BOUNDED))
    x = calm(m, x) if name in CANCELLING else x
    m.node(name, [x], x, exact=False, bound=BOUNDED[name] or 2 * x.bound)


def positive_unary(m: RandomModel) -> None:
    """Functions of 1 + |x|."""
    x = m.pick(kind="float")
    size = m.node("Add", [m.node("Abs", [x], x, keep=False), m.constant(1, x.dtype)], x,
                  keep=False, bound=x.bound + 1)
    m.node(m.choose(["Sqrt", "Log", "Reciprocal"]), [size], size, exact=False)


def jump(m: RandomModel) -> None:
    x = m.pick(kind="float", exact=True)
    m.node(m.choose(JUMPS), [x], x, bound=x.bound + 1)


def fitting(m: RandomModel, x: Value) -> Value:
    """A value, or a constant, that broadcasts with x."""
    found = [v for v in m.values if v.dtype == x.dtype and fits(v.shape, x.shape)]
    if found and m.chance(0.7):
        return m.choose(found)
    shape = [s if m.chance(0.7) else 1 for s in x.shape]
    return m.weight(x.dtype, shape[m.integer(0, len(shape)):])


def fits(a: Sequence[int], b: Sequence[int]) -> bool:
    pairs = zip(reversed(a), reversed(b), strict=False)
    return all(x == y or 1 in (x, y) for x, y in pairs)


def binary(m: RandomModel) -> None:
    x = m.pick()
    y, name = fitting(m, x), m.choose(["Add", "Sub", "Mul", "Max", "Min"])
    if name == "Sub" and x.dtype.kind == "u":
        name = "Add"
    if m.chance():
        x, y = y, x
    bound = {"Mul": x.bound * y.bound, "Add": x.bound + y.bound, "Sub": x.bound + y.bound}
    wide = x.dtype.itemsize >= 4
    exact = x.exact and y.exact and (name in ("Max", "Min") or (wide and name != "Mul")
                                     or not x.is_float)
    m.node(name, [x, y], x, np.broadcast_shapes(x.shape, y.shape), exact=exact,
           bound=bound.get(name, max(x.bound, y.bound)))


def divide(m: RandomModel) -> None:
    """By numbers that are not zero."""
    x = m.pick()
    numbers = m.random.integers(1, 5, [s if m.chance() else 1 for s in x.shape])
    divisor = m.constant(numbers, x.dtype)
    name = "Mod" if x.dtype.kind in "iu" and m.chance() else "Div"
    m.node(name, [x, divisor], x, exact=x.exact and not x.is_float)


def variadic(m: RandomModel) -> None:
    x = m.pick(kind="float")
    values = [x, fitting(m, x), fitting(m, x)]
    try:
        shape = np.broadcast_shapes(*(v.shape for v in values))
    except ValueError:
        raise Impossible from None
    m.node(m.choose(["Sum", "Mean", "Max", "Min"]), values, x, shape, exact=False,
           bound=sum(v.bound for v in values))


def compare(m: RandomModel) -> None:
    x = m.pick(exact=True)
    y = fitting(m, x)
    if not y.exact:
        raise Impossible
    name = m.choose(["Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual"])
    m.node(name, [x, y], x, np.broadcast_shapes(x.shape, y.shape), dtype=BOOL)


def logic(m: RandomModel) -> None:
    x = m.pick(kind="bool")
    if m.chance(0.3):
        m.node("Not", [x], x)
        return
    y = fitting(m, x)
    m.node(m.choose(["And", "Or", "Xor", "Equal"]), [x, y], x,
           np.broadcast_shapes(x.shape, y.shape))


def where(m: RandomModel) -> None:
    x = m.pick()
    y, found = fitting(m, x), [v for v in m.values if v.dtype == BOOL and fits(v.shape, x.shape)]
    condition = m.choose(found) if found else m.weight(BOOL, x.shape)
    try:
        shape = np.broadcast_shapes(condition.shape, x.shape, y.shape)
    except ValueError:
        raise Impossible from None
    m.node("Where", [condition, x, y], x, shape, exact=x.exact and y.exact and condition.exact,
           bound=max(x.bound, y.bound))


def cast(m: RandomModel) -> None:
    """Also floats to integers, where all round alike; and what is not negative to unsigned."""
    x = m.pick(kind=m.choose(["", "", "bool"]))
    to = m.choose((*FLOATS, *INTEGERS, *([BOOL] if x.exact else [])))
    goes_down = x.is_float and not (to.kind == "f" and to.itemsize >= x.dtype.itemsize)
    if goes_down and not x.exact:
        to = m.choose(FLOATS)
    if to.kind == "u" and x.dtype != BOOL:
        x = m.node("Abs", [x], x, keep=False)
    exact = x.exact and (x.bound < 16 or not x.is_float)
    m.node("Cast", [x], x, dtype=to, to=kind_of(to), exact=exact)


def clip(m: RandomModel) -> None:
    x = m.pick()
    low, high = (m.constant(v, x.dtype) for v in (1, 3))
    m.node("Clip", [x, m.choose([low, ""]), m.choose([high, high])], x)


def power(m: RandomModel) -> None:
    x = m.pick(kind="float")
    m.node("Pow", [x, m.constant(m.choose([2, 3]), m.choose([x.dtype, I64]))], x, exact=False,
           bound=max(x.bound, 1) ** 3)


# ---------------------------------------------------------------------- views
def transpose(m: RandomModel) -> None:
    x = m.pick(1)
    perm = [int(p) for p in m.random.permutation(x.rank)]
    m.node("Transpose", [x], x, [x.shape[p] for p in perm], perm=perm)


def reshape(m: RandomModel) -> None:
    """Merge two dims, split one, or put in a 1; the new shape written out or computed."""
    x = m.pick(1, 4)
    shape, k = list(x.shape), m.integer(0, x.rank - 1)
    if x.rank > 1 and m.chance(0.4):
        k = m.integer(0, x.rank - 2)
        shape[k: k + 2] = [shape[k] * shape[k + 1]]
    elif m.chance() and shape[k] > 1:
        part = m.choose([d for d in range(1, shape[k] + 1) if shape[k] % d == 0])
        shape[k: k + 1] = [part, shape[k] // part]
    else:
        shape.insert(k, 1)
    wanted = [0 if i < x.rank and s == x.shape[i] and m.chance(0.4) else s
              for i, s in enumerate(shape)]
    if 0 not in shape and m.chance():
        wanted[m.integer(0, len(shape) - 1)] = -1
    if 0 in shape and 0 not in x.shape[:len(shape)]:
        raise Impossible
    if any(s == 0 and (i >= x.rank or x.shape[i] != 0) and w == 0
           for i, (s, w) in enumerate(zip(shape, wanted, strict=True))):
        raise Impossible
    m.node("Reshape", [x, m.constant(wanted)], x, shape)


def reshape_by_shape(m: RandomModel) -> None:
    """x in the shape of [x's sizes, some merged], computed from Shape."""
    x = m.pick(2, 4)
    k = m.integer(0, x.rank - 2)
    sizes = Value("", I64, (x.rank,), True)
    shape = m.node("Shape", [x], sizes, keep=False)
    parts = [m.node("Gather", [shape, m.constant([i])], sizes, (1,), keep=False)
             for i in range(x.rank)]
    parts[k: k + 2] = [m.node("Mul", parts[k: k + 2], sizes, (1,), keep=False)]
    wanted = m.node("Concat", parts, sizes, (len(parts),), keep=False, axis=0)
    merged = (*x.shape[:k], x.shape[k] * x.shape[k + 1], *x.shape[k + 2:])
    if any(s == 0 and (i >= x.rank or x.shape[i]) for i, s in enumerate(merged)):
        raise Impossible
    m.node("Reshape", [x, wanted], x, merged)


def squeeze(m: RandomModel) -> None:
    x = m.pick(0, 4)
    ones = [k for k, s in enumerate(x.shape) if s == 1]
    if ones and m.chance():
        k = m.choose(ones)
        m.node("Squeeze", [x, m.constant([k - m.choose([0, x.rank])])], x,
               (*x.shape[:k], *x.shape[k + 1:]))
    else:
        k = m.integer(0, x.rank)
        m.node("Unsqueeze", [x, m.constant([k])], x, (*x.shape[:k], 1, *x.shape[k:]))


def flatten(m: RandomModel) -> None:
    x = m.pick(0, 4)
    axis = m.integer(0, x.rank)
    m.node("Flatten", [x], x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])), axis=axis)


def cut(m: RandomModel) -> None:
    x = m.pick(1)
    axis, step = m.integer(0, x.rank - 1), m.choose([1, 1, 2, 3, -1, -2])
    start, end = (m.choose([0, 1, 2, -1, -2, 5, -(2**63), 2**63 - 1]) for _ in range(2))
    end = min(end, 5) if step < 0 else end  # onnxruntime takes the largest one for "to the end"
    size = len(range(x.shape[axis])[start:end:step])
    given = [m.constant([v]) for v in (start, end, m.choose([axis, axis - x.rank]), step)]
    m.node("Slice", [x, *given], x, (*x.shape[:axis], size, *x.shape[axis + 1:]))


def expand(m: RandomModel) -> None:
    x = m.pick(0, 3)
    wanted = [m.choose([2, 3, 1]) if s == 1 else m.choose([s, 1]) for s in x.shape]
    wanted = [m.choose([1, 2, 5]), *wanted]
    m.node("Expand", [x, m.constant(wanted)], x, np.broadcast_shapes(x.shape, tuple(wanted)))


def tile(m: RandomModel) -> None:
    x = m.pick(1)
    repeats = [m.choose([1, 1, 2, 3]) for _ in x.shape]
    m.node("Tile", [x, m.constant(repeats)], x, np.multiply(x.shape, repeats))


def join(m: RandomModel) -> None:
    x = m.pick(1)
    axis = m.integer(0, x.rank - 1)
    found = [v for v in m.values if v.dtype == x.dtype and v.rank == x.rank and all(
        a == b for k, (a, b) in enumerate(zip(v.shape, x.shape, strict=True)) if k != axis)]
    parts = [m.choose(found) for _ in range(m.integer(1, 2))] + [x]
    m.node("Concat", parts, x, (*x.shape[:axis], sum(p.shape[axis] for p in parts),
                                *x.shape[axis + 1:]), axis=m.choose([axis, axis - x.rank]),
           exact=all(p.exact for p in parts), bound=max(p.bound for p in parts))


def pad(m: RandomModel) -> None:
    x = m.pick(1)
    mode = m.choose(["constant", "constant", "edge", "reflect", "wrap"])
    least = 1 if mode == "constant" else 0 if 0 in x.shape else min(x.shape)
    if mode != "constant" and least < 3:
        raise Impossible
    pads = [m.integer(0, 2) for _ in range(2 * x.rank)]
    if mode == "constant" and m.chance(0.3) and x.shape[0] > 1:
        pads[0] = -1
    operands = [x, m.constant(pads), *([m.constant(2, x.dtype)] if mode == "constant" else [])]
    m.node("Pad", operands, x, [s + pads[k] + pads[k + x.rank] for k, s in enumerate(x.shape)],
           mode=mode)


def depth_to_space(m: RandomModel) -> None:
    n, c, h, w = (m.integer(1, 2), 4 * m.integer(1, 2), m.integer(1, 3), m.integer(1, 3))
    x = m.weight(m.main, (n, c, h, w))
    m.node("DepthToSpace", [x], x, (n, c // 4, 2 * h, 2 * w), blocksize=2,
           mode=m.choose(["DCR", "CRD"]))


SIMPLE_STEPS = (
    exact_unary, smooth_unary, smooth_unary, positive_unary, jump, binary, binary, binary, binary,
    divide, variadic, compare, logic, where, cast, cast, clip, power, transpose, transpose,
    reshape, reshape, reshape_by_shape, squeeze, flatten, cut, cut, expand, tile, join, join, pad,
    depth_to_space,
)
