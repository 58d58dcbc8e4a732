"""Operators of PyTorch: what they take, and what they require of symbolic dims.

A specification adds a line of Python to a draft. Numbers in it that are dims stay symbols until Z3
has found them; `{0}` in the line stands for the first of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.fuzz.solver.draft import (
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    I32,
    I64,
    Dim,
    Domain,
    Draft,
    DType,
    Impossible,
    Value,
    product,
    same,
)

FLOATS = (F32, F64, F16, BF16)
NAMES = {F32: "float32", F64: "float64", F16: "float16", BF16: "bfloat16", I64: "int64",
         I32: "int32", np.dtype("u1"): "uint8", BOOL: "bool"}
TYPES = tuple(NAMES)
NUMBERS = TYPES[:-1]
UNARY = ("torch.relu({})", "F.gelu({})", "F.gelu({}, approximate='tanh')", "F.silu({})",
         "torch.tanh({})", "torch.sigmoid({})", "torch.exp(-torch.abs({}))", "torch.sin({})",
         "torch.cos({})", "torch.erf({})", "F.leaky_relu({}, 0.125)", "F.elu({})",
         "F.softplus({})",
         "F.hardswish({})", "F.hardsigmoid({})", "F.mish({})", "torch.sqrt({}.abs() + 0.25)",
         "torch.log({}.abs() + 0.25)", "torch.rsqrt({}.abs() + 0.5)",
         "torch.expm1({}.clamp(max=2))",
         "torch.log1p({}.abs())", "torch.atan({})", "{}.clamp(-1.5, 2)", "{}.square()", "-{}",
         "{} * 0.5 + 1", "torch.reciprocal({}.abs() + 0.5)")
ANY_UNARY = ("torch.abs({})", "{} + 1", "torch.neg({})", "{}.clamp(min=1)", "torch.sign({})")
BINARY = ("{} + {}", "{} - {}", "{} * {}", "torch.maximum({}, {})", "torch.minimum({}, {})")


@dataclass
class Line:
    """`name = template`, with numbers that are dims."""

    results: list[str]
    template: str
    dims: Sequence[Dim]


@dataclass
class Program:
    """A draft of a module: lines instead of nodes."""

    draft: Draft
    lines: list[Line] = field(default_factory=list[Line])

    def add(self, template: str, dtype: DType, shape: Sequence[Dim], *dims: Dim) -> Value:
        return self.several(template, [(dtype, shape)], *dims)[0]

    def several(
        self, template: str, results: Sequence[tuple[DType, Sequence[Dim]]], *dims: Dim
    ) -> list[Value]:
        values = [Value(self.draft.fresh("v"), t, tuple(shape)) for t, shape in results]
        if any(v.rank > 5 for v in values):
            raise Impossible
        self.lines.append(Line([v.name for v in values], template, dims))
        self.draft.values.extend(values)
        return values


Spec = Callable[[Program], None]


def _float(p: Program, low: int = 0, high: int = 4) -> Value:
    return p.draft.pick(FLOATS, low, high)


def unary(p: Program) -> None:
    x = _float(p)
    p.add(p.draft.choose(UNARY).replace("{}", x.name), x.dtype, x.shape)


def any_unary(p: Program) -> None:
    x = p.draft.pick([t for t in NUMBERS if t != np.dtype("u1")])
    p.add(p.draft.choose(ANY_UNARY).replace("{}", x.name), x.dtype, x.shape)


def binary(p: Program) -> None:
    x = p.draft.pick(NUMBERS)
    y, shape = p.draft.partner(x)
    p.add(p.draft.choose(BINARY).format(x.name, y.name), x.dtype, shape)


def divide(p: Program) -> None:
    x = _float(p)
    y, shape = p.draft.partner(x)
    p.add(f"{x.name} / ({y.name}.abs() + 0.5)", x.dtype, shape)


def where(p: Program) -> None:
    x = p.draft.pick(NUMBERS)
    y, shape = p.draft.partner(x)
    sign = p.draft.choose((">", "<=", "=="))
    p.add(f"torch.where({x.name} {sign} {y.name}, {x.name}, {y.name})", x.dtype, shape)


def masked_fill(p: Program) -> None:
    x = p.draft.pick(NUMBERS)
    mask = p.draft.like(BOOL, [1 if p.draft.chance(0.3) else d for d in x.shape])
    p.add(f"{x.name}.masked_fill({mask.name}, 2)", x.dtype, x.shape)


def convert(p: Program) -> None:
    x, dtype = p.draft.pick(TYPES), p.draft.choose(TYPES)
    text = f"{x.name}.clamp(0, 100)" if x.dtype in FLOATS and dtype not in FLOATS else x.name
    p.add(f"{text}.to(torch.{NAMES[dtype]})", dtype, x.shape)


# ---------------------------------------------------------------------- reductions
def reduce(p: Program) -> None:
    x = _float(p, 1)
    axis = p.draft.integer(-x.rank, x.rank - 1)
    keep = p.draft.chance()
    name = p.draft.choose(("sum", "mean", "amax", "amin"))
    p.draft.require(x.shape[axis] >= 1)
    shape = [1 if k == axis % x.rank else d for k, d in enumerate(x.shape)
             if k != axis % x.rank or keep]
    p.add(f"{x.name}.{name}({axis}, keepdim={keep})", x.dtype, shape)


def variance(p: Program) -> None:
    x = _float(p, 1)
    p.draft.require(x.shape[-1] >= 2)
    p.add(f"{x.name}.var(-1, keepdim=True)", x.dtype, [*x.shape[:-1], 1])


def arg(p: Program) -> None:
    x = p.draft.pick((*FLOATS, I64, I32), 1)
    axis = p.draft.integer(0, x.rank - 1)
    p.draft.require(x.shape[axis] >= 1)
    p.add(f"{x.name}.{p.draft.choose(('argmax', 'argmin'))}({axis})", I64,
          [d for k, d in enumerate(x.shape) if k != axis])


def along(p: Program) -> None:
    x = _float(p, 1)
    axis = p.draft.integer(0, x.rank - 1)
    name = p.draft.choose(("softmax", "log_softmax", "cumsum"))
    p.draft.require(x.shape[axis] >= 1)
    p.add(f"{x.name}.{name}({axis})", x.dtype, x.shape)


def layer_norm(p: Program) -> None:
    x = _float(p, 1)
    p.draft.require(x.shape[-1] >= 2)
    w, b = (p.draft.placeholder(x.dtype, x.shape[-1:]) for _ in range(2))
    p.draft.pinned.append(x.shape[-1])
    p.add(f"F.layer_norm({x.name}, ({{0}},), {w.name}, {b.name}, 0.0078125)", x.dtype, x.shape,
          x.shape[-1])


# ---------------------------------------------------------------------- shapes
def permute(p: Program) -> None:
    x = p.draft.pick(TYPES, 1)
    perm = [int(k) for k in p.draft.random.permutation(x.rank)]
    p.add(f"{x.name}.permute({perm})", x.dtype, [x.shape[k] for k in perm])


def merge(p: Program) -> None:
    x = p.draft.pick(TYPES, 2)
    first = p.draft.integer(0, x.rank - 2)
    p.add(f"{x.name}.flatten({first}, {first + 1})", x.dtype,
          [*x.shape[:first], product(x.shape[first:first + 2]), *x.shape[first + 2:]])


def split_dim(p: Program) -> None:
    x = p.draft.pick(TYPES, 1)
    axis, factor = p.draft.integer(0, x.rank - 1), p.draft.choose((2, 3, 4))
    rest = p.draft.dim()
    p.draft.require(same(rest * factor, x.shape[axis]))
    p.add(f"{x.name}.unflatten({axis}, (-1, {factor}))", x.dtype,
          [*x.shape[:axis], rest, factor, *x.shape[axis + 1:]])


def unsqueeze(p: Program) -> None:
    x = p.draft.pick(TYPES)
    axis = p.draft.integer(0, x.rank)
    p.add(f"{x.name}.unsqueeze({axis})", x.dtype, [*x.shape[:axis], 1, *x.shape[axis:]])


def cat(p: Program) -> None:
    x = p.draft.pick(TYPES, 1)
    axis = p.draft.integer(0, x.rank - 1)
    y = p.draft.like(x.dtype, [p.draft.dim() if k == axis else d for k, d in enumerate(x.shape)])
    shape = [d + y.shape[axis] if k == axis else d for k, d in enumerate(x.shape)]
    p.add(f"torch.cat([{x.name}, {y.name}], {axis})", x.dtype, shape)


def stack(p: Program) -> None:
    x = p.draft.pick(TYPES)
    y = p.draft.like(x.dtype, x.shape)
    p.add(f"torch.stack([{x.name}, {y.name}])", x.dtype, [2, *x.shape])


def chunk(p: Program) -> None:
    x = p.draft.pick(TYPES, 1)
    axis, size = p.draft.integer(0, x.rank - 1), p.draft.choose((1, 2, 3))
    rest = p.draft.dim()
    p.draft.require(same(rest + size, x.shape[axis]))
    shapes = [(x.dtype, [d if k == axis else s for k, s in enumerate(x.shape)])
              for d in (size, rest)]
    p.draft.pinned.append(rest)
    p.several(f"{x.name}.split([{size}, {{0}}], {axis})", shapes, rest)


def slice_(p: Program) -> None:
    x = p.draft.pick(TYPES, 1)
    axis = p.draft.integer(0, x.rank - 1)
    text, change = p.draft.choose((("1:", -1), (":-1", -1), ("-1:", None), (":2", 2), ("::2", "/")))
    size: Any = x.shape[axis]
    p.draft.require(size >= 3)
    new = {None: 1, 2: 2, "/": (size + 1) / 2 if not isinstance(size, int) else (size + 1) // 2,
           -1: size - 1}[change]
    place = ", ".join([":"] * axis + [text])
    p.add(f"{x.name}[{place}]", x.dtype,
          [new if k == axis else d for k, d in enumerate(x.shape)])


def flip(p: Program) -> None:
    x = p.draft.pick(TYPES, 1)
    axis = p.draft.integer(0, x.rank - 1)
    p.add(p.draft.choose((f"{x.name}.flip({axis})", f"{x.name}.roll(1, {axis})")), x.dtype, x.shape)


def pad(p: Program) -> None:
    x = _float(p, 1)
    low, high = p.draft.integer(0, 2), p.draft.integer(0, 2)
    p.add(f"F.pad({x.name}, ({low}, {high}))", x.dtype, [*x.shape[:-1], x.shape[-1] + (low + high)])


def triangle(p: Program) -> None:
    x = _float(p, 2)
    name, k = p.draft.choose(("tril", "triu")), p.draft.integer(-2, 2)
    p.add(f"{x.name}.{name}({k})", x.dtype, x.shape)


def index(p: Program) -> None:
    x = p.draft.pick(TYPES, 1)
    axis = p.draft.integer(0, x.rank - 1)
    p.draft.require(x.shape[axis] >= 1)
    i = p.draft.placeholder(I64, [p.draft.dim()], Domain("index", x.shape[axis], from_zero=True))
    p.add(f"{x.name}.index_select({axis}, {i.name})", x.dtype,
          [i.shape[0] if k == axis else d for k, d in enumerate(x.shape)])


def top_k(p: Program) -> None:
    x = _float(p, 1)
    k = p.draft.choose((1, 2, 3))
    p.draft.require(x.shape[-1] >= k)
    p.several(f"{x.name}.topk({k})", [(t, [*x.shape[:-1], k]) for t in (x.dtype, I64)])


# ---------------------------------------------------------------------- products
def matmul(p: Program) -> None:
    x = _float(p, 2)
    batch = x.shape[:-2] if p.draft.chance() else ()
    y = p.draft.like(x.dtype, [*batch, x.shape[-1], p.draft.dim()])
    p.add(f"{x.name} @ {y.name}", x.dtype, [*x.shape[:-1], y.shape[-1]])


def linear(p: Program) -> None:
    x = _float(p, 1)
    columns = p.draft.dim()
    w = p.draft.placeholder(x.dtype, [columns, x.shape[-1]], fixed=True)
    b = p.draft.placeholder(x.dtype, [columns], fixed=True)
    p.add(f"F.linear({x.name}, {w.name}, {b.name})", x.dtype, [*x.shape[:-1], columns])


def attention(p: Program) -> None:
    q = _float(p, 4, 4)
    b, h, _, depth = q.shape
    keys = p.draft.dim()
    k, v = (p.draft.like(q.dtype, [b, h, keys, depth]) for _ in range(2))
    causal = p.draft.chance(0.3)
    p.add(f"F.scaled_dot_product_attention({q.name}, {k.name}, {v.name}, is_causal={causal})",
          q.dtype, q.shape)


def convolution(p: Program) -> None:
    x = _float(p, 3, 4)
    n, channels, *spatial = x.shape
    filters, kernel = p.draft.dim(), p.draft.choose((1, 2, 3))
    padding, stride = p.draft.integer(0, kernel // 2), p.draft.choose((1, 1, 2))
    sizes: list[Any] = []
    for s in spatial:
        room: Any = s + (2 * padding - kernel)
        p.draft.require(room >= 0)
        sizes.append(room + 1 if stride == 1 else _half(room) + 1)
    w = p.draft.placeholder(x.dtype, [filters, channels, *[kernel] * len(spatial)], fixed=True)
    p.add(f"F.conv{len(spatial)}d({x.name}, {w.name}, None, {stride}, {padding})", x.dtype,
          [n, filters, *sizes])


def _half(room: Any) -> Any:
    return room // 2 if isinstance(room, int) else room / 2


def pool(p: Program) -> None:
    x = _float(p, 4, 4)
    p.draft.require(*(s >= 2 for s in x.shape[2:]))
    name = p.draft.choose(("max_pool2d", "avg_pool2d"))
    p.add(f"F.{name}({x.name}, 2)", x.dtype, [*x.shape[:2], *(_half(s) for s in x.shape[2:])])


def embedding(p: Program) -> None:
    rows, width = p.draft.dim(), p.draft.dim()
    table = p.draft.placeholder(F32, [rows, width], fixed=True)
    i = p.draft.placeholder(I64, [p.draft.dim(), p.draft.dim()],
                            Domain("index", rows, from_zero=True))
    p.add(f"F.embedding({i.name}, {table.name})", F32, [*i.shape, width])


def scaled_rows(p: Program) -> None:
    """In place on a copy, which export makes functional."""
    x = _float(p, 1)
    p.draft.require(x.shape[0] >= 1)
    copy = p.add(f"{x.name}.clone()", x.dtype, x.shape)
    p.add(f"{copy.name}.mul_(2)", x.dtype, x.shape)


SPECS: dict[Spec, float] = {
    unary: 7, any_unary: 2, binary: 5, divide: 1, where: 1.5, masked_fill: 1, convert: 1.5,
    reduce: 3, variance: 0.7, arg: 0.7, along: 2, layer_norm: 1, permute: 2, merge: 1,
    split_dim: 1.5, unsqueeze: 1, cat: 1.5, stack: 0.7, chunk: 1, slice_: 2, flip: 0.7, pad: 0.8,
    triangle: 0.5, index: 0.7, top_k: 0.6, matmul: 2, linear: 2, attention: 1, convolution: 1.5,
    pool: 0.7, embedding: 0.5, scaled_rows: 0.5}
