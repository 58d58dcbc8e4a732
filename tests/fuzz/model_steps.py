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


# ---------------------------------------------------------------------- by index
def gather(m: RandomModel) -> None:
    x = m.pick(1, 4)
    axis = m.integer(0, x.rank - 1)
    size, count = x.shape[axis], m.choose([(), (1,), (3,), (2, 2), (0,)])
    if not size:
        raise Impossible
    indices = m.constant(m.random.integers(-size, size, count), m.choose([np.int64, np.int32]))
    m.node("Gather", [x, indices], x, (*x.shape[:axis], *count, *x.shape[axis + 1:]), axis=axis)


def gather_elements(m: RandomModel) -> None:
    x = m.pick(1, 4)
    axis = m.integer(0, x.rank - 1)
    if 0 in x.shape:
        raise Impossible
    shape = [m.integer(1, s) if k != axis else m.integer(1, 4) for k, s in enumerate(x.shape)]
    size = x.shape[axis]
    indices = m.constant(m.random.integers(-size, size, shape))
    m.node("GatherElements", [x, indices], x, shape, axis=axis)


def scatter(m: RandomModel) -> None:
    x = m.pick(1, 3)
    axis = m.integer(0, x.rank - 1)
    size, how = x.shape[axis], m.choose(["none", "add", "max"])
    if 0 in x.shape or (how != "none" and not x.dtype == F32):
        raise Impossible
    shape = [m.integer(1, s) for s in x.shape]
    lines = m.random.permuted(np.broadcast_to(np.arange(size).reshape(
        [-1 if k == axis else 1 for k in range(x.rank)]), [
            size if k == axis else s for k, s in enumerate(shape)]), axis=axis)
    indices = m.constant(np.take(lines, range(shape[axis]), axis))
    m.node("ScatterElements", [x, indices, m.weight(x.dtype, shape)], x, axis=axis, reduction=how,
           exact=x.exact and how != "add", bound=x.bound + 4)


def scatter_nd(m: RandomModel) -> None:
    x = m.pick(1, 3)
    if not x.shape[0]:
        raise Impossible
    rows = m.random.permutation(x.shape[0])[:m.integer(1, x.shape[0])]
    update = m.weight(x.dtype, (len(rows), *x.shape[1:]))
    m.node("ScatterND", [x, m.constant(rows[:, None]), update], x, bound=max(x.bound, 4))


def order(m: RandomModel) -> None:
    """The place of the largest or smallest element."""
    x = m.pick(1, exact=True)
    axis, keep = m.integer(0, x.rank - 1), m.integer(0, 1)
    if not x.shape[axis]:
        raise Impossible
    shape = [1 if k == axis else s for k, s in enumerate(x.shape) if k != axis or keep]
    m.node(m.choose(["ArgMax", "ArgMin"]), [x], x, shape, dtype=I64, axis=axis, keepdims=keep,
           bound=float(x.shape[axis]))


def running_sum(m: RandomModel) -> None:
    x = m.pick(1)
    axis = m.integer(0, x.rank - 1)
    m.node("CumSum", [x, m.constant(axis)], x, exclusive=m.integer(0, 1),
           reverse=m.integer(0, 1), exact=x.exact and not x.is_float,
           bound=x.bound * max(x.shape[axis], 1))


def one_hot(m: RandomModel) -> None:
    x = m.pick(1, 3, kind="int", exact=True)
    depth = m.integer(2, 5)
    m.node("OneHot", [x, m.constant(depth), m.constant([0.5, 2.0], F32)], x, (*x.shape, depth),
           dtype=F32, bound=2.0, axis=-1)


