"""Fourier transforms of many lengths through `torch.compile`, and complex graphs' borders."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.pytorch.complex.complex_samples import numbers
from tests.pytorch.programs import flat

F = torch.fft


def compiled(function: Callable[..., Any], inputs: list[Any], caplog: Any) -> list[torch.Tensor]:
    """What compiled code returns; nothing runs eagerly."""
    torch._dynamo.reset()
    with torch.no_grad(), caplog.at_level(logging.WARNING, logger="strata"):
        got = torch.compile(function, backend="strata", fullgraph=True)(*inputs)
    assert not [r.getMessage() for r in caplog.records if r.name == "strata"]
    return flat(got)


def error(got: torch.Tensor, exact: torch.Tensor) -> float:
    return float((got - exact).abs().double().norm() / exact.abs().double().norm())


@pytest.mark.parametrize("count", [1, 2, 5, 16, 31, 32, 45, 61, 67, 128, 400, 1009])
def test_errors_are_small(count: int, caplog: Any) -> None:
    """At most twice PyTorch's, against f64: products, radices, large primes, and halves."""
    def call(z: torch.Tensor, x: torch.Tensor) -> Any:
        return (F.fft(z), F.ifft(z), F.rfft(x, norm="ortho"),
                F.irfft(z[:, :count // 2 + 1], n=count))

    z = numbers(3, count)
    x = z.real.clone()
    got, eager = compiled(call, [z, x], caplog), call(z, x)
    exact = call(z.to(torch.complex128), x.double())
    for ours, theirs, want in zip(got, eager, exact, strict=True):
        assert ours.dtype == theirs.dtype and ours.stride() == theirs.stride()
        assert error(ours, want) <= 2 * max(error(theirs, want), 6e-8)


def test_frames_and_planes(caplog: Any) -> None:
    window = torch.hann_window(40)

    def call(x: torch.Tensor) -> Any:
        frames = torch.stft(x, 40, 10, window=window, return_complex=True)
        return (frames, torch.istft(frames, 40, 10, window=window), F.fft2(x[None]),
                F.irfftn(F.rfftn(x)))

    x = numbers(2, 200).real.clone()
    for got, want in zip(compiled(call, [x], caplog), call(x), strict=True):
        torch.testing.assert_close(got, want, rtol=2e-5, atol=2e-5)


def test_borders(caplog: Any) -> None:
    """Lazy conjugates as arguments, views of arguments, and writes into them."""
    def call(z: torch.Tensor, y: torch.Tensor) -> Any:
        made = z * y
        y.add_(1j)
        return made, z.real, made.conj(), torch.view_as_real(made) + 1, z.imag * 2

    want_y, got_y = numbers(4), numbers(4)
    want = flat(call(numbers(4).flip(0).conj(), want_y))
    got = compiled(call, [numbers(4).flip(0).conj(), got_y], caplog)
    for a, b in zip([*got, got_y], [*want, want_y], strict=True):
        torch.testing.assert_close(a, b)


def test_gradients() -> None:
    def loss(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (F.irfft(F.rfft(x) * w, n=12).square().sum() + (w * w.conj()).real.sum())

    grads: list[Any] = []
    for run in (loss, torch.compile(loss, backend="strata", fullgraph=True)):
        x = numbers(12).real.clone().requires_grad_()
        w = numbers(7).requires_grad_()
        run(x, w).backward()
        grads.append((x.grad, w.grad))
    torch.testing.assert_close(grads[1], grads[0], rtol=2e-5, atol=2e-5)
