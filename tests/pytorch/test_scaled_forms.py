"""Products of scaled floats of a byte, as models write them: one kernel of bytes on CUDA.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from xdsl.dialects.builtin import ModuleOp

from compiler.frontend import load_model
from compiler.frontend.torch import in_memory
from compiler.io.arrays import to_numpy
from dialects.block import DotOp, KernelOp
from dialects.host.interpret import interpret_host
from dialects.strata.weights import WeightStore
from targets.base import TargetOptions
from targets.cuda import TARGET
from tests.lowering import lower
from tests.pytorch.programs import export, run

Tensor = torch.Tensor
DEPTH, COLUMNS = 64, 48
FLOAT8 = torch.float8_e4m3fn


class Layer(nn.Module):
    """A function of x, its scale, and of weights and their scale, which are constants."""

    def __init__(self, function: Callable[..., Tensor], each: bool):
        super().__init__()
        torch.manual_seed(0)
        self.function, self.each = function, each
        self.register_buffer("weight", torch.randn(COLUMNS, DEPTH).to(FLOAT8))
        self.register_buffer("scale", torch.rand(COLUMNS, 1) if each else torch.tensor(0.25))

    def inputs(self) -> list[Tensor]:
        x = torch.randn(2, 16, DEPTH).to(FLOAT8)
        return [x, torch.rand(2, 16, 1) if self.each else torch.tensor(0.5)]

    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        return self.function(x, scale, self.weight, self.scale)


def widened(x: Tensor, s: Tensor, w: Tensor, u: Tensor) -> Tensor:
    return functional.linear(x.float() * s, w.float() * u)


def rounded(x: Tensor, s: Tensor, w: Tensor, u: Tensor) -> Tensor:
    return (x.float() * s).bfloat16() @ (w.float() * u).bfloat16().t()


def divided(x: Tensor, s: Tensor, w: Tensor, u: Tensor) -> Tensor:
    return functional.gelu(functional.linear(x.float() / s, w.float() * u) + 1)


def flattened(x: Tensor, s: Tensor, w: Tensor, u: Tensor) -> Tensor:
    rows = (x.half() * s.half()).reshape(-1, DEPTH)
    return (rows @ (w.half() * u.half()).t()).view(2, -1, COLUMNS)


def native(x: Tensor, s: Tensor, w: Tensor, u: Tensor) -> Tensor:
    s, u = (s.reshape(-1, 1), u.reshape(1, -1)) if s.ndim else (s, u)
    return torch._scaled_mm(x.reshape(-1, DEPTH), w.t(), s, u, out_dtype=torch.bfloat16)


def truth(layer: Layer, inputs: list[Tensor]) -> Tensor:
    """What eager mode computes; of products that PyTorch before 2.13 cannot scale by rows on a CPU,
    their definition."""
    if layer.function is native and layer.each:
        found = widened(*inputs, layer.weight, layer.scale)
        return found.reshape(-1, COLUMNS).bfloat16()
    return layer(*inputs)


def lowered(layer: Layer, *, exact: bool = False) -> tuple[ModuleOp, WeightStore]:
    model = in_memory(export(layer, layer.inputs()))
    assert model is not None
    imported = load_model(model)
    options = TargetOptions("sm_90", exact=exact)
    context = TARGET.bind(options).context(imported.weights)
    context.exact = options.exact
    for _ in lower(imported.module, context):
        pass
    return imported.module, imported.weights


def kernels_of(module: ModuleOp) -> list[KernelOp]:
    return [op for op in module.body.block.ops if isinstance(op, KernelOp)]


FORMS = (widened, rounded, divided, flattened, native)
each_form = pytest.mark.parametrize("function", FORMS, ids=lambda f: f.__name__)


@each_form
@pytest.mark.parametrize("each", [False, True], ids=["single", "rows and columns"])
def test_one_kernel_of_bytes(function: Callable[..., Tensor], each: bool) -> None:
    layer = Layer(function, each)
    module, weights = lowered(layer)
    [kernel] = kernels_of(module)
    floats = [str(b.type) for b in kernel.buffers if "f8E4M3FN" in str(b.type)]
    assert len(floats) == 2, "a factor was widened in memory"
    inputs = layer.inputs()
    [found] = interpret_host(module, [to_numpy(x) for x in inputs], weights)
    expected = truth(layer, inputs).double().numpy()
    bound = 2e-2 * np.abs(expected).max()
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=0, atol=bound)


def test_exact_products_scale_factors() -> None:
    module, _ = lowered(Layer(widened, True), exact=True)
    factors = [str(v.type) for op in module.walk() if isinstance(op, DotOp) for v in op.operands]
    assert factors and not any("f8" in type_ for type_ in factors)


@each_form
def test_other_targets(function: Callable[..., Tensor]) -> None:
    layer = Layer(function, True)
    inputs = layer.inputs()
    [found] = run(export(layer, inputs), inputs)
    expected = truth(layer, inputs)
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found.double(), expected.double(), rtol=2e-2, atol=2e-2)
