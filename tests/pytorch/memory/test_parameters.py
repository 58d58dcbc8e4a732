"""Weights of torch.compile whose values change: they are packed anew, and nothing is compiled."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from compiler.torch import backend


@contextmanager
def seeded() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


class Residual(nn.Module):
    def __init__(self, width: int = 24, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.norm = nn.LayerNorm(width, dtype=dtype)
        self.up = nn.Linear(width, 4 * width, dtype=dtype)
        self.down = nn.Linear(4 * width, width, bias=False, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Attention(nn.Module):
    def __init__(self, width: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.qkv = heads, nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for part in self.qkv(x).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Scaled(nn.Module):
    """Small parameters, one that two operators use, and a buffer of floats."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.shift = nn.Parameter(torch.zeros(3))
        self.table = nn.Parameter(torch.randn(7, 3))
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        rows = self.table[torch.tensor([0, 6, 2])]
        return (x - self.mean) / (self.scale + 1) @ rows + self.shift + self.table.sum(0)


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, groups=2, bias=False), nn.BatchNorm2d(32),
        nn.Conv2d(32, 32, 3, groups=32), nn.ConvTranspose2d(32, 8, 3, stride=2))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], torch.dtype]] = {
    "residual": (Residual, (5, 24), torch.float32),
    "bfloat16": (lambda: Residual(dtype=torch.bfloat16), (5, 24), torch.bfloat16),
    "half": (lambda: Residual(dtype=torch.float16), (5, 24), torch.float16),
    "layers": (lambda: nn.Sequential(*(Residual(16) for _ in range(9))), (3, 16), torch.float32),
    "scaled": (Scaled, (4, 3), torch.float32),
    "convolutions": (convolutions, (2, 3, 13, 11), torch.float32),
    "cell": (lambda: nn.GRUCell(5, 7), (4, 5), torch.float32),
    "attention": (Attention, (2, 6, 16), torch.float32),
}


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The graphs that are compiled."""
    found: list[Any] = []
    original = backend.compile_graph

    def compile_graph(graph: Any, weights: Any, options: Any) -> Any:
        found.append(graph)
        return original(graph, weights, options)

    monkeypatch.setattr(backend, "compile_graph", compile_graph)
    torch._dynamo.reset()
    return found


def compiled(model: nn.Module, **options: Any) -> Any:
    chosen = {"cache": "off", "tuned": "off", "threads": 1, **options}
    return torch.compile(model, backend="strata", options=chosen)


def check(fast: Any, model: nn.Module, *inputs: Tensor) -> None:
    with torch.no_grad():
        got, want = fast(*inputs), model(*inputs)
    if isinstance(got, tuple):
        got, want = got[0], want[0]
    tolerance = {torch.float32: 2e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}[want.dtype]
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)


def floats(model: nn.Module) -> list[Tensor]:
    return [t for t in (*model.parameters(), *model.buffers()) if t.is_floating_point()]


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("name", MODELS)
def test_every_weight_may_change(name: str, target: str, compilations: list[Any]) -> None:
    make, shape, dtype = MODELS[name]
    with seeded():
        model, x = make().eval(), torch.randn(shape).to(dtype)
    fast = compiled(model, target=target)
    check(fast, model, x)
    for tensor in floats(model):
        with torch.no_grad():
            tensor.add_(0.1).mul_(1.5)
        check(fast, model, x)
    with torch.no_grad():
        for tensor in floats(model):
            tensor.copy_(torch.rand_like(tensor) * 0.3 + 0.1)
    check(fast, model, x)
    assert len(compilations) == 1


def test_many_sets_of_weights_in_turn(compilations: list[Any]) -> None:
    """Each is packed once."""
    with seeded():
        model, x = Residual().eval(), torch.randn(5, 24)
        adapters = [nn.Linear(24, 96) for _ in range(20)]
    fast, packed = compiled(model), []
    for round_ in range(2):
        for adapter in adapters:
            model.up = adapter
            check(fast, model, x)
        packed.append(len(compilations))
        assert packed == [1] * (round_ + 1)


def test_packed_copies_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    with seeded():
        model, x = Residual().eval(), torch.randn(5, 24)
        adapters = [nn.Linear(24, 96) for _ in range(3)]
    calls: list[Any] = []
    original = backend.with_weights

    def with_weights(*arguments: Any) -> Any:
        calls.append(arguments)
        return original(*arguments)

    monkeypatch.setattr(backend, "with_weights", with_weights)
    torch._dynamo.reset()
    fast = compiled(model)
    for adapter in (*adapters, *adapters, *reversed(adapters)):
        model.up = adapter
        check(fast, model, x)
    assert len(calls) == 2  # the first adapter was compiled
    with torch.no_grad():
        adapters[0].bias.add_(1)
    for adapter in adapters:
        model.up = adapter
        check(fast, model, x)
    assert len(calls) == 3


@pytest.mark.parametrize("cache", ["off", "default"])
def test_programs_of_the_same_weights_share_packed_copies(
    cache: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Programs of several sizes, also from the disk, have one packed copy of each version."""
    monkeypatch.setenv("STRATA_CACHE", str(tmp_path))
    with seeded():
        model, inputs = Residual().eval(), [torch.randn(rows, 24) for rows in (16, 32, 64)]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    model.up.weight.grad[5, 1] = 1.0

    def write() -> None:
        with torch.no_grad():
            model.up.weight[7, 3] += 1

    for _ in ("new", "found") if cache == "default" else ("new",):
        torch._dynamo.reset()
        made = seen(monkeypatch)
        fast = torch.compile(model, backend="strata", dynamic=False, options={
            "cache": cache, "tuned": "off", "threads": 1})
        for change in (None, write, optimizer.step):  # one element each
            if change is not None:
                change()
            made.clear()
            for x in inputs:
                check(fast, model, x)
            copies = [{id(store.arrays[key]) for key in store.recipes if key in store.arrays}
                      for store in map(store_of, made)]
            assert len(copies) == 3
            assert len(copies[0]) >= 2
            assert copies[0] == copies[1] == copies[2]


