"""Kernels of a graph that begin before others end: what they load before they wait."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from dialects.strata.parallel import Arrays
from dialects.strata.weights import WeightStore
from targets.cuda.build.compile import CompileOptions, Job, compile_kernels
from targets.cuda.build.interpreter import Interpreter
from targets.cuda.emit import EmitOptions, emit_kernel
from targets.cuda.emit.specialized import early
from targets.cuda.facts.h200 import H200
from targets.cuda.planning.plan import plan_host
from targets.cuda.planning.sources import overlapping
from targets.cuda.runtime import driver_graph
from targets.cuda.runtime.driver_graph import CopyNode, Graph
from targets.cuda.runtime.planned import constant_buffers
from targets.interpreted import InterpretedHost
from tests.targets.cuda.samples import kernel_of, parse

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
X, W, B = range(3)
WEIGHTS = frozenset([W, B])


def product(depth: int, step: int = 64) -> str:
    """y = x @ w + b for a row x of `depth` elements and w: [depth, 48]."""
    return f"""
block.kernel @product(%x: f32[{depth}], %w: f32[{depth}, 48], %b: f32[48], %y: f32[48])
    grid(%c: 3) sizes() schedule<grid i0 tile 16, loop i1 tile {step} | warps = 4> {{
  %zero = block.full 0.0 : tile<16x{step}xf32>
  %sums = block.for %k = 0 to {depth} step {step} (%a = %zero) {{
    %u = block.load %x[%k + t0] : tile<{step}xf32>
    %v = block.load %w[%k + t1, 16*%c + t0] : tile<16x{step}xf32>
    %s = block.map (%u[1], %v[0, 1], %a[0, 1]) : tile<16x{step}xf32> {{
    ^bb0(%p: f32, %q: f32, %r: f32):
      %m = arith.mulf %p, %q : f32
      %n = arith.addf %m, %r : f32
      block.yield %n
    }}
    block.yield %s
  }}
  %sum = block.reduce add %sums dim 1 : tile<16xf32>
  %bias = block.load %b[16*%c + t0] : tile<16xf32>
  %t = block.map (%sum[0], %bias[0]) : tile<16xf32> {{
  ^bb0(%p: f32, %q: f32):
    %n = arith.addf %p, %q : f32
    block.yield %n
  }}
  block.store %t, %y[16*%c + t0]
  block.yield
}}
"""


def lines(depth: int, constants: frozenset[int] | None, step: int = 64) -> list[str]:
    options = EmitOptions(constants=constants, early=H200.early)
    source = emit_kernel(kernel_of(product(depth, step)), options)
    assert source.waits == (constants is not None)
    return [line.strip() for line in source.code.splitlines()]


def test_constants_are_loaded_before_the_wait_and_nothing_else_is() -> None:
    text = lines(192, WEIGHTS)
    wait = text.index(early.WAIT)
    assert text[wait + 1] == early.BEGIN
    before, behind = ([line for line in part if "tl.load" in line or "tl.store" in line]
                      for part in (text[:wait], text[wait:]))
    assert len(before) == 4 and all("tl.load(w" in x or "tl.load(b" in x for x in before)
    assert len(behind) == 4 and all("tl.load(x" in x or "tl.store(y" in x for x in behind)
    assert not any(line.startswith("for ") for line in text)


@pytest.mark.parametrize(("depth", "constants", "step"), [
    (64 * H200.early.trips * 2, WEIGHTS, 64),  # many trips
    (2048, WEIGHTS, 1024),  # more than threads hold
    (192, frozenset([X]), 64),  # these are constants, but not the matrix
])
def test_a_loop_stays_where_it_must(depth: int, constants: frozenset[int], step: int) -> None:
    text = lines(depth, constants, step)
    wait = text.index(early.WAIT)
    assert not any("tl.load(w" in line for line in text[:wait])
    assert any(line.startswith("for ") for line in text) == (constants == WEIGHTS)


def test_each_branch_loads_its_own_constants_and_waits() -> None:
    """Joined launches: of the programs of a kernel, each executes one branch."""
    inside = "\n".join(product(192).splitlines()[3:-1]).replace("%c", "%i")
    text = f"""