# ---------------------------------------------------------------------- reductions, products
def reduce(m: RandomModel) -> None:
    x = m.pick(1)
    axes = sorted({m.integer(0, x.rank - 1) for _ in range(m.integer(1, 2))})
    names = ["Sum", "Max", "Min"] + (["Mean", "L1", "L2", "SumSquare"] if x.is_float else [])
    name, count = m.choose(names), math.prod(x.shape[a] for a in axes)
    if not count and name != "Sum":
        raise Impossible
    keep = m.integer(0, 1)
    shape = [1 if k in axes else s for k, s in enumerate(x.shape) if k not in axes or keep]
    exact = x.exact and (name in ("Max", "Min") or not x.is_float)
    m.node(f"Reduce{name}", [x, m.constant(axes)], x, shape, keepdims=keep, exact=exact,
           bound=max(1.0, x.bound) ** (2 if "S" in name[1:] else 1) * (
               1 if name in ("Max", "Min", "Mean") else max(count, 1)))


def log_sum_exp(m: RandomModel) -> None:
    x = calm(m, m.pick(1, kind="float"))
    axis = m.integer(0, x.rank - 1)
    if not x.shape[axis]:
        raise Impossible
    m.node("ReduceLogSumExp", [x, m.constant([axis])], x, keepdims=1, bound=6.0,
           shape=[1 if k == axis else s for k, s in enumerate(x.shape)])


def softmax(m: RandomModel) -> None:
    x = m.pick(1, kind="float")
    name = m.choose(["Softmax", "LogSoftmax"])
    m.node(name, [x], x, exact=False, bound=1.0 if name == "Softmax" else 2 * x.bound + 8,
           axis=m.integer(-x.rank, x.rank - 1))


def calm(m: RandomModel, x: Value) -> Value:
    """Numbers of at most 1, so that sums of products stay small."""
    if not x.is_float:
        return x
    return m.node(m.choose(["Tanh", "Sin", "Sigmoid"]), [x], x, keep=False, exact=False, bound=1.0)


def matmul(m: RandomModel) -> None:
    x = calm(m, m.pick(1, 4, kind="float"))
    inner = x.shape[-1]
    if x.rank > 1 and m.chance(0.3):
        swapped = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
        y = m.node("Transpose", [x], x, [x.shape[k] for k in swapped], keep=False, perm=swapped)
        shape = (*x.shape[:-1], x.shape[-2])
    else:
        batch = m.choose([(), (), (2,), (x.shape[-3],) if x.rank > 2 else ()])
        if not fits(batch, x.shape[:-2]):
            batch = ()
        y = m.weight(x.dtype, (*batch, inner, m.choose([1, 3, 8, 17])))
        if x.rank == 1:
            shape = (*batch, y.shape[-1])
        else:
            shape = (*np.broadcast_shapes(batch, x.shape[:-2]), x.shape[-2], y.shape[-1])
    m.has_empty_sum |= not inner
    m.node("MatMul", [x, y], x, shape, bound=4.0 * max(inner, 1) ** 0.5)


def gemm(m: RandomModel) -> None:
    x = calm(m, m.pick(2, 2, kind="float"))
    across = m.integer(0, 1)
    rows, inner = x.shape[::-1] if across else x.shape
    columns, turned = m.choose([1, 4, 9]), m.integer(0, 1)
    m.has_empty_sum |= not inner
    w = m.weight(x.dtype, (columns, inner) if turned else (inner, columns))
    c = m.weight(x.dtype, m.choose([(), (1,), (columns,), (1, columns)]))
    m.node("Gemm", [x, w, c], x, (rows, columns), transA=across, transB=turned,
           alpha=m.choose([1.0, 0.5]), beta=m.choose([1.0, 2.0]), bound=8.0 * max(inner, 1) ** 0.5)


# ---------------------------------------------------------------------- windows, norms
def image(m: RandomModel) -> Value:
    x = calm(m, m.pick(3, 4, kind="float"))
    if not x.shape[1] or x.shape[1] > 8:
        raise Impossible
    return x