def seen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The code that is made or given weights from now on."""
    found: list[Any] = []
    original = backend.Program._prepared

    def prepared(*arguments: Any) -> Any:
        made = original(*arguments)
        found.append(made[1])
        return made

    monkeypatch.setattr(backend.Program, "_prepared", prepared)
    return found


def store_of(part: Any) -> Any:
    return part.executable.parameters.store


def test_equal_blocks_are_compiled_once(compilations: list[Any]) -> None:
    with seeded():
        blocks, x = [Residual().eval() for _ in range(12)], torch.randn(5, 24)
    want = x
    with torch.no_grad():
        for block in blocks:
            want = block(want)
        for block in blocks:
            block.compile(backend="strata", options={"cache": "off", "threads": 1})
        for _ in range(2):
            got = x
            for block in blocks:
                got = block(got)
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    assert len(compilations) == 1


def test_equal_blocks_of_other_classes_are_compiled_once(compilations: list[Any]) -> None:
    """Dynamo makes a graph for each class, and the graphs are equal."""
    with seeded():
        blocks = [type(f"Residual{k}", (Residual,), {})().eval() for k in range(5)]
        x, want = torch.randn(5, 24), []
    with torch.no_grad():
        for block in blocks:
            want.append(block(x))
            block.compile(backend="strata", options={"cache": "off", "threads": 1})
        for block, right in zip(blocks, want, strict=True):
            torch.testing.assert_close(block(x), right, rtol=1e-4, atol=1e-4)
    assert len(compilations) == 1


def test_equal_graphs_with_other_integers(compilations: list[Any]) -> None:
    """What the first was compiled for counts, not what its tensor has become."""
    models = [Chosen() for _ in range(3)]
    models[1].places.copy_(torch.tensor([1, 1, 2]))
    x = torch.randn(4, 3)
    for model in models[:2]:
        torch._dynamo.reset()
        check(compiled(model), model, x)
    models[0].places.copy_(torch.tensor([0, 0, 0]))
    models[2].places.copy_(torch.tensor([0, 0, 0]))
    torch._dynamo.reset()
    check(compiled(models[2]), models[2], x)
    assert len(compilations) == 3


# ---------------------------------------------------------------------- values that code depends on
class Masked(nn.Module):
    """A mask of floats, whose form the compiler recognizes."""

    def __init__(self, rows: int = 256) -> None:
        super().__init__()
        self.register_buffer("mask", torch.full((rows, rows), float("-inf")).triu(1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(x @ x.mT + self.mask, -1) @ x


class Chosen(nn.Module):
    """Integers as indices."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("places", torch.tensor([2, 0, 1]))

    def forward(self, x: Tensor) -> Tensor:
        return x[:, self.places] * 2


