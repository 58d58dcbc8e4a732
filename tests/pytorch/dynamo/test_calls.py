"""What goes into compiled programs and comes out of them, and what calls leave behind."""

from __future__ import annotations

import copy
import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.pytorch.dynamo.called import FUNCTIONS, MODULES, Counting, with_defaults

OPTIONS = {"threads": 1, "cache": "off"}
pytestmark = pytest.mark.usefixtures("natively")


def compiled(function: Any, **more: Any) -> Any:
    return torch.compile(function, backend="strata", options=OPTIONS, **more)


def leaves(value: Any) -> list[Any]:
    return torch.utils._pytree.tree_leaves(value)


def assert_same(ours: Any, theirs: Any) -> None:
    """Equal structures, types and strides; tensors are equal, and the same where theirs are."""
    assert torch.utils._pytree.tree_structure(ours) == torch.utils._pytree.tree_structure(theirs)
    pairs = list(zip(leaves(ours), leaves(theirs), strict=True))
    for mine, other in pairs:
        assert type(mine) is type(other)
        if isinstance(other, Tensor):
            torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5, check_stride=True)
        else:
            assert mine == other
    tensors = [(a, b) for a, b in pairs if isinstance(b, Tensor)]
    for k, (a, b) in enumerate(tensors):
        for c, d in tensors[:k]:
            assert (a is c) == (b is d) and share(a, c) == share(b, d)


def share(a: Tensor, b: Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str, dynamic: bool | None) -> None:
    """Results, and what is written into the argument, which may be a result."""
    function = FUNCTIONS[name]
    fast = compiled(function, fullgraph=True, dynamic=dynamic)
    for rows in (4, 3):
        mine = torch.randn(rows, 4)
        other = mine.clone()
        ours, theirs = fast(mine), function(other)
        assert_same(ours, theirs)
        torch.testing.assert_close(mine, other)
        assert [v is mine for v in leaves(ours)] == [v is other for v in leaves(theirs)]


@pytest.mark.parametrize("name", MODULES)
def test_modules(name: str) -> None:
    model = MODULES[name]().eval()
    other = copy.deepcopy(model)
    fast = compiled(model)
    for rows in (2, 3, 2):
        x = torch.randn(rows, 4)
        assert_same(fast(x), other(x))
    for mine, theirs in zip(model.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs)
    if isinstance(model, Counting):
        assert (model.calls, model.seen) == (3, [2, 3, 2])


def test_arguments_by_position_and_by_name() -> None:
    fast = compiled(with_defaults)
    x, y, z = torch.randn(3, 2, 3)
    for call in (lambda f: f(x), lambda f: f(x, y), lambda f: f(x, y, z, scale=3.0),
                 lambda f: f(x, other=z), lambda f: f(x, y, other=z, scale=0.5)):
        assert_same(call(fast), call(with_defaults))


def test_values_that_change_outside() -> None:
    """Closures, attributes and globals are guarded: a change is seen at the next call."""
    state = {"scale": 2.0}
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()
    fast = compiled(lambda x: net(x) * state["scale"])
    x = torch.randn(2, 4)
    for scale in (2.0, 3.0):
        state["scale"] = scale
        torch.testing.assert_close(fast(x), net(x) * scale)
    net[1] = nn.GELU()
    torch.testing.assert_close(fast(x), net(x) * 3.0)
    net[0].weight.data = torch.ones(4, 4)
    torch.testing.assert_close(fast(x), net(x) * 3.0)
    net[0].load_state_dict({"weight": torch.eye(4), "bias": torch.zeros(4)})
    torch.testing.assert_close(fast(x), net(x) * 3.0)


def test_deep_copies() -> None:
    """A copy has weights of its own, before and after the first call."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh()).eval()
    x = torch.randn(2, 4)
    fast = compiled(model)
    early = copy.deepcopy(fast)
    want = model(x)
    torch.testing.assert_close(fast(x), want)
    late = copy.deepcopy(fast)
    for other in (early, late):
        torch.testing.assert_close(other(x), want)
        mine = other._orig_mod[0]
        mine.weight.zero_()
        torch.testing.assert_close(other(x), mine.bias.tanh().expand(2, 4))
        torch.testing.assert_close(fast(x), want)
    model[0].bias.fill_(1)
    torch.testing.assert_close(fast(x), model(x))
    torch.testing.assert_close(early(x), early._orig_mod[0].bias.tanh().expand(2, 4))


def test_threads() -> None:
    """Threads that call one program first, at the same time, and at different sizes."""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    fast, wrong, start = compiled(model, dynamic=True), list[Any](), threading.Barrier(4)

    def work(k: int) -> None:
        start.wait()
        for step in range(8):
            x = torch.full((2 + k % 2 + step % 3, 4), float(k))
            try:
                with torch.no_grad():
                    torch.testing.assert_close(fast(x), model(x))
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_pytorch_controls() -> None:
    """Stances, `disable`, marked sizes and limits act as with any backend."""
    calls = torch._dynamo.utils.counters["stats"]
    fast = compiled(lambda x: x.sin() * len(x), dynamic=None)
    x = torch.randn(5, 2)
    torch._dynamo.mark_dynamic(x, 0)
    fast(x)
    graphs = calls["unique_graphs"]
    for n in (6, 7):
        fast(torch.randn(n, 2))
    assert calls["unique_graphs"] == graphs
    with torch.compiler.set_stance("force_eager"):
        fast(torch.randn(3, 2, 2))
    assert calls["unique_graphs"] == graphs
    with torch.compiler.set_stance("fail_on_recompile"), pytest.raises(RuntimeError):
        fast(torch.randn(3, 2, 2))
    fixed = compiled(lambda x: x * x.shape[0], dynamic=False)
    with torch._dynamo.config.patch(recompile_limit=2):
        for n in range(2, 7):
            assert_same(fixed(torch.ones(n)), torch.full((n,), float(n)))


def test_tensors_without_memory(caplog: pytest.LogCaptureFixture) -> None:
    """On the device `meta`, only shapes are computed, as in eager mode; it is told."""
    net = nn.Linear(4, 3, device="meta").eval()
    for function, x in ((net, torch.empty(2, 4, device="meta")),
                        (lambda x: x @ torch.empty(4, 5, device="meta"),
                         torch.empty(2, 4, device="meta"))):
        found, want = compiled(function)(x), function(x)
        assert (found.shape, found.device, found.dtype) == (want.shape, want.device, want.dtype)
    assert len(caplog.messages) == 2 and all("'meta'" in m for m in caplog.messages)
    caplog.clear()


def test_submodules_and_methods_are_compiled() -> None:
    """`module.compile()`, a compiled submodule in an eager one, a method, and a decorator."""
    net = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU())).eval()
    x = torch.randn(2, 4)
    want = net(x)
    net[1].compile(backend="strata", options=OPTIONS)
    torch.testing.assert_close(net(x), want)
    net[0] = compiled(net[0])
    torch.testing.assert_close(net(x), want)
    net.forward = compiled(net.forward)
    torch.testing.assert_close(net(x), want)

    @torch.compile(backend="strata", options=OPTIONS)
    def decorated(x: Tensor) -> Tensor:
        return net(x).sum()

    torch.testing.assert_close(decorated(x), want.sum())
