"""Launches that change places, of random programs: sums, products and writes over tensors."""

from __future__ import annotations

import numpy as np
import pytest

from dialects.host.interpret import interpret_host
from dialects.strata.func import main_function
from targets.base import TargetOptions, find_target
from tests.passes.harness import Run, assert_same, parse, run_passes

PASSES = "host-bufferize,host-gather-launches,host-plan-buffers,loop-to-block,block-join-launches"
KERNELS = """
  loop.kernel @add(%x: f32[8], %y: f32[8]) -> (f32[8]) sizes() schedule<grid i0 tile 4 | tails = mask, warps = 4> {
    %0 = loop.nest (i0: 8) ins(%x[i0], %y[i0]) outs(f32[8][i0]) {
    ^bb0(%p: f32, %q: f32):
      %r = arith.addf %p, %q : f32
      loop.yield %r
    }
    loop.yield %0
  }
  loop.kernel @turn(%x: f32[8], %y: f32[8]) -> (f32[8]) sizes() schedule<grid i0 tile 4 | tails = mask, warps = 1> {
    %0 = loop.nest (i0: 8) ins(%x[7 - i0], %y[i0]) outs(f32[8][i0]) {
    ^bb0(%p: f32, %q: f32):
      %r = arith.subf %p, %q : f32
      loop.yield %r
    }
    loop.yield %0
  }
  loop.kernel @total(%x: f32[8], %y: f32[8]) -> (f32[8]) sizes() schedule<grid i0 tile 4, loop i1 tile 4 | tails = mask, warps = 4, stages = 2> {
    %0 = loop.nest (i0: 8, reduce i1: 8) ins(%x[i1], %y[i0]) outs(add f32[8][i0]) {
    ^bb0(%p: f32, %q: f32):
      %r = arith.mulf %p, %q : f32
      loop.yield %r
    }
    loop.yield %0
  }
  loop.kernel @write(%x: f32[8], %y: f32[8]) -> (f32[8]) sizes() schedule<grid i0 tile 4 | tails = mask, warps = 4> {
    %0 = loop.nest (i0: 4) ins(%x[i0]) outs(f32[8][i0 + 2]) into(%y) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    loop.yield %0
  }
  loop.kernel @start(%x: f32[8], %y: f32[8]) -> (f32[8]) sizes() schedule<grid i0 tile 2 | tails = mask, warps = 4> {
    %0 = loop.nest (i0: 2) ins(%x[7 - i0]) outs(f32[8][i0]) into(%y) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    loop.yield %0
  }
  loop.kernel @end(%x: f32[8], %y: f32[8]) -> (f32[8]) sizes() schedule<grid i0 tile 4 | tails = mask, warps = 4> {
    %0 = loop.nest (i0: 3) ins(%x[2 * i0]) outs(f32[8][i0 + 5]) into(%y) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    loop.yield %0
  }
"""  # noqa: E501


WRITES = ["write", "start", "end"]
ALL = ["add", "turn", "total", *WRITES]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("names", [ALL, WRITES], ids=["all", "writes"])
def test_random_programs_compute_the_same(seed: int, names: list[str]) -> None:
    random = np.random.default_rng(seed)
    known, calls = ["%x", "%y", "%z"], list[str]()
    for k in range(int(random.integers(2, 20))):
        kernel = random.choice(names)
        recent = known if random.random() < 0.5 else known[-4:]
        a, b = random.choice(recent, 2)
        b = known[-1] if names is WRITES and random.random() < 0.8 else b
        calls.append(f"    %v{k} = loop.call @{kernel}({a}, {b}) sizes() : f32[8]")
        known.append(f"%v{k}")
    results = [*dict.fromkeys([known[-1], *random.choice(known[3:], 2)])]
    types, told = (", ".join([word] * len(results)) for word in ("f32[8]", '"{}"'))
    told = told.format(*range(len(results)))
    text = "\n".join([
        "builtin.module {",
        f"  strata.func @main(%x: f32[8], %y: f32[8], %z: f32[8]) -> ({types}) "
        f'inputs ["x", "y", "z"] outputs [{told}] {{',
        *calls, f"    strata.return {', '.join(results)}", "  }", KERNELS, "}"])
    context = find_target("cuda").bind(TargetOptions(features="sm_90")).context()
    module = parse(text, context)
    function = main_function(module)
    run = Run.of(function)
    expected = run.results(function, context)
    run_passes(module, PASSES, context)
    for a, b in zip(interpret_host(module, run.inputs, context.weights), expected, strict=True):
        assert_same(a, b, 1e-4)
