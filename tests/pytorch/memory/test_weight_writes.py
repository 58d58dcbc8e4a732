"""Weights that change between calls: the next call computes with what they have become."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from compiler.torch.backend import strata
from compiler.torch.weights import WHOLE, Weights, is_weight

SIZE = 16
Change = Callable[[nn.Module], object]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(SIZE, SIZE)
        self.register_buffer("scale", torch.rand(SIZE, SIZE))
        self.plain = torch.rand(SIZE)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x) @ self.scale + self.plain


def new() -> Tensor:
    return torch.rand(SIZE, SIZE)


def _step(kind: Callable[..., torch.optim.Optimizer], **more: object) -> Change:
    def change(net: nn.Module) -> None:
        for weight in net.parameters():
            weight.grad = torch.ones_like(weight)
        kind(net.parameters(), lr=1.0, **more).step()

    return change


def _in_inference_mode(net: nn.Module) -> None:
    with torch.inference_mode():
        net.out.weight.mul_(2)


def _added_to_data(net: nn.Module) -> None:
    net.out.weight.data += 1


CHANGES: dict[str, Change] = {
    "mul_": lambda net: net.out.weight.mul_(2),
    "copy_": lambda net: net.out.weight.copy_(new()),
    "a view": lambda net: net.out.weight.view(-1)[3:5].fill_(7),
    "a buffer": lambda net: net.scale.add_(1),
    "a tensor": lambda net: net.plain.add_(1),
    "another buffer": lambda net: setattr(net, "scale", new()),
    "another parameter": lambda net: setattr(net.out, "weight", nn.Parameter(new())),
    "data =": lambda net: setattr(net.out.weight, "data", new()),
    "data = of a buffer": lambda net: setattr(net.scale, "data", new()),
    "data = transposed": lambda net: setattr(net.out.weight, "data", net.out.weight.data.t()),
    "data = of a transposed view": lambda net: setattr(net.scale, "data", net.scale.data.mT),
    "data = of overlapping rows": lambda net: setattr(
        net.out.weight, "data", net.out.weight.data.as_strided((SIZE, SIZE), (SIZE - 1, 1))),
    "data = of a stretched row": lambda net: setattr(
        net.out.bias, "data", net.out.bias.data[:1].expand(SIZE)),
    "data +=": _added_to_data,
    "data.mul_": lambda net: net.out.weight.data.mul_(2),
    "set_": lambda net: net.out.weight.set_(new()),
    "a NumPy view": lambda net: net.out.weight.detach().numpy().__imul__(2),
    "memory": lambda net: net.scale.untyped_storage().copy_(new().untyped_storage()),
    "load_state_dict": lambda net: net.load_state_dict(Net().state_dict()),
    "assign": lambda net: net.load_state_dict(Net().state_dict(), assign=True),
    "swap": lambda net: torch.utils.swap_tensors(net.out.weight, nn.Parameter(new())),
    "inference mode": _in_inference_mode,
    "an optimizer": _step(torch.optim.SGD),
    "a fused optimizer": _step(torch.optim.AdamW, fused=True),
    "another type": lambda net: setattr(net, "scale", net.scale.double().float() * 2),
    "half": lambda net: net.double(),
}


def check(net: nn.Module, change: Change, x: Tensor, target: str = "reference") -> None:
    torch._dynamo.reset()
    fast = torch.compile(net, backend=strata, options={"target": target, "cache": "off"})
    fast(x)
    for _ in range(2):
        change(net)
        x = x.to(net.out.weight.dtype)
        net.plain = net.plain.to(x.dtype)
        torch.testing.assert_close(fast(x), net(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_noticed(change: str) -> None:
    with torch.no_grad():
        check(Net(), CHANGES[change], torch.rand(2, SIZE))


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_noticed_on_the_cpu(change: str) -> None:
    """Which packs weights."""
    with torch.no_grad():
        check(Net(), CHANGES[change], torch.rand(2, SIZE), "cpu")


@pytest.mark.parametrize("skips_guards", [True, False])
def test_data_of_another_shape(skips_guards: bool) -> None:
    """Dynamo captures again, or, where it skips guards of modules, its graph runs eagerly."""
    net, x = Net(), torch.rand(2, SIZE)
    with torch.no_grad(), torch._dynamo.config.patch(
            use_recursive_dict_tags_for_guards=skips_guards):
        torch._dynamo.reset()
        fast = torch.compile(net, backend=strata, options={"target": "reference", "cache": "off"})
        fast(x)
        net.scale.data, net.plain = net.scale.data[:, :5], net.plain[:5]
        torch.testing.assert_close(fast(x), net(x), rtol=1e-4, atol=1e-4)
        net.scale.data = net.scale.data.clone()
        torch.testing.assert_close(fast(x), net(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("change", ["mul_", "data =", "a buffer", "data.mul_"])
def test_a_change_of_an_inference_tensor_is_noticed(change: str) -> None:
    """PyTorch does not count how often it is written, so it is an argument like others."""
    with torch.inference_mode():
        net = Net()
        assert not is_weight(net.out.weight)
        check(net, CHANGES[change], torch.rand(2, SIZE))


def test_a_step_on_a_device_is_noticed() -> None:
    """There, no bytes are compared, and a fused optimizer does not count what it writes."""
    forgotten: list[Weights] = []

    class Owner:
        def forget(self) -> None:
            forgotten.append(weights)

    net, owner = Net(), Owner()
    weights = Weights.of([net.out.weight], [0])
    weights.watch(owner.forget)
    _step(torch.optim.AdamW, fused=True)(Net())
    assert not forgotten
    _step(torch.optim.AdamW, fused=True)(net)
    assert forgotten == [weights]
    del owner
    _step(torch.optim.AdamW, fused=True)(net)
    assert len(forgotten) == 1


@pytest.mark.parametrize("count", [1, WHOLE // 4, WHOLE // 4 + 1, 5000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.int64])
def test_the_ends_of_a_weight_are_compared(dtype: torch.dtype, count: int) -> None:
    for layout in (lambda v: v, lambda v: v.t().contiguous().t()):
        tensor = layout(torch.zeros(count, 3, dtype=dtype))
        for place in ((0, 0), (-1, -1)):
            weights = Weights.of([tensor], [0])
            assert weights.are_in([tensor])
            tensor.data[place] = 1 - tensor[place].long()
            assert not weights.are_in([tensor])


WITH_GAPS: dict[str, Callable[[Tensor], Tensor]] = {
    "rows": lambda t: t[::2], "columns": lambda t: t[:, ::2], "a window": lambda t: t[3:7, 5:9],
    "one row": lambda t: t[:1].expand(32, 32), "one column": lambda t: t[:, :1].expand(32, 32),
    "overlapping": lambda t: t.as_strided((5, 7), (1, 1)), "a diagonal": lambda t: t.diagonal(),
    "one element": lambda t: t[5, 5], "dense": lambda t: t}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.int64, torch.complex64])
@pytest.mark.parametrize("shown", WITH_GAPS)
def test_weights_with_gaps(shown: str, dtype: torch.dtype) -> None:
    """A write of all of it that PyTorch does not count is noticed."""
    whole = torch.zeros(32, 32, dtype=dtype)
    tensor = WITH_GAPS[shown](whole)
    weights = Weights.of([tensor], [0])
    assert weights.are_in([tensor])
    whole.data.fill_(1)
    assert not weights.are_in([tensor])


def test_empty_weights() -> None:
    weights = Weights.of([torch.zeros(0, 3), torch.zeros(0, 6)[:, ::2]], [0, 1])
    assert not any(weights.pieces) and weights.are_in(weights.tensors)


def test_lazily_conjugated_and_negated_weights() -> None:
    """Their memory is compared, not what they stand for; calls compute as eagerly."""
    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left = nn.Parameter(torch.rand(8, 8, dtype=torch.complex64).conj())
            self.right = nn.Parameter(torch.rand(8, 8, dtype=torch.complex64).mT.conj().imag)

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.left @ self.right.to(x.dtype)

    net, x = Product(), torch.rand(8, 8, dtype=torch.complex64)
    assert net.left.is_conj() and net.right.is_neg()
    fast = torch.compile(net, backend=strata)
    changes: list[Callable[[], object]] = [
        lambda: None, lambda: net.left.data.mul_(2j), lambda: net.right.data.add_(1)]
    with torch.no_grad():
        for change in changes:
            change()
            torch.testing.assert_close(fast(x), net(x))
