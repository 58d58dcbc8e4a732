"""Elementwise kernels whose rows fill a part of a tile: one axis of rows and columns."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from dialects.block import KernelOp
from dialects.context import make_context
from dialects.host.interpret import interpret_host
from dialects.strata.weights import WeightStore
from targets.base import TargetOptions
from targets.cuda import TARGET
from tests.lowering import lower


def lowered(heads: int, rows: int, columns: int) -> ModuleOp:
    """A rotary embedding: x * c + concat(-right half of x, left half of x) * s."""
    shape, half = f"[{heads}, {rows}, {columns}]", columns // 2
    part, whole = f"f32[{heads}, {rows}, {half}]", f"f32{shape}"
    sizes = f"sizes = [{heads}, {rows}, {half}], steps = [1, 1, 1]"
    text = f"""
strata.func @main(%x: {whole}, %c: f32[{rows}, {columns}], %s: f32[{rows}, {columns}])
    -> ({whole}) inputs ["x", "c", "s"] outputs ["y"] {{
  %r = graph.slice %x {{starts = [0, 0, {half}], {sizes}}} : {part}
  %l = graph.slice %x {{starts = [0, 0, 0], {sizes}}} : {part}
  %n = graph.neg %r : {part}
  %t = graph.concat %n, %l {{axis = 2}} : {whole}
  %p = graph.mul %x, %c : {whole}
  %q = graph.mul %t, %s : {whole}
  %y = graph.add %p, %q : {whole}
  strata.return %y
}}"""
    module = Parser(make_context(), text).parse_module()
    for _ in lower(module, TARGET.bind(TargetOptions(features="sm_90")).context()):
        pass
    return module


@pytest.mark.parametrize("columns, is_flat", [(80, True), (40, True), (64, False), (128, False),
                                              (120, False)])
def test_rows_that_fill_a_part_of_a_tile_are_one_axis_with_columns(
    columns: int, is_flat: bool
) -> None:
    heads, rows = 3, 1011
    module = lowered(heads, rows, columns)
    [kernel] = [op for op in module.walk() if isinstance(op, KernelOp)]
    assert (f"floordiv {columns}" in str(kernel)) == is_flat
    rng = np.random.default_rng(columns)
    x, c, s = (rng.standard_normal(shape).astype(np.float32) for shape in (
        (heads, rows, columns), (rows, columns), (rows, columns)))
    [found] = interpret_host(module, [x, c, s], WeightStore())
    turned = np.concatenate([-x[..., columns // 2:], x[..., :columns // 2]], 2)
    np.testing.assert_allclose(found, x * c + turned * s, rtol=1e-6, atol=1e-6)
