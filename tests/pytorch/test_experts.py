"""A mixture of experts as models write it: tokens sorted by expert, two grouped products, back."""

from __future__ import annotations

import ml_dtypes
import pytest
import torch
from torch import nn
from torch.nn import functional

from compiler.frontend import load_model
from compiler.frontend.torch import in_memory
from dialects.block import KernelOp
from dialects.host.interpret import interpret_host
from dialects.strata.types import BufferType, bf16
from targets.base import TargetOptions
from targets.cuda import TARGET
from tests.lowering import lower
from tests.pytorch.programs import export, run

Tensor = torch.Tensor
WIDTH, INNER = 64, 32


class Experts(nn.Module):
    """Each token goes to `chosen` of the experts, which are gated layers."""

    def __init__(self, experts: int, chosen: int):
        super().__init__()
        torch.manual_seed(0)
        self.chosen = chosen
        self.router = nn.Parameter(torch.randn(experts, WIDTH))
        self.up = nn.Parameter(torch.randn(experts, 2 * INNER, WIDTH).bfloat16() * WIDTH**-0.5)
        self.down = nn.Parameter(torch.randn(experts, WIDTH, INNER).bfloat16() * INNER**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        scores = functional.linear(x.float(), self.router).softmax(-1)
        weights, experts = scores.topk(self.chosen)
        order = experts.flatten().argsort()
        counts = torch.histc(experts.flatten().float(), len(self.up), 0, len(self.up) - 1)
        ends = counts.cumsum(0, dtype=torch.int32)
        hidden = self.grouped(x[order // self.chosen], self.up, ends)
        gate, value = hidden.chunk(2, -1)
        made = self.grouped(functional.silu(gate) * value, self.down, ends)
        back = order.argsort()
        return (made[back].view(*experts.shape, WIDTH) * weights[..., None]).sum(1)

    def grouped(self, x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
        return torch._grouped_mm(x, weight.transpose(1, 2), ends)


class Gathered(Experts):
    """As models compute few tokens: each with its own copy of the weights."""

    def forward(self, x: Tensor) -> Tensor:
        scores = functional.linear(x.float(), self.router).softmax(-1)
        weights, experts = scores.topk(self.chosen)
        numbers = experts.flatten()
        rows = x.repeat_interleave(self.chosen, 0)
        hidden = torch.bmm(self.up[numbers], rows[..., None])[..., 0]
        gate, value = hidden.chunk(2, -1)
        gated = functional.silu(gate) * value
        made = torch.bmm(self.down[numbers], gated[..., None])[..., 0]
        return (made.view(*experts.shape, WIDTH) * weights[..., None]).sum(1)


def tokens(count: int) -> Tensor:
    torch.manual_seed(count)
    return torch.randn(count, WIDTH).bfloat16()


def check(found: Tensor, model: Experts, x: Tensor) -> None:
    expected = model(x).detach()
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-2 * float(expected.abs().max()))


MODELS = {"grouped": (Experts(4, 2), 40), "few tokens": (Experts(16, 2), 3),
          "gathered": (Gathered(8, 2), 5)}
each_model = pytest.mark.parametrize(("model", "count"), MODELS.values(), ids=MODELS.keys())


@each_model
@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_targets(model: Experts, count: int, target: str) -> None:
    x = tokens(count)
    [found] = run(export(model, [x]), [x], target)
    check(found, model, x)


@each_model
def test_no_copies_of_weights_on_cuda(model: Experts, count: int) -> None:
    x = tokens(count)
    program = in_memory(export(model, [x]))
    assert program is not None
    imported = load_model(program)
    options = TargetOptions("sm_90")
    context = TARGET.bind(options).context(imported.weights)
    for _ in lower(imported.module, context):
        pass
    given = x.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    [found] = interpret_host(imported.module, [given], imported.weights)
    check(torch.from_numpy(found), model, x)
    kernels = [op for op in imported.module.body.block.ops if isinstance(op, KernelOp)]
    readers = [k.sym_name.data for k in kernels if any(
        isinstance(b.type, BufferType) and b.type.element == bf16
        and b.type.count.constant in (model.up.numel(), model.down.numel()) for b in k.buffers)]
    assert [name.partition("_")[0] for name in readers] == ["contract"] * 2


class Shared(nn.Module):
    """Experts of f32 that are sorted and gathered, beside a layer that all tokens share."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.router, self.chosen = nn.Linear(WIDTH // 2, 4), 2
        self.up = nn.Parameter(torch.randn(4, 16, WIDTH // 2) * 0.2)
        self.down = nn.Parameter(torch.randn(4, WIDTH // 2, 16) * 0.2)
        self.inner = nn.Linear(WIDTH // 2, 16, bias=False)
        self.outer = nn.Linear(16, WIDTH // 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, 1)
        weights, experts = self.router(rows).sigmoid().topk(self.chosen, -1)
        numbers, order = experts.flatten(), experts.flatten().argsort()
        back = torch.empty_like(order)
        back[order] = torch.arange(order.numel())
        sorted_ = numbers[order]
        hidden = torch.bmm(self.up[sorted_], rows[order // self.chosen][..., None])[..., 0]
        made = torch.bmm(self.down[sorted_], functional.silu(hidden)[..., None])[..., 0]
        made = (made * weights.flatten()[order][:, None])[back].view(-1, self.chosen, rows.shape[1])
        return x + made.sum(1).view(x.shape) + self.outer(functional.silu(self.inner(x)))


def test_rows_of_experts_are_joined_with_a_shared_layer(caplog: pytest.LogCaptureFixture) -> None:
    """A product whose factor is gathered may be part of a kernel of rows."""
    model, x = Shared().eval(), torch.randn(3, 9, WIDTH // 2)
    options = {"cache": "off", "tuned": "off", "threads": 1}
    with torch.no_grad():
        found = torch.compile(model, backend="strata", options=options)(x)
        torch.testing.assert_close(found, model(x), rtol=1e-5, atol=1e-5)
    assert not [r for r in caplog.records if r.name == "strata"]
