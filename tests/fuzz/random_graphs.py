"""Random graphs, drawn by hypothesis: a few operations over values that may be shared.

Sizes are few and odd (0, 1, primes, one more than a power of two) and symbolic or not. Numbers
stay small, so that reordered arithmetic differs little; integer graphs are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

import dialects.graph as g
from dialects.graph.base import ShapeError
from dialects.strata import types as t
from dialects.strata.func import FuncOp
from dialects.strata.types import Array, TensorType, tensor
from dialects.strata.weights import WeightStore
from dialects.symbolic.expr import Expr, Size
from dialects.verifying import verify
from tests.symbols import by_symbol

SIZES = {"a": (1, 2, 3, 5), "b": (3, 7, 16, 17), "c": (0, 1, 4, 33), "d": (5, 6, 70)}
"""The sizes that a graph's inputs have, by name; a graph takes one of each."""
ELEMENTS = {t.f32: np.float32, t.f64: np.float64, t.i32: np.int32, t.f16: np.float16}
MAX_ELEMENTS = 20_000
CALM = (g.TanhOp, g.SigmoidOp, g.SinOp)
"""Operations whose results are small whatever they get."""


class Impossible(Exception):
    """The operation does not fit the values that were drawn for it."""


@dataclass
class Graph:
    """A graph under construction; `draw` is hypothesis's."""

    draw: Callable[[st.SearchStrategy[Any]], Any]
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    weights: WeightStore = field(default_factory=WeightStore)
    values: list[SSAValue] = field(default_factory=list[SSAValue])
    inputs: list[Array] = field(default_factory=list[Array])

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.integer(0, 1 << 16))
        self.element = self.choose([t.f32, t.f32, t.f32, t.f64, t.i32, t.f16])
        self.is_float = t.is_float(self.element)
        self.sizes = {name: self.choose(sizes) for name, sizes in SIZES.items()}
        self.symbolic = {name for name in SIZES if self.chance()}

    # ------------------------------------------------------------------ drawing
    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def choose(self, items: Sequence[Any]) -> Any:
        return items[self.integer(0, len(items) - 1)]

    def chance(self) -> bool:
        return self.draw(st.booleans())

    def value(self, low: int = 0, high: int = 5) -> SSAValue:
        """A value so far, of a rank in the range."""
        found = [v for v in self.values if low <= type_of(v).rank <= high]
        if not found:
            raise Impossible
        return self.choose(found[-6:])

    def numbers(self, shape: Sequence[int]) -> Array:
        dtype = ELEMENTS[self.element]
        if not self.is_float:
            return self.random.integers(-3, 4, shape).astype(dtype)
        return self.random.uniform(-1, 1, shape).astype(dtype)

    def shape(self, value: SSAValue) -> tuple[int, ...]:
        """The run-time shape."""
        return tuple(int(e.evaluate(by_symbol(self.sizes))) for e in type_of(value).shape)

    # ------------------------------------------------------------------ building
    def build(self) -> tuple[ModuleOp, list[Array]]:
        """The module, verified, and inputs for it."""
        arguments = [self.argument() for _ in range(self.integer(1, 3))]
        names = [f"x{k}" for k in range(len(arguments))]
        func = FuncOp.of("main", names, arguments)
        self.block = func.body.block
        self.values = list(self.block.args)
        for _ in range(self.integer(1, 8)):
            self.step()
        results = self.values[-1:] + [self.value() for _ in range(self.integer(0, 2))]
        func.finish([f"y{k}" for k in range(len(results))], results)
        module = ModuleOp([func])
        verify(module)
        return module, self.inputs

    def argument(self) -> TensorType:
        names = [self.choose([*SIZES, ""]) for _ in range(self.integer(0, 4))]
        self.inputs.append(self.numbers([self.sizes.get(n, 1) for n in names]))
        shape: list[Size] = [Expr.size(n) if n in self.symbolic else self.sizes.get(n, 1)
                             for n in names]
        return tensor(self.element, shape)

    def step(self) -> None:
        """Add an operation; none where the drawn one does not fit."""
        try:
            self.choose(FLOAT_STEPS if self.is_float else STEPS)(self)
        except (ShapeError, Impossible):
            return

    def add(self, op: type[g.AddOp] | Any, *operands: SSAValue, **attributes: Any) -> SSAValue:
        """Add an operation whose operands fit at run time; too large results are refused."""
        made = op.of(*operands, **attributes)
        shapes = [self.shape(r) for r in made.results]
        if any(min(s, default=0) < 0 or np.prod(s, initial=1) > MAX_ELEMENTS for s in shapes):
            raise Impossible
        self.block.add_op(made)
        self.values.append(made.results[0])
        return made.results[0]

    def constant(self, shape: Sequence[int]) -> SSAValue:
        op = g.ConstantOp.of_array(self.numbers(shape), self.weights, "w")
        self.block.add_op(op)
        return op.results[0]


