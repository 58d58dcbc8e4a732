"""Outputs in the memory of inputs that are given up for them."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from dialects.block import KernelOp
from dialects.strata.array_type import ArrayType
from dialects.strata.weights import WeightStore
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from targets.cuda.build.compile import CompileOptions
from targets.cuda.planning.plan import can_overwrite, plan_host
from targets.cuda.planning.program import load_module
from targets.cuda.runtime.memory.device import tensor_within
from targets.cuda.runtime.memory.donation import homes
from targets.memory import Home
from tests.targets.cuda.fakes.fake_driver import FakeDriver
from tests.targets.cuda.fakes.fake_torch import FakeTorch
from tests.targets.cuda.samples import parse

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")


def kernel(name: str, read: str, written: str, grid: str = "%r: 5, %c: 2") -> str:
    """`name`(a, b, y): y = a + b at one element of a row of 80, read and written there."""
    return f"""
block.kernel @{name}(%a: f32[5, 80], %b: f32[5, 80], %y: f32[5, 80]) grid({grid}) sizes()
    schedule<grid i0 tile 1, grid i1 tile 64 | warps = 2> {{
  %v = block.load %a[{read}] check [1] pad 0.0 : tile<64xf32>
  %w = block.load %b[{written}] check [1] pad 0.0 : tile<64xf32>
  %s = block.map (%v[0], %w[0]) : tile<64xf32> {{
  ^bb0(%p: f32, %q: f32):
    %u = arith.addf %p, %q : f32
    block.yield %u
  }}
  block.store %s, %y[{written}] check [1]
  block.yield
}}
"""


TILE = "%r, 64*%c + t0"
ADD, TURNED = kernel("add", TILE, TILE), kernel("turned", "4 - %r, 64*%c + t0", TILE)
SHAPE = "f32[5, 80]"


class Model:
    """inputs x, k; outputs y, z, w. Runs on the fake driver, with tensors."""

    def __init__(self, patch: pytest.MonkeyPatch, steps: str) -> None:
        module = parse(f"""builtin.module {{ {ADD} {TURNED}
          host.func @main(%x: {SHAPE}, %k: {SHAPE}, %y: {SHAPE}, %z: {SHAPE}, %w: f32[80, 5])
              inputs ["x", "k"] outputs ["y", "z", "w"] sizes() arena(1792) {{
            {steps}
            host.return
          }}
        }}""")
        self.device = FakeDriver.of(module)
        self.device.install(patch)
        self.device.install_compiler(patch)
        self.executable = load_module(module, WeightStore(), CompileOptions())
        self.torch = FakeTorch(self.device)
        self.torch.install(patch)

    def tensors(self, shift: int = 0) -> list[Any]:
        random = np.random.default_rng(0)
        return [self.torch.tensor(random.standard_normal((5, 80)).astype(np.float32), shift)
                for _ in range(2)]


IN_PLACE = """
  host.launch @add(%x, %x, %z) sizes()
  host.launch @turned(%k, %x, %w0) sizes()
  host.launch @add(%k, %w0, %y) sizes()
  %v = host.view %y : f32[80, 5]
  host.copy %v, %w
""".replace("%w0", "%h").replace(
    "host.launch @turned", f"%h = host.alloc offset 0 : {SHAPE}\n  host.launch @turned", 1)


@needs_triton
@pytest.mark.parametrize("shift", [0, 4])
def test_a_result_replaces_an_input(monkeypatch: pytest.MonkeyPatch, shift: int) -> None:
    """All that reads the input has done so: the graph's nodes are done as late as they can be.

    What kernels cannot read where it lies is not written either.
    """
    model = Model(monkeypatch, IN_PLACE)
    assert set(model.executable.donate({0: 1, 1: 1, 2: 0})) == {0}
    for _ in range(2):
        given = model.tensors(shift)
        x, k = (v.numpy().copy() for v in given)
        y, z, w = model.executable.run(given)
        wanted = k + (k[::-1] + x)
        np.testing.assert_array_equal(y.numpy(), wanted)
        np.testing.assert_array_equal(z.numpy(), x + x)
        np.testing.assert_array_equal(w.numpy(), wanted.reshape(80, 5))
        np.testing.assert_array_equal(given[0].numpy(), x)
        np.testing.assert_array_equal(given[1].numpy(), wanted if shift == 0 else k)
        assert (y is given[1]) == (shift == 0)


@needs_triton
def test_arrays_of_the_host_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(monkeypatch, IN_PLACE)
    model.executable.donate({0: 1})
    x, k = np.ones((5, 80), np.float32), np.full((5, 80), 3, np.float32)
    for _ in range(2):
        assert np.all(model.executable.run([x, k])[0] == 7) and np.all(k == 3)
    assert model.executable.replay(2) == 3  # kernels of a millisecond


@needs_triton
def test_a_copy_to_itself_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a kernel writes over a copy of the input, it writes over the input."""
    model = Model(monkeypatch, """host.copy %k, %y
      host.launch @turned(%x, %y, %y) sizes()
      host.copy %x, %z""")
    assert set(model.executable.donate({0: 1})) == {0}
    given = model.tensors()
    x, k = (v.numpy().copy() for v in given)
    y, z, _ = model.executable.run(given)
    assert y is given[1] and z is not given[0]
    np.testing.assert_array_equal(y.numpy(), k + x[::-1])
    assert [line for line in model.device.log if line.startswith("run")] == ["run turned"]
    assert set(model.executable.donate({1: 0})) == {0}, "it is too late"


