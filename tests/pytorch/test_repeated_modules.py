"""Graphs of `torch.compile` whose layers are equal but for one thing.

Of many equal layers a few are imported, and the rest are calls. What comes of that must be the same
module as if all had been imported, and compute what eager PyTorch computes. In each variant one
layer, in the middle or at an end, differs in something, or others read what layers compute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from compiler.frontend import MemoryModel
from compiler.frontend.torch import layers
from compiler.frontend.torch.walk import Importer
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from compiler.torch import parts

Tensor = torch.Tensor
WIDTH, ROWS = 24, 5


class Layer(nn.Module):
    """Attention and a product, with a sum around each. What differs are its fields."""

    def __init__(self, heads: int = 2) -> None:
        super().__init__()
        self.norm, self.other = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up = nn.Linear(WIDTH, WIDTH)
        self.heads, self.scale, self.dtype = heads, 1.0, torch.float32
        self.masked, self.transposed = True, False
        self.order: Tensor | None = None

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for part in self.qkv(self.norm(x)).chunk(3, -1))
        mask = seen[:, None, None, :] > 0 if self.masked else None
        mixed = functional.scaled_dot_product_attention(q, k, v, mask)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        inner = functional.gelu(self.up(self.other(x).to(self.dtype))).float() * self.scale
        if self.transposed:
            inner = inner @ self.up.weight.float().t()
        return x + (inner if self.order is None else inner[..., self.order])


class Stack(nn.Module):
    """Layers behind each other. `taps`: layers whose results are returned, too. `skips`: layers
    that also read the result of the layer before the last one. `tied`: whose weight the head has.
    """

    def __init__(self, layers: Sequence[Layer]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.taps, self.skips = list[int](), list[int]()
        self.tied: int | None = None

    def forward(self, x: Tensor, seen: Tensor) -> list[Tensor]:
        results = [x * 0.5]
        for k, layer in enumerate(self.layers):
            before = results[-1] + (results[-3] if k in self.skips else 0)
            results.append(layer(before, seen))
        last = results[-1]
        if self.tied is not None:
            last = functional.linear(last, self.layers[self.tied].out.weight)  # type: ignore
        return [last, *(results[k + 1] for k in self.taps)]


def equal(count: int) -> list[Layer]:
    return [Layer() for _ in range(count)]


def plain(count: int, odd: int) -> Stack:
    return Stack(equal(count))


def one(count: int, odd: int) -> Stack:
    """The same layer each time."""
    return Stack([Layer()] * count)


def in_turns(count: int, odd: int) -> Stack:
    return Stack((equal(2) * count)[:count])


def repeated_one(count: int, odd: int) -> Stack:
    """One layer has the weights of the layer before it."""
    layers = equal(count)
    layers[odd].up = layers[odd - 1].up
    return Stack(layers)


def scaled(count: int, odd: int) -> Stack:
    layers = equal(count)
    layers[odd].scale = 0.0
    return Stack(layers)


def headed(count: int, odd: int) -> Stack:
    layers = equal(count)
    layers[odd] = Layer(heads=3)
    return Stack(layers)


def typed(count: int, odd: int) -> Stack:
    layers = equal(count)
    layers[odd].dtype = torch.bfloat16
    layers[odd].up.bfloat16()
    return Stack(layers)


def unmasked(count: int, odd: int) -> Stack:
    layers = equal(count)
    layers[odd].masked = False
    return Stack(layers)


def ordered(count: int, odd: int) -> Stack:
    """Integers, which are constants, not parameters."""
    layers = equal(count)
    for layer in layers:
        layer.order = torch.arange(WIDTH)
    layers[odd].order = torch.arange(WIDTH - 1, -1, -1)
    return Stack(layers)


def transposed(count: int, odd: int) -> Stack:
    """Each layer reads a weight twice."""
    layers = equal(count)
    for layer in layers:
        layer.transposed = True
    return Stack(layers)


def without_bias(count: int, odd: int) -> Stack:
    layers = equal(count)
    layers[odd].out = nn.Linear(WIDTH, WIDTH, bias=False)
    return Stack(layers)


def tapped(count: int, odd: int) -> Stack:
    stack = Stack(equal(count))
    stack.taps = [odd, count - 1]
    return stack


def skipping(count: int, odd: int) -> Stack:
    stack = Stack(equal(count))
    stack.skips = [max(odd, 2)]
    return stack


def all_skipping(count: int, odd: int) -> Stack:
    stack = Stack(equal(count))
    stack.skips = list(range(2, count))
    return stack


def tied_head(count: int, odd: int) -> Stack:
    stack = Stack(equal(count))
    stack.tied = odd
    return stack


Make = Callable[[int, int], Stack]
VARIANTS: dict[Make, bool] = {
    plain: True, one: True, in_turns: False, repeated_one: False, scaled: False, headed: False,
    typed: False, unmasked: False, ordered: False, transposed: True, without_bias: False,
    tapped: False, skipping: False, all_skipping: False, tied_head: False}
"""The variants, and whether a few of 12 layers stand for all if the one in the middle is odd."""


def inputs() -> tuple[Tensor, Tensor]:
    return torch.randn(2, ROWS, WIDTH), torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])


def made(make: Make, count: int, odd: int) -> Stack:
    torch.manual_seed(4)
    return make(count, odd).eval()


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> list[MemoryModel]:
    """The graphs that are compiled."""
    found, original = list[MemoryModel](), parts.compile_model

    def kept(model: MemoryModel, **options: Any) -> Any:
        found.append(model)
        return original(model, **options)

    monkeypatch.setattr(parts, "compile_model", kept)
    return found


def run(model: nn.Module, *arguments: Tensor) -> tuple[Any, Any]:
    torch._dynamo.reset()
    fast = torch.compile(model, backend="strata", options={"cache": "off", "threads": 1})
    with torch.no_grad():
        return fast(*arguments), model(*arguments)


@pytest.mark.parametrize("make", VARIANTS, ids=lambda f: f.__name__)
def test_a_few_layers_stand_for_all(
    make: Make, models: list[MemoryModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, wanted = run(made(make, 12, 7), *inputs())
    relative, absolute = (2e-2, 1e-2) if make is typed else (2e-3, 2e-4)  # bf16 inside
    torch.testing.assert_close(found, wanted, rtol=relative, atol=absolute)
    options = CompileOptions(target="cuda", features="sm_90", cache="off", tuned="off")
    nodes = list[Any]()
    original = Importer._try  # pyright: ignore[reportPrivateUsage]

    def counted(self: Importer, node: Any, values: Any) -> Any:
        nodes.append(node)
        return original(self, node, values)

    monkeypatch.setattr(Importer, "_try", counted)
    some = Compiler(models[-1], options).lower("graph")
    fewer = len(set(nodes))
    monkeypatch.setattr(layers, "find_layers", lambda *arguments: None)
    nodes.clear()
    every = Compiler(models[-1], options).lower("graph")
    assert (fewer < len(nodes)) == VARIANTS[make]
    assert some.text == every.text
    assert some.nodes == every.nodes
    assert some.context.provenance.gone == every.context.provenance.gone


@pytest.mark.parametrize(("count", "odd"), [(2, 1), (3, 0), (12, 0), (12, 11)])
@pytest.mark.parametrize("make", [scaled, headed, unmasked, repeated_one, tapped, skipping],
                         ids=lambda f: f.__name__)
def test_layers_at_the_ends_differ(make: Make, count: int, odd: int) -> None:
    found, wanted = run(made(make, count, odd), *inputs())
    torch.testing.assert_close(found, wanted, rtol=2e-3, atol=2e-4)


def test_weights_change_behind_the_door() -> None:
    """In a layer that was not imported, in every way; nothing is compiled again."""
    stack, arguments = made(plain, 12, 7), inputs()
    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters["strata"]
    counters.clear()
    fast = torch.compile(stack, backend="strata", options={"cache": "off", "threads": 1})
    layer: Any = stack.layers[8]

    def swap() -> None:
        layer.up.weight.data = torch.randn(WIDTH, WIDTH)

    changes: list[Callable[[], object]] = [
        lambda: None, lambda: layer.out.bias.add_(1), swap, lambda: layer.norm.weight.zero_(),
        lambda: stack.load_state_dict({k: v + 0.25 for k, v in stack.state_dict().items()})]
    with torch.no_grad():
        for change in changes:
            change()
            torch.testing.assert_close(fast(*arguments), stack(*arguments), rtol=2e-3, atol=2e-4)
    assert not counters["recompilations"]
