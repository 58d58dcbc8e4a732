"""Whole models above the driver's calls: memory, graphs, sizes and errors, without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from xdsl.utils.exceptions import VerifyException

from dialects.block import KernelOp
from dialects.strata.assumptions import SizeError
from dialects.strata.types import Array
from dialects.strata.weights import WeightStore
from dialects.symbolic.symbol import Symbol
from targets.base import TargetOptions
from targets.cuda import TARGET
from targets.cuda.build.compile import CompileOptions
from targets.cuda.errors import CudaError
from targets.cuda.machine import MACHINES, machine_of
from targets.cuda.planning.plan import plan_host, planned_kernel
from targets.cuda.planning.program import load_module
from targets.cuda.runtime import driver, driver_graph
from targets.cuda.runtime.constants import ConstantLayout
from targets.cuda.runtime.driver_graph import Graph
from targets.cuda.runtime.executable import CudaExecutable
from targets.cuda.runtime.planned import ARENA, CONSTANTS, Copy, Launch
from targets.cuda.runtime.stream_order import RunOrder
from tests.symbols import by_symbol
from tests.targets.cuda import samples
from tests.targets.cuda.fakes.fake_driver import FakeDriver
from tests.targets.cuda.fakes.fake_torch import STREAM, FakeTorch
from tests.targets.cuda.samples import parse

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
RANDOM = np.random.default_rng(0)

ADD = """
block.kernel @add(%a: f32[n, m], %b: f32[m], %y: f32[n, m]) grid(%r: n, %c: m ceildiv 64)
    sizes(n, m) schedule<grid i0 tile 1, grid i1 tile 64 | warps = 2> {
  %v = block.load %a[%r, 64*%c + t0] check [1] pad 0.0 : tile<64xf32>
  %w = block.load %b[64*%c + t0] check [0] pad 0.0 : tile<64xf32>
  %s = block.map (%v[0], %w[0]) : tile<64xf32> {
  ^bb0(%p: f32, %q: f32):
    %u = arith.addf %p, %q : f32
    block.yield %u
  }
  block.store %s, %y[%r, 64*%c + t0] check [1]
  block.yield
}
"""


def model(weights: WeightStore, bias: Array):
    """y = 2*(x + bias)'s sum with itself, z = x: two launches, a view, a copy, all memories."""
    key = weights.add("bias", bias).key
    return parse(f"""builtin.module {{ {ADD}
      host.func @main(%x: f32[batch, 80], %y: f32[batch, 80], %z: f32[80*batch])
          inputs ["x"] outputs ["y", "z"] sizes(batch) arena(320*batch) {{
        %w = host.constant #strata.weight<"bias", {key}> : f32[80]
        %c = host.constant literal[{", ".join(["1.0"] * 80)}] : f32[80]
        %h = host.alloc offset 0 : f32[batch, 80]
        %own = host.alloc : f32[batch, 80]
        host.launch @add(%x, %w, %h) sizes(batch, 80)
        host.launch @add(%h, %c, %own) sizes(batch, 80)
        host.copy %own, %y
        %v = host.view %z : f32[batch, 80]
        host.copy %x, %v
        host.return
      }}
    }}""")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[FakeDriver, CudaExecutable]:
    """A model on the fake driver; its bias is 0, 1, 2 ..."""
    weights = WeightStore()
    module = model(weights, np.arange(80, dtype=np.float32))
    device = FakeDriver.of(module)
    device.install(monkeypatch)
    return device, load_module(module, weights, CompileOptions(cache=tmp_path))


def expected(x: Array) -> list[Array]:
    return [x + np.arange(80, dtype=np.float32) + 1, x.reshape(-1)]


@needs_triton
def test_every_run_replays_a_graph(
    fake: tuple[FakeDriver, CudaExecutable],
) -> None:
    device, executable = fake
    assert (executable.input_names, executable.output_names) == (["x"], ["y", "z"])
    for run in range(3):
        x = RANDOM.standard_normal((5, 80)).astype(np.float32)
        for found, wanted in zip(executable.run([x]), expected(x), strict=True):
            np.testing.assert_array_equal(found, wanted)
        assert device.log.count("replay") == run + 1
    assert not [line for line in device.log if line.startswith("update")]
    assert executable.replay(4) == 2  # kernels of a millisecond
    assert device.log.count("replay") == 7


