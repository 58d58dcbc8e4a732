"""One token attends to a cache on CUDA: one kernel on tensor cores, whatever comes before it."""

from __future__ import annotations

from typing import Any

import pytest

from compiler.api import model_of_argument
from compiler.measuring.comparison import error_of
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from dialects.block import DotOp, KernelOp
from dialects.host.interpret import interpret_host

torch = pytest.importorskip("torch")


class Step(torch.nn.Module):
    """Queries are turned (rotary embedding) and see the first keys of a cache."""

    def forward(self, x: Any, cos: Any, sin: Any, key: Any, value: Any, position: Any) -> Any:
        half = x.shape[-1] // 2
        turned = torch.cat((-x[..., half:], x[..., :half]), -1)
        query = x * cos + turned * sin
        mask = torch.arange(key.shape[2])[None, None, None] <= position
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, enable_gqa=True)


def inputs(batch: int, heads: int, groups: int, keys: int, size: int) -> tuple[Any, ...]:
    torch.manual_seed(keys)
    half = torch.float16
    return (torch.randn(batch, heads, 1, size).to(half), torch.randn(1, 1, 1, size).to(half),
            torch.randn(1, 1, 1, size).to(half), torch.randn(batch, groups, keys, size).to(half),
            torch.randn(batch, groups, keys, size).to(half), torch.tensor(keys // 2))


@pytest.mark.parametrize("batch, heads, groups, keys, size", [
    (2, 4, 2, 512, 64), (1, 8, 2, 330, 64), (3, 4, 4, 384, 32)])
def test_queries_that_are_computed(
    batch: int, heads: int, groups: int, keys: int, size: int
) -> None:
    given = inputs(batch, heads, groups, keys, size)
    program = torch.export.export(Step(), given, strict=False)
    compilation = Compiler(model_of_argument(program), CompileOptions(
        target="cuda", features="sm_90", cache="off", tuned="off"))
    state = compilation.lower("block")
    kernels = [op for op in state.module.body.block.ops if isinstance(op, KernelOp)]
    assert sum(k.sym_name.data.startswith("online") for k in kernels) == 1
    for kernel in kernels:
        for dot in (op for op in kernel.walk() if isinstance(op, DotOp)):
            assert len(dot.result.type.shape) == 2

    [found] = interpret_host(state.module, [v.numpy() for v in given], state.context.weights)
    floats = [v.float() if v.is_floating_point() else v for v in given]
    assert error_of(found.astype("f4"), Step()(*floats).numpy()) < 4e-3
