"""`torch.cond`, `while_loop` and integers that change, in compiled graphs: nothing runs eagerly."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import compiler

while_loop: Any = torch._higher_order_ops.while_loop


def signed(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos() * 2, (x,))


def nested(x: Tensor) -> tuple[Tensor, Tensor]:
    def positive(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.cond(
            x.max() > 2, lambda x: (x * 2, x.sum()), lambda x: (x - 1, x.mean()), (x,))

    return torch.cond(x.sum() > 0, positive, lambda x: (x.abs(), x.min().clone()), (x,))


def doubled(x: Tensor) -> Tensor:
    """Until the sum is large; the number of iterations depends on the data."""
    return while_loop(lambda x, i: (x.sum() < 50) & (i < 9), lambda x, i: (x * 2 + i, i + 1),
                      (x, torch.tensor(0)))[0]


def counted(x: Tensor) -> Tensor:
    return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 1.5 + i),
                      (torch.tensor(0), x))[1]


class Gated(nn.Module):
    """Weights that only a branch uses."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: self.one(x).relu(), lambda x: self.two(x), (x,))


POSITIVE, NEGATIVE = torch.arange(12.0).reshape(3, 4) / 4, -torch.ones(3, 4)
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "signed": signed, "nested": nested, "doubled": doubled, "counted": counted,
    "gated": Gated().eval()}


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, "strata")
    torch._dynamo.reset()
    return lambda: [m for m in caplog.messages if "eagerly" in m]


def check(fast: Any, function: Any, *inputs: Any) -> None:
    with torch.no_grad():
        torch.testing.assert_close(fast(*inputs), function(*inputs))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_control_flow(name: str, warnings: Callable[[], list[str]]) -> None:
    function = FUNCTIONS[name]
    fast = torch.compile(function, backend="strata")
    for x in (POSITIVE, NEGATIVE, POSITIVE * 0.1, NEGATIVE[:1]):
        check(fast, function, x)
    assert not warnings()


@pytest.mark.parametrize("name", ["signed", "gated"])
def test_control_flow_that_is_exported(name: str) -> None:
    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.function = FUNCTIONS[name]

        def forward(self, x: Tensor) -> Tensor:
            return self.function(x)

    with torch.no_grad():
        program = torch.export.export(Module(), (POSITIVE,))
        exe = compiler.compile(program, cache="off", tuned="off", threads=1)
        for x in (POSITIVE, NEGATIVE):
            torch.testing.assert_close(exe(x)[0], FUNCTIONS[name](x))


CONDITIONS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "a bound": lambda x, y: x.shape[0] > 4,
    "two sizes": lambda x, y: x.shape[0] <= y.shape[0],
    "even": lambda x, y: x.shape[0] % 2 == 0,
    "unequal": lambda x, y: x.shape[0] != y.shape[0],
    "both": lambda x, y: (x.shape[0] > 2) & (y.shape[0] > 5),
    "not": lambda x, y: torch.sym_not(x.numel() > 9),
    "either": lambda x, y: (x.shape[0] == 6) | (y.shape[0] // 2 >= 3),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_conditions_on_open_sizes(name: str, warnings: Callable[[], list[str]]) -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return torch.cond(CONDITIONS[name](x, y), lambda x, y: x.sin() + y.sum(),
                          lambda x, y: x.cos(), (x, y))

    fast = torch.compile(function, backend="strata", dynamic=True)
    for n, m in ((3, 7), (5, 4), (6, 7), (2, 5), (1, 2), (7, 7)):
        check(fast, function, torch.randn(n, 5), torch.randn(m))
    assert not warnings()


INTEGERS: dict[str, tuple[Callable[..., Any], Sequence[Any]]] = {
    "factor": (lambda x, n: x * n + n, (2, 3, 7, 0, 1, 11)),
    "bound of a slice": (lambda x, n: x[:, :n] * 2, (2, 3, 4, 1, 0)),
    "size of a result": (lambda x, n: x.sum() + torch.arange(n) * n, (2, 5, 9, 0)),
    "place": (lambda x, n: x.select(1, n) + n, (1, 2, 3, 0)),
    "negative": (lambda x, n: x * n, (2, 3, -5, 4)),
    "any of 64 bits": (lambda x, n: x.long() ^ (n - 3), (2, 2**62, -2**63 + 3, 2**48 + 1, 3)),
    "followed by others": (lambda x, n: (x * ((5 - 2 * n) % 7) + 1 / n, -n), (2, 3, -4, 2**40)),
    "beside sizes": (lambda x, n: torch.full((3,), x.shape[0] * n) - n * x.shape[1], (2, 3, -7)),
    "beside halves": (lambda x, n: (x / 2**10).half() * n, (2, 3, 2049, -70001)),
    "two": (lambda x, n: (x + n, x[:, n:].sum()), (1, 2, 3)),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_an_integer_that_changes(name: str, warnings: Callable[[], list[str]]) -> None:
    function, values = INTEGERS[name]
    fast = torch.compile(function, backend="strata")
    for value in values:
        check(fast, function, POSITIVE, value)
    assert not warnings()


@torch._dynamo.config.patch(capture_scalar_outputs=True)
def test_an_element_that_is_no_size(warnings: Callable[[], list[str]]) -> None:
    """It has any value, unlike one that a shape depends on."""
    def function(x: Tensor, k: Tensor) -> Tensor:
        return x * k.max().item() - k[0].item()

    fast = torch.compile(function, backend="strata")
    for k in ([2, 5], [-3, -8], [2**60, 2**61]):
        check(fast, function, POSITIVE.double(), torch.tensor(k))
    assert not warnings()


@pytest.mark.parametrize("factor", [2049, 100_001, 0.3])
def test_numbers_that_halves_cannot_hold(factor: float) -> None:
    """They are factors in f32, as in eager mode; sums with a factor are rounded once."""
    x = torch.tensor([2e-5, 1e-3, -3e-4, 0.25]).half()
    fast = torch.compile(lambda x: (x * factor, torch.add(x, x, alpha=factor)), backend="strata")
    wide = x.double()
    for got, want in zip(fast(x), (wide * factor, wide + wide * factor), strict=True):
        assert torch.equal(got, want.half())


@pytest.mark.parametrize("causal", [False, True])
def test_attention_whose_sizes_are_all_open(
    causal: bool, warnings: Callable[[], list[str]]
) -> None:
    def function(q: Tensor, k: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(
            q, k, k, is_causal=causal, enable_gqa=True)

    fast = torch.compile(function, backend="strata", dynamic=True)
    for rows, width in ((5, 16), (3, 8), (7, 4)):
        check(fast, function, torch.randn(2, 8, rows, width), torch.randn(2, 2, rows, width))
    assert not warnings()


def test_integers_that_nothing_reads(warnings: Callable[[], list[str]]) -> None:
    """The sizes of nested tensors come as integers that have no value."""
    net = nn.Sequential(nn.Linear(4, 5), nn.GELU()).eval()
    fast = torch.compile(net, backend="strata")
    for lengths in ((2, 3), (4, 1), (5, 2, 1)):
        x = torch.nested.nested_tensor([torch.randn(n, 4) for n in lengths], layout=torch.jagged)
        with torch.no_grad():
            torch.testing.assert_close(fast(x).values(), net(x).values())
    assert not warnings()
