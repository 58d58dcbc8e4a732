"""Loops over taps leave out those that read only the border of an image, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdsl.dialects.builtin import ArrayAttr

from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from dialects.block import ForOp
from dialects.loop import Axis, NestOp
from dialects.strata.types import SizesAttr, f32, tensor
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from passes.loop_to_block.state import AxisState, Symbols, without_border
from targets.base import TargetOptions
from targets.cpu import TARGET
from targets.walking import kernels_of
from tests.lowering import lower
from tests.passes.harness import parse

ROW, TAP = Symbol.axis("i0"), Symbol.axis("i1")
SIZE = Symbol.size("n")
ROWS = 12


def tap_state(count: int) -> AxisState:
    return AxisState(Expr.of(0), Expr.of(count), Expr.of(count))


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2, 5, -1, -3])
@pytest.mark.parametrize("tile", [1, 3])
@pytest.mark.parametrize("size", [Expr.of(4), Expr.symbol(SIZE)], ids=["fixed", "open"])
def test_taps_in_the_border(stride: int, dilation: int, tile: int, size: Expr) -> None:
    taps, low = 4, 6
    row, tap = Expr.symbol(ROW), Expr.symbol(TAP)
    at = row * stride + tap * dilation - low
    nest = NestOp.of([Axis(ROW, Expr.of(ROWS)), Axis(TAP, Expr.of(taps), True)], [], [],
                     [tensor(f32, [Expr.of(ROWS)])], [[row]], combiners=["add"])
    nest.inside = ArrayAttr([SizesAttr.of((at, size))])
    place = Symbol.counter("@0")
    symbols = Symbols(extents={place: Expr.of(ROWS)})
    states = {ROW: AxisState(Expr.of(0), Expr.of(ROWS), Expr.of(ROWS), Expr.symbol(place), tile),
              TAP: tap_state(taps)}
    found = without_border([nest], TAP, states, symbols)
    for first in range(ROWS):
        for n in [4] if size.constant else [1, 2, 4, 7, 40]:
            sizes = {place: first, SIZE: n}
            walked = range(int(found.lower.evaluate(sizes)), int(found.upper.evaluate(sizes)))
            read = [t for t in range(taps) if any(
                0 <= at.evaluate({ROW: first + k, TAP: t}) < n for k in range(tile))]
            assert {*walked} <= {*range(taps)} and {*walked} >= {*read}
            if tile == 1:
                assert [*walked] == read


def test_a_tap_that_all_rows_read_needs_no_comparison() -> None:
    row, tap = Expr.symbol(ROW), Expr.symbol(TAP)
    nest = NestOp.of([Axis(ROW, Expr.of(8)), Axis(TAP, Expr.of(3), True)], [], [],
                     [tensor(f32, [Expr.of(8)])], [[row]], combiners=["add"])
    nest.inside = ArrayAttr([SizesAttr.of((row + tap, Expr.of(10)))])
    state = AxisState(Expr.of(0), Expr.of(8), Expr.of(8), Expr.of(0), 8)
    assert without_border([nest], TAP, {ROW: state, TAP: tap_state(3)}, Symbols()) == tap_state(3)


@pytest.mark.parametrize("first", range(0, 11, 3))
def test_rows_whose_place_is_known_walk_nothing_in_the_border(first: int) -> None:
    """Of 11 rows, the first and the last ones read none of 3 rows with their 2 taps."""
    at = Expr.symbol(ROW) + Expr.symbol(TAP) - 8
    nest = NestOp.of([Axis(ROW, Expr.of(11)), Axis(TAP, Expr.of(2), True)], [], [],
                     [tensor(f32, [Expr.of(11)])], [[Expr.symbol(ROW)]], combiners=["add"])
    nest.inside = ArrayAttr([SizesAttr.of((at, Expr.of(3)))])
    state = AxisState(Expr.of(0), Expr.of(11), Expr.of(11), Expr.of(first), 3)
    found = without_border([nest], TAP, {ROW: state, TAP: tap_state(2)}, Symbols())
    walked = [t for t in range(2) if any(0 <= first + k + t - 8 < 3 for k in range(3))]
    assert (found.upper - found.lower).constant == len(walked)
    assert [*range(found.lower.constant or 0, found.upper.constant or 0)] == walked


@pytest.mark.parametrize("features", ["baseline", "avx2", "avx512"])
@pytest.mark.parametrize("low", [4, 6, 8])
def test_tiles_in_the_border_are_compiled(low: int, features: str) -> None:
    """Some tiles of rows read nothing but the border, of which none is a tap."""
    result = f"f32[1, 15, {low + 3}, 3]"
    text = f'''builtin.module {{
      strata.func @main(%x: f32[1, 51, 3, 3], %w: f32[15, 17, 2, 2]) -> ({result})
          inputs ["x", "w"] outputs ["z"] {{
        %y = graph.conv %x, %w {{pads = [{low}, 2, 1, 1], dilations = [1, 3], group = 3}} : {result}
        %z = graph.abs %y : {result}
        strata.return %z
      }}
    }}'''
    context = TARGET.bind(TargetOptions(features=features)).context()
    module = parse(text, context)
    for _ in lower(module, context):
        pass
    assert len([*kernels_of(module)]) > 1


def test_rows_of_a_convolution_walk_their_own_taps(tmp_path: Path) -> None:
    """Of a filter that reaches beyond the image, a row needs one row of taps, and a column one."""
    path = tmp_path / "far.mlir"
    path.write_text('''builtin.module {
      strata.func @main(%x: f32[2, 16, 5, 4], %w: f32[40, 16, 3, 3]) -> (f32[2, 40, 5, 4])
          inputs ["x", "w"] outputs ["y"] {
        %y = graph.conv %x, %w {pads = [6, 6, 6, 6], dilations = [6, 6]} : f32[2, 40, 5, 4]
        strata.return %y
      }
    }''')
    options = CompileOptions(target="cpu", features="avx2", cache="off")
    module = Compiler(str(path), options).lower("block").module
    bounds = [(op.lower.data, op.upper.data) for kernel in kernels_of(module)
              for op in kernel.walk() if isinstance(op, ForOp) and op.results]
    rows, columns = [both for both in bounds if all(e.symbols for e in both)]
    for taps, places in (rows, range(5)), (columns, range(4)):
        [place] = taps[0].symbols | taps[1].symbols
        walked = [range(*(int(e.evaluate({place: k})) for e in taps)) for k in places]
        assert walked == [range(1, 2)] * len(places)
