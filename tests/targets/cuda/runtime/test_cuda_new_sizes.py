"""Calls of an open model at new sizes compile nothing, and keep graphs for many sizes."""

from __future__ import annotations

import numpy as np
import pytest

from dialects.strata.weights import WeightStore
from targets.cuda.build.compile import CompileOptions
from targets.cuda.planning.program import load_module
from targets.cuda.runtime.executable import CudaExecutable
from tests.targets.cuda.fakes.fake_driver import FakeDriver
from tests.targets.cuda.runtime.test_cuda_launch import ADD, needs_triton
from tests.targets.cuda.samples import parse

WIDE = ADD.replace("@add", "@add_v1").replace("warps = 2", "warps = 4")
MODEL = f"""builtin.module {{ {ADD} {WIDE}
  host.func @main(%x: f32[n, m], %b: f32[m], %y: f32[n, m])
      inputs ["x", "b"] outputs ["y"] sizes(n, m) arena(4*n*m) {{
    %h = host.alloc offset 0 : f32[n, m]
    host.launch @add(%x, %b, %h) sizes(n, m) when -min(1, n floordiv 8) + 1
    host.launch @add_v1(%x, %b, %h) sizes(n, m) when min(1, n floordiv 8)
    host.launch @add(%h, %b, %y) sizes(n, m)
    host.return
  }}
}}"""
SIZES = [(n, m) for n in (1, 3, 8, 9, 20) for m in (16, 17, 48, 5, 1, 32, 80, 33)]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> tuple[FakeDriver, CudaExecutable]:
    module = parse(MODEL)
    device = FakeDriver.of(module)
    device.install(monkeypatch)
    device.install_compiler(monkeypatch)
    return device, load_module(module, WeightStore(), CompileOptions())


def check(executable: CudaExecutable, n: int, m: int) -> None:
    rng = np.random.default_rng(n + m)
    x, b = rng.standard_normal((n, m), np.float32), rng.standard_normal(m, np.float32)
    np.testing.assert_array_equal(executable.run([x, b])[0], (x + b) + b)


@needs_triton
def test_a_new_size_compiles_nothing(fake: tuple[FakeDriver, CudaExecutable]) -> None:
    """After the first call and what it expects: two kernels, each with and without multiples."""
    device, executable = fake
    check(executable, 3, 48)
    executable.kernels.wait()
    assert [line for line in device.log if line[:7] == "compile"] == ["compile 1", "compile 3"]
    for n, m in SIZES:
        check(executable, n, m)
    assert sum(line[:7] == "compile" for line in device.log) == 2
    assert {(v[0].name, len(v[1])) for v in executable.kernels.compiled} == {
        ("add", 0), ("add", 1), ("add_v1", 0), ("add_v1", 1)}


@needs_triton
def test_only_the_launch_for_the_sizes_runs(fake: tuple[FakeDriver, CudaExecutable]) -> None:
    device, executable = fake
    for n, runs in ((7, ["run add", "run add"]), (8, ["run add_v1", "run add"]), (0, [])):
        before = len(device.log)
        check(executable, n, 16)
        assert [line for line in device.log[before:] if line[:3] == "run"] == runs


@needs_triton
def test_many_sizes_share_memory_and_keep_their_graphs(
    fake: tuple[FakeDriver, CudaExecutable]
) -> None:
    """The second round of 40 sizes replays; the largest arena serves all that came after it."""
    device, executable = fake
    sizes = sorted(SIZES, key=lambda s: -s[0] * s[1])
    for n, m in sizes:
        check(executable, n, m)
    executable.kernels.wait()
    for n, m in sizes:  # some graphs are made again, with variants that are compiled by now
        check(executable, n, m)
    before = len(device.log)
    for n, m in sizes:
        check(executable, n, m)
    assert not [line for line in device.log[before:] if line.split()[0] in ("allocate", "free")]


@needs_triton
def test_a_better_variant_replaces_another_that_was_there_first(
    fake: tuple[FakeDriver, CudaExecutable], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes for which nothing better was compiled run at once, and later with what suits them."""
    _, executable = fake
    kernels = executable.kernels
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "expect", lambda planned: None)
        check(executable, 3, 17)
        check(executable, 3, 48)
    assert {len(v[1]) for v in kernels.compiled} == {0}
    kernels.expect(executable.program.host.kernels)
    kernels.wait()
    check(executable, 3, 48)
    with executable.last_state("look") as (_, runner):
        assert {len(v[1]) for v in next(reversed(runner._ready.values())).variants} == {1}
