"""Stores past the caches: where addresses are aligned for certain, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.parser import Parser

from dialects.loop import KernelOp
from dialects.strata.weights import WeightStore
from passes.base import StrataContext
from targets.base import TargetOptions
from targets.cpu import TARGET
from targets.cpu.emit import emit_kernel
from targets.cpu.machine import AVX512, Machine, machine_of
from targets.cpu.scheduling.rules import schedule_kernel
from tests.targets.cpu.cpu_kernels import each_machine, parse, parse_module, randoms

ROWS = 8000


def double(width: int, first: int, rows: str = str(ROWS), option: str = " | stream = 1") -> str:
    """Rows doubled from a column on; the columns before it are not written."""
    tile = width - first
    return f"""
    block.kernel @double(%x: f32[{rows}, {width}], %y: f32[{rows}, {width}])
        grid(%i0: {rows}) sizes({rows if rows == "n" else ""}) schedule<grid i0 tile 1{option}> {{
      %a = block.load %x[%i0, t0 + {first}] : tile<[{tile}]xf32>
      %b = block.map (%a[0], %a[0]) : tile<[{tile}]xf32> {{
      ^bb0(%p: f32, %q: f32):
        %r = arith.addf %p, %q : f32
        block.yield %r
      }}
      block.store %b, %y[%i0, t0 + {first}]
      block.yield
    }}"""


def streams(text: str, features: str) -> int:
    return emit_kernel(parse(text), machine_of(features)).count("!nontemporal")


@each_machine
@pytest.mark.parametrize(("width", "first", "aligned"), [
    (64, 0, True), (64, 16, True), (64, 2, False), (65, 0, False), (80, 0, True)])
def test_results_are_right(features: str, width: int, first: int, aligned: bool) -> None:
    text = double(width, first)
    assert (streams(text, features) > 0) == aligned
    model = parse_module(text + f"""
    host.func @main(%x: f32[{ROWS}, {width}], %y: f32[{ROWS}, {width}])
        inputs ["x"] outputs ["y"] sizes() {{
      host.launch @double(%x, %y) sizes()
      host.return
    }}""")
    parts = TARGET.bind(TargetOptions(features=features, threads=2))
    run = parts.running.load(model, WeightStore()).run
    for _ in range(3):
        x = randoms(ROWS, width)
        np.testing.assert_array_equal(run([x])[0][:, first:], 2 * x[:, first:])


@each_machine
def test_only_large_buffers_are_known_to_be_aligned(features: str) -> None:
    assert streams(double(64, 0, rows="100"), features) == 0
    assert streams(double(64, 0, rows="n"), features) == 0


@each_machine
def test_only_where_the_schedule_says_so(features: str) -> None:
    assert streams(double(64, 0, option=""), features) == 0


@each_machine
def test_what_is_streamed_is_there_when_the_kernel_ends(features: str) -> None:
    text = emit_kernel(parse(double(64, 0)), machine_of(features))
    assert text.index("sfence") > text.index("!nontemporal")


@pytest.mark.parametrize(("cpu", "rows", "width", "tile"), [
    ("znver4", 16384, 1024, 1), ("znver4", 16384, 256, 2), ("znver4", 16384, 200, 1),
    ("znver4", 512, 1024, 2), ("znver4", 16384, 64, 4), ("sapphirerapids", 16384, 1024, 2)])
def test_rows_of_far_memory_that_are_read_side_by_side(
    cpu: str, rows: int, width: int, tile: int
) -> None:
    """As many as the processor follows, where rows are long or begin inside a line."""
    machine = Machine(cpu, "", AVX512, "x86_64", (1 << 15, 1 << 20, 1 << 25), 1)
    context = StrataContext.with_dialects()
    [kernel] = Parser(context, f"""
    loop.kernel @sum(%x: f32[{rows}, {width}]) -> (f32[{rows}, {width}]) sizes() {{
      %s = loop.nest (i0: {rows}, reduce i1: {width}) ins(%x[i0, i1]) outs(add f32[{rows}][i0]) {{
      ^bb0(%p: f32):
        loop.yield %p
      }}
      %y = loop.nest (i0: {rows}, i1: {width}) ins(%x[i0, i1], %s[i0])
          outs(f32[{rows}, {width}][i0, i1]) {{
      ^bb0(%p: f32, %q: f32):
        %r = arith.divf %p, %q : f32
        loop.yield %r
      }}
      loop.yield %y
    }}""").parse_module().body.block.ops
    assert isinstance(kernel, KernelOp)
    assert next(iter(schedule_kernel(kernel, machine).levels)).tile == tile
