"""Arguments of every kind, read and written in place, compiled and eagerly."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch._dynamo  # before the next import, with which it is circular
from torch import Tensor
from torch._functorch._aot_autograd import runtime_wrappers
from torch.nn import functional as F

from tests.pytorch.memory.sharing import differences, is_refused
from tests.pytorch.memory.views import matrix

Given = Callable[[int], list[Tensor]]


def _imaginary(x: Tensor) -> Tensor:
    """A tensor with the negative bit."""
    return torch.complex(x, x + 1).conj().imag


def _views(*views: Callable[[Tensor], Tensor]) -> Given:
    def make(n: int) -> list[Tensor]:
        base = matrix(n, 6) + 1
        return [view(base) for view in views]

    return make


def _without_common_base(n: int) -> list[Tensor]:
    x = matrix(n, 6)
    return [x, torch.empty(0).set_(x.untyped_storage(), 0, (n, 6), (6, 1))]


ARGUMENTS: dict[str, Given] = {
    "expanded": lambda n: [matrix(1, 6).expand(n, 6)],
    "unfolded": lambda n: [matrix(n + 5).unfold(0, 6, 1)],
    "a number": lambda n: [torch.tensor(3.0)],
    "transposed": lambda n: [matrix(6, n).t()],
    "with gaps": lambda n: [matrix(2 * n, 12)[::2, ::2]],
    "with gaps, and not first": lambda n: [matrix(2 * n, 12)[1::2, 1::2]],
    "complex": lambda n: [torch.complex(matrix(n, 6), matrix(n, 6))],
    "conjugate": lambda n: [torch.complex(matrix(n, 6), matrix(n, 6)).conj()],
    "negative": lambda n: [_imaginary(matrix(n, 6))],
    "negative and dense": lambda n: [torch._neg_view(matrix(n, 6))],
    "a tensor and a view": _views(lambda x: x, lambda x: x[1:]),
    "views that overlap": _views(lambda x: x[:-1], lambda x: x[1:]),
    "views that do not": _views(lambda x: x[:2], lambda x: x[2:]),
    "the same twice": _views(lambda x: x, lambda x: x),
    "two shapes": _views(lambda x: x.t(), lambda x: x.view(-1)),
    "no common base": _without_common_base,
    **{str(dtype): lambda n, dtype=dtype: [matrix(n, 6).to(dtype)] for dtype in (
        torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int16, torch.int8,
        torch.uint8)},
}


def _swapped(a: Tensor, b: Tensor) -> Tensor:
    if a.shape != b.shape:
        return a + 1
    kept = a.clone()
    a.copy_(b)
    b.copy_(kept)
    return a + 1


def _through_a_view(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """A part of what was written through a view of other rank."""
    view = a.unflatten(-1, (a.shape[-1], 1)) if a.dim() else a[None]
    view[:1].zero_()
    part = view[-1:]
    b.mul_(2)
    return part, b + 1


USES: dict[str, Callable[..., Any]] = {
    "mul_": lambda *a: (a[0].mul_(2), a[-1] + 1)[1],
    "both": lambda *a: (a[0].add_(1), a[-1].mul_(3), a[0] + a[-1].sum())[2],
    "returned": lambda *a: (a[0].mul_(2), a[0], a[-1][...], a[-1] + 1),
    "columns": lambda *a: (a[0][..., :1].mul_(5) if a[0].dim() else 0, a[-1] * 2)[1],
    "setitem": lambda *a: (a[0].__setitem__(..., 7), a[0][...], a[-1] + 1)[1:],
    "swapped": lambda *a: _swapped(a[0], a[-1]),
    "through a view": lambda *a: _through_a_view(a[0], a[-1]),
    "of two": lambda *a: _through_a_view(a[0], a[-1].clone()),
    "turned in place": lambda *a: (a[0].t_() if a[0].dim() < 3 else 0, a[0].mul_(2), a[-1] + 1)[2],
}
QUICK = {"expanded", "with gaps, and not first", "conjugate", "negative", "a tensor and a view",
         "two shapes", "torch.bfloat16"}


@pytest.mark.parametrize("given", [
    pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in ARGUMENTS])
@pytest.mark.parametrize("use", USES)
def test_arguments(use: str, given: str) -> None:
    make = ARGUMENTS[given]
    calls = [lambda n=n: make(n) for n in (4, 7)]
    if (use, given) == ("swapped", "views that overlap") and is_refused(USES[use], calls[0]()):
        pytest.skip("before PyTorch 2.13, eager mode copies nothing between views that overlap")
    assert not differences(USES[use], calls[:1])
    assert not differences(USES[use], calls, dynamic=True)


@pytest.mark.parametrize("given", ["two shapes", "views that overlap"])
def test_arguments_of_which_pytorch_returns_the_whole_memory(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to PyTorch 2.11, AOTAutograd takes the memory that arguments share for an argument."""
    whole: list[Any] = []
    monkeypatch.setattr(runtime_wrappers, "create_synthetic_base_metadata", _older(whole))
    assert not differences(USES["returned"], [lambda: ARGUMENTS[given](4)])
    assert whole


