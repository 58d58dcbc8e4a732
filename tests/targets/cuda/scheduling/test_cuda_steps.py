"""Kernels of a step of training keep a GPU busy, and end their rows where masks do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from compiler.options import CompileOptions  # noqa: E402
from compiler.pipeline.driver import Compiler  # noqa: E402
from compiler.torch.step_graphs import step_graphs  # noqa: E402
from targets.cuda.prediction import predict  # noqa: E402
from tests.counts.predicted import H100  # noqa: E402


def launches(module: nn.Module, *inputs: Tensor) -> dict[str, tuple[int, float]]:
    """Kernel -> its programs, and the predicted microseconds, of the backward graph."""
    backward = step_graphs(module, inputs, {})[-1]
    options = CompileOptions(target="cuda", features="sm_90", cache="off", tuned="off")
    lowered = Compiler(backward.model, options).lower()
    return {p.kernel: (p.programs, p.seconds * 1e6)
            for p in predict(lowered.module, H100, {})}


class Attention(nn.Module):
    def forward(self, *heads: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(*heads, is_causal=True)


class Types(nn.Module):
    """A table of two rows, as of token types."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(2, 64)

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(ids).exp()


class Statistics(nn.Module):
    """Batch normalization between convolutions, and a depthwise one."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 16, 1), nn.BatchNorm2d(16), nn.ReLU(),
                                    nn.Conv2d(16, 16, 3, padding=1, groups=16),
                                    nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


MODELS: dict[str, Callable[[], tuple[nn.Module, list[Tensor]]]] = {
    "attention": lambda: (Attention(), [
        torch.randn(1, 4, 256, 64, dtype=torch.bfloat16).requires_grad_() for _ in range(3)]),
    "types": lambda: (Types(), [torch.arange(4096).remainder(2)]),
    "statistics": lambda: (Statistics(), [torch.randn(8, 3, 40, 40)]),
}


LIMITS = {"attention": 50, "types": 50, "statistics": 1000}
"""Microseconds. A program that sums all takes a hundred times as long; the gradient of a depthwise
filter still walks its elements one by one."""


@pytest.mark.parametrize("name", MODELS)
def test_no_kernel_waits_for_one_program(name: str) -> None:
    module, inputs = MODELS[name]()
    found = launches(module.train(), *inputs)
    assert max(us for _, us in found.values()) < LIMITS[name], found


def test_scores_are_computed_again() -> None:
    module, inputs = MODELS["attention"]()
    found = launches(module, *inputs)
    assert [name.partition("_")[0] for name in found] == ["reduce", "again", "again"]
