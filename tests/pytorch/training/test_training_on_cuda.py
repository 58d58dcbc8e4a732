"""Steps of training on a GPU: gradients against f64, what autograd keeps, and random numbers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from targets.cuda.runtime.executable import CudaExecutable
from tests.pytorch.training.training_models import (
    MODELS,
    RANDOM,
    Checkpointed,
    Gpt,
    Mlp,
    distance,
    gradients,
    made,
    of_twin,
)

pytestmark = pytest.mark.gpu

FLOOR = 1e-6
"""A distance of gradients in f32 that differences of order alone explain."""


@pytest.fixture(autouse=True)
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def compiled(function: Callable[..., Any], **options: object) -> Callable[..., Any]:
    return torch.compile(function, backend="strata", **options)  # type: ignore


def on_device(build: Callable[[], nn.Module]) -> tuple[Any, list[Tensor]]:
    """A model in training mode and its inputs, both on the GPU."""
    model, inputs = made(build)
    return model.cuda(), [v.cuda() for v in inputs]


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("name", MODELS)
def test_gradients_on_a_gpu(name: str) -> None:
    model, inputs = on_device(MODELS[name])
    true, eager = of_twin(model, inputs, torch.float64), of_twin(model, inputs)
    found = gradients(compiled(model), model, inputs)
    assert all(v.is_cuda for v in found)
    assert distance(found, true) <= 1.2 * distance(eager, true) + FLOOR


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["mlp", "bert", "gpt", "convolutional", "convnext"])
def test_autocast_on_a_gpu(name: str, dtype: torch.dtype) -> None:
    def in_halves(run: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def call(*given: Tensor) -> Tensor:
            with torch.autocast("cuda", dtype=dtype):
                return run(*given)

        return call

    model, inputs = on_device(MODELS[name])
    true, twin = of_twin(model, inputs, torch.float64), copy.deepcopy(model)
    eager = gradients(in_halves(twin), twin, inputs)
    found = gradients(compiled(in_halves(model)), model, inputs)
    assert {v.dtype for v in found} == {v.dtype for v in eager}
    assert distance(found, true) <= 1.2 * distance(eager, true) + 1e-3


OPTIMIZERS: Mapping[str, Mapping[str, Any]] = {
    "SGD": {"lr": 0.02, "momentum": 0.9}, "AdamW": {"lr": 0.003}}


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("whole", [False, True], ids=["model", "model and optimizer"])
@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("name", ["mlp", "gpt", "convolutional"])
def test_five_steps_on_a_gpu(name: str, kind: str, whole: bool) -> None:
    model, inputs = on_device(MODELS[name])
    twin, losses = copy.deepcopy(model), list[list[float]]()
    for run, trained in ((compiled(model), model), (twin, twin)):
        optimizer = getattr(torch.optim, kind)(trained.parameters(), **OPTIMIZERS[kind])
        step = compiled(optimizer.step) if whole and trained is model else optimizer.step
        losses.append([])
        for _ in range(5):
            optimizer.zero_grad()
            result = run(*inputs)
            loss = result.square().mean() if result.dim() else result
            loss.backward()
            step()
            losses[-1].append(loss.item())
    assert losses[0][-1] < losses[0][0]
    assert losses[0] == pytest.approx(losses[1], rel=2e-4)
    # AdamW divides by the size of gradients, also where these are nothing but rounding.
    most = 1e-3 if kind == "AdamW" else 1e-4
    assert distance([*model.parameters()], [*twin.parameters()]) < most


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("causal", [False, True], ids=["all keys", "causal"])
@pytest.mark.parametrize("sizes", [
    (2, 3, 200, 64), (1, 4, 1024, 80), (2, 2, 1000, 128), (1, 8, 2048, 128),
    (1, 2, 130, 40)], ids=str)
def test_gradients_of_attention_on_a_gpu(
    sizes: tuple[int, ...], causal: bool, dtype: torch.dtype
) -> None:
    def call(*heads: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(*heads, is_causal=causal)

    given = [torch.randn(sizes, device="cuda", dtype=dtype) for _ in range(3)]
    found: list[list[Tensor]] = []
    for run, kind in ((compiled(call), dtype), (call, dtype), (call, torch.float64)):
        heads = [v.detach().clone().to(kind).requires_grad_() for v in given]
        result = run(*heads)
        result.backward(torch.linspace(-1, 2, result.numel(), device="cuda").view(sizes).to(kind))
        found.append([result.detach(), *(v.grad for v in heads)])  # type: ignore
    for ours, eager, true in zip(*found, strict=True):
        assert distance([ours], [true]) <= 1.5 * distance([eager], [true]) + 2e-6


class Dropped(nn.Module):
    """Dropout alone, of sizes that eager mode draws in vectors and one by one."""

    def forward(self, *inputs: Tensor) -> list[Tensor]:
        return [F.dropout(x * 2, 0.3) for x in inputs]


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_dropout_keeps_what_eager_keeps(dtype: torch.dtype) -> None:
    shapes = ((64, 48), (7, 13), (3, 1), (1200, 1111))
    found: list[list[Tensor]] = []
    given = [torch.randn(s, device="cuda", dtype=dtype) for s in shapes]
    for run in (compiled(Dropped()), Dropped()):
        inputs = [v.clone().requires_grad_() for v in given]
        torch.manual_seed(11)
        results = run(*inputs)
        sum(r.float().sum() for r in results).backward()  # type: ignore
        found.append([*results, *[v.grad for v in inputs]])  # type: ignore
    for ours, eager in zip(*found, strict=True):
        torch.testing.assert_close(ours, eager)


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("name", RANDOM)
def test_a_seed_repeats_a_step(name: str) -> None:
    model, inputs = on_device(RANDOM[name])
    step = compiled(model)
    first, again = gradients(step, model, inputs), None
    first = [v.clone() for v in first]
    again = gradients(step, model, inputs)
    assert all(map(torch.equal, first, again))
    assert not torch.equal(step(*inputs), step(*inputs))


class Kept(Checkpointed):
    def forward(self, x: Tensor) -> Tensor:
        return self.inner(self.first(x))


@pytest.mark.usefixtures("whole")
def test_checkpoints_on_a_gpu_draw_the_same_again() -> None:
    """As the same step without checkpoints draws."""
    model, inputs = on_device(Checkpointed)
    kept, _ = on_device(Kept)
    assert distance(gradients(compiled(model), model, inputs),
                    gradients(compiled(kept), kept, inputs)) < 2e-6


@pytest.mark.usefixtures("whole")
def test_gradients_accumulate_on_a_gpu() -> None:
    """What autograd keeps as `grad` is not memory of the compiled code (pytorch#96693)."""
    model, _ = on_device(Mlp)
    twin, step = copy.deepcopy(model), compiled(model)
    batches = [Mlp.inputs()[0].cuda() for _ in range(4)]
    results = [step(x) for x in batches]
    for result, x in zip(results, batches, strict=True):
        result.square().sum().backward()
        twin(x).square().sum().backward()
    ours, eager = ([p.grad for p in m.parameters()] for m in (model, twin))
    assert distance(ours, eager) < 1e-5  # type: ignore


@pytest.mark.usefixtures("whole")
def test_gradients_on_a_gpu_lie_in_what_was_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients that were kept stay as they are in later steps, also where several forward passes
    precede the backward passes, and other programs of other sizes run between them."""
    spared, spare = list[int](), CudaExecutable.spare

    def noted(self: CudaExecutable, inputs: Collection[int]) -> Collection[int]:
        found = spare(self, inputs)
        spared.extend(found)
        return found

    monkeypatch.setattr(CudaExecutable, "spare", noted)
    torch.manual_seed(0)
    layers = [nn.Linear(256, 256, device="cuda") for _ in range(4)]
    model = nn.Sequential(*[m for layer in layers for m in (layer, nn.Tanh())])
    twin, step = copy.deepcopy(model), compiled(model)
    found: list[list[list[Tensor]]] = []
    for run, of in ((step, model), (twin, twin)):
        torch.manual_seed(1)
        batches = [torch.randn(256, 256, device="cuda") for _ in range(6)]
        results = [run(x) for x in batches[:3]]
        with torch.no_grad():
            results.append(run(torch.cat(batches)))
        found.append([list(torch.autograd.grad(r.square().sum(), [*of.parameters()]))
                      for r in reversed(results[:3])])
        found[-1] += [list(torch.autograd.grad(run(x).square().sum(), [*of.parameters()]))
                      for x in batches[3:]]
        found[-1].append([r.detach() for r in results])
    assert spared
    for ours, eager in zip(*found, strict=True):
        assert distance(ours, eager) < 1e-5


@pytest.mark.usefixtures("whole")
def test_two_backward_passes_on_a_gpu() -> None:
    x = torch.ones(4, device="cuda", requires_grad=True)
    step = compiled(lambda v: (v * v).sum())
    result = step(x)
    result.backward(retain_graph=True)
    first = x.grad
    assert first is not None
    kept = first.clone()
    result.backward()
    step(x).backward()
    assert torch.equal(kept, torch.full_like(kept, 2))
    assert torch.equal(x.grad, torch.full_like(kept, 6))  # type: ignore


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("build", [Mlp, Gpt])
def test_open_batches_on_a_gpu(build: Callable[[], Any]) -> None:
    model, _ = on_device(build)
    step = compiled(model, dynamic=True)
    for count in (5, 3, 8):
        inputs = [v.cuda() for v in model.inputs(count)]
        assert distance(gradients(step, model, inputs), of_twin(model, inputs)) < 1e-5


@pytest.mark.usefixtures("whole")
def test_channels_last_on_a_gpu() -> None:
    model, inputs = on_device(MODELS["convolutional"])
    model = model.to(memory_format=torch.channels_last)
    inputs = [v.to(memory_format=torch.channels_last) for v in inputs]
    true, eager = of_twin(model, inputs, torch.float64), of_twin(model, inputs)
    assert distance(gradients(compiled(model), model, inputs), true) <= (
        1.2 * distance(eager, true) + FLOOR)


@pytest.mark.usefixtures("whole")
def test_running_statistics_on_a_gpu_stay_where_they_are() -> None:
    model, inputs = on_device(MODELS["convolutional"])
    twin, step = copy.deepcopy(model), compiled(model)
    places = [b.data_ptr() for b in model.buffers()]
    for _ in range(3):
        step(*inputs).sum().backward()
        twin(*inputs)
    assert places == [b.data_ptr() for b in model.buffers()]
    for ours, eager in zip(model.buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("bad", [False, True], ids=["finite", "overflow"])
def test_scaled_losses_on_a_gpu(bad: bool) -> None:
    """GradScaler skips the same steps as in eager mode."""
    model, inputs = on_device(Mlp)
    twin = copy.deepcopy(model)
    scales: list[float] = []
    for run, trained in ((compiled(model), model), (twin, twin)):
        optimizer = torch.optim.SGD(trained.parameters(), 0.02)
        scaler = torch.amp.GradScaler("cuda", 2.0 ** 10, growth_interval=2)
        for k in range(4):
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = run(*inputs).float().square().mean()
            scaler.scale(loss * (float("inf") if bad and k == 1 else 1)).backward()
            scaler.step(optimizer)
            scaler.update()
        scales.append(scaler.get_scale())
    assert scales[0] == scales[1]
    assert distance([*model.parameters()], [*twin.parameters()]) < 1e-3
