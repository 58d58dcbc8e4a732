"""Which tile each program computes: every one once, in strips where the schedule says so."""

from __future__ import annotations

import re
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from targets.cuda.emit import emit_kernel
from tests.filecheck import filecheck
from tests.targets.cuda.samples import kernel_of


def kernel(grid: str, strip: int, sizes: str = "") -> str:
    names = [part.split(":")[0].strip() for part in grid.split(", ")]
    stored = ", ".join(names)
    levels = ", ".join(f"grid i{k} tile 1" for k in range(len(names)))
    dims = ", ".join(part.split(":")[1].strip() for part in grid.split(", "))
    return f"""
block.kernel @place(%y: f32[{dims}]) grid({grid}) sizes({sizes})
    schedule<{levels} | strip = {strip}> {{
  %v = block.full 0.0 : tile<f32>
  block.store %v, %y[{stored}]
  block.yield
}}"""


def places(text: str, count: int, ids: list[str], **sizes: int) -> list[tuple[int, ...]]:
    """What the emitted lines compute for every program, one after another."""
    source = emit_kernel(kernel_of(text)).text
    body = source.partition("):\n")[2]
    lines = [line.strip() for line in body.splitlines() if re.match(r"\s+\w+ = (?!tl\.full)", line)]
    code = compile("\n".join(lines), "<kernel>", "exec")
    found: list[tuple[int, ...]] = []
    for program in range(count):
        ids_of = {0: program}
        names: dict[str, Any] = {"tl": SimpleNamespace(program_id=ids_of.get, minimum=min), **sizes}
        exec(code, names)
        found.append(tuple(int(names.get(i, 0)) for i in ids))
    return found


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7, 8, 9])
@pytest.mark.parametrize("columns", [1, 2, 5])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("strip", [1, 2, 4, 8])
def test_every_tile_is_computed_once(rows: int, columns: int, batch: int, strip: int) -> None:
    text = kernel(f"%b: {batch}, %r: {rows}, %c: {columns}", strip)
    found = places(text, batch * rows * columns, ["b", "r", "c"])
    assert len(set(found)) == len(found)
    assert {*found} == {*product(range(batch), range(rows), range(columns))}


def test_neighbours_share_columns_inside_a_strip() -> None:
    found = places(kernel("%r: 5, %c: 3", 2), 15, ["r", "c"])
    assert found[:6] == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]
    assert found[12:] == [(4, 0), (4, 1), (4, 2)]


def test_rows_of_unknown_number() -> None:
    text = kernel("%r: m, %c: 3", 4, "m")
    assert {*places(text, 21, ["r", "c"], m=7)} == {(r, c) for r in range(7) for c in range(3)}


def test_the_source_says_it_in_plain_arithmetic() -> None:
    filecheck("""
// CHECK: program = tl.program_id(0)
// CHECK-NEXT: first = program // 24*8
// CHECK-NEXT: inside = program % 24
// CHECK-NEXT: height = tl.minimum(20 - first, 8)
// CHECK-NEXT: r = first + inside % height
// CHECK-NEXT: c = inside // height
""", emit_kernel(kernel_of(kernel("%r: 20, %c: 3", 8))).text)