def type_of(value: SSAValue) -> TensorType:
    assert isinstance(value.type, TensorType)
    return value.type


# ---------------------------------------------------------------------- elementwise
def unary(graph: Graph) -> None:
    ops = [g.NegOp, g.AbsOp, g.ReluOp]
    graph.add(graph.choose([*ops, *CALM, g.SiluOp] if graph.is_float else ops), graph.value())


def binary(graph: Graph) -> None:
    x, y = graph.value(), graph.value()
    if graph.chance():
        y = graph.constant([s if graph.chance() else 1 for s in static(graph, x)])
    check_broadcast(graph, x, y)
    graph.add(graph.choose([g.AddOp, g.SubOp, g.MulOp, g.MaxOp, g.MinOp]), x, y)


def static(graph: Graph, value: SSAValue) -> list[int]:
    """The shape, with 1 for symbolic dims."""
    return [e.constant if e.constant is not None else 1 for e in type_of(value).shape]


def check_broadcast(graph: Graph, x: SSAValue, y: SSAValue) -> None:
    """That symbols which have equal sizes by chance, or a size 1, are not taken to broadcast."""
    for a, b in zip(reversed(type_of(x).shape), reversed(type_of(y).shape), strict=False):
        if a != b and 1 not in (a.constant, b.constant):
            raise Impossible


# ---------------------------------------------------------------------- shapes
def transpose(graph: Graph) -> None:
    x = graph.value(1)
    graph.add(g.TransposeOp, x, perm=graph.draw(st.permutations(range(type_of(x).rank))))


def merge(graph: Graph) -> None:
    x = graph.value(2)
    shape = list(type_of(x).shape)
    k = graph.integer(0, len(shape) - 2)
    graph.add(g.ReshapeOp, x, shape=[*shape[:k], shape[k] * shape[k + 1], *shape[k + 2:]])