@needs_triton
@pytest.mark.parametrize("steps", [
    "host.launch @turned(%k, %x, %y) sizes()",
    "host.launch @add(%k, %k, %y) sizes()",
    "host.launch @add(%k, %x, %y) sizes() host.launch @add(%k, %x, %z) sizes()",
    "host.copy %x, %y host.launch @add(%k, %y, %z) sizes()",
])
def test_an_input_that_is_read_again_stays(monkeypatch: pytest.MonkeyPatch, steps: str) -> None:
    assert not Model(monkeypatch, steps).executable.donate({0: 1})


def test_other_shapes_share_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not Model(monkeypatch, "host.copy %x, %y").executable.donate({2: 1})


@pytest.mark.parametrize(("text", "wanted"), [
    (ADD, True), (TURNED, False),
    (kernel("wide", "%r, 80*%c + t0", "%r, 80*%c + t0", "%r: 5, %c: 1"), True),
    (kernel("once", "%r, t0", "%r, t0", "%r: 5, %c: 1"), True),
    (kernel("twice", "%r, t0", "%r, t0"), False),
    (kernel("near", "%r, 32*%c + t0", "%r, 32*%c + t0"), False),
    (kernel("both", "%r, 64*%c + t0", "%c, 64*%r + t0"), False),
    (kernel("sum", "0, 64*%c + 64*%r + t0", "0, 64*%c + 64*%r + t0"), False),
    (kernel("cut", "%r floordiv 2, 64*%c + t0", "%r floordiv 2, 64*%c + t0"), False),
])
def test_programs_read_what_they_alone_write(text: str, wanted: bool) -> None:
    found = parse(text).body.block.first_op
    assert isinstance(found, KernelOp)
    assert can_overwrite(found, 0, 2) == wanted


def state(width: int) -> str:
    """y = x + v; z = y * x: of rows of so many elements, which 2 warps hold."""
    def combined(name: str, left: str, right: str, op: str) -> str:
        return f"""%{name} = block.map (%{left}[0], %{right}[0]) : tile<{width}xf32> {{
  ^bb0(%p: f32, %q: f32):
    %u = arith.{op} %p, %q : f32
    block.yield %u
  }}"""

    row = f"f32[5, {width}]"
    return f"""
block.kernel @state(%x: {row}, %v: {row}, %y: {row}, %z: {row}) grid(%r: 5) sizes()
    schedule<grid i0 tile 1 | warps = 2> {{
  %a = block.load %x[%r, t0] : tile<{width}xf32>
  %b = block.load %v[%r, t0] : tile<{width}xf32>
  {combined("c", "a", "b", "addf")}
  block.store %c, %y[%r, t0]
  {combined("d", "c", "a", "mulf")}
  block.store %d, %z[%r, t0]
  block.yield
}}
"""


@pytest.mark.parametrize(("width", "wanted"), [(64, True), (32, False)])
def test_no_thread_reads_what_another_one_wrote(width: int, wanted: bool) -> None:
    """All threads read an element of a small tile, and one of them writes it."""
    found = parse(state(width)).body.block.first_op
    assert isinstance(found, KernelOp)
    assert can_overwrite(found, 0, 2) == wanted


SPARE = """
  host.launch @add(%x, %x, %y) sizes()
  host.launch @add(%k, %k, %z) sizes()
  %v = host.view %y : f32[80, 5]
  host.copy %v, %w
"""
"""%x is read before %z is written, and %k before %w."""


