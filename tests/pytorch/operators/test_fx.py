"""Graph-level modules as GraphModules of ATen operators, and modules as arguments of `compile`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import compiler
from compiler.diagnostics import StrataError
from compiler.fx.writer import graph_module
from compiler.io.arrays import to_torch
from dialects.graph.interpret import evaluate_func
from dialects.semantics.numerics import widen
from dialects.strata.func import main_function
from dialects.strata.types import TensorType
from tests.op_samples.graph_samples import SAMPLES, build_module
from tests.pytorch.programs import flat

WITHOUT_OPERATOR = {
    "max_pool_indices", "descend", "quantize_linear", "dequantize_linear",
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast_ranks",
    "permute_ranks", "shard", "shard_as", "conv_integer", "matmul_integer"}
"""Operations that ATen lacks: of trees and ranks, and of forms that PyTorch has not."""
PARTLY = {"resize", "avg_pool", "max_pool", "cast", "pad", "bitcast", "arg_max", "arg_min",
          "reduce_mean", "conv", "conv_transpose", "conv_filter_gradient", "matmul",
          "scatter_nd", "scatter_elements"}
"""Operations of which some forms are refused."""


def torch_knows(type_: Any) -> bool:
    name = type_.dtype.name if isinstance(type_, TensorType) else ""
    return name in ("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64",
                    "uint8", "bool")


@pytest.mark.parametrize("symbolic", [False, True])
def test_every_operation(symbolic: bool) -> None:
    """Each sample of a graph operation computes as its definition does, or is refused by name."""
    wrong: list[str] = []
    written: set[str] = set()
    for sample in SAMPLES:
        module, arrays, context = build_module(sample, symbolic)
        func, kind = main_function(module), sample.op.name.removeprefix("graph.")
        types = [v.type for op in func.body.block.ops for v in (*op.operands, *op.results)]
        if not all(map(torch_knows, types)):
            continue
        want = evaluate_func(func, arrays, context)
        try:
            made = graph_module(module, context.weights, sample.label)
        except StrataError:
            if kind not in WITHOUT_OPERATOR | PARTLY:
                wrong.append(f"{sample.label} is refused")
            continue
        try:
            got = made(*(to_torch(a.copy(), "cpu") for a in arrays))
        except Exception as error:
            wrong.append(f"{sample.label}: {error}")
            continue
        written.add(kind)
        wrong += [sample.label for a, b in zip(got, want, strict=True)
                  if not alike(a, b, sample.allowed(b.dtype))]
    assert not wrong
    assert len(written) > 80


def alike(got: Any, want: Any, limit: float) -> bool:
    mine = got.float().numpy() if got.dtype == torch.bfloat16 else got.numpy()
    theirs = widen(want) if want.dtype.kind not in "biuf" else want
    return mine.shape == theirs.shape and got.dtype == to_torch(want.copy(), "cpu").dtype and (
        np.allclose(mine.astype(np.float64), theirs.astype(np.float64), limit or 1e-6,
                    limit or 1e-6, equal_nan=True))


class Net(torch.nn.Module):
    """Convolution, batch norm, pooling, attention-like products, norms and orders."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = torch.nn.Conv2d(3, 8, 3, 2, padding=1), torch.nn.BatchNorm2d(8)
        self.norm, self.up = torch.nn.LayerNorm(8), torch.nn.Linear(8, 5)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> Any:
        y = torch.relu(self.bn(self.conv(x))) * scale
        rows = self.norm(torch.nn.functional.max_pool2d(y, 2).flatten(2).transpose(1, 2))
        seen = torch.nn.functional.scaled_dot_product_attention(rows, rows, rows)
        return torch.nn.functional.gelu(self.up(seen)), seen.cumsum(1), seen.topk(3)[1]


@pytest.fixture(scope="module")
def net() -> Any:
    torch.manual_seed(1)
    return Net().eval()


X = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(2))


def close(got: Any, want: Any) -> None:
    for a, b in zip(flat(got), flat(want), strict=True):
        torch.testing.assert_close(torch.as_tensor(a), b, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_modules_are_arguments_of_compile(net: Any) -> None:
    """A module, what FX traces of it, and a function; inputs by name, and open sizes."""
    close(compiler.compile(net, args=(X,), target="reference")(X), net(X))
    traced = torch.fx.symbolic_trace(net, concrete_args={"scale": 1.0})
    close(compiler.compile(traced, args=(X,), target="reference")(X), net(X))
    named = compiler.compile(net, args=(), kwargs={"x": X, "scale": 2.0}, target="reference")
    close(named(X), net(X, 2.0))
    sizes = {"x": {0: torch.export.Dim("batch", max=64)}}
    several = compiler.compile(net, args=(X,), dynamic_shapes=sizes, target="reference")
    close(several(X[:1]), net(X[:1]))

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b + 1

    exe = compiler.compile(product, args=(X[0, 0], X[0, 1]), target="reference")
    close(exe(X[0, 0], X[0, 1]), product(X[0, 0], X[0, 1]))


@torch.no_grad()
@pytest.mark.parametrize("simplify", [False, True])
def test_what_passes_made_runs_in_pytorch(net: Any, simplify: bool) -> None:
    """Also for sizes that are open, and compiled again."""
    sizes = {"x": {0: torch.export.Dim("batch", max=64)}}
    made = compiler.to_fx(net, args=(X,), dynamic_shapes=sizes, simplify=simplify)
    assert isinstance(made, torch.fx.GraphModule)
    assert {str(n.target).partition(".")[0] for n in made.graph.nodes
            if n.op == "call_function"} <= {"aten", "<built-in function getitem>",
                                            "<built-in function mul>", "<built-in function add>"}
    assert any(n.meta.get("strata", "").startswith(("conv", "bn")) for n in made.graph.nodes)
    for x in (X, torch.cat([X, X, X])):
        close(made(x), net(x))
    close(compiler.compile(made, args=(X,), target="reference")(X), net(X))


@torch.no_grad()
def test_users_transform_what_passes_made(net: Any) -> None:
    """An executable's module, in which each maximum with 0 becomes a ReLU."""
    exe = compiler.compile(net, args=(X.contiguous(memory_format=torch.channels_last),),
                           target="reference")
    made = compiler.to_fx(exe)
    found = [n for n in made.graph.nodes if n.target == torch.ops.aten.maximum.default]
    for node in found:
        node.target, node.args = torch.ops.aten.relu.default, node.args[:1]
    made.recompile()
    assert found
    close(made(X), net(X))


def test_what_cannot_be_said_is_refused(net: Any) -> None:
    for arguments, text in (({}, "needs example inputs"), ({"dynamic_shapes": {}}, "needs args"),
                            ({"args": (X, 1, 2, 3)}, "torch.export")):
        with pytest.raises(StrataError, match=text):
            compiler.compile(net, **arguments)
    with pytest.raises(StrataError, match="for a module or a function"):
        compiler.compile("model.onnx", args=(X,))

    def largest(x: torch.Tensor) -> Any:
        return torch.nn.functional.max_pool2d(x, 2)

    with pytest.raises(StrataError, match=r"graph\.max_pool: it pools integers"):
        compiler.to_fx(largest, args=(torch.zeros(1, 1, 4, 4, dtype=torch.int64),))