block.kernel @join(%x: f32[192], %w: f32[192, 48], %b: f32[48], %y: f32[48]) grid(%c: 6) sizes()
    schedule< | warps = 4> {{
  block.for %i = max(%c, 0) to min(%c + 1, 3) step 1 {{
    {inside}
  }}
  block.for %i = max(%c - 3, 0) to min(%c - 2, 3) step 1 {{
    {inside}
  }}
  block.yield
}}
"""
    source = emit_kernel(kernel_of(text), EmitOptions(constants=WEIGHTS, early=H200.early))
    code = [line.strip() for line in source.code.splitlines()]
    first, second = (k for k, line in enumerate(code) if line.startswith("if "))
    for part in (code[first:second], code[second:]):
        wait = part.index(early.WAIT)
        assert part[wait + 1] == early.BEGIN
        assert sum("tl.load(w" in x for x in part[:wait]) == 3
        assert not any("tl.load(x" in x or "tl.store" in x for x in part[:wait])
    assert not any("tl.load" in line or "gdc" in line for line in code[:first])


def test_without_overlap_there_is_no_wait() -> None:
    text = lines(192, None)
    assert not any("gdc" in line for line in text) and any(x.startswith("for ") for x in text)


MODULE = f"""builtin.module {{ {product(192)}
  host.func @main(%x: f32[192], %z: f32[48], %y: f32[48]) inputs ["x", "z"] outputs ["y"] sizes()
      arena(256) {{
    %w = host.constant #strata.weight<"w", "W"> : f32[192, 48]
    %b = host.constant #strata.weight<"b", "B"> : f32[48]
    %h = host.alloc offset 0 : f32[48]
    host.launch @product(%x, %w, %b, %h) sizes()
    host.launch @product(%x, %w, %h, %y) sizes()
    host.return
  }}
}}"""


def test_only_what_is_constant_in_every_launch_is() -> None:
    plan = plan_host(parse(MODULE))
    [kernel] = plan.kernels
    assert constant_buffers(plan) == {kernel: frozenset([W])}
    assert overlapping(plan, CompileOptions("sm_90")) == {kernel: frozenset([W])}
    assert overlapping(plan, CompileOptions("sm_80")) == {}


def test_what_only_begins_a_graph_has_nothing_to_wait_for() -> None:
    lines = MODULE.splitlines()
    second = next(k for k, line in enumerate(lines) if "%h, %y" in line)
    plan = plan_host(parse("\n".join([*lines[:second], *lines[second + 1:]])))
    assert len(plan.kernels) == 1 and constant_buffers(plan) == {}


@needs_triton
def test_written_out_loops_compute_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """In Triton's interpreter, where nothing waits."""
    random = np.random.default_rng(0)
    x, w = random.standard_normal(192), random.standard_normal((192, 48))
    z, b = random.standard_normal((2, 48))
    x, w, z, b = (a.astype(np.float32) for a in (x, w, z, b))
    monkeypatch.setattr(early, "WAIT", "pass")
    monkeypatch.setattr(early, "BEGIN", "pass")
    interpreter = Interpreter()
    interpreter._options = replace(interpreter._options, constants=WEIGHTS,
                                   early=H200.early)
    weights = WeightStore(Arrays({"W": w, "B": b}))
    executable = InterpretedHost(parse(MODULE), weights, interpreter.run)
    [y] = executable.run([x, z])
    np.testing.assert_allclose(y, 2 * (x @ w) + b, rtol=1e-4, atol=1e-4)


@needs_triton
def test_ptx_loads_weights_then_waits() -> None:
    source = emit_kernel(kernel_of(product(192)), EmitOptions(constants=WEIGHTS, early=H200.early))
    [binary] = compile_kernels([Job(source, (0, 1, 2, 3))], CompileOptions("sm_90"))
    before, _, behind = binary.ptx.partition("griddepcontrol.wait")
    assert "ld.global" in before and "st.global" not in before
    assert "griddepcontrol.launch_dependents" in behind and "st.global" in behind


# ---------------------------------------------------------------------- graphs
@dataclass(frozen=True)
class Kernel:
    """A launch, of which no more than this is looked at."""

    waits: bool
    function: Any = None
    blocks: tuple[int, int, int] = (1, 1, 1)
    threads: int = 32
    shared: int = 0
    parameters: Any = None


class Driver:
    """Notes which nodes wait for which, and how."""

    def __init__(self, patch: pytest.MonkeyPatch, names: Sequence[str]) -> None:
        self.edges: list[tuple[int, int, str]] = []
        self.count = 0
        library = {name: None for name in names}
        patch.setattr(driver_graph, "library", lambda: type("Library", (), {
            **library, "cuGraphLaunch": None})())
        patch.setattr(driver_graph, "call", self.call)
        patch.setattr(driver_graph, "primary_context", lambda: None)
        driver_graph._versioned.cache_clear()

    def call(self, name: str, *arguments: Any) -> None:
        if name in ("cuGraphAddKernelNode", "cuGraphAddMemcpyNode"):
            handle, _, before, count = arguments[:4]
            self.count += 1
            handle._obj.value = self.count
            self.edges += [(before[k], self.count, "ends") for k in range(count.value)]
        elif name == "cuGraphAddDependencies_v2":
            _, earlier, node, edge, count = arguments
            data = bytes(edge._obj)
            assert ctypes.sizeof(edge._obj) == 8 and data == bytes([1, 0, 1, 0, 0, 0, 0, 0])
            assert count.value == 1
            self.edges.append((earlier._obj.value, node._obj.value, "lets begin"))


def test_nodes_wait_early_where_both_are_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = Kernel(False), Kernel(True), Kernel(True)
    nodes = [first, second, CopyNode(1, 2, 3), third, Kernel(False)]
    waits: list[list[int]] = [[], [0], [1], [1, 2], [3]]
    driver = Driver(monkeypatch, ["cuGraphAddDependencies_v2"])
    Graph(nodes, waits, overlap=True)
    assert sorted(driver.edges) == [
        (1, 2, "lets begin"), (2, 3, "ends"), (2, 4, "lets begin"), (3, 4, "ends"), (4, 5, "ends")]


@pytest.mark.parametrize("overlap", [False, True])
def test_else_they_wait_for_the_end(overlap: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where that is not asked for, and with drivers that have no such edges."""
    driver = Driver(monkeypatch, [] if overlap else ["cuGraphAddDependencies_v2"])
    Graph([Kernel(True), Kernel(True)], [[], [0]], overlap)
    assert driver.edges == [(1, 2, "ends")]
