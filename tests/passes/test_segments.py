"""The segments of an axis cover it once, also where another axis is walked to its end."""

from __future__ import annotations

from collections import Counter
from math import prod
from pathlib import Path

import numpy as np
import onnx
import pytest

import compiler
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from dialects.block import ForOp
from dialects.block.programs import tile_type
from dialects.strata.schedule import Level
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from passes.loop_to_block.state import AxisState, segments
from targets.walking import kernels_of

AXIS, N = Symbol.axis("i0"), Symbol.size("n")


@pytest.mark.parametrize("tile", range(2, 12))
@pytest.mark.parametrize("reduces", [False, True])
@pytest.mark.parametrize("rare", [False, True])
@pytest.mark.parametrize("lower", [0, 3])
@pytest.mark.parametrize("tails", ["peel", "each"])
def test_each_position_is_in_one_segment(
    tile: int, reduces: bool, rare: bool, lower: int, tails: str
) -> None:
    end = Expr.symbol(N) + lower
    state = AxisState(Expr.of(lower), end, end)
    found = segments(Level("loop", AXIS, tile), state, False, reduces, tails, rare)
    for n in range(3 * tile + 2):
        places = Counter(
            at + k for start, end, width, masked in found
            for at in range(int(start.evaluate({N: n})), int(end.evaluate({N: n})), width)
            for k in range(width) if not masked)
        assert places == dict.fromkeys(range(lower, lower + n), 1)


@pytest.mark.parametrize("tile", range(2, 12))
def test_the_tail_of_a_tail_walks_single_rows(tile: int) -> None:
    state = AxisState(Expr.of(0), Expr.symbol(N), Expr.symbol(N))
    widths = [[s[2] for s in segments(Level("loop", AXIS, tile), state, False, False, tails, rare)]
              for tails in ("each", "peel") for rare in (False, True)]
    short = [tile, 1]
    assert widths == [
        [*range(tile, 0, -1)], short, [tile, 2, 1] if tile > 2 else short, short]


@pytest.mark.parametrize("tile", range(3, 12))
def test_few_rows_that_are_left_are_one_tile(tile: int) -> None:
    """Each tile reads the whole panel of the other factor again."""
    state = AxisState(Expr.of(0), Expr.symbol(N), Expr.symbol(N))
    found = segments(Level("loop", AXIS, tile), state, False, False, "each", False)
    for n in range(3 * tile):
        walks = [range(int(low.evaluate({N: n})), int(high.evaluate({N: n})), width)
                 for low, high, width, _ in found]
        assert sum(map(len, walks)) == -(-n // tile)


def test_only_whole_tiles_unroll_their_sums(tmp_path: Path) -> None:
    """In a tail, each step of a sum waits for the one before."""
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 64])
            for name in ("x", "y"))
    w = onnx.numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    made = onnx.helper.make_model(
        onnx.helper.make_graph([node], "rows", [x], [y], [w]),
        opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "rows.onnx"
    path.write_bytes(made.SerializeToString())
    options = CompileOptions(target="cpu", features="avx512")
    module = Compiler(str(path), options).lower("block").module
    for kernel in kernels_of(module):
        sums = [op for op in kernel.walk() if isinstance(op, ForOp) and op.carried]
        rows = [prod(tile_type(op.results[0]).shape) for op in sums]
        steps = [op.unroll.data.constant for op in sums]
        assert len(rows) > 1 and rows[0] == max(rows)
        assert steps == [steps[0], *[1] * (len(steps) - 1)] and (steps[0] or 0) > 1


def test_all_remainders_of_both_axes_of_an_image() -> None:
    """A depthwise convolution has a tile of rows and of columns."""
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 32, "h", "w"])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 32, "h", "w"])
    random = np.random.default_rng(0)
    f = random.standard_normal((32, 1, 3, 3)).astype(np.float32)
    node = onnx.helper.make_node("Conv", ["x", "f"], ["y"], group=32, pads=[1, 1, 1, 1])
    graph = onnx.helper.make_graph([node], "rows", [x], [y], [onnx.numpy_helper.from_array(f, "f")])
    exe = compiler.compile(onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), cache="off")
    for h in range(1, 6):
        for w in range(1, 10):
            image = random.standard_normal((1, 32, h, w)).astype(np.float32)
            windows = np.lib.stride_tricks.sliding_window_view(
                np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
            expected = np.einsum("nchwij,cij->nchw", windows, f[:, 0])
            np.testing.assert_allclose(exe(image)[0], expected, rtol=1e-4, atol=1e-4)
