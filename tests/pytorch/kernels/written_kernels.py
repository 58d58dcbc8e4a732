"""Kernels as users write them in Triton, and graphs in which PyTorch has recorded launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import getitem
from typing import Any

import torch
import triton
import triton.language as tl
from torch._higher_order_ops import triton_kernel_wrap as wrap
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

FACTOR = tl.constexpr(3.0)


@triton.jit
def scaled_sum(a, b):
    return a * FACTOR + b


@triton.jit
def add_kernel(x, y, out, n, alpha, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    made = scaled_sum(tl.load(x + i, mask=inside), tl.load(y + i, mask=inside))
    tl.store(out + i, made * alpha, mask=inside)


@triton.jit
def grow_kernel(x, n, BLOCK: tl.constexpr):
    """Adds 1 to all but the first element, in place."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = (i < n) & (i > 0)
    tl.store(x + i, tl.load(x + i, mask=inside) + 1, mask=inside)


@triton.jit
def place_kernel(out, columns, BLOCK: tl.constexpr):
    """Writes 100 r + c, with a program for each row and block of columns."""
    row, block = tl.program_id(0), tl.program_id(1)
    c = block * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + row * columns + c, 100 * row + c, mask=c < columns)


class Recorder:
    """Builds a graph on tensors of a GPU that do not exist."""

    def __init__(self) -> None:
        self.graph = torch.fx.Graph()
        self.shapes = ShapeEnv()
        self.mode = FakeTensorMode(shape_env=self.shapes)

    def size(self, hint: int) -> Any:
        """An open size."""
        source = torch._dynamo.source.ConstantSource(f"size_{len(self.graph.nodes)}")
        symbol = self.shapes.create_symbol(hint, source, dynamic_dim=DimDynamic.DYNAMIC)
        return self.shapes.create_symintnode(symbol, hint=hint, source=source)

    def tensor(self, *shape: Any, dtype: Any = torch.float32) -> Any:
        with self.mode:
            return torch.empty(shape, device="cuda", dtype=dtype)

    def argument(self, name: str, value: Any) -> Any:
        node = self.graph.placeholder(name)
        node.meta["val"] = value
        return node

    def call(self, op: Any, *args: Any) -> Any:
        node = self.graph.call_function(op, args)
        with self.mode:
            node.meta["val"] = op(*(getattr(a, "meta", {}).get("val", a) for a in args))
        return node

    def launch(
        self, kernel: Any, grids: Sequence[Any], constants: dict[str, Any],
        given: dict[str, Any], changed: Sequence[str],
    ) -> list[Any]:
        """The results of a launch, by the order of `changed`."""
        table = wrap.kernel_side_table
        node = self.graph.call_function(wrap.triton_kernel_wrapper_functional, (), {
            "kernel_idx": table.add_kernel(kernel),
            "constant_args_idx": table.add_constant_args(constants), "grid": list(grids),
            "tma_descriptor_metadata": {}, "kwargs": given, "tensors_to_clone": list(changed)})
        node.meta["val"] = {name: given[name].meta["val"] for name in changed}
        found: list[Any] = []
        for name in changed:
            item = self.graph.call_function(getitem, (node, name))
            item.meta["val"] = given[name].meta["val"]
            found.append(item)
        return found

    def module(self, *results: Any) -> Any:
        self.graph.output(tuple(results))
        return torch.fx.GraphModule({}, self.graph)


def sums(n: Any = 1000) -> Any:
    """Between operators of ours; its result starts undefined."""
    r = Recorder()
    x, y = r.argument("x", r.tensor(n)), r.argument("y", r.tensor(n))
    sine = r.call(torch.ops.aten.sin.default, x)
    out = r.call(torch.ops.aten.empty_like.default, x)
    [made] = r.launch(add_kernel, [((n + 127) // 128, 1, 1)], {"BLOCK": 128}, {
        "x": sine, "y": y, "out": out, "n": n, "alpha": 0.5}, ["out"])
    return r.module(r.call(torch.ops.aten.mul.Tensor, made, 2.0))


def open_sums() -> Any:
    r = Recorder()
    n = r.size(1000)
    length = r.argument("n", n)
    x, y = r.argument("x", r.tensor(n)), r.argument("y", r.tensor(n))
    programs = r.call(lambda size: (size + 127) // 128, length)
    programs.meta["val"] = (n + 127) // 128
    out = r.call(torch.ops.aten.empty_like.default, x)
    [made] = r.launch(add_kernel, [((programs.meta["val"]), 1, 1)], {"BLOCK": 128}, {
        "x": x, "y": y, "out": out, "n": length, "alpha": 2.0}, ["out"])
    r.graph.erase_node(programs)
    return r.module(made)


def changes(argument: bool, again: bool) -> Any:
    """In place: of an argument, or of a value, which is needed again or not."""
    r = Recorder()
    x = r.argument("x", r.tensor(77))
    value = x if argument else r.call(torch.ops.aten.mul.Tensor, x, 2.0)
    [made] = r.launch(grow_kernel, [(2, 1, 1)], {"BLOCK": 64}, {"x": value, "n": 77}, ["x"])
    [twice] = r.launch(grow_kernel, [(2, 1, 1)], {"BLOCK": 64}, {"x": made, "n": 70}, ["x"])
    return r.module(twice, r.call(torch.ops.aten.neg.default, value)) if again else r.module(twice)


def places() -> Any:
    """A grid of two axes, of integers."""
    r = Recorder()
    x = r.argument("x", r.tensor(3, 50, dtype=torch.int32))
    out = r.call(torch.ops.aten.empty_like.default, x)
    [made] = r.launch(place_kernel, [(3, 2, 1)], {"BLOCK": 32}, {"out": out, "columns": 50},
                      ["out"])
    return r.module(r.call(torch.ops.aten.add.Tensor, made, x))


GRAPHS: dict[str, Callable[[], Any]] = {
    "sums": sums, "open sums": open_sums, "an argument changes": lambda: changes(True, False),
    "an argument changes, and is read": lambda: changes(True, True),
    "a value changes": lambda: changes(False, False),
    "a value changes, and is read": lambda: changes(False, True), "two axes": places}