@needs_triton
def test_outputs_lie_in_inputs_that_are_read_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("targets.memory.LEAST", 1)
    run = Model(monkeypatch, SPARE)
    assert {*run.executable.spare([0, 1])} == {0, 1}
    plan = run.executable._program.plan  # type: ignore[union-attr]
    assert [{p.memory for p in s.places} for s in plan.steps] == [{0, 2}, {1, 0}, {2, 1}]
    for seed in range(3):
        x, k = np.random.default_rng(seed).standard_normal((2, 5, 80)).astype(np.float32)
        y, z, w = run.executable.run([x, k])
        np.testing.assert_array_equal(y, x + x)
        np.testing.assert_array_equal(z, k + k)
        np.testing.assert_array_equal(w, (x + x).reshape(80, 5))


@needs_triton
def test_what_an_output_has_is_not_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    """%y is written over %k, where %w would fit behind it; %z lies in %x, which is spare."""
    monkeypatch.setattr("targets.memory.LEAST", 1)
    run = Model(monkeypatch, """
  host.launch @add(%x, %k, %y) sizes()
  host.launch @add(%y, %y, %z) sizes()
  %v = host.view %z : f32[80, 5]
  host.copy %v, %w
""")
    assert {*run.executable.donate({0: 1})} == {0}
    assert {*run.executable.spare([0, 1])} == {0, 1}
    x, k = np.random.default_rng(0).standard_normal((2, 5, 80)).astype(np.float32)
    y, z, w = run.executable.run([x, k])
    np.testing.assert_array_equal(y, x + k)
    np.testing.assert_array_equal(z, 2 * (x + k))
    np.testing.assert_array_equal(w, (2 * (x + k)).reshape(80, 5))


@needs_triton
@pytest.mark.parametrize("spare", [[], [1], [0]], ids=str)
def test_only_spare_inputs_are_overwritten(
    monkeypatch: pytest.MonkeyPatch, spare: list[int]
) -> None:
    monkeypatch.setattr("targets.memory.LEAST", 1)
    run = Model(monkeypatch, SPARE)
    assert [*run.executable.spare(spare)] == spare
    steps = run.executable._program.plan.steps  # type: ignore[union-attr]
    written = {s.places[k].memory for s in steps for k in s.written}
    assert written & {0, 1} == {*spare}


def test_small_outputs_and_open_sizes_have_memory_of_their_own() -> None:
    module = parse(f"""builtin.module {{ {ADD}
      host.func @main(%x: {SHAPE}, %y: {SHAPE}) inputs ["x"] outputs ["y"] sizes() arena(0) {{
        %h = host.alloc : {SHAPE}
        host.launch @add(%x, %x, %h) sizes()
        host.launch @add(%h, %h, %y) sizes()
        host.return
      }}
    }}""")
    plan = plan_host(module)
    assert not homes(plan, [0])  # 1600 bytes
    plan.inputs = plan.outputs = [
        ArrayType("f32", np.dtype(np.float32), (Expr.symbol(Symbol.size("n")), Expr.of(80)))]
    assert not homes(plan, [0])


def test_outputs_in_one_input_are_aligned_as_kernels_expect(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """1600 bytes are whole cache lines of the host, but no multiple of the device's alignment."""
    monkeypatch.setattr("targets.memory.LEAST", 1)
    head = kernel("head", TILE, TILE).replace("%a: f32[5, 80], %b: f32[5, 80]",
                                              "%a: f32[11, 80], %b: f32[11, 80]")
    plan = plan_host(parse(f"""builtin.module {{ {ADD} {head}
      host.func @main(%x: f32[11, 80], %y: {SHAPE}, %z: {SHAPE})
          inputs ["x"] outputs ["y", "z"] sizes() arena(1792) {{
        %h = host.alloc offset 0 : {SHAPE}
        host.launch @head(%x, %x, %h) sizes()
        host.launch @add(%h, %h, %y) sizes()
        host.launch @add(%h, %h, %z) sizes()
        host.return
      }}
    }}"""))
    assert homes(plan, [0]) == {0: Home(0, 0), 1: Home(0, 1792)}


def test_tensors_within_another_one() -> None:
    torch = pytest.importorskip("torch")
    owner = torch.zeros(600, dtype=torch.bfloat16)[44:]
    found = tensor_within(owner, 256, (3, 40), np.dtype(np.float32))
    assert (found.shape, found.dtype, found.is_contiguous()) == ((3, 40), torch.float32, True)
    assert found.data_ptr() == owner.data_ptr() + 256
    assert found.untyped_storage().data_ptr() == owner.untyped_storage().data_ptr()