def conv(m: RandomModel) -> None:
    x = image(m)
    spatial, channels = x.rank - 2, x.shape[1]
    group = channels if m.chance() else 1
    kernel, strides, dilations = ([m.integer(1, high) for _ in range(spatial)]
                                  for high in (3, 2, 2))
    pads = [m.integer(0, 1) for _ in range(2 * spatial)]
    outputs = group * m.integer(1, 3)
    sizes = [(s + pads[k] + pads[k + spatial] - dilations[k] * (kernel[k] - 1) - 1) // strides[k]
             + 1 for k, s in enumerate(x.shape[2:])]
    if min(sizes) < 1:
        raise Impossible
    w = m.weight(x.dtype, (outputs, channels // group, *kernel))
    bias = [m.weight(x.dtype, (outputs,))] if m.chance() else []
    m.node("Conv", [x, w, *bias], x, (x.shape[0], outputs, *sizes), group=group, pads=pads,
           strides=strides, dilations=dilations, bound=40.0)


def conv_transpose(m: RandomModel) -> None:
    x = image(m)
    spatial, channels = x.rank - 2, x.shape[1]
    kernel, strides = ([m.integer(1, high) for _ in range(spatial)] for high in (3, 2))
    if min(x.shape[2:]) < 1:
        raise Impossible
    outputs = m.integer(1, 3)
    sizes = [(s - 1) * strides[k] + kernel[k] for k, s in enumerate(x.shape[2:])]
    m.node("ConvTranspose", [x, m.weight(x.dtype, (channels, outputs, *kernel))], x,
           (x.shape[0], outputs, *sizes), strides=strides, kernel_shape=kernel, bound=40.0)


def pool(m: RandomModel) -> None:
    x = m.pick(3, 4, kind="float")
    spatial = x.rank - 2
    kernel, strides = ([m.integer(1, high) for _ in range(spatial)] for high in (3, 2))
    if any(s < k for s, k in zip(x.shape[2:], kernel, strict=True)) or not x.shape[1]:
        raise Impossible
    name, up = m.choose(["MaxPool", "AveragePool"]), m.integer(0, 1)
    counts = [(s - k + up * (d - 1)) // d + 1
              for s, k, d in zip(x.shape[2:], kernel, strides, strict=True)]
    counts = [c - (up and (c - 1) * d >= s)
              for s, c, d in zip(x.shape[2:], counts, strides, strict=True)]
    m.node(name, [x], x, (*x.shape[:2], *counts), kernel_shape=kernel, strides=strides,
           ceil_mode=up, exact=x.exact and name == "MaxPool")


def global_pool(m: RandomModel) -> None:
    x = m.pick(3, 4, kind="float")
    if 0 in x.shape:
        raise Impossible
    m.node(m.choose(["GlobalAveragePool", "GlobalMaxPool"]), [x], x,
           (*x.shape[:2], *[1] * (x.rank - 2)), exact=False)


def norm(m: RandomModel) -> None:
    x = m.pick(2, 4, kind="float")
    if 0 in x.shape:
        raise Impossible
    if m.chance():
        axis = m.integer(1, x.rank - 1)
        parameters = [m.weight(x.dtype, x.shape[axis:]) for _ in range(m.integer(1, 2))]
        m.node("LayerNormalization", [x, *parameters], x, axis=axis, exact=False, bound=40.0,
               epsilon=0.01)
        return
    channels = (x.shape[1],)
    scale, bias, mean = (m.weight(x.dtype, channels) for _ in range(3))
    variance = m.constant(m.random.integers(1, 5, channels), x.dtype)
    m.node("BatchNormalization", [x, scale, bias, mean, variance], x, exact=False,
           bound=4 * (x.bound + 4) + 4)


STEPS = (
    exact_unary, smooth_unary, smooth_unary, positive_unary, jump, binary, binary, binary, binary,
    divide, variadic, compare, logic, where, cast, cast, clip, power, transpose, transpose,
    reshape, reshape, reshape_by_shape, squeeze, flatten, cut, cut, expand, tile, join, join, pad,
    depth_to_space, gather, gather, gather_elements, scatter, scatter_nd, order, running_sum,
    one_hot, reduce, reduce, reduce, log_sum_exp, softmax, softmax, matmul, matmul, gemm, conv,
    conv, conv_transpose, pool, pool, global_pool, norm, norm,
)
