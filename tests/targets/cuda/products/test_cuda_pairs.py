"""Two products of the same few rows whose results are read together are one kernel."""

from __future__ import annotations

import pytest

from dialects.host import LaunchOp
from dialects.host.interpret import interpret_host
from dialects.strata.func import main_function
from targets.base import TargetOptions, find_target
from tests.passes.harness import Run, assert_same, parse, run_passes

PASSES = ("graph-to-loop,loop-simplify-nests,loop-fuse,loop-outline,loop-collapse-axes,"
          "loop-prepare-kernels,loop-pack-operands,loop-schedule,host-bufferize,host-plan-buffers,"
          "loop-to-block,block-split-tiles,block-prove-bounds")


def text(rows: int, depth: int, columns: int, element: str, combined: str) -> str:
    """Of x: [rows, depth], a gate and what it gates; `combined`: how their results are read."""
    return f"""builtin.module {{
  strata.func @main(%x: {element}[{rows}, {depth}], %v: {element}[{depth}, {columns}],
      %w: {element}[{depth}, {columns}]) -> ({element}[{rows}, {columns}])
      inputs ["x", "v", "w"] outputs ["y"] {{
    %g = graph.matmul %x, %v : {element}[{rows}, {columns}]
    %s = graph.sigmoid %g : {element}[{rows}, {columns}]
    %h = graph.matmul %x, %w : {element}[{rows}, {columns}]
    %y = graph.{combined} : {element}[{rows}, {columns}]
    strata.return %y
  }}
}}"""


@pytest.mark.parametrize("combined", ["mul %s, %h", "sub %h, %g", "mul %h, %h"])
@pytest.mark.parametrize(("rows", "depth", "columns", "element"), [
    (1, 64, 48, "f32"), (1, 40, 7, "bf16"), (3, 64, 48, "bf16"), (8, 96, 33, "f16"),
    (16, 64, 64, "bf16"), (17, 64, 32, "bf16"), (5, 1, 16, "f32"), (2, 31, 1, "bf16")])
def test_pairs_are_one_kernel_and_compute_the_same(
    rows: int, depth: int, columns: int, element: str, combined: str
) -> None:
    context = find_target("cuda").bind(TargetOptions(features="sm_90")).context()
    module = parse(text(rows, depth, columns, element, combined), context)
    function = main_function(module)
    run = Run.of(function)
    expected = run.results(function, context)
    run_passes(module, PASSES, context)
    launches = [op for op in module.walk() if isinstance(op, LaunchOp)]
    tolerance = {"f32": 1e-4, "f16": 2e-2, "bf16": 1e-1}[element]
    for a, b in zip(interpret_host(module, run.inputs, context.weights), expected, strict=True):
        assert_same(a, b, tolerance)
    if combined != "mul %h, %h" and rows in (3, 8, 16):
        assert len(launches) == 1
    if rows == 17 and combined != "mul %h, %h":
        assert len(launches) == 2