def infinite() -> nn.Module:
    """A convolution for a transform that needs finite weights."""
    return nn.Conv2d(32, 32, 3, padding=1)


def write_mask(model: Any) -> None:
    model.mask[0, 5] = 0.0


def write_places(model: Any) -> None:
    model.places[0] = 1


def write_infinity(model: Any) -> None:
    model.weight[3, 1, 1, 1] = float("inf")


@pytest.mark.parametrize(("make", "shape", "write"), [
    (Masked, (2, 256, 8), write_mask), (Chosen, (4, 3), write_places),
    (infinite, (1, 32, 24, 24), write_infinity)], ids=["mask", "integers", "infinity"])
def test_other_values_are_compiled_for(
    make: Callable[[], nn.Module], shape: tuple[int, ...], write: Callable[[Any], None],
    compilations: list[Any], caplog: pytest.LogCaptureFixture,
) -> None:
    """With a reason in the log, and counted."""
    caplog.set_level(logging.INFO, "strata")
    counters = torch._dynamo.utils.counters["strata"]
    counters.clear()
    with seeded():
        model, x = make().eval(), torch.randn(shape)
    fast = compiled(model)
    check(fast, model, x)
    with torch.no_grad():
        write(model)
    check(fast, model, x)
    assert len(compilations) in (1, 2)
    assert counters["recompilations"] == len(compilations) - 1
    again = [m for m in caplog.messages if "compiling a graph again, for other values of" in m]
    assert len(again) == len(compilations) - 1
    if make is Chosen:  # whether the others are recognized is the processor's choice
        assert len(again) == 1


def test_an_optimizer_changes_no_code(compilations: list[Any]) -> None:
    with seeded():
        model, x = convolutions().eval(), torch.randn(2, 3, 13, 11)
    fast = compiled(model)
    check(fast, model, x)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(3):
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()
        check(fast, model, x)
    model.load_state_dict({k: v + 1 if v.is_floating_point() else v
                           for k, v in model.state_dict().items()})
    check(fast, model, x)
    assert len(compilations) == 1


def test_weights_that_are_gone_are_not_kept(compilations: list[Any]) -> None:
    """Models are loaded one after the other into the same modules."""
    program: list[backend.Program] = []
    original = backend._boxed_program

    def boxed(made: backend.Program) -> Any:
        program.append(made)
        return original(made)

    with pytest.MonkeyPatch.context() as patch, seeded():
        patch.setattr(backend, "_boxed_program", boxed)
        model, x = Residual().eval(), torch.randn(5, 24)
        fast, first = compiled(model), model.up
        check(fast, model, x)
        for _ in range(5):
            model.load_state_dict(Residual().state_dict(), assign=True)
            check(fast, model, x)
            assert len(program[0].sets) <= 2
        others = [nn.Linear(24, 96) for _ in range(3)]
        for other in others:
            model.up = other
            check(fast, model, x)
        assert len(program[0].sets) >= 3  # these are still there
    assert len(compilations) == 1 and first is not None
