"""Columns that are summed or scanned across memory: their tiles are wide, and results are right."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import compiler
from compiler.frontend import model_of
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler, lower_to_text
from targets.cpu.machine import machine_of
from tests.targets.cpu.cpu_kernels import feature_set

HEADER = "// strata: level=graph\nbuiltin.module {\n  strata.func @main"


def sums(path: Path, rows: int | str, columns: int, function: str = "") -> Path:
    """The sum of each column, of a function of the elements if that is given."""
    mapped = f"%f = graph.{function} %x : f32[{rows}, {columns}]" if function else ""
    path.write_text(f"""{HEADER}(%x: f32[{rows}, {columns}]) -> (f32[{columns}]) \
inputs ["x"] outputs ["y"] {{
    {mapped}
    %y = graph.reduce_sum {"%f" if function else "%x"} {{axes = [0], keepdims = false}} \
: f32[{columns}]
    strata.return %y
  }}
}}
""")
    return path


def scans(path: Path, rows: int, columns: int) -> Path:
    """The running sums of each column."""
    path.write_text(f"""{HEADER}(%x: f32[{rows}, {columns}]) -> (f32[{rows}, {columns}]) \
inputs ["x"] outputs ["y"] {{
    %y = graph.cumulative_sum %x {{axis = 0}} : f32[{rows}, {columns}]
    strata.return %y
  }}
}}
""")
    return path


def tile(path: Path, features: str) -> int:
    """The columns of a program's tile."""
    options = CompileOptions(target="cpu", features=features, cache="off")
    text = lower_to_text(Compiler(model_of(str(path)), options), "loop")
    [found] = re.findall(r"tile (\d+) lanes", text)
    return int(found)


@pytest.mark.parametrize("features", ["baseline", "avx2", "avx512"])
@pytest.mark.parametrize("program", [sums, scans])
@pytest.mark.parametrize(("columns", "wide"), [
    (104, 104), (251, 251), (256, 256), (1024, 256), (960, 240), (1152, 192), (300, 300),
    (511, 511), (1021, 128)])
def test_rows_are_read_whole_or_in_long_even_pieces(
    tmp_path: Path, features: str, program: Callable[..., Path], columns: int, wide: int
) -> None:
    assert tile(program(tmp_path / "columns.mlir", 3001, columns), features) == wide


@pytest.mark.parametrize("features", ["baseline", "avx2", "avx512"])
def test_tiles_are_narrow_where_width_gains_nothing(tmp_path: Path, features: str) -> None:
    """Where the first cache holds all columns, and where a program's body would be long."""
    machine = machine_of(features)
    near = machine.caches[0] // (4 * 256)
    assert tile(sums(tmp_path / "near.mlir", near, 256), features) == 4 * machine.lanes
    assert tile(sums(tmp_path / "far.mlir", near + 1, 256), features) == 256
    costly = tile(sums(tmp_path / "costly.mlir", 3001, 256, "exp"), features)
    assert 4 * machine.lanes <= costly <= max(4 * machine.lanes, 512 // 16 * machine.lanes)
    assert tile(sums(tmp_path / "open.mlir", "n", 256), features) == 256


@pytest.mark.parametrize("features", [feature_set(f) for f in ("baseline", "avx2", "avx512")])
@pytest.mark.parametrize(("rows", "columns"), [
    (1, 257), (997, 1), (509, 97), (61, 1021), (331, 264), (0, 300)])
def test_columns_of_all_sizes_are_right(
    tmp_path: Path, features: str, rows: int, columns: int
) -> None:
    draw = np.random.default_rng(rows + columns)
    x = draw.standard_normal((rows, columns)).astype(np.float32)
    if x.size:
        x[rows // 2, columns // 3], x[rows // 3, columns // 2] = np.nan, -np.inf
    for program, expected in ((sums, x.sum(0, dtype=float)), (scans, x.cumsum(0, dtype=float))):
        path = program(tmp_path / "columns.mlir", rows, columns)
        exe = compiler.compile(path, target="cpu", cache="off", features=features)
        np.testing.assert_allclose(exe(x)[0], expected, rtol=1e-5, atol=1e-4)