@needs_triton
def test_tensors_are_used_where_they_are(
    fake: tuple[FakeDriver, CudaExecutable], monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other tensors change nodes, the same ones do not. What kernels cannot read is copied."""
    device, executable = fake
    torch = FakeTorch(device)
    torch.install(monkeypatch)
    for shift in (0, 0, 4):
        x = RANDOM.standard_normal((5, 80)).astype(np.float32)
        given = torch.tensor(x, shift)
        before = set(device.memory)
        outputs = executable.run([given])
        for found, wanted in zip(outputs, expected(x), strict=True):
            np.testing.assert_array_equal(found.numpy(), wanted)
        new = set(device.memory) - before - {o.address for o in outputs}
        assert len(new) == (len(before) == 2) + (shift > 0)  # an arena; a copy
    assert [line for line in device.log if line[:6] == "update"] == 2 * [
        "update 0", "update 3", "update 2"]
    with pytest.raises(CudaError, match="run it on host arrays first"):
        executable.replay(1)


@needs_triton
def test_tensors_and_arrays(
    fake: tuple[FakeDriver, CudaExecutable], monkeypatch: pytest.MonkeyPatch,
) -> None:
    device, executable = fake
    x = RANDOM.standard_normal((5, 80)).astype(np.float32)
    torch = FakeTorch(device)
    torch.install(monkeypatch)
    for on_device in (True, False, True, False):
        given = [torch.tensor(x) if on_device else x]
        executable.run(given)
        y = executable.run_alike(given)[0]
        np.testing.assert_array_equal(y.numpy() if on_device else y, expected(x)[0])
    assert executable.replay(4) == 2  # kernels of a millisecond
    executable.run([torch.tensor(x)])
    with pytest.raises(CudaError, match="run it on host arrays first"):
        executable.replay(1)  # what the last run wrote is the caller's


def test_what_is_gone_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph once, also where it was closed."""
    log: list[str] = []

    class Library:
        def __getattr__(self, name: str) -> Callable[..., int]:
            return lambda *arguments: log.append(name) or 0

    for module in (driver, driver_graph):
        monkeypatch.setattr(module, "library", Library)
    monkeypatch.setattr(driver, "use_device", lambda: None)
    closed, graph, order = Graph([], []), Graph([], []), RunOrder()
    function = driver.load_function(b"", "kernel", 0)
    closed.close()
    log.clear()
    del closed, graph
    assert log == ["cuGraphExecDestroy", "cuGraphDestroy"]
    del order, function
    assert sorted(log[2:]) == ["cuEventDestroy_v2", "cuModuleUnload", "cuStreamDestroy_v2"]


@needs_triton
def test_memory_that_programs_share_with_torch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """torch gives out a block again behind its own stream's work only: when a program takes one,
    all work is done, and when it gives one back, its own is."""
    weights = WeightStore()
    module = model(weights, np.arange(80, dtype=np.float32))
    device, done = FakeDriver.of(module), list[str]()
    device.install(monkeypatch)
    torch = FakeTorch(device)
    torch.install(monkeypatch)
    device.later(lambda: done.append("torch's"), STREAM)
    executable = load_module(module, weights, CompileOptions(cache=tmp_path))
    assert done == ["torch's"]
    executable.run([torch.tensor(RANDOM.standard_normal((5, 80)).astype(np.float32))])
    assert not device.streams.is_done(STREAM)
    del executable
    assert device.streams.is_done(STREAM)


def test_streams_wait_for_the_last_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default stream, which stays, needs an event only when another one is used."""
    log: list[str] = []

    class Event:
        def record(self, stream: int) -> None:
            log.append(f"record {stream}")

        def wait(self, stream: int) -> None:
            log.append(f"{stream} waits")

    monkeypatch.setattr(driver, "Event", Event)
    monkeypatch.setattr(driver, "make_stream", lambda owner=None: 7)
    monkeypatch.setattr(driver, "synchronize", lambda stream: log.append(f"sync {stream}"))
    order = RunOrder()
    for stream in (0, 0, 5, 5, 7, 0):
        order.begin(stream)
        order.end(stream)
    order.finish()
    assert log == ["record 7", "0 waits", "record 0", "5 waits", "record 5", "record 5",
                   "7 waits", "record 7", "0 waits", "record 0", "7 waits",
                   "sync 7"]


@needs_triton
def test_each_set_of_sizes_has_its_graph_and_few_are_kept(
    fake: tuple[FakeDriver, CudaExecutable],
) -> None:
    device, executable = fake
    for n in [*range(1, 68), 3]:
        x = RANDOM.standard_normal((n, 80)).astype(np.float32)
        np.testing.assert_array_equal(executable.run([x])[0], expected(x)[0])
    assert device.log.count("close") == 4  # 68 sets, 64 of them kept
    assert len(device.memory) == 1 + 63 + 64 * 3  # constants; arenas; inputs and two outputs


@needs_triton
def test_a_full_device_gives_up_older_graphs(fake: tuple[FakeDriver, CudaExecutable]) -> None:
    device, executable = fake
    x = np.zeros((100, 80), np.float32)
    executable.run([x])
    device.limit = sum(a.size for a in device.memory.values()) + 1000
    executable.run([x[:99]])
    assert device.log.count("close") == 1
    device.limit = 1000
    with pytest.raises(CudaError, match="out of memory"):
        executable.run([x[:50]])


@needs_triton
def test_a_batch_of_none(fake: tuple[FakeDriver, CudaExecutable]) -> None:
    [y, z] = fake[1].run([np.zeros((0, 80), np.float32)])
    assert y.shape == (0, 80) and z.shape == (0,)


@needs_triton
@pytest.mark.parametrize(("inputs", "message"), [
    ([], "takes 1 inputs (x), not 0"),
    ([np.zeros((2, 80))], "input 'x' must be float32, not float64"),
    ([np.zeros((2, 81), np.float32)], "dim 1 of input 'x' is 81 but must be 80"),
])
def test_wrong_inputs(
    fake: tuple[FakeDriver, CudaExecutable], inputs: list[Array], message: str,
) -> None:
    with pytest.raises(ValueError) as error:
        fake[1].run(inputs)
    assert message in str(error.value)


def test_sizes_that_break_an_assumption(monkeypatch: pytest.MonkeyPatch) -> None:
    module = parse("""builtin.module {
      host.func @main(%x: f32[n, m], %y: f32[n, m]) inputs ["x"] outputs ["y"] sizes(n, m) {
        strata.assume n <= 2*m
        host.copy %x, %y
        host.return
      }
    }""")
    device = FakeDriver.of(module)
    device.install(monkeypatch)
    device.install_compiler(monkeypatch)
    executable = load_module(module, WeightStore(), CompileOptions())
    assert executable.run([np.ones((4, 2), np.float32)])[0].shape == (4, 2)
    device.log.clear()
    with pytest.raises(SizeError, match=r"n <= 2\*m, which is 5 <= 4"):
        executable.run([np.ones((5, 2), np.float32)])
    assert not device.log


# ---------------------------------------------------------------------- the plan
def test_buffers_lie_apart_and_aligned() -> None:
    weights = WeightStore()
    module, layout = model(weights, np.zeros(80, np.float32)), ConstantLayout(weights)
    plan = plan_host(module).placed(layout)
    assert layout.size == 1024
    [first, second, *copies] = plan.steps
    assert isinstance(first, Launch) and isinstance(second, Launch)
    assert [[p.memory for p in c.places] for c in copies if isinstance(c, Copy)] == [
        [ARENA, 1], [0, 2]]
    assert (first.buffers[0].memory, first.buffers[1].memory) == (0, CONSTANTS)
    for batch in (1, 3, 64):
        sizes = by_symbol({"batch": batch})
        used = [(int(p.offset.evaluate(sizes)), 320 * batch) for p in (
            first.buffers[2], second.buffers[2])]
        used.sort()
        ends = [start + size for start, size in used]
        assert all(a <= b for a, (b, _) in zip(ends, used[1:], strict=False))
        assert ends[-1] <= int(plan.arena.evaluate(sizes))
        assert all(start % 256 == 0 for start, _ in used)
        assert first.programs(first.size_values(sizes)) == 2 * batch


def test_only_sizes_in_strides_make_variants() -> None:
    kernel = parse(ADD).body.block.first_op
    assert isinstance(kernel, KernelOp)
    assert planned_kernel(kernel).strides == (Symbol.size("m"),)


def test_a_launch_of_no_kernel() -> None:
    with pytest.raises(VerifyException, match=r"C1: host\.launch calls @gone"):
        parse("""builtin.module {
          host.func @main() inputs [] outputs [] sizes() { host.launch @gone() sizes() host.return }
        }""")


# ---------------------------------------------------------------------- machines
@pytest.mark.skipif(driver.is_available(), reason="has a GPU")
def test_without_a_gpu_loading_says_what_to_do() -> None:
    module = parse(f"builtin.module {{ {samples.SWAP} }}")
    with pytest.raises(CudaError, match="`--interpret` runs the kernels on the CPU"):
        TARGET.bind(TargetOptions()).running.load(module, WeightStore())
    assert any("no NVIDIA GPU here" in line for line in TARGET.report())
    assert machine_of().arch == "sm_90"


def test_machines() -> None:
    assert machine_of("sm_90").shared == 227 * 1024
    assert all(name == m.arch for name, m in MACHINES.items())


def test_parameters_are_packed_by_width() -> None:
    addresses, cells = driver.pack_parameters([1 << 40, 7], (8, 4, 8, 8))
    assert [c.value for c in cells] == [1 << 40, 7, 0, 0]
    assert len(addresses) == 4
