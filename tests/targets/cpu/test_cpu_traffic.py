"""Which operand of a contraction stays in the cache: the order of its grid."""

from __future__ import annotations

from dataclasses import replace

import pytest
from xdsl.parser import Parser

from dialects.loop import KernelOp
from passes.base import StrataContext
from targets.base import TargetOptions, find_target
from targets.cpu.machine import Machine, machine_of
from targets.cpu.rules import schedule_kernel

SMALL = (32 << 10, 64 << 10, 1 << 20)
"""Caches of which the second holds panels of 32 KiB."""


def text(rows: int | str, depth: int, columns: int) -> str:
    sizes = f" sizes({rows})" if isinstance(rows, str) else " sizes()"
    return (f"builtin.module {{ loop.kernel @product(%x: f32[{rows}, {depth}], "
            f"%w: f32[{depth}, {columns}]) -> (f32[{rows}, {columns}]){sizes} {{ "
            f"%y = loop.nest (i: {rows}, j: {columns}, reduce k: {depth}) "
            f"ins(%x[i, k], %w[k, j]) outs(add f32[{rows}, {columns}][i, j]) {{ "
            "^bb0(%a: f32, %b: f32): %p = arith.mulf %a, %b : f32 loop.yield %p } "
            "loop.yield %y } }")


def grid(rows: int | str, depth: int, columns: int) -> list[str]:
    """The axes of the grid, outermost first, for a machine of small caches."""
    context = StrataContext.with_dialects(None, find_target("cpu"), TargetOptions())
    module = Parser(context, text(rows, depth, columns)).parse_module()
    [kernel] = [op for op in module.body.block.ops if isinstance(op, KernelOp)]
    machine: Machine = replace(machine_of(), caches=SMALL)
    return [x.axis for x in schedule_kernel(kernel, machine).levels if x.kind == "grid"]


@pytest.mark.parametrize(("rows", "depth", "columns", "order"), [
    (3584, 64, 96, ["i", "j"]),  # panels of 24 KiB stay, rows are read once
    (3584, 512, 96, ["i", "j"]),  # panels of 192 KiB 14 times, or rows of 7 MiB 3 times
    (3584, 512, 32, ["j", "i"]),  # one panel
    (56, 64, 96, ["j"]),  # one part
    ("n", 64, 96, ["j"]),
])
def test_order(rows: int | str, depth: int, columns: int, order: list[str]) -> None:
    """What is read again and again is what stays in the cache, or is the smaller."""
    assert grid(rows, depth, columns) == order
