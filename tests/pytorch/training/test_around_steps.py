"""Hooks, adapters, budgets of memory, replicas and wrong use of gradients around compiled steps."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Generator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from tests import processes
from tests.pytorch.training.training_models import (
    Encoder,
    Gpt,
    Mlp,
    distance,
    gradients,
    made,
    of_twin,
)


@pytest.fixture(autouse=True)
def reset() -> None:
    torch._dynamo.reset()


def compiled(model: Callable[..., Any], **options: object) -> Callable[..., Any]:
    return torch.compile(model, backend="strata", **options)  # type: ignore


# ---------------------------------------------------------------------- hooks
@pytest.mark.usefixtures("whole")
def test_hooks_see_and_change_gradients() -> None:
    """Those of parameters, of a result, and after accumulation."""
    model, inputs = made(Mlp)
    twin, seen = copy.deepcopy(model), list[list[Tensor]]()
    for run, trained in ((compiled(model, fullgraph=True), model), (twin, twin)):
        told: list[Tensor] = []
        trained.first.weight.register_hook(lambda g: g * 2)
        trained.last.bias.register_post_accumulate_grad_hook(
            lambda p, told=told: told.append(p.grad.clone()))
        result = run(*inputs)
        result.register_hook(lambda g: g + 0.5)
        result.square().sum().backward()
        seen.append([*told, *(p.grad for p in trained.parameters())])
    assert len(seen[0]) == 1 + len([*model.parameters()])
    assert distance(*seen) < 1e-6


@pytest.mark.usefixtures("whole")
def test_hooks_of_modules() -> None:
    model, inputs = made(Mlp)
    twin, seen = copy.deepcopy(model), list[list[Tensor]]()
    for run, trained in ((compiled(model), model), (twin, twin)):
        told: list[Tensor] = []
        trained.second.register_full_backward_hook(
            lambda _, given, made, told=told: told.append(made[0].clone()))
        trained.first.register_forward_hook(lambda _, given, made: made * 3)
        run(*inputs).square().sum().backward()
        seen.append([*told, *(p.grad for p in trained.parameters())])
    assert len(seen[0]) == 1 + len([*model.parameters()])
    assert distance(*seen) < 1e-6


# ---------------------------------------------------------------------- adapters
class Adapter(nn.Module):
    """A frozen layer plus a product of two narrow matrices, as LoRA adds it."""

    def __init__(self, layer: nn.Linear, rank: int = 2) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, layer.in_features) / 4)
        self.up = nn.Parameter(torch.randn(layer.out_features, rank) / 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + F.linear(F.linear(x, self.down), self.up)


@pytest.mark.usefixtures("whole")
def test_adapters_of_frozen_layers() -> None:
    model, inputs = made(Gpt)
    model.requires_grad_(False)
    model.joint, model.up = Adapter(model.joint), Adapter(model.up)
    found = gradients(compiled(model, fullgraph=True), model, inputs)
    assert len(found) == 1 + 4
    assert distance(found, of_twin(model, inputs)) < 1e-6
    assert model.joint.layer.weight.grad is None


# ---------------------------------------------------------------------- memory
def saved_bytes(run: Callable[..., Tensor], model: nn.Module, inputs: list[Tensor]) -> int:
    """The bytes that autograd keeps of a forward pass, parameters apart."""
    own, kept = {p.data_ptr() for p in model.parameters()}, dict[int, int]()

    def keep(value: Tensor) -> Tensor:
        if value.data_ptr() not in own:
            kept[value.data_ptr()] = value.untyped_storage().nbytes()
        return value

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
        run(*inputs)
    return sum(kept.values())


@pytest.mark.usefixtures("whole")
def test_a_budget_of_memory_saves_less() -> None:
    model, inputs = made(Encoder)
    true, sizes = of_twin(model, inputs), list[int]()
    for budget in (1.0, 0.2):
        torch._dynamo.reset()
        with torch._functorch.config.patch(activation_memory_budget=budget):
            step = compiled(model, fullgraph=True)
            sizes.append(saved_bytes(step, model, inputs))
            assert distance(gradients(step, model, inputs), true) < 1e-6
    assert sizes[1] < 0.6 * sizes[0]


OUT_OF_MEMORY = """
import copy, resource, torch
from torch import nn
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 4096), nn.GELU(), nn.Linear(4096, 64))
twin, x = copy.deepcopy(model), torch.randn(8192, 64)
step = torch.compile(model, backend="strata", fullgraph=True)
step(x).sum().backward()
model.zero_grad()
loss = step(x).square().sum()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
soft, hard = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (used + 2 ** 20, hard))
try:
    loss.backward()
    said = "nothing"
except (RuntimeError, MemoryError) as error:
    said = str(error)
resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
model.zero_grad()
step(x).square().sum().backward()
twin(x).square().sum().backward()
for ours, eager in zip(model.parameters(), twin.parameters(), strict=True):
    torch.testing.assert_close(ours.grad, eager.grad, rtol=1e-4, atol=1e-2)
print(said)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's")
def test_a_backward_pass_without_memory_fails_and_the_next_one_works() -> None:
    done = processes.run([sys.executable, "-c", OUT_OF_MEMORY], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "memory" in done.stdout


# ---------------------------------------------------------------------- replicas
@pytest.fixture
def _alone() -> Generator[None]:
    """A group of one process."""
    if not torch.distributed.is_available():
        pytest.skip("this PyTorch has no torch.distributed")
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("whole", "_alone")
def test_replicas_accumulate_gradients_without_exchange() -> None:
    """DDP's own hooks, between graphs that are cut at its buckets."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(13, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(),
                          nn.Linear(512, 600), nn.GELU(), nn.Linear(600, 5))
    twin, inputs = copy.deepcopy(model), Mlp.inputs()
    replica = DistributedDataParallel(model, bucket_cap_mb=1)
    step = compiled(replica)
    with replica.no_sync():
        step(*inputs).square().sum().backward()
    step(*inputs).sum().backward()
    twin(*inputs).square().sum().backward()
    twin(*inputs).sum().backward()
    found = [[p.grad for p in m.parameters()] for m in (model, twin)]
    assert distance(*found) < 1e-6


# ---------------------------------------------------------------------- wrong use
def test_changes_of_what_autograd_saved_are_refused() -> None:
    """As in eager mode, with its message."""
    for run in (compiled(torch.exp), torch.exp):
        x = torch.randn(4, requires_grad=True)
        result = run(x)
        result.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()


def test_changes_of_arguments_between_the_passes_are_refused() -> None:
    def function(x: Tensor, weight: Tensor) -> Tensor:
        return (x * weight).sin()

    for run in (compiled(function), function):
        x, weight = torch.randn(4), torch.randn(4, requires_grad=True)
        result = run(x, weight)
        x.zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()


def test_changes_of_leaves_are_refused() -> None:
    def function(x: Tensor) -> Tensor:
        x.mul_(2)
        return x.sin()

    for run in (compiled(function), function):
        with pytest.raises(Exception, match="leaf Variable"):
            run(torch.randn(4, requires_grad=True))


@pytest.mark.usefixtures("whole")
def test_integers_have_no_gradients() -> None:
    def function(x: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        return x[at] * at, at + 1

    at = torch.tensor([2, 0, 2])
    for run in (compiled(function, fullgraph=True), function):
        x = torch.randn(4, requires_grad=True)
        values, integers = run(x, at)
        assert values.requires_grad and not integers.requires_grad
        with pytest.raises(RuntimeError, match="does not require grad"):
            integers.sum().backward()
        values.sum().backward()
        assert x.grad is not None and x.grad.tolist() == [0, 0, 4, 0]
