"""Dropout that one kernel of PyTorch draws, as on a GPU, taken apart into a mask and products."""

from __future__ import annotations

from collections.abc import Callable
from operator import getitem
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch._prims import rng_prims
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from compiler.frontend.torch.core.decompose import decompositions
from compiler.torch.draws import split_draws

DROPOUT: Any = torch.ops.aten.native_dropout.default
SHAPE, RATE = (7, 33), 0.3
Build = Callable[[fx.Graph, Any, Any], Any]

FORMS: dict[str, Build] = {
    "plain": lambda graph, x, state: graph.call_function(DROPOUT, (x, RATE, True)),
    "saves": lambda graph, x, state: graph.call_function(getitem, (graph.call_function(
        rng_prims.run_and_save_rng_state, (DROPOUT, x, RATE, True)), 1)),
    "takes": lambda graph, x, state: graph.call_function(
        rng_prims.run_with_rng_state, (state, DROPOUT, x, RATE, True)),
}


def _graph(build: Build, x: Tensor, state: Tensor) -> fx.GraphModule:
    """A graph of x and a generator's state that returns what dropout of 2 x returns."""
    graph, mode = fx.Graph(), FakeTensorMode()
    given, known = graph.placeholder("x"), graph.placeholder("state")
    twice = graph.call_function(torch.ops.aten.mul.Tensor, (given, 2))
    pair = build(graph, twice, known)
    graph.output(tuple(graph.call_function(getitem, (pair, k)) for k in range(2)))
    for node, like in ((given, x), (known, state), (twice, x)):
        node.meta["val"] = mode.from_tensor(like)
    module = fx.GraphModule({}, graph)
    for node in graph.nodes:
        if node.target is getitem and node.args[1] == 0:
            node.meta.setdefault("val", mode.from_tensor(state))
    return module


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_masks_are_drawn_before(form: str, dtype: torch.dtype) -> None:
    """Whichever call of a checkpoint draws them, and in the order of eager mode."""
    x, state = torch.randn(SHAPE, dtype=dtype), torch.get_rng_state()
    graph = _graph(FORMS[form], x, state)
    torch.set_rng_state(state)
    want = torch.native_dropout(2 * x, RATE, True)
    torch.set_rng_state(state)
    draws = split_draws(graph)
    assert draws is not None
    assert not [n for n in draws.inner.graph.nodes if DROPOUT in (n.target, *n.args)]
    found = draws.inner.forward(x, state, *draws.draw([x, state]))
    torch.testing.assert_close(found[0], want[0], rtol=1e-2 if dtype.itemsize == 2 else 1e-6,
                               atol=0)
    assert torch.equal(found[1], want[1])


def test_only_gpus_keep_the_operator() -> None:
    table = decompositions()
    kept: dict[str, bool] = {}
    for device in ("cpu", "cuda"):
        with FakeTensorMode() as mode:
            x = FakeTensor(mode, torch.empty(SHAPE, device="meta"), torch.device(device))
        graph = make_fx(lambda v: DROPOUT(v, RATE, True), decomposition_table=table)(x)
        kept[device] = DROPOUT in {n.target for n in graph.graph.nodes}
    assert kept == {"cpu": False, "cuda": True}
