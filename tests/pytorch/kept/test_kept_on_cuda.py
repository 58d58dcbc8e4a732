"""Graphs of torch.compile on disk for the CUDA target, whose weights stay in the caller's memory.

What needs no device runs on a driver that records launches; the tests with the marker `gpu` compare
numbers.
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from compiler.torch import shared
from tests import processes
from tests.pytorch.kept.kept_models import CASES
from tests.pytorch.kept.test_kept_graphs import ROOT, Store, drawn, environment
from tests.pytorch.kept.test_kept_graphs import store as store
from tests.targets.cuda.fakes.recording_driver import RecordingDriver, forget

ON_DEVICE = ["convolutions", "attention", "open sizes", "words", "views"]
"""Cases whose inputs may be on any device."""


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], RecordingDriver]]:
    """`device()`: another one, without torch's allocator."""
    yield lambda: RecordingDriver.placed(monkeypatch.setattr)
    forget()


@pytest.mark.parametrize("name", ON_DEVICE)
def test_a_later_process_launches_the_same(
    name: str, store: Store, device: Callable[[], RecordingDriver]
) -> None:
    """Whatever its weights are, and without a compilation."""
    make, inputs, dynamic = CASES[name]
    shown: list[Any] = []
    for model in (make().eval(), drawn(make())):
        found = device()
        torch._dynamo.reset()
        shared._known.clear()
        fast = torch.compile(model, backend="strata", dynamic=dynamic, options={
            "cache": str(store.cache), "target": "cuda"})
        with torch.no_grad():
            fast(*inputs())
        shown.append([found.launches, found.compiled])
        assert store.compiled == len(store.entries()) > 0
    assert shown[0][0] and shown[0][0] == shown[1][0]
    assert shown[1][1] == 0 or dynamic


PROCESS = """
    import json, sys
    import torch
    sys.path.insert(0, {root!r})
    from tests.pytorch.kept.kept_models import CASES

    torch.backends.cudnn.allow_tf32 = False
    make, inputs, dynamic = CASES[sys.argv[1]]
    torch.manual_seed(int(sys.argv[2]))
    model, given = make().eval().cuda(), [x.cuda() for x in inputs()]
    fast = torch.compile(model, backend="strata", dynamic=dynamic)
    names = ("xdsl", "compiler.pipeline.driver", "targets.cuda.target", "passes.base")

    def check():
        with torch.no_grad():
            one, other = ([x.clone() for x in given] for _ in range(2))
            torch.testing.assert_close((fast(*one), one), (model(*other), other),
                                       rtol=1e-3, atol=1e-3)

    check()
    loaded = sorted(name for name in names if name in sys.modules)
    for number in range(3):  # in place, by a copy, and as other tensors
        with torch.no_grad():
            for value in model.parameters():
                if number == 0:
                    value.mul_(0.5).add_(0.1)
                elif number == 1:
                    value.copy_(torch.rand_like(value))
                else:
                    value.data = torch.rand_like(value)
        check()
    recompiled = torch._dynamo.utils.counters["strata"]["recompilations"]
    print(json.dumps([loaded, recompiled, sorted(n for n in names if n in sys.modules)]))
"""


@pytest.mark.gpu
@pytest.mark.parametrize("name", ON_DEVICE)
def test_a_second_process_computes_the_same(name: str, tmp_path: Path) -> None:
    """With other weights, and after they have been changed."""
    script = tmp_path / "process.py"
    script.write_text(textwrap.dedent(PROCESS.format(root=str(ROOT))))
    said: list[Any] = []
    for seed in ("1", "2"):
        done = processes.run([sys.executable, str(script), name, seed], text=True,
                             capture_output=True, cwd=tmp_path, env=environment(tmp_path))
        assert done.returncode == 0, done.stderr
        said.append(json.loads(done.stdout.splitlines()[-1]))
    assert "xdsl" in said[0][0]
    assert said[1] == [[], 0, []]


@pytest.mark.gpu
def test_weights_on_the_device_are_packed_once(tmp_path: Path) -> None:
    """By a process that compiles, and by one that loads."""
    script = tmp_path / "process.py"
    script.write_text(textwrap.dedent("""
        import torch
        model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(4)]).cuda().half()
        x = torch.randn(16, 2048, device="cuda").half()
        with torch.no_grad():
            fast = torch.compile(model, backend="strata")
            before = torch.cuda.memory_allocated()
            y = fast(x)
            torch.testing.assert_close(y, model(x), rtol=1e-2, atol=1e-2)
        print(torch.cuda.memory_allocated() - before)
    """))
    for _ in range(2):
        done = processes.run([sys.executable, str(script)], text=True, capture_output=True,
                             cwd=tmp_path, env={**os.environ, **environment(tmp_path)})
        assert done.returncode == 0, done.stderr
        assert int(done.stdout.splitlines()[-1]) < 40 << 20  # the weights have 32 MB