def _older(whole: list[Any]) -> Callable[..., Any]:
    """How older versions describe results that are arguments; `whole` collects these."""
    newer = runtime_wrappers.create_synthetic_base_metadata

    def describe(known: Any, *more: Any) -> Any:
        made, others = newer(known, *more)
        for k, info in enumerate(known.output_info):
            newest = made.output_info[k]
            if info.output_type.name == "is_input" and newest.base_idx == info.base_idx:
                made.output_info[k] = replace(newest, output_type=info.output_type)
                whole.append(info)
        return made, others

    return describe


def test_booleans() -> None:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        x[1:].logical_not_()
        return x[:1], ~x

    assert not differences(f, [lambda n=n: [matrix(n, 6) > 9] for n in (4, 7)], dynamic=True)


# ---------------------------------------------------------------------- what runs eagerly
@pytest.mark.parametrize(("f", "why"), [
    (lambda x: (x[:1].expand(3, -1).t()[0].add_(1), x * 2)[1], "elements that share memory"),
    (lambda x: (x.unfold(1, 3, 1)[:, 0].fill_(2), x + 1)[1], None),
    (lambda x: (x.unfold(1, 3, 2).add_(1), x + 1)[1], "elements that share memory"),
    (lambda x: (x[::2].mul_(2), x.as_strided((2, 2), (2, 1)), x + 1)[1:], None)])
def test_writes_into_elements_that_share_memory(
    f: Callable[[Tensor], Any], why: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """PyTorch refuses some of them; the others are written as eagerly."""
    with caplog.at_level(logging.WARNING, "strata"):
        assert not differences(f, [lambda: [matrix(4, 6)]])
    assert why is None or why in caplog.text


def test_constants_that_are_complex(caplog: pytest.LogCaptureFixture) -> None:
    z = torch.complex(matrix(4, 6), matrix(4, 6))
    with caplog.at_level(logging.WARNING, "strata"):
        assert not differences(lambda x: (x.fill_(7), x[1:])[1], [lambda: [z.clone()]])
        assert not differences(lambda x: x * torch.tensor(2j) + 1, [lambda: [z.clone()]])


# ---------------------------------------------------------------------- no arguments, and halves
@pytest.mark.parametrize("dtype", [
    torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.int8, torch.bool])
def test_results_without_arguments(dtype: torch.dtype) -> None:
    def f() -> tuple[Tensor, ...]:
        return torch.arange(3).to(dtype), torch.ones(2, 3).to(dtype).t(), torch.eye(2).to(dtype)

    for target in ("cpu", "reference"):
        assert not differences(f, [list], target=target)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_batch_norm_in_training(dtype: torch.dtype) -> None:
    def f(x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        return F.batch_norm(x, mean, variance, training=True, momentum=0.25)

    torch._dynamo.reset()
    fast = torch.compile(f, backend="strata")
    with torch.no_grad():
        for n in (4, 9):
            given = [torch.rand(n, 6, 3), torch.rand(6), torch.rand(6) + 1]
            mine, theirs = ([v.to(dtype, copy=True) for v in given] for _ in range(2))
            torch.testing.assert_close(fast(*mine), f(*theirs), rtol=2e-2, atol=2e-2)
            torch.testing.assert_close(mine, theirs, rtol=2e-2, atol=2e-2)
