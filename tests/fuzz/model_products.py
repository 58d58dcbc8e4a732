"""More operators of random models: by index, reductions, products, windows and norms."""

from __future__ import annotations

import math

import numpy as np

from tests.fuzz.model_steps import F32, I64, SIMPLE_STEPS, calm, fits
from tests.fuzz.random_models import Impossible, RandomModel, Value


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
    *SIMPLE_STEPS, gather, gather, gather_elements, scatter, scatter_nd, order, running_sum,
    one_hot, reduce, reduce, reduce, log_sum_exp, softmax, softmax, matmul, matmul, gemm, conv,
    conv, conv_transpose, pool, pool, global_pool, norm, norm,
)
