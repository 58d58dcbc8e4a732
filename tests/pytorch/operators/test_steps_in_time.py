"""Scans, maps and recurrent layers through `torch.compile`: nothing runs eagerly."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from functorch.experimental.control_flow import map as each
from torch import Tensor, nn

scan = pytest.importorskip("torch._higher_order_ops.scan").scan
associative_scan: Any = pytest.importorskip(
    "torch._higher_order_ops.associative_scan").associative_scan


def several(x: Tensor) -> Any:
    """Two carried values, and two that are stacked."""
    return scan(lambda c, v: ([c[0] + v, c[1] * 0.5 + v.sum()], [c[0] * v, v.sum()]),
                [x[0] * 0, x.sum()], x)


FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "scan": lambda x: scan(lambda c, v: (c * 0.5 + v, (c + v).clone()), x[0] * 0, x),
    "scan from the end": lambda x: scan(
        lambda c, v: (c * 0.5 + v, c * v), x[0] * 0, x, reverse=True),
    "scan of several": several,
    "scan with a value around it": lambda x: scan(
        lambda c, v: (c * 0.5 + v * x[0].cos(), c.clone()), x[0] * 0, x),
    "associative scan": lambda x: associative_scan(
        lambda a, b: a * b + b, x, dim=0, combine_mode="generic"),
    "map": lambda x: each(lambda v: v.sin() + 1, x),
    "map of several": lambda x: each(lambda v, w: (v * w, v.sum()), x, x[0].exp()),
}


@pytest.fixture
def eager(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The warnings so far."""
    return lambda: [r.getMessage() for r in caplog.records
                    if r.name == "strata" and r.levelno >= logging.WARNING]


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_steps(name: str, rows: int, eager: Callable[[], list[str]]) -> None:
    torch._dynamo.reset()
    x, function = torch.arange(rows * 21.0).reshape(rows, 3, 7) / 40 - 1, FUNCTIONS[name]
    with torch.no_grad():
        got = torch.compile(function, backend="strata", fullgraph=True)(x)
        torch.testing.assert_close(got, function(x), rtol=1e-4, atol=1e-5)
    assert eager() == []


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("form", [
    {}, {"batch_first": True, "bias": False}, {"bidirectional": True, "num_layers": 2}])
def test_recurrent_layers(
    name: str, form: dict[str, Any], eager: Callable[[], list[str]]
) -> None:
    """Dynamo records them if its configuration says so."""
    torch._dynamo.reset()
    torch.manual_seed(1)
    layer, x = getattr(nn, name)(8, 6, **form).eval(), torch.randn(5, 3, 8)
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
        got = torch.compile(layer, backend="strata", fullgraph=True)(x)
        torch.testing.assert_close(got, layer(x), rtol=1e-4, atol=1e-5)
    assert eager() == []
