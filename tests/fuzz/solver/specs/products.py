"""Products and windows: matrices, convolutions, pools, images, recurrent cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import z3

from tests.fuzz.solver.domains import is_float
from tests.fuzz.solver.draft import (
    FLOATS,
    I8,
    I32,
    I64,
    U8,
    Dim,
    Draft,
    DType,
    Impossible,
    Shape,
    Value,
    same,
)


# ---------------------------------------------------------------------- matrices
def matmul(draft: Draft) -> None:
    x = draft.pick(draft.allowed("MatMul"), 1, 4)
    y = _right_factor(draft, x, x.dtype)
    draft.node("MatMul", [x, y], x.dtype, _product_shape(draft, x.shape, y.shape))


def _right_factor(draft: Draft, x: Value, dtype: DType) -> Value:
    rank = draft.choose((1, 2, 2, 2, x.rank, x.rank))
    inner = x.shape[-1]
    if rank == 1:
        return draft.like(dtype, [inner])
    batch = [1 if draft.chance(0.3) else d for d in x.shape[:-2]][-(rank - 2):] if rank > 2 else []
    return draft.like(dtype, [*batch, inner, draft.dim()])


def _product_shape(draft: Draft, a: Shape, b: Shape) -> Shape:
    left = a[-2:-1] if len(a) > 1 else ()
    right = b[-1:] if len(b) > 1 else ()
    return (*draft.broadcast(a[:-2], b[:-2]), *left, *right)


def gemm(draft: Draft) -> None:
    x = draft.pick(draft.allowed("Gemm"), 2, 2)
    trans_a, trans_b = draft.integer(0, 1), draft.integer(0, 1)
    rows, inner = x.shape[::-1] if trans_a else x.shape
    columns = draft.dim()
    y = draft.like(x.dtype, [columns, inner] if trans_b else [inner, columns])
    bias: list[Value] = []
    if draft.chance(0.7):
        shape = draft.choose(([], [columns], [rows, columns], [rows, 1], [1, columns], [1, 1]))
        bias = [draft.placeholder(x.dtype, shape)]
    scales = {} if not is_float(x.dtype) else {
        "alpha": draft.choose((1.0, 0.5)), "beta": draft.choose((1.0, 0.25))}
    draft.node("Gemm", [x, y, *bias], x.dtype, [rows, columns], transA=trans_a, transB=trans_b,
               **scales)


def linear(draft: Draft) -> None:
    """A product with weights, a bias, an activation."""
    x = draft.pick(FLOATS, 2, 4)
    columns = draft.dim()
    w = draft.placeholder(x.dtype, [x.shape[-1], columns], fixed=True)
    b = draft.placeholder(x.dtype, [columns], fixed=True)
    shape = [*x.shape[:-1], columns]
    y = draft.node("Add", [draft.node("MatMul", [x, w], x.dtype, shape), b], x.dtype, shape)
    draft.node(draft.choose(("Relu", "Tanh", "Sigmoid")), [y], x.dtype, shape)


def attention(draft: Draft) -> None:
    """softmax(q @ k^T) @ v, over some batch dims."""
    q = draft.pick(FLOATS, 3, 4)
    *batch, rows, depth = q.shape
    keys = draft.dim()
    draft.require(keys >= 1)
    k = draft.like(q.dtype, [*batch, keys, depth])
    v = draft.like(q.dtype, [*batch, keys, draft.dim()])
    perm = [*range(len(batch)), len(batch) + 1, len(batch)]
    turned = draft.node("Transpose", [k], q.dtype, [*batch, depth, keys], perm=perm, keep=False)
    scores = draft.node("MatMul", [q, turned], q.dtype, [*batch, rows, keys], keep=False)
    scaled = draft.node("Mul", [scores, draft.constant(0.25, q.dtype)], q.dtype, scores.shape)
    weights = draft.node("Softmax", [scaled], q.dtype, scores.shape, axis=-1)
    draft.node("MatMul", [weights, v], q.dtype, [*batch, rows, v.shape[-1]])


def einsum(draft: Draft) -> None:
    x = draft.pick([t for t in draft.allowed("Einsum") if is_float(t)], 1, 4)
    letters = "abcd"[: x.rank]
    kept = "".join(c for c in letters if draft.chance(0.6))
    if draft.chance(0.4):
        order = "".join(kept[int(k)] for k in draft.random.permutation(len(kept)))
        draft.node("Einsum", [x], x.dtype, [x.shape[letters.index(c)] for c in order],
                   equation=f"{letters}->{order}")
        return
    other = "".join(c for c in letters if draft.chance(0.6)) + "e"
    extra = draft.dim()
    dims = dict(zip(letters, x.shape, strict=True)) | {"e": extra}
    y = draft.placeholder(x.dtype, [dims[c] for c in other])
    result = "".join(c for c in kept + "e")
    draft.node("Einsum", [x, y], x.dtype, [dims[c] for c in result],
               equation=f"{letters}, {other} -> {result}")


def matmul_integer(draft: Draft) -> None:
    """The second factor is drawn, so it is small, and no two products overflow 16 bits, in which
    onnxruntime may add them (`tests/byte_products.py`).
    """
    x = draft.pick((U8, I8), 2, 3)
    y = draft.placeholder(draft.choose((U8, I8)), [x.shape[-1], draft.dim()])
    zeros = [draft.constant(draft.integer(0, 3), v.dtype) for v in (x, y)]
    draft.node("MatMulInteger", [x, y, *(zeros if draft.chance() else [])], I32,
               [*x.shape[:-1], y.shape[-1]])


# ---------------------------------------------------------------------- windows
@dataclass(frozen=True)
class Window:
    """One spatial dim: how it is walked."""

    kernel: int
    stride: int
    dilation: int
    before: int
    after: int

    @property
    def reach(self) -> int:
        return self.dilation * (self.kernel - 1) + 1


def _windows(draft: Draft, count: int, most_pad: int | None = None) -> list[Window]:
    dilate, stride = draft.chance(0.25), draft.chance(0.4)
    found: list[Window] = []
    for _ in range(count):
        kernel = draft.choose((1, 2, 3, 3, 5))
        dilation = draft.choose((1, 2, 3)) if dilate else 1
        limit = min(kernel - 1 if most_pad is None else most_pad, 3)
        found.append(Window(kernel, draft.choose((1, 2, 3)) if stride else 1, dilation,
                            draft.integer(0, max(limit, 0)), draft.integer(0, max(limit, 0))))
    return found


def _walked(draft: Draft, size: Dim, w: Window, ceil: bool = False) -> Dim:
    """The number of positions of a window: at least one."""
    room: Any = size + (w.before + w.after - w.reach)
    draft.require(size >= 1, room >= 0)
    if ceil:
        room = room + (w.stride - 1)
    return room + 1 if w.stride == 1 else room / z3.IntVal(w.stride) + 1


def _attributes(draft: Draft, windows: Sequence[Window], dilations: bool = True) -> dict[str, Any]:
    plain: dict[str, Any] = {"kernel_shape": [w.kernel for w in windows]}
    if any(w.stride != 1 for w in windows) or draft.chance(0.3):
        plain["strides"] = [w.stride for w in windows]
    if dilations and (any(w.dilation != 1 for w in windows) or draft.chance(0.2)):
        plain["dilations"] = [w.dilation for w in windows]
    if any(w.before or w.after for w in windows) or draft.chance(0.2):
        plain["pads"] = [*(w.before for w in windows), *(w.after for w in windows)]
    return plain


def _image(draft: Draft, dtypes: Sequence[DType], low: int = 3) -> Value:
    x = draft.pick(dtypes, low, 4 if draft.chance(0.85) else 5)
    draft.require(x.shape[0] >= 1, x.shape[1] >= 1)
    return x


def convolution(draft: Draft) -> None:
    x = _image(draft, draft.allowed("Conv"))
    n, channels, *spatial = x.shape
    windows = _windows(draft, len(spatial))
    sizes = [_walked(draft, s, w) for s, w in zip(spatial, windows, strict=True)]
    group, inside, filters = _groups(draft, channels)
    weight = draft.placeholder(x.dtype, [filters, inside, *(w.kernel for w in windows)],
                               fixed=draft.chance(0.85))
    bias = [draft.placeholder(x.dtype, [filters], fixed=True)] if draft.chance() else []
    y = draft.node("Conv", [x, weight, *bias], x.dtype, [n, filters, *sizes], group=group,
                   **_attributes(draft, windows))
    if draft.chance(0.3):
        draft.node("Relu", [y], y.dtype, y.shape)


def _groups(draft: Draft, channels: Dim) -> tuple[int, Dim, Dim]:
    """(group, channels per group, filters): one group, some, or one per channel."""
    kind = draft.choose(("one", "one", "some", "depthwise"))
    filters = draft.dim()
    draft.require(filters >= 1)
    if kind == "one":
        return 1, channels, filters
    group = draft.choose((2, 3, 4))
    inside, outside = draft.dim(), draft.dim()
    draft.require(same(inside * group, channels), same(outside * group, filters))
    draft.require(inside >= 1, outside >= 1)
    if kind == "depthwise":
        draft.require(same(inside, 1))
        draft.pinned.append(inside)
    return group, inside, filters


def conv_transpose(draft: Draft) -> None:
    x = _image(draft, draft.allowed("ConvTranspose"))
    n, channels, *spatial = x.shape
    windows = _windows(draft, len(spatial))
    output_padding = [draft.integer(0, w.stride - 1) if draft.chance(0.3) else 0 for w in windows]
    sizes: list[Dim] = []
    for s, w, extra in zip(spatial, windows, output_padding, strict=True):
        size = (s - 1) * w.stride + (w.reach + extra - w.before - w.after)
        draft.require(s >= 1, size >= 1)
        sizes.append(size)
    group, inside, filters = _groups(draft, channels)
    per_group = draft.dim()
    draft.require(same(per_group * group, filters))
    weight = draft.placeholder(x.dtype, [channels, per_group, *(w.kernel for w in windows)],
                               fixed=draft.chance(0.85))
    more = {"output_padding": output_padding} if any(output_padding) else {}
    draft.node("ConvTranspose", [x, weight], x.dtype, [n, filters, *sizes], group=group, **more,
               **_attributes(draft, windows))
    del inside


def pool(draft: Draft) -> None:
    name = draft.choose(("MaxPool", "AveragePool", "LpPool"))
    x = _image(draft, draft.allowed(name))
    n, channels, *spatial = x.shape
    windows = _windows(draft, len(spatial))
    dilations = (name == "MaxPool" and draft.opset >= 10) or draft.opset >= 19
    if not dilations:
        windows = [Window(w.kernel, w.stride, 1, w.before, w.after) for w in windows]
    sizes = [_walked(draft, s, w) for s, w in zip(spatial, windows, strict=True)]
    more: dict[str, Any] = {}
    if name == "AveragePool" and draft.chance():
        more["count_include_pad"] = 1
    results: list[tuple[DType, Sequence[Dim]]] = [(x.dtype, [n, channels, *sizes])]
    if name == "MaxPool" and draft.chance(0.2):
        results.append((I64, [n, channels, *sizes]))
    draft.nodes(name, [x], results, **more, **_attributes(draft, windows, dilations))


def global_pool(draft: Draft) -> None:
    name = draft.choose(("GlobalMaxPool", "GlobalAveragePool"))
    x = _image(draft, draft.allowed(name))
    draft.require(*(s >= 1 for s in x.shape[2:]))
    draft.node(name, [x], x.dtype, [*x.shape[:2], *([1] * (x.rank - 2))])


def resize(draft: Draft) -> None:
    x = _image(draft, [t for t in draft.allowed("Resize") if is_float(t)], 4)
    if x.rank != 4 or draft.opset < 13:
        raise Impossible
    mode = draft.choose(("nearest", "linear", "cubic"))
    scales = [draft.choose((1, 2, 3)) for _ in range(2)]
    shape = [*x.shape[:2], *(d * s for d, s in zip(x.shape[2:], scales, strict=True))]
    draft.require(*(d >= 1 for d in x.shape[2:]))
    moved = draft.choose(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"))
    more = {"nearest_mode": draft.choose(("floor", "round_prefer_floor", "ceil"))} \
        if mode == "nearest" else {}
    draft.node("Resize", [x, "", draft.constant([1, 1, *scales], "f4")], x.dtype, shape, mode=mode,
               coordinate_transformation_mode=moved, **more)


# ---------------------------------------------------------------------- recurrent cells
def recurrent(draft: Draft) -> None:
    name, gates = draft.choose((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    x = draft.pick([t for t in draft.allowed(name) if t == FLOATS[0]], 3, 3)
    steps, batch, features = x.shape
    hidden = draft.choose((1, 2, 3, 5, 8))
    draft.require(steps >= 1, batch >= 1, features >= 1, steps <= 9)
    direction = draft.choose(("forward", "reverse", "bidirectional"))
    ways = 2 if direction == "bidirectional" else 1
    w = draft.placeholder(x.dtype, [ways, gates * hidden, features], fixed=True)
    r = draft.placeholder(x.dtype, [ways, gates * hidden, hidden], fixed=True)
    more = [draft.placeholder(x.dtype, [ways, 2 * gates * hidden], fixed=True)] \
        if draft.chance(0.7) else []
    last = (x.dtype, [ways, batch, hidden])
    results = [(x.dtype, [steps, ways, batch, hidden]), last, *([last] if name == "LSTM" else [])]
    extra = {"linear_before_reset": draft.integer(0, 1)} if name == "GRU" else {}
    draft.nodes(name, [x, w, r, *more], results, hidden_size=hidden, direction=direction, **extra)


SPECS = {matmul: 3, gemm: 1.2, linear: 1.2, attention: 0.8, einsum: 0.7, matmul_integer: 0.4,
         convolution: 2.5, conv_transpose: 0.8, pool: 1.5, global_pool: 0.6, resize: 0.7,
         recurrent: 0.5}
