"""Which operand of a contraction stays in the cache: the order of its grid."""

from __future__ import annotations

from dataclasses import replace

import pytest
from xdsl.parser import Parser

from dialects.loop import KernelOp
from dialects.strata.schedule import Schedule
from targets.base import TargetOptions, find_target
from targets.cpu.machine import machine_of
from targets.cpu.scheduling.rules import schedule_kernel

SMALL = (32 << 10, 64 << 10, 1 << 20)
"""Caches of which the second holds panels of 32 KiB."""
PANEL = {"baseline": 8, "avx2": 16, "avx512": 32}
"""The columns of a panel: two vectors."""


def text(rows: int | str, depth: int, columns: int) -> str:
    sizes = f" sizes({rows})" if isinstance(rows, str) else " sizes()"
    return (f"builtin.module {{ loop.kernel @product(%x: f32[{rows}, {depth}], "
            f"%w: f32[{depth}, {columns}]) -> (f32[{rows}, {columns}]){sizes} {{ "
            f"%y = loop.nest (i0: {rows}, i1: {columns}, reduce i2: {depth}) "
            f"ins(%x[i0, i2], %w[i2, i1]) outs(add f32[{rows}, {columns}][i0, i1]) {{ "
            "^bb0(%a: f32, %b: f32): %p = arith.mulf %a, %b : f32 loop.yield %p } "
            "loop.yield %y } }")


DEPTHWISE = (
    "builtin.module { loop.kernel @window(%x: f32[18, 18, 64], %w: f32[3, 3, 64]) -> "
    "(f32[16, 16, 64]) sizes() { "
    "%y = loop.nest (i0: 64, i1: 16, i2: 16, reduce i3: 3, reduce i4: 3) "
    "ins(%x[i1 + i3, i2 + i4, i0], %w[i3, i4, i0]) outs(add f32[16, 16, 64][i1, i2, i0]) { "
    "^bb0(%a: f32, %b: f32): %p = arith.mulf %a, %b : f32 loop.yield %p } "
    "loop.yield %y } }")

FILTER = (
    "builtin.module { loop.kernel @filter(%x: f32[16, 256, 4, 4], %y: f32[16, 2, 2, 256]) -> "
    "(f32[256, 256, 3, 3]) sizes() { "
    "%w = loop.nest (i0: 256, i1: 256, i2: 3, i3: 3, reduce i4: 16, reduce i5: 2, reduce i6: 2) "
    "ins(%x[i4, i0, i2 + i5, i3 + i6], %y[i4, i5, i6, i1]) "
    "outs(add f32[256, 256, 3, 3][i1, i0, i2, i3]) { "
    "^bb0(%a: f32, %b: f32): %p = arith.mulf %a, %b : f32 loop.yield %p } "
    "loop.yield %w } }")


def schedule(module: str, features: str = "avx512") -> Schedule:
    """The schedule of the only kernel, for a machine of these features and of small caches."""
    return schedule_kernel(kernel_of(module), replace(machine_of(features), caches=SMALL))


def kernel_of(module: str) -> KernelOp:
    """The only kernel of a module."""
    context = find_target("cpu").bind(TargetOptions()).context()
    [kernel] = [op for op in Parser(context, module).parse_module().body.block.ops
                if isinstance(op, KernelOp)]
    return kernel


@pytest.mark.parametrize("features", PANEL)
@pytest.mark.parametrize(("rows", "depth", "panels", "order"), [
    (3584, 64, 3, ["i0", "i1"]),  # panels of 24 KiB stay, rows are read once
    (3584, 512, 3, ["i0", "i1"]),  # panels of 192 KiB 14 times, or rows 3 times
    (3584, 512, 1, ["i1", "i0"]),  # one panel, of 64 KiB
    (56, 64, 3, ["i1"]),  # one part
    ("n", 64, 3, ["i1"]),
])
def test_order(
    rows: int | str, depth: int, panels: int, order: list[str], features: str
) -> None:
    """What is read again and again is what stays in the cache, or is the smaller. Panels of fewer
    columns are as much deeper.
    """
    columns = PANEL[features]
    module = text(rows, depth * PANEL["avx512"] // columns, panels * columns)
    levels = schedule(module, features).levels
    assert [x.axis.name for x in levels if x.kind == "grid"] == order


def test_windows_are_walked_as_they_lie() -> None:
    """Blocks of pixels, and inside them all channels: what is read lies side by side."""
    found = [(x.kind, x.axis.name) for x in schedule(DEPTHWISE).levels]
    assert found == [("grid", "i1"), ("loop", "i1"), ("loop", "i2"), ("loop", "i0"),
                     ("loop", "i4"), ("loop", "i3")]


@pytest.mark.parametrize("rows", [3584, "n"])
def test_engines_of_web_assembly_hold_a_step_in_registers(rows: int | str) -> None:
    """In 15 registers (16, of which V8 keeps one): the sums, and of one step a row of the panel, a
    factor and a product. Of several steps, V8 would load all operands before the first product.
    """
    machine = machine_of("simd128", "wasm32")
    levels = schedule_kernel(kernel_of(text(rows, 512, 512)), machine).levels
    [columns] = [x.tile for x in levels if x.lanes]
    [tile] = [x.tile for x in levels if x.axis.name == "i0" and x.kind == "loop"]
    [steps] = [x.unroll for x in levels if x.axis.name == "i2"]
    vectors = columns // machine.lanes
    assert vectors * (tile + 1) + 2 <= machine.vector_registers - 1 and steps == 1
    assert vectors * tile == 8  # the latency of additions is hidden all the same


def test_panels_that_are_stored_across_memory_come_first() -> None:
    """What the next rows of a panel store lies beside what these rows have stored."""
    machine = replace(machine_of("avx512"), caches=(32 << 10, 1 << 20, 32 << 20))
    found = schedule_kernel(kernel_of(FILTER), machine)  # its operands stay in the cache
    grid = [x.axis for x in found.levels if x.kind == "grid"]
    assert [str(a) for a in grid] == ["i1", "i0"]
