"""Maximum pools in training: gradients equal to eager's, small numbers saved, one kernel."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from compiler.torch.step_graphs import StepGraph, step_graphs
from dialects.host import AllocOp, LaunchOp, host_functions

FORMS = {
    "apart": (2, 2, 0, 1, False), "overlapping": (3, 2, 1, 1, False), "dense": (3, 1, 1, 1, True),
    "with gaps": (2, 3, 0, 1, True), "dilated": (2, 2, 1, 2, False), "wide": (5, 4, 2, 1, True),
    "far": (3, 5, 1, 3, True),
}
SHAPES = {"image": (2, 3, 11, 8), "unbatched": (3, 9, 13), "row": (1, 2, 1, 9),
          "volume": (1, 2, 5, 6, 7)}


class Pool(nn.Module):
    def __init__(self, rank: int, *form: object, indices: bool = False):
        super().__init__()
        self.pool = getattr(F, f"max_pool{rank}d")
        self.form, self.indices = form, indices

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        made = self.pool(x.relu(), *self.form, return_indices=self.indices)
        return (made[0].square(), made[1]) if self.indices else made.square()


def of_step(run: object, x: Tensor) -> list[Tensor]:
    given = x.detach().requires_grad_()
    made = run(given)  # type: ignore[operator]
    results = made if isinstance(made, tuple) else (made,)
    (results[0] * torch.linspace(-1, 2, results[0].numel()).view(results[0].shape)).sum().backward()
    assert given.grad is not None
    return [*(v.detach() for v in results), given.grad]


def compare(module: nn.Module, x: Tensor, **options: object) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(module, backend="strata", **options)  # type: ignore[call-overload]
    for ours, theirs in zip(of_step(compiled, x), of_step(module, x), strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True)
        assert ours.dtype == theirs.dtype and ours.stride() == theirs.stride()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_of_maximum_pools(shape: str, form: str) -> None:
    sizes = SHAPES[shape]
    rank = 3 if shape == "volume" else 2
    kernel, _, padding, dilation, _ = FORMS[form]
    if min(sizes[-rank:]) + (2 * padding if dilation == 1 else 0) < dilation * (kernel - 1) + 1:
        pytest.skip("eager mode refuses it, or writes outside of its memory")
    torch.manual_seed(0)
    x = torch.randn(sizes).round(decimals=1)  # with equal maxima
    places = x.flatten(-rank)
    places[..., ::5] = torch.nan  # of several in a window, eager mode takes the last
    places[..., 1::7] = -torch.inf
    compare(Pool(rank, *FORMS[form]), x)


def test_indices_that_the_user_sees_are_of_the_whole_image() -> None:
    compare(Pool(2, 3, 2, 1, indices=True), torch.randn(2, 3, 10, 7))


def test_channels_last() -> None:
    compare(Pool(2, 3, 2, 1), torch.randn(2, 8, 9, 7).to(memory_format=torch.channels_last))


def test_open_sizes() -> None:
    compare(Pool(2, 3, 2, 1), torch.randn(2, 3, 12, 9), dynamic=True)


class Plain(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool2d(x.relu(), 3, 2, 1)


def step_of(count: int) -> list[StepGraph]:
    return step_graphs(Plain(), (torch.randn(2, 8, count, count).requires_grad_(),), {})


def test_small_numbers_are_saved() -> None:
    saved = [v for v in step_of(32)[1].given if isinstance(v, Tensor)]
    assert torch.int8 in {v.dtype for v in saved}
    assert torch.int64 not in {v.dtype for v in saved}


def test_the_gradient_is_one_kernel() -> None:
    options = CompileOptions(target="cuda", features="sm_90", cache="off", tuned="off")
    module = Compiler(step_of(32)[1].model, options).lower("host").module
    [function] = host_functions(module)
    assert sum(isinstance(op, LaunchOp) for op in function.walk()) == 1
    assert not any(isinstance(op, AllocOp) for op in function.walk())