def split(graph: Graph) -> None:
    x = graph.value(1, 4)
    shape = list(type_of(x).shape)
    k = graph.integer(0, len(shape) - 1)
    size = shape[k].constant
    parts = [d for d in range(1, (size or 0) + 1) if (size or 0) % d == 0]
    if size is None or not parts:
        raise Impossible
    part = graph.choose(parts)
    graph.add(g.ReshapeOp, x, shape=[*shape[:k], part, size // part, *shape[k + 1:]])


def unit(graph: Graph) -> None:
    x = graph.value(0, 4)
    shape = list(type_of(x).shape)
    k = graph.integer(0, len(shape))
    graph.add(g.ReshapeOp, x, shape=[*shape[:k], 1, *shape[k:]])


def cut(graph: Graph) -> None:
    x = graph.value(1)
    shape, sizes = type_of(x).shape, graph.shape(x)
    k = graph.integer(0, len(shape) - 1)
    if not sizes[k]:
        raise Impossible
    start = graph.integer(0, min(sizes[k] - 1, 3))
    step = graph.choose([1, 1, 2, -1])
    length: Size = shape[k] - start
    if step == -1:
        start, length = start, start + 1
    if step == 2:
        length = graph.integer(0, (sizes[k] - start + 1) // 2)
    ones = [1] * len(shape)
    graph.add(g.SliceOp, x, starts=[0] * k + [start] + [0] * (len(shape) - k - 1),
              sizes=[*shape[:k], length, *shape[k + 1:]], steps=[*ones[:k], step, *ones[k + 1:]])


def join(graph: Graph) -> None:
    x = graph.value(1)
    rank = type_of(x).rank
    axis = graph.integer(0, rank - 1)
    fitting = [v for v in graph.values if type_of(v).rank == rank and all(
        a == b for d, (a, b) in enumerate(zip(type_of(v).shape, type_of(x).shape, strict=True))
        if d != axis)]
    graph.add(g.ConcatOp, *(graph.choose(fitting) for _ in range(graph.integer(1, 3))), x,
              axis=axis)


def broadcast(graph: Graph) -> None:
    x = graph.value(0, 3)
    shape = [3 if e.constant == 1 and graph.chance() else e for e in type_of(x).shape]
    graph.add(g.BroadcastOp, x, shape=[graph.choose([1, 2, 5]), *shape])


def pad(graph: Graph) -> None:
    x = graph.value(1)
    rank = type_of(x).rank
    low, high = ([graph.integer(0, 2) for _ in range(rank)] for _ in range(2))
    graph.add(g.PadOp, x, low=low, high=high, mode="constant", value=1.0)


# ---------------------------------------------------------------------- reductions and products
def reduce(graph: Graph) -> None:
    x = graph.value(1)
    axes = sorted({graph.integer(0, type_of(x).rank - 1) for _ in range(graph.integer(1, 2))})
    ops = [g.ReduceSumOp, g.ReduceMaxOp, g.ReduceMinOp]
    if 0 in (graph.shape(x)[a] for a in axes):
        ops = [g.ReduceSumOp]
    graph.add(graph.choose([*ops, g.ReduceMeanOp] if graph.is_float else ops), x, axes=axes,
              keepdims=graph.chance())


def softmax(graph: Graph) -> None:
    x = graph.value(1)
    graph.add(g.SoftmaxOp, x, axis=graph.integer(0, type_of(x).rank - 1))


def matmul(graph: Graph) -> None:
    x = calm(graph, graph.value(1, 4))
    last = type_of(x).shape[-1]
    if last.constant is not None and graph.chance():
        graph.add(g.MatmulOp, x, graph.constant([last.constant, graph.choose([1, 3, 8, 65])]))
        return
    rank = type_of(x).rank
    if rank < 2:
        raise Impossible
    swapped = [*range(rank - 2), rank - 1, rank - 2]
    graph.add(g.MatmulOp, x, graph.add(g.TransposeOp, x, perm=swapped))


def calm(graph: Graph, value: SSAValue) -> SSAValue:
    """Small numbers, so that sums of products do not grow and grow."""
    return graph.add(graph.choose(CALM), value) if graph.is_float else value


def image(graph: Graph) -> tuple[SSAValue, int]:
    """A value with batch, known channels and spatial dims; and the number of channels."""
    x = graph.value(3, 4)
    channels = type_of(x).shape[1].constant
    if not channels:
        raise Impossible
    return x, channels


def conv(graph: Graph) -> None:
    x, channels = image(graph)
    group = channels if graph.chance() and channels < 8 else 1
    spatial = type_of(x).rank - 2
    kernel = [graph.integer(1, 3) for _ in range(spatial)]
    pads = [graph.integer(0, 1) for _ in range(2 * spatial)]
    for size, k, low, high in zip(graph.shape(x)[2:], kernel, pads, pads[spatial:], strict=False):
        if size + low + high < k:
            raise Impossible
    weights = graph.constant([group * graph.integer(1, 3), channels // group, *kernel])
    graph.add(g.ConvOp, calm(graph, x), weights, pads=pads, group=group,
              strides=[graph.integer(1, 2) for _ in range(spatial)])


def pool(graph: Graph) -> None:
    x, _ = image(graph)
    spatial = type_of(x).rank - 2
    kernel = [graph.integer(1, 3) for _ in range(spatial)]
    if any(size < k for size, k in zip(graph.shape(x)[2:], kernel, strict=True)):
        raise Impossible
    graph.add(graph.choose([g.MaxPoolOp, g.AvgPoolOp]), x, kernel=kernel,
              strides=[graph.integer(1, 2) for _ in range(spatial)])


def gather(graph: Graph) -> None:
    x = graph.value(1, 4)
    axis = graph.integer(0, type_of(x).rank - 1)
    size = graph.shape(x)[axis]
    if not size:
        raise Impossible
    count = graph.choose([(), (1,), (3,), (2, 2)])
    indices = np.asarray(graph.random.integers(-size, size, count), np.int64)
    op = g.ConstantOp.of_array(indices, graph.weights, "indices")
    graph.block.add_op(op)
    graph.add(g.GatherOp, x, op.results[0], axis=axis)


STEPS = [unary, binary, binary, transpose, merge, split, unit, cut, join, broadcast, pad, reduce,
         reduce, matmul, gather]
FLOAT_STEPS = [*STEPS, softmax, conv, conv, pool]
